"""What the log builds on: the real disk keeps the promises of `runtime.interface`."""

import errno
import os
from pathlib import Path

import pytest

from penstock.runtime.disk import SystemDisk, SystemFile
from penstock.runtime.interface import NotARegularFile
from tests.acceptance.mounts import needs_to_mount, tmpfs

MIB = 1024 * 1024


@pytest.fixture
def disk(tmp_path: Path) -> SystemDisk:
    return SystemDisk(tmp_path)


def allocated_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


def test_allocating_takes_blocks_and_keeps_the_size(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open("file")
    file.write(b"begun", 0)
    file.allocate(MIB)
    assert file.size() == 5
    assert allocated_bytes(tmp_path / "file") >= MIB
    file.allocate(2 * MIB)
    file.allocate(MIB)
    assert file.size() == 5
    assert allocated_bytes(tmp_path / "file") >= 2 * MIB
    assert file.read(0, 100) == b"begun"
    file.close()


def test_truncating_gives_back_what_was_allocated_beyond(disk: SystemDisk, tmp_path: Path) -> None:
    file = disk.open("file")
    file.write(bytes(10_000), 0)
    file.allocate(4 * MIB)
    # The size it has already: only the blocks go.
    file.truncate(10_000)
    assert file.size() == 10_000
    assert allocated_bytes(tmp_path / "file") <= 64 * 1024
    file.allocate(4 * MIB)
    assert allocated_bytes(tmp_path / "file") >= 4 * MIB
    file.truncate(100)
    assert file.size() == 100
    assert allocated_bytes(tmp_path / "file") <= 64 * 1024
    file.close()


@needs_to_mount
def test_a_refused_allocation_keeps_what_was_allocated_before(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", MIB) as folder:
        file = SystemDisk(folder).open("file")
        file.allocate(MIB // 2)
        for _ in range(2):
            with pytest.raises(OSError, match="No space left") as refused:
                file.allocate(4 * MIB)
            assert refused.value.errno == errno.ENOSPC
            assert file.size() == 0
        assert MIB // 2 <= allocated_bytes(folder / "file") < MIB
        file.write(bytes(MIB // 2), 0)
        file.sync()
        file.close()


def test_a_read_ends_where_the_file_ends(disk: SystemDisk) -> None:
    file = disk.open("file")
    file.write(b"0123456789", 0)
    file.allocate(MIB)
    assert file.read(0, 10) == b"0123456789"
    assert file.read(4, 100) == b"456789"
    assert file.read(10, 1) == b""
    assert file.read(MIB // 2, 10) == b""
    file.close()


def test_a_cached_read_returns_the_right_bytes_or_none(disk: SystemDisk, tmp_path: Path) -> None:
    data = os.urandom(8 * MIB)
    file = disk.open("file")
    file.write(data, 0)
    assert file.read_cached(5, 100) in (None, data[5:105])
    file.sync()
    drop_from_memory(tmp_path / "file")
    places = [(0, 10), (MIB - 1, 2), (3 * MIB + 17, 200_000), (len(data) - 1, 1), (0, len(data))]
    for position, size in places:
        found = file.read_cached(position, size)
        assert found is None or found == data[position : position + size]
        assert file.read(position, size) == data[position : position + size]
    file.close()


def test_a_cached_read_beyond_the_end_is_left_to_a_plain_read(disk: SystemDisk) -> None:
    file = disk.open("file")
    file.write(b"0123456789", 0)
    assert file.read_cached(8, 10) is None
    assert file.read_cached(10, 1) is None
    file.close()


def drop_from_memory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def test_all_of_a_large_buffer_is_written_where_it_belongs(disk: SystemDisk) -> None:
    data = os.urandom(3 * MIB)
    file = disk.open("file")
    file.write(memoryview(data)[1:], 7)
    assert file.size() == len(data) + 6
    assert file.read(7, len(data)) == data[1:]
    file.write(b"", 99)
    assert file.size() == len(data) + 6
    file.close()


def test_a_file_is_created_once_and_keeps_its_bytes(disk: SystemDisk, tmp_path: Path) -> None:
    for expected in (b"", b"kept"):
        file = disk.open("file")
        assert file.read(0, 10) == expected
        file.write(b"kept", 0)
        file.close()
    # No other user may read messages.
    assert (tmp_path / "file").stat().st_mode & 0o007 == 0


def test_a_file_does_not_leak_into_other_programs(disk: SystemDisk, tmp_path: Path) -> None:
    file, lock = disk.open("file"), disk.lock("")
    ours = [path for path in Path("/proc/self/fd").iterdir() if str(tmp_path) in os.path.realpath(path)]
    assert len(ours) == 2
    assert not any(os.get_inheritable(int(path.name)) for path in ours)
    file.close()
    lock.release()


def test_folders_are_made_with_their_parents_and_listed_in_order(disk: SystemDisk) -> None:
    assert disk.names("a/b") == []
    disk.make_folder("a/b")
    disk.make_folder("a/b")
    for name in ("z", "x", "y"):
        disk.open(f"a/b/{name}").close()
    assert disk.names("a/b") == ["x", "y", "z"]
    assert disk.exists("a/b/x")
    assert not disk.exists("a/b/w")


def test_a_renamed_file_replaces_what_had_the_name(disk: SystemDisk) -> None:
    for name in ("old", "new"):
        write(disk.open(name), name.encode())
    disk.rename("old", "new")
    assert disk.names("") == ["new"]
    file = disk.open("new")
    assert file.read(0, 10) == b"old"
    file.close()
    disk.remove("new")
    assert disk.names("") == []
    disk.sync_folder("")


def write(file: SystemFile, data: bytes) -> None:
    file.write(data, 0)
    file.close()


def test_a_link_in_the_place_of_a_file_is_refused_and_its_target_left_alone(disk: SystemDisk, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere"
    target.write_bytes(b"precious")
    (tmp_path / "segment").symlink_to(target)
    (tmp_path / "dangling").symlink_to(tmp_path / "nothing")
    for name in ("segment", "dangling"):
        assert disk.exists(name)
        with pytest.raises(NotARegularFile, match=rf"{tmp_path}/{name} is a symbolic link"):
            disk.open(name)
    assert target.read_bytes() == b"precious"
    assert not (tmp_path / "nothing").exists()


def test_a_link_in_the_place_of_a_folder_is_refused(disk: SystemDisk, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").write_bytes(b"precious")
    (tmp_path / "journal").symlink_to(tmp_path / "elsewhere")
    for act in (
        lambda: disk.open("journal/file"),
        lambda: disk.open("journal/new"),
        lambda: disk.names("journal"),
        lambda: disk.remove("journal/file"),
        lambda: disk.rename("journal/file", "journal/other"),
        lambda: disk.sync_folder("journal"),
        lambda: disk.make_folder("journal"),
        lambda: disk.lock("journal"),
    ):
        with pytest.raises(NotARegularFile, match="journal is no folder, or a symbolic link to one"):
            act()
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == ["file"]


def test_a_pipe_or_a_folder_in_the_place_of_a_file_is_refused_at_once(disk: SystemDisk, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(NotARegularFile, match=f"{name} is no regular file"):
            disk.open(name)


def test_what_is_made_is_closed_to_others_whatever_the_umask_says(disk: SystemDisk, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        disk.make_folder("data/journal")
        disk.open("data/journal/file").close()
        disk.lock("data/journal").release()
    finally:
        os.umask(before)
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "data", *tmp_path.glob("data/**/*"))}
    assert modes == {"data": 0o750, "journal": 0o750, "file": 0o640}
