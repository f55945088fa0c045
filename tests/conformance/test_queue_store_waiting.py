"""What every store promises to requests that wait for messages: a call when there may be some, and a time."""

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Delivery, QueueStore, RedriveOrder, Release
from tests.conformance.stores import Stage, bodies, drain, every_store, is_empty_handed, lease, send

QUIET = QueueSettings(aging_ms=(0,) * 5, backoff_ms_base=0)


class Woken:
    """The names a store has called since the last look."""

    def __init__(self, store: QueueStore) -> None:
        self._names: list[str] = []
        store.watch(self._names.append)

    def names(self) -> set[str]:
        names = set(self._names)
        self._names.clear()
        return names


@every_store
async def test_a_watcher_is_called_for_every_send(stage: Stage) -> None:
    await stage.store.create("mail", QUIET)
    woken = Woken(stage.store)
    await send(stage, b"a")
    assert woken.names() == {"orders"}
    await send(stage, b"b", queue="mail")
    assert woken.names() == {"mail"}
    await stage.store.send("mail", Drafts(bodies=[]))
    assert woken.names() == set()


@every_store
async def test_a_lease_and_its_ack_cause_no_wake_up_on_a_standard_queue(stage: Stage) -> None:
    await send(stage, b"a", b"b")
    woken = Woken(stage.store)
    delivery = await lease(stage, 1)
    await stage.store.extend("orders", delivery.receipts(), lease_ms=60_000)
    await stage.store.ack("orders", delivery.receipts())
    assert woken.names() == set()


@every_store
async def test_a_message_that_is_given_back_wakes_its_queue(stage: Stage) -> None:
    await send(stage, b"a")
    delivery = await lease(stage)
    woken = Woken(stage.store)
    await stage.store.release("orders", delivery.receipts(), Release(delay_ms=0))
    assert woken.names() == {"orders"}


@every_store
async def test_a_lease_that_is_cut_short_wakes_its_queue(stage: Stage) -> None:
    await send(stage, b"a")
    delivery = await lease(stage)
    woken = Woken(stage.store)
    await stage.store.extend("orders", delivery.receipts(), lease_ms=1)
    assert woken.names() == {"orders"}


@every_store
async def test_an_ack_wakes_a_queue_that_keeps_the_order_of_its_groups(stage: Stage) -> None:
    await stage.store.create("fifo", QueueSettings(is_fifo=True))
    await stage.store.send("fifo", Drafts(bodies=[b"a", b"b"], groups=[b"g", b"g"]))
    delivery = await lease(stage, 1, queue="fifo")
    assert await is_empty_handed(stage, queue="fifo")
    woken = Woken(stage.store)
    await stage.store.ack("fifo", delivery.receipts())
    assert woken.names() == {"fifo"}
    assert await drain(stage, queue="fifo") == [b"b"]


@every_store
async def test_burial_and_redrive_wake_the_queue_that_the_messages_go_to(stage: Stage) -> None:
    await stage.store.create("work", QueueSettings(deliveries_max=1))
    await send(stage, b"a", queue="work")
    delivery = await lease(stage, queue="work")
    await stage.store.release("work", delivery.receipts(), Release(delay_ms=0))
    woken = Woken(stage.store)
    await stage.store.tidy()
    assert "work.dead" in woken.names()
    await stage.store.redrive("work.dead", RedriveOrder(most=1))
    assert "work" in woken.names()
    assert bodies(await lease(stage, queue="work")) == [b"a"]


@every_store
async def test_a_queue_that_is_made_resumed_or_deleted_wakes(stage: Stage) -> None:
    woken = Woken(stage.store)
    await stage.store.create("mail", QueueSettings(is_paused=True))
    assert woken.names() == {"mail"}
    await stage.store.change("mail", QueueSettings())
    assert woken.names() == {"mail"}
    await stage.store.delete("mail")
    assert woken.names() == {"mail"}


@every_store
async def test_every_watcher_is_called_while_what_it_is_called_for_can_be_leased(stage: Stage) -> None:
    first, second = Woken(stage.store), Woken(stage.store)
    await send(stage, b"a")
    assert first.names() == second.names() == {"orders"}
    assert bodies(await lease(stage)) == [b"a"]


@every_store
async def test_an_empty_queue_is_woken_by_no_clock(stage: Stage) -> None:
    assert await stage.store.wakes_at_ms("orders") is None
    await send(stage, b"a")
    await drain(stage)
    assert await stage.store.wakes_at_ms("orders") is None
    with pytest.raises(QueueNotFound):
        await stage.store.wakes_at_ms("nowhere")


@every_store
async def test_a_clock_wakes_a_queue_when_its_first_lease_lapses(stage: Stage) -> None:
    await stage.store.create("work", QUIET)
    await send(stage, b"a", b"b", b"c", queue="work")
    long = await lease(stage, 1, queue="work", lease_ms=50_000)
    short = await lease(stage, 1, queue="work", lease_ms=20_000)
    last = await lease(stage, 1, queue="work", lease_ms=90_000)
    await check_next(stage, short)
    await stage.store.extend("work", short.receipts(), lease_ms=200_000)
    await check_next(stage, long)
    await stage.store.ack("work", long.receipts())
    await check_next(stage, last)
    await stage.store.ack("work", last.receipts())
    wakes_at_ms = await stage.store.wakes_at_ms("work")
    assert wakes_at_ms is not None
    await stage.advance(wakes_at_ms - stage.now_ms())
    assert bodies(await lease(stage, queue="work")) == [b"b"]


async def check_next(stage: Stage, delivery: Delivery) -> None:
    assert await stage.store.wakes_at_ms("work") == delivery.until_ms


@every_store
async def test_a_clock_wakes_a_queue_when_a_delay_ends(stage: Stage) -> None:
    await stage.store.create("work", QUIET)
    times = [stage.now_ms() + delay_ms for delay_ms in (50_000, 20_000)]
    await stage.store.send("work", Drafts(bodies=[b"late", b"soon"], visible_at_ms=times))
    assert await stage.store.wakes_at_ms("work") == times[1]
    await stage.advance(times[1] - stage.now_ms())
    assert await drain(stage, queue="work") == [b"soon"]
    assert await stage.store.wakes_at_ms("work") == times[0]
    await stage.store.purge("work")
    assert await stage.store.wakes_at_ms("work") is None


@every_store
async def test_no_clock_wakes_a_paused_queue(stage: Stage) -> None:
    await send(stage, b"a")
    await lease(stage)
    await stage.store.change("orders", QueueSettings(is_paused=True))
    assert await stage.store.wakes_at_ms("orders") is None


@every_store
async def test_a_queue_is_found_by_its_id_as_long_as_it_is_there(stage: Stage) -> None:
    await stage.store.create("mail", QUIET)
    mail = (await stage.store.describe("mail")).id
    assert await stage.store.name(mail) == "mail"
    await stage.crash()
    assert await stage.store.name(mail) == "mail"
    await stage.store.delete("mail")
    await stage.store.create("mail", QUIET)
    for unknown in (mail, "mail", "q_", "q_0", "q_ffffffff", "q_fffffffff", "Q_1", ""):
        with pytest.raises(QueueNotFound):
            await stage.store.name(unknown)
