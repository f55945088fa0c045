"""Snapshots: what comes back is what was written, and what is damaged is noticed."""

import pytest

from penstock.contract.messages import TIERS
from penstock.core.queue.listing import live_runs
from penstock.core.queue.message import Sender
from penstock.core.queue.snapshot import freeze
from penstock.store.embedded import snapshot_file
from penstock.store.embedded.body_index import BodyIndex
from penstock.store.embedded.shard_lifecycle import JournalHasNoBeginning
from penstock.store.embedded.shard_state import ShardState
from penstock.store.embedded.snapshot_file import (
    SnapshotDamaged,
    SnapshotUnknown,
    load,
    save,
    snapshot_name,
    snapshot_offsets,
)
from penstock.store.embedded.store import EmbeddedStore
from tests.core.queue.life import Life
from tests.core.queue.test_living import RandomLife
from tests.simulation import store_life
from tests.simulation.disk import SimDisk
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.store.small import FOLDER, JOURNAL, QUEUE, SNAPSHOTS, Shop, opened


def shard(memory: ShardState) -> dict[str, object]:
    """All there is to know of a shard, as values that can be compared."""
    return {
        "numbers": memory.numbers,
        "names": memory.names,
        "next_queue": memory.next_queue,
        "newest_ms": memory.newest_ms,
        "queues": {number: freeze(queue.state) for number, queue in memory.queues.items()},
        "places": {
            number: [(lane.firsts, lane.records, lane.rows, lane.sizes, lane.next) for lane in places.lanes]
            for number, places in memory.places.items()
        },
    }


def memory_of(*lives: Life) -> ShardState:
    memory = ShardState()
    for number, life in enumerate(lives):
        life.queue.state.queue = number
        memory.put(life.queue, f"queue {number}", BodyIndex())
    return memory


def through(memory: ShardState, offset: int = 7) -> ShardState:
    disk = SimDisk()
    size = save(disk, "folder", memory, offset)
    assert size == len(disk.read_bytes(f"folder/{snapshot_name(offset)}"))
    return load(disk, "folder", offset)


@pytest.mark.parametrize("seed", range(6))
def test_a_shard_comes_back_the_same(seed: int) -> None:
    life = store_life.Life(seed)

    async def main() -> None:
        runtime = life.machine.start()
        store = await EmbeddedStore.open(runtime, FOLDER, store_life.small())
        life.books.opened(life.machine.clock.now_ms())
        for _ in range(3):
            await life.process(store)
            memory = store._shards.all[0].memory
            assert len(memory.queues) >= 6
            assert shard(through(memory)) == shard(memory)
        await store.close()

    simulate(main, seed=seed)


@pytest.mark.parametrize("seed", range(12))
def test_queues_with_every_feature_come_back_the_same(seed: int) -> None:
    stories = [RandomLife(seed), RandomLife(seed + 1_000)]
    for _ in range(20):
        for story in stories:
            for _ in range(8):
                story.step()
        memory = memory_of(*(story.life for story in stories))
        again = through(memory)
        assert shard(again) == shard(memory)
        for number, queue in memory.queues.items():
            assert live_runs(again.queues[number].state) == live_runs(queue.state)
            # Timers are not written down, so they show only when time passes.
            later_ms = queue.state.now_ms + 300
            queue.advance(later_ms)
            again.queues[number].advance(later_ms)
        assert shard(again) == shard(memory)
        for story in stories:
            story.life.wait(300)


def test_an_empty_shard_comes_back_the_same() -> None:
    assert shard(through(ShardState())) == shard(ShardState())


def test_numbers_of_deleted_queues_and_the_time_are_not_forgotten() -> None:
    memory = memory_of(Life())
    memory.next_queue, memory.newest_ms = 9, 77
    again = through(memory)
    assert (again.next_queue, again.newest_ms) == (9, 77)


def test_numbers_of_more_than_64_bits_come_back() -> None:
    life = Life(QUEUE)
    life.send(900)
    lease = life.leased(900, lease_ms=50_000)
    # Of each two neighbours one is acked, and some are held longer than others.
    life.ack(lease, int("01" * 300, 2))
    life.extend(lease, 70_000, 1 << 899 | 1 << 700)
    life.send(300)
    lapsed = life.leased(300, lease_ms=10)
    life.wait(20)
    life.send(sender=Sender(2**63 - 1, 5, 2**63 - 1))
    shares = life.state.shares
    shares.clock = 3**200
    shares.finish = [3**200 + tier for tier in range(TIERS)]
    memory = memory_of(life)
    again = through(memory)
    assert shard(again) == shard(memory)
    (queue,) = again.queues.values()
    assert queue.state.shares.clock == 3**200
    assert max(mask.bit_length() for mask in queue.state.leases.held) == 900
    assert queue.state.leases.late[lapsed.id & 0xFFFF_FFFF] == (1 << 300) - 1


def small_snapshot() -> SimDisk:
    life, other = Life(QUEUE), Life(QUEUE)
    life.send(3)
    life.leased(2)
    disk = SimDisk()
    save(disk, "folder", memory_of(life, other), 7)
    return disk


PATH = f"folder/{snapshot_name(7)}"


def test_a_changed_byte_is_noticed_wherever_it_is() -> None:
    disk = small_snapshot()
    whole = disk.read_bytes(PATH)
    for at in range(len(whole)):
        disk.write_bytes(PATH, whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :])
        with pytest.raises(SnapshotDamaged):
            load(disk, "folder", 7)
    disk.write_bytes(PATH, whole)
    assert len(load(disk, "folder", 7).queues) == 2


def test_a_snapshot_that_was_cut_short_is_noticed_wherever_it_ends() -> None:
    disk = small_snapshot()
    whole = disk.read_bytes(PATH)
    for size in range(len(whole)):
        disk.write_bytes(PATH, whole[:size])
        with pytest.raises(SnapshotDamaged):
            load(disk, "folder", 7)


def test_a_snapshot_of_which_a_part_is_zeros_is_noticed() -> None:
    """So a file looks whose blocks were never written."""
    disk = small_snapshot()
    whole = disk.read_bytes(PATH)
    # What ends with zeros by itself is not damaged by more of them.
    for size in range(0, len(whole.rstrip(b"\0")), 7):
        disk.write_bytes(PATH, whole[:size] + bytes(len(whole) - size))
        with pytest.raises(SnapshotDamaged):
            load(disk, "folder", 7)


def test_a_snapshot_with_something_after_its_end_is_noticed() -> None:
    disk = small_snapshot()
    disk.write_bytes(PATH, disk.read_bytes(PATH) + b"x")
    with pytest.raises(SnapshotDamaged):
        load(disk, "folder", 7)


def test_a_snapshot_under_the_name_of_another_is_noticed() -> None:
    disk = small_snapshot()
    disk.write_bytes(f"folder/{snapshot_name(8)}", disk.read_bytes(PATH))
    with pytest.raises(SnapshotDamaged, match="is the snapshot of offset 7"):
        load(disk, "folder", 8)


def test_a_snapshot_of_another_format_is_refused_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(snapshot_file, "FORMAT", 2)
        disk = small_snapshot()
    with pytest.raises(SnapshotUnknown, match="is of format 2; this version knows 1"):
        load(disk, "folder", 7)


def test_a_snapshot_with_a_name_this_code_would_not_write_is_damaged(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as tomorrow:
        tomorrow.setattr(snapshot_file, "freeze", lambda state: {**freeze(state), "of_tomorrow": 1})
        disk = small_snapshot()
    with pytest.raises(SnapshotDamaged, match=r"queue 'queue 0': State: .* unknown are .'of_tomorrow'"):
        load(disk, "folder", 7)


def test_an_unfinished_snapshot_is_ignored_and_goes_with_the_next() -> None:
    disk = small_snapshot()
    disk.write_bytes(f"folder/{snapshot_name(9)}.tmp", b"half of it")
    disk.write_bytes("folder/notes.txt", b"somebody's")
    assert snapshot_offsets(disk, "folder") == [7]
    save(disk, "folder", ShardState(), 9)
    assert disk.names("folder") == [snapshot_name(7), snapshot_name(9), "notes.txt"]


# Opening.


async def shortened() -> tuple[Shop, list[bytes]]:
    """Return a store whose journal has lost its beginning, stopped, and what its queue holds."""
    shop = await opened()
    bodies = [b"kept %d" % number for number in range(10)]
    await shop.send(*bodies)
    await shop.shorten()
    assert shop.log.start_offset > 0
    assert len(shop.snapshots()) == 2
    # More of its life than the last snapshot knows.
    bodies += [b"late %d" % number for number in range(5)]
    await shop.send(*bodies[10:])
    await shop.churn(30)
    await shop.close()
    return shop, bodies


def damage(shop: Shop, offset: int) -> str:
    path = f"{SNAPSHOTS}/{snapshot_name(offset)}"
    shop.machine.disk.flip_bit(path, 8 * (len(shop.machine.disk.read_bytes(path)) // 2))
    return path


def contents(disk: SimDisk) -> dict[str, bytes]:
    """All segments and snapshots. Not the manifest, which counts how often the journal was opened."""
    return {
        f"{folder}/{name}": disk.read_bytes(f"{folder}/{name}")
        for folder in (JOURNAL, SNAPSHOTS)
        for name in disk.names(folder)
        if name.endswith((".log", ".snapshot"))
    }


async def test_opening_begins_with_the_newest_snapshot() -> None:
    shop, bodies = await shortened()
    # It is not even read.
    damage(shop, shop.snapshots()[0])
    await shop.open()
    assert shop.logged("store.snapshot_damaged") == 0
    assert await shop.drain() == bodies
    await shop.close()


async def test_opening_falls_back_to_the_older_snapshot_and_loses_nothing() -> None:
    shop, bodies = await shortened()
    path = damage(shop, shop.snapshots()[1])
    await shop.open()
    (fields,) = [fields for event, fields in shop.machine.log_events.events if event.name == "store.snapshot_damaged"]
    assert fields["file"] == path
    assert await shop.drain() == bodies
    await shop.close()


async def test_no_snapshot_is_built_on_a_damaged_one() -> None:
    shop, bodies = await shortened()
    good, bad = shop.snapshots()
    damage(shop, bad)
    await shop.open()
    assert shop.snapshots() == [good]
    await shop.churn(25)
    await shop.upkeep()
    kept = shop.snapshots()
    assert (kept[0], len(kept)) == (good, 2)
    assert kept[1] > bad
    await shop.shorten()
    await shop.crash()
    assert shop.logged("store.snapshot_damaged") == 1
    assert await shop.drain() == bodies
    await shop.close()


async def test_a_snapshot_damaged_while_the_store_runs_is_passed_over() -> None:
    shop, bodies = await shortened()
    await shop.open()
    good, bad = shop.snapshots()
    damage(shop, bad)
    await shop.churn(25)
    await shop.upkeep()
    assert shop.snapshots() == [good]
    assert shop.logged("store.snapshot_damaged") == 1
    await shop.upkeep()
    kept = shop.snapshots()
    assert (kept[0], len(kept)) == (good, 2)
    assert kept[1] > bad
    await shop.crash()
    assert await shop.drain() == bodies
    await shop.close()


async def test_nothing_is_built_when_no_snapshot_leads_to_the_journal_any_more() -> None:
    shop, _ = await shortened()
    await shop.open()
    for offset in shop.snapshots():
        shop.machine.disk.remove(f"{SNAPSHOTS}/{snapshot_name(offset)}")
    await shop.churn(25)
    await shop.upkeep()
    assert shop.snapshots() == []
    assert shop.logged("store.snapshot_failed") == 1
    await shop.churn(1)
    await shop.close()


async def test_without_a_whole_snapshot_a_journal_that_was_shortened_is_refused() -> None:
    shop, _ = await shortened()
    disk = shop.machine.disk
    for offset in shop.snapshots():
        damage(shop, offset)
    before = contents(disk)
    for _ in range(2):
        with pytest.raises(JournalHasNoBeginning, match="restore a backup"):
            await shop.open()
        shop.machine.kill()
    assert contents(disk) == before


async def test_a_snapshot_of_a_newer_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as newer:
        newer.setattr(snapshot_file, "FORMAT", 2)
        shop, _ = await shortened()
    with pytest.raises(SnapshotUnknown):
        await shop.open()
    shop.machine.kill()


async def test_snapshots_that_cannot_be_read_do_not_matter_while_the_journal_is_whole() -> None:
    shop = await opened()
    await shop.send(b"a", b"b")
    await shop.churn(30)
    await shop.upkeep()
    (only,) = shop.snapshots()
    assert shop.log.start_offset == 0
    await shop.close()
    damage(shop, only)
    await shop.open()
    assert await shop.drain() == [b"a", b"b"]
    await shop.close()


async def test_a_snapshot_from_beyond_the_end_of_the_journal_is_never_believed() -> None:
    """An older copy of the journal was put back, and it goes on differently from there."""
    shop = Shop(Machine())
    await shop.open()
    await shop.store.create("orders", QUEUE)
    await shop.close()
    disk = shop.machine.disk
    older = {name: disk.read_bytes(f"{JOURNAL}/{name}") for name in disk.names(JOURNAL)}
    await shop.open()
    await shop.send(b"of the first story", b"too")
    await shop.churn(60)
    await shop.upkeep()
    (beyond,) = shop.snapshots()
    await shop.close()
    for name in disk.names(JOURNAL):
        disk.remove(f"{JOURNAL}/{name}")
    disk.sync_folder(JOURNAL)
    for name, data in older.items():
        disk.write_bytes(f"{JOURNAL}/{name}", data)
    await shop.open()
    await shop.send(b"of the second story")
    while shop.log.end_offset <= beyond:
        await shop.churn(1)
    await shop.kill()
    assert (await shop.store.counts("orders")).live == 1
    await shop.shorten()
    await shop.crash()
    assert await shop.drain() == [b"of the second story"]
    await shop.close()
