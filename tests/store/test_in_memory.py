"""A store whose disk is memory: what it takes of it stays small, and the disk is a disk to those who use it."""

import dataclasses

import pytest

from penstock.contract.limits import MIB
from penstock.contract.queue_settings import DAY_MS, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.interface import BackgroundProcessFailed, Disk, FolderTaken
from penstock.runtime.memory import InThread, LoopWorkers, MemoryDisk, memory_runtime
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Outcome
from tests.waiting import eventually, let_others_run

TRAFFIC_BYTES = 200 * MIB
SMALL_BYTES = 24 * MIB


@pytest.mark.real_time
async def test_two_hundred_megabytes_of_traffic_leave_little_behind() -> None:
    runtime = memory_runtime()
    disk = runtime.disk
    assert isinstance(disk, MemoryDisk)
    async with await EmbeddedStore.in_memory(runtime) as store:
        await store.create("orders", QueueSettings())
        tomorrow_ms = runtime.clock.now_ms() + DAY_MS
        kept = await store.send("orders", Drafts(bodies=[b"kept"], visible_at_ms=[tomorrow_ms]))
        largest = await _traffic(store, disk)
        # What is dead goes in the store's own time.
        await eventually(lambda: disk.size_bytes < SMALL_BYTES)
        # Neither was all of it there at any time.
        assert largest < TRAFFIC_BYTES
        (shard,) = store._shards.all
        assert shard.hot._bytes <= MIB
        found = await store.look("orders", kept[0])
        assert found is not None
        assert bytes(found.body) == b"kept"


async def _traffic(store: EmbeddedStore, disk: MemoryDisk) -> int:
    """Send, lease and ack a lot, and return how large the disk was at most."""
    bodies, largest = [bytes(10_000)] * 100, 0
    for _ in range(TRAFFIC_BYTES // 1_000_000):
        await store.send("orders", Drafts(bodies=bodies))
        delivery = await store.lease("orders", want=100)
        assert delivery is not None
        assert await store.ack("orders", delivery.receipts()) == [Outcome.DONE] * 100
        largest = max(largest, disk.size_bytes)
        # What is dead goes while there is traffic, too.
        await eventually(lambda: disk.size_bytes < TRAFFIC_BYTES // 2)
    return largest


@pytest.mark.real_time
async def test_a_store_in_memory_is_there_again_when_it_is_opened_with_the_same_disk() -> None:
    runtime = memory_runtime()
    async with await EmbeddedStore.in_memory(runtime) as store:
        await store.create("orders", QueueSettings())
        await store.send("orders", Drafts(bodies=[b"a"]))
    again = dataclasses.replace(memory_runtime(), disk=runtime.disk, aside=InThread(runtime.disk))
    async with await EmbeddedStore.in_memory(again) as store:
        assert (await store.counts("orders")).live == 1
    async with await EmbeddedStore.in_memory(memory_runtime()) as store:
        assert await store.queues() == []


def test_a_file_in_memory_is_what_was_written_to_it() -> None:
    disk = MemoryDisk()
    file = disk.open("file")
    file.write(b"abc", 2)
    assert (file.size(), file.read(0, 100), file.read_cached(3, 1)) == (5, b"\0\0abc", b"b")
    file.allocate(1_000)
    file.write(memoryview(b"XY"), 1)
    assert disk.open("file", must_exist=True).read(0, 5) == b"\0XYbc"
    file.truncate(2)
    file.truncate(3)
    assert file.read(0, 9) == b"\0X\0"
    file.sync()
    file.forget_cached()
    file.close()
    assert disk.size_bytes == 3


def test_a_file_in_memory_may_be_renamed_and_removed_while_it_is_open() -> None:
    disk = MemoryDisk()
    disk.make_folder("a/b")
    file = disk.open("a/b/old")
    disk.open("a/b/new").write(b"replaced", 0)
    disk.rename("a/b/old", "a/b/new")
    file.write(b"same", 0)
    assert disk.open("a/b/new").read(0, 9) == b"same"
    assert (disk.names("a"), disk.names("a/b"), disk.names(""), disk.names("c")) == (["b"], ["new"], ["a"], [])
    assert (disk.exists("a/b"), disk.exists("a/b/new"), disk.exists("a/b/old")) == (True, True, False)
    disk.remove("a/b/new")
    disk.sync_folder("a/b")
    assert file.read(0, 9) == b"same"
    for missing in (lambda: disk.remove("a/b/new"), lambda: disk.open("a/b/new", must_exist=True)):
        with pytest.raises(FileNotFoundError):
            missing()
    with pytest.raises(FileNotFoundError):
        disk.open("nowhere/file")


def test_a_folder_in_memory_has_one_owner_at_a_time() -> None:
    disk = MemoryDisk()
    lock = disk.lock("folder")
    with pytest.raises(FolderTaken):
        disk.lock("folder")
    lock.release()
    disk.lock("folder").release()


async def test_work_for_the_loop_is_done_in_order_and_never_at_once() -> None:
    halts: list[str] = []
    workers, done = LoopWorkers(halts.append), []
    for name in "ab":
        workers.submit(lambda name=name: done.append(name), lambda name=name: done.append(f"{name} done"))  # type: ignore[misc]
    assert done == []
    await let_others_run(3)
    assert done == ["a", "a done", "b", "b done"]
    workers.submit(_divide, done.clear)
    await let_others_run(3)
    assert "ZeroDivisionError" in halts[0]


def _divide() -> None:
    raise ZeroDivisionError


def _fail(_disk: Disk, request: bytes) -> bytes:
    raise ValueError(request.decode())


@pytest.mark.real_time
async def test_work_aside_that_fails_says_why() -> None:
    with pytest.raises(BackgroundProcessFailed, match="ValueError: no reason"):
        await InThread(MemoryDisk()).run(_fail, b"no reason")
