"""The simulated disk: what was synced is safe, and of the rest anything may be left."""

import errno
import itertools
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.runtime.interface import Disk, FolderTaken
from tests.simulation.disk import NAME, PAGE, SECTOR, PowerCut, SimDisk, SimFile

OLD, NEW = b"o", b"n"


def _overwritten_file(disk: SimDisk, *, pages: int) -> SimFile:
    """Return a file of durable old pages, all overwritten by new ones that are not durable."""
    disk.write_bytes("file", OLD * PAGE * pages)
    file = disk.open("file")
    file.write(NEW * PAGE * pages, 0)
    return file


def _pages(data: bytes) -> list[bytes]:
    return [data[at : at + PAGE] for at in range(0, len(data), PAGE)]


def test_the_simulated_disk_keeps_the_promise_of_a_disk() -> None:
    disk: Disk = SimDisk()
    disk.make_folder("a/b")
    file = disk.open("a/b/file")
    file.write(memoryview(b"hello"), 3)
    assert file.size() == 8
    assert file.read(0, 100) == b"\0\0\0hello"
    assert file.read_cached(3, 2) == b"he"
    file.truncate(4)
    assert file.read(0, 100) == b"\0\0\0h"
    disk.rename("a/b/file", "a/b/other")
    assert disk.names("a/b") == ["other"]
    assert disk.names("a") == ["b"]
    assert disk.names("no/such/folder") == []
    assert disk.exists("a/b/other")
    assert not disk.exists("a/b/file")
    disk.remove("a/b/other")
    with pytest.raises(FileNotFoundError):
        disk.remove("a/b/other")
    with pytest.raises(FileNotFoundError):
        disk.open("no/such/folder/file")


def test_each_subset_of_unsynced_pages_can_be_what_a_power_cut_leaves() -> None:
    for kept in itertools.product([False, True], repeat=4):
        disk = SimDisk()
        _overwritten_file(disk, pages=4)
        disk.power_cut(lambda path, page, kept=kept: kept[page])  # type: ignore[misc]
        assert [page == NEW * PAGE for page in _pages(disk.read_bytes("file"))] == list(kept)


def test_the_dice_lose_keep_and_tear_pages_at_sectors() -> None:
    outcomes: set[bytes] = set()
    for seed in range(200):
        disk = SimDisk(seed)
        _overwritten_file(disk, pages=3)
        disk.power_cut()
        outcomes.update(_pages(disk.read_bytes("file")))
    assert {OLD * PAGE, NEW * PAGE} < outcomes
    for page in outcomes:
        sectors = [page[at : at + SECTOR] for at in range(0, PAGE, SECTOR)]
        assert set(sectors) <= {OLD * SECTOR, NEW * SECTOR}


@given(
    seed=st.integers(0, 1_000),
    synced=st.binary(max_size=3 * PAGE),
    unsynced=st.binary(max_size=3 * PAGE),
)
def test_what_was_synced_survives_every_power_cut(seed: int, synced: bytes, unsynced: bytes) -> None:
    disk = SimDisk(seed)
    file = disk.open("file")
    file.write(synced, 0)
    file.sync()
    disk.sync_folder("")
    file.write(unsynced, len(synced))
    disk.power_cut()
    left = disk.read_bytes("file")
    assert left[: len(synced)] == synced
    assert len(synced) <= len(left) <= len(synced) + len(unsynced)
    appended = zip(left[len(synced) :], unsynced, strict=False)
    assert all(byte in {0, written} for byte, written in appended)
    disk.power_cut()
    assert disk.read_bytes("file") == left


def test_a_killed_process_loses_nothing_that_it_wrote() -> None:
    disk = SimDisk()
    disk.open("file").write(b"unsynced", 0)
    disk.kill()
    assert disk.open("file").read(0, 100) == b"unsynced"


def test_a_cut_file_is_cut_or_whole_after_a_power_cut_and_never_a_mixture() -> None:
    outcomes: set[bytes] = set()
    for seed in range(200):
        disk = SimDisk(seed)
        disk.write_bytes("file", OLD * 2 * PAGE)
        file = disk.open("file")
        file.truncate(100)
        file.write(NEW * 2 * PAGE, 100)
        disk.power_cut()
        outcomes.add(disk.read_bytes("file"))
    assert {OLD * 2 * PAGE, OLD * 100, OLD * 100 + NEW * 2 * PAGE} < outcomes
    assert not [left for left in outcomes if left != OLD * 2 * PAGE and OLD in left[100:]]


def test_a_file_whose_name_was_not_synced_may_be_gone() -> None:
    disk = SimDisk()
    file = disk.open("file")
    file.write(b"data", 0)
    file.sync()
    lucky = disk.copy()
    disk.power_cut(lambda path, page: page != NAME)
    assert disk.names("") == []
    lucky.power_cut(lambda path, page: page == NAME)
    assert lucky.read_bytes("file") == b"data"


def test_an_unsynced_rename_may_be_undone_and_the_old_content_is_back() -> None:
    disk = SimDisk()
    disk.write_bytes("file", b"old")
    file = disk.open("file.new")
    file.write(b"new", 0)
    file.sync()
    disk.rename("file.new", "file")
    assert disk.read_bytes("file") == b"new"
    disk.power_cut(lambda path, page: False)
    assert disk.names("") == ["file"]
    assert disk.read_bytes("file") == b"old"


def test_a_synced_name_can_outlive_the_content_that_was_not_synced() -> None:
    disk = SimDisk()
    disk.open("file").write(b"never synced", 0)
    disk.sync_folder("")
    disk.power_cut(lambda path, page: False)
    assert disk.read_bytes("file") == b""


def test_changes_of_names_survive_as_a_prefix() -> None:
    outcomes: set[tuple[str, ...]] = set()
    for seed in range(100):
        disk = SimDisk(seed)
        disk.write_bytes("a", b"")
        disk.open("b")
        disk.rename("b", "c")
        disk.remove("a")
        disk.power_cut()
        outcomes.add(tuple(disk.names("")))
    assert outcomes == {("a",), ("a", "b"), ("a", "c"), ("c",)}


def test_a_failed_sync_forgets_the_pages_and_the_next_one_lies() -> None:
    disk = SimDisk()
    file = _overwritten_file(disk, pages=2)
    disk.fail_sync_after = 1
    file.sync()
    file.write(b"lost", 0)
    with pytest.raises(OSError, match="Input/output error") as failure:
        file.sync()
    assert failure.value.errno == errno.EIO
    file.sync()
    assert file.read(0, 4) == b"lost"
    disk.power_cut(lambda path, page: True)
    assert disk.read_bytes("file") == NEW * 2 * PAGE


def test_a_write_that_fails_may_have_written_a_part() -> None:
    sizes: set[int] = set()
    for seed in range(50):
        disk = SimDisk(seed)
        disk.fail_write_after = 0
        file = disk.open("file")
        with pytest.raises(OSError, match="Input/output error"):
            file.write(b"0123456789", 0)
        sizes.add(file.size())
        file.write(b"0123456789", 0)
    assert min(sizes) == 0
    assert len(sizes) > 5


def test_a_full_disk_refuses_and_takes_writes_again_when_it_has_grown() -> None:
    disk = SimDisk(capacity_bytes=3 * PAGE)
    file, other = disk.open("file"), disk.open("other")
    file.allocate(2 * PAGE)
    assert file.size() == 0
    with pytest.raises(OSError, match="No space left") as refusal:
        other.allocate(PAGE + 1)
    assert refusal.value.errno == errno.ENOSPC
    with pytest.raises(OSError, match="No space left"):
        other.write(NEW * 2 * PAGE, 0)
    assert other.size() == PAGE, "what fits is written, as a real disk does"
    file.write(NEW * 2 * PAGE, 0)
    disk.capacity_bytes = 4 * PAGE
    other.write(NEW * 2 * PAGE, 0)


def test_truncating_and_removing_give_space_back() -> None:
    disk = SimDisk(capacity_bytes=2 * PAGE)
    file = disk.open("file")
    file.allocate(2 * PAGE)
    file.truncate(0)
    disk.open("other").allocate(2 * PAGE)
    disk.remove("other")
    file.allocate(2 * PAGE)
    assert disk.used_bytes() == 2 * PAGE


@pytest.mark.parametrize("end", [SimDisk.kill, SimDisk.power_cut])
def test_the_handle_of_a_dead_process_is_refused(end: Callable[[SimDisk], None]) -> None:
    disk = SimDisk()
    file, lock = disk.open("file"), disk.lock("")
    end(disk)
    with pytest.raises(AssertionError, match="dead"):
        file.read(0, 1)
    disk.lock("")
    lock.release()
    file.close()
    with pytest.raises(FolderTaken):
        disk.lock("")


def test_a_folder_has_one_lock() -> None:
    disk = SimDisk()
    disk.make_folder("data")
    lock = disk.lock("data")
    with pytest.raises(FolderTaken):
        disk.lock("data/")
    assert disk.names("data") == [], "as on a real disk"
    lock.release()
    disk.lock("data")


def test_a_cold_cache_has_nothing_to_read() -> None:
    disk = SimDisk()
    disk.write_bytes("folder/file", b"data")
    disk.cold = True
    assert disk.open("folder/file").read_cached(0, 4) is None
    assert disk.open("folder/file").read(0, 4) == b"data"


def test_a_flipped_bit_stays_flipped() -> None:
    disk = SimDisk()
    disk.write_bytes("file", bytes(10))
    disk.flip_bit("file", 17)
    disk.power_cut()
    assert disk.read_bytes("file") == b"\0\0\2" + bytes(7)


def test_a_copy_of_a_disk_shares_nothing_with_it() -> None:
    disk = SimDisk()
    file = disk.open("file")
    file.write(b"before", 0)
    twin = disk.copy()
    file.write(b"after!", 0)
    assert twin.read_bytes("file") == b"before"


def _replace_twice(disk: SimDisk) -> None:
    """Replace the content of a file the right way: sync the new file, rename it, sync its folder."""
    disk.make_folder("data")
    for content in (b"one", b"two"):
        file = disk.open("data/file.new")
        file.allocate(PAGE)
        file.write(content, 0)
        file.truncate(len(content))
        file.sync()
        file.close()
        disk.rename("data/file.new", "data/file")
        disk.sync_folder("data")


@pytest.mark.parametrize("seed", range(10))
def test_a_crash_can_be_had_in_every_operation_and_the_right_way_survives_it(seed: int) -> None:
    whole = SimDisk(seed)
    _replace_twice(whole)
    assert whole.operations == 15
    for count in range(whole.operations):
        disk = SimDisk(seed)
        disk.crash_after = count
        with pytest.raises(PowerCut, match=f"operation {count}:"):
            _replace_twice(disk)
        with pytest.raises(PowerCut):
            disk.exists("data")
        disk.power_cut()
        left = disk.read_bytes("data/file") if disk.exists("data/file") else None
        assert left in ({None, b"one"} if count <= 7 else {b"one", b"two"})


def test_a_crash_finds_what_the_wrong_way_loses() -> None:
    def replace_without_sync(disk: SimDisk) -> None:
        disk.open("file.new").write(b"two", 0)
        disk.rename("file.new", "file")
        disk.sync_folder("")

    left: set[bytes] = set()
    for seed, count in itertools.product(range(20), range(4)):
        disk = SimDisk(seed)
        disk.write_bytes("file", b"one")
        disk.crash_after = count
        try:
            replace_without_sync(disk)
        except PowerCut:
            pass
        disk.power_cut()
        left.add(disk.read_bytes("file"))
    assert left >= {b"one", b"two", b""}
