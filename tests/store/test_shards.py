"""A store of several shards: where its queues are, and messages that go from one to another."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from penstock.contract.limits import MOVE_BYTES_MAX, MOVE_MESSAGES_MAX, SHARDS_MAX
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.log.interface import LogFull
from penstock.store.embedded.shard_set import TooFewShards
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import RedriveOrder, Release, Remains
from tests.simulation.store_life import small
from tests.simulation.world import Died, Machine
from tests.waiting import let_others_run

FOLDER = "store"
# Their names fall to different shards, of two.
QUEUE, GRAVE = "plain", "plain.dead"
FRAIL = QueueSettings(deliveries_max=1)
KEPT = QueueSettings(deliveries_max=0)

Verb = Callable[[EmbeddedStore], Awaitable[object]]


async def opened(machine: Machine, shards: int = 2) -> EmbeddedStore:
    return await machine.run(EmbeddedStore.open(machine.start(), FOLDER, small(), shards=shards))


async def with_spent(machine: Machine, bodies: list[bytes]) -> tuple[EmbeddedStore, list[str]]:
    """Open a store with messages that are spent, and not buried: their dead letters are in the other shard."""
    store = await opened(machine)
    await store.create(QUEUE, FRAIL)
    await store.create(GRAVE, KEPT)
    ids: list[str] = []
    for body in bodies:
        ids += await store.send(QUEUE, Drafts(bodies=[body], attributes=[body[:1]], groups=[b"g"]))
    held = await store.lease(QUEUE, want=len(bodies))
    assert held is not None
    await store.release(QUEUE, held.receipts(), Release(error="broken"))
    return store, ids


async def places(store: EmbeddedStore, ids: list[str]) -> list[tuple[str, bytes, bytes, str]]:
    """Return in which queue each message is, with what it carries; each must be in exactly one."""
    found = []
    for each in ids:
        seen = {name: await store.look(name, each) for name in (QUEUE, GRAVE)}
        there = [(name, message) for name, message in seen.items() if message is not None]
        assert len(there) == 1, f"{each} is in {[name for name, _ in there]}"
        name, message = there[0]
        assert message.group == b"g"
        found.append((name, bytes(message.body), bytes(message.attributes), message.error))
    return found


async def tidy(store: EmbeddedStore) -> object:
    await store.tidy()
    return None


async def redrive(store: EmbeddedStore) -> object:
    return await store.redrive(GRAVE, RedriveOrder(most=10))


@pytest.mark.parametrize("end", ["kill", "power cut"])
@pytest.mark.parametrize(("verb", "into"), [(tidy, GRAVE), (redrive, QUEUE)], ids=["buried", "redriven"])
async def test_wherever_a_crash_falls_a_moved_message_is_in_one_queue(verb: Verb, into: str, end: str) -> None:
    bodies = [b"one", b"two", b"three"]
    for after in range(100):
        machine = Machine(seed=after)
        store, ids = await with_spent(machine, bodies)
        if verb is redrive:
            await store.tidy()
        machine.disk.crash_after = machine.disk.operations + after
        try:
            await machine.run(verb(store))  # type: ignore[arg-type]
            has_crashed = False
        except Died:
            has_crashed = True
        machine.disk.crash_after = None
        machine.kill() if end == "kill" else machine.power_cut()
        store = await opened(machine)
        await places(store, ids)
        await verb(store)
        assert await places(store, ids) == [(into, body, body[:1], "broken") for body in bodies]
        counts = [(await store.counts(name)).live for name in (QUEUE, GRAVE)]
        assert sum(counts) == 3
        await store.close()
        if not has_crashed:
            break
    # A write and a sync for each of its three steps.
    assert 6 <= after < 99


@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize(("verb", "busy"), [(tidy, QUEUE), (redrive, GRAVE)], ids=["buried", "redriven"])
async def test_a_message_arrives_nowhere_before_its_move_has_begun_for_good(verb: Verb, busy: str, after: int) -> None:
    for seed in range(10):
        machine = Machine(seed)
        store, ids = await with_spent(machine, [b"one"])
        if verb is redrive:
            await store.tidy()
        machine.disk.crash_after = machine.disk.operations + after
        with suppress(Died):
            await machine.run(_while_busy(store, busy, verb))
        machine.disk.crash_after = None
        machine.power_cut()
        store = await opened(machine)
        await places(store, ids)
        await store.close()


async def _while_busy(store: EmbeddedStore, queue: str, verb: Verb) -> None:
    """Begin a move while its journal is busy with something else, and the other one idle."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(store.send(queue, Drafts(bodies=[b"x"])))
        await let_others_run(2)
        await verb(store)


async def test_a_queue_stays_where_it_is_when_shards_are_added(machine: Machine) -> None:
    store = await opened(machine, shards=1)
    names = [f"queue-{number}" for number in range(12)]
    sent = {}
    for name in names:
        await store.create(name, QueueSettings())
        sent[name] = await store.send(name, Drafts(bodies=[name.encode()]))
    for shards in (2, 5):
        await store.close()
        machine.kill()
        store = await opened(machine, shards=shards)
        assert await store.queues() == sorted(names)
        for name in names:
            await store.create(name, QueueSettings())
            assert [each.id for each in (await store.peek(name, most=9)).messages] == sent[name]
    others = [f"other-{number}" for number in range(12)]
    for name in others:
        await store.create(name, QueueSettings())
    ids = {(await store.describe(name)).id for name in names + others}
    assert len(ids) == 24
    await store.close()
    journals = [name for name in machine.disk.names(FOLDER) if name.startswith("journal")]
    assert journals == ["journal", "journal-1", "journal-2", "journal-3", "journal-4"]
    assert len({int(each.removeprefix("q_"), 16) >> 24 for each in ids}) > 2


async def test_shards_are_never_left_out(machine: Machine) -> None:
    await (await opened(machine, shards=3)).close()
    machine.kill()
    for shards in (1, 2):
        with pytest.raises(TooFewShards, match="3 shards"):
            await opened(machine, shards)
        machine.kill()
    await (await opened(machine, shards=3)).close()


@pytest.mark.parametrize("shards", [0, SHARDS_MAX + 1])
async def test_the_number_of_shards_has_a_limit_that_is_named(machine: Machine, shards: int) -> None:
    with pytest.raises(ValueError, match="SHARDS_MAX"):
        await opened(machine, shards)


async def test_large_messages_move_a_few_at_a_time(machine: Machine) -> None:
    bodies = [b"%d" % number * (MOVE_BYTES_MAX // 5) for number in range(7)] + [b"x"] * MOVE_MESSAGES_MAX
    store, ids = await with_spent(machine, bodies)
    await store.tidy()
    assert [(name, body) for name, body, *_ in await places(store, ids)] == [(GRAVE, body) for body in bodies]
    moved = (await store.redrive(GRAVE, RedriveOrder(most=200))).moved
    assert sorted(moved[QUEUE]) == sorted(ids)
    assert [(name, body) for name, body, *_ in await places(store, ids)] == [(QUEUE, body) for body in bodies]
    await store.close()


@pytest.mark.parametrize("after", range(8))
async def test_wherever_a_crash_falls_no_two_queues_have_one_name(after: int) -> None:
    # The disk is now faster for the one journal, now for the other.
    for seed in range(20):
        machine = Machine(seed)
        store, ids = await with_spent(machine, [b"one"])
        machine.disk.crash_after = machine.disk.operations + after
        with suppress(Died):
            await machine.run(_delete_and_bury(store))
        machine.disk.crash_after = None
        machine.power_cut()
        store = await opened(machine)
        assert await store.queues() in ([QUEUE], [QUEUE, GRAVE])
        await store.tidy()
        assert await places(store, ids) == [(GRAVE, b"one", b"o", "broken")]
        await store.close()


async def _delete_and_bury(store: EmbeddedStore) -> None:
    """Bury beside the queue, because at that moment there are no dead letters elsewhere any more."""
    async with asyncio.TaskGroup() as tasks:
        # While the one journal is busy with this, the deletion waits; the other journal is idle.
        tasks.create_task(store.send(GRAVE, Drafts(bodies=[b"x"])))
        await let_others_run()
        tasks.create_task(store.delete(GRAVE))
        tasks.create_task(store.tidy())


async def test_what_cannot_arrive_waits_and_goes_back_if_the_dead_letters_are_deleted(machine: Machine) -> None:
    body = b"x" * 300_000
    store, ids = await with_spent(machine, [body])
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 100_000
    with pytest.raises(LogFull):
        await store.tidy()
    found = await store.look(QUEUE, ids[0])
    assert found is not None
    assert found.place == "moving"
    # A worker is not to be held up by it.
    assert await store.lease(QUEUE, want=1) is None
    assert await store.delete(GRAVE) == Remains(None, 0, is_deleted=False)
    machine.disk.capacity_bytes = None
    await store.tidy()
    assert await places(store, ids) == [(GRAVE, body, b"x", "broken")]
    machine.power_cut()
    store = await opened(machine)
    assert await places(store, ids) == [(GRAVE, body, b"x", "broken")]
    await store.close()


async def test_a_move_that_was_cancelled_is_finished_later() -> None:
    for turns in range(1, 40):
        machine = Machine(seed=turns)
        store, ids = await with_spent(machine, [b"one", b"two"])
        task = asyncio.create_task(store.tidy())  # noqa: TID251 - to be cancelled.
        await let_others_run(turns)
        task.cancel()
        await asyncio.wait([task])
        await store.tidy()
        assert [name for name, *_ in await places(store, ids)] == [GRAVE, GRAVE]
        await store.close()
        machine.kill()
