"""What every store promises about a list of all that is in a queue: each message once, and nothing else."""

import asyncio

import pytest

from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import History, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.core.queue.rows import STATES
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Release
from penstock.store.pages import HistoryRange, LivePage
from tests.conformance.stores import Stage, begin, drain, every_store, lease, send


async def pages(stage: Stage, queue: str = "orders", *, most: int = 100, with_bodies: bool = True) -> list[LivePage]:
    found = [await stage.store.live(queue, most=most, with_bodies=with_bodies)]
    while found[-1].next:
        found.append(await stage.store.live(queue, most=most, after=found[-1].next, with_bodies=with_bodies))
    return found


async def furnish(stage: Stage) -> None:
    """Let messages be in as many places as there are."""
    drafts = Drafts(
        bodies=[b"%d" % number for number in range(20)],
        tiers=bytes(number % TIERS for number in range(20)),
        groups=[b"g" if number % 4 == 0 else b"" for number in range(20)],
        attributes=[b"{}" if number == 3 else b"" for number in range(20)],
    )
    await stage.store.send("orders", drafts)
    await send(stage, *[b"plain %d" % number for number in range(10)])
    await stage.store.send("orders", Drafts(bodies=[b"later"], visible_at_ms=[stage.now_ms() + 10_000_000]))
    taken = await lease(stage, 9)
    await stage.store.ack("orders", taken.receipts()[:3])
    await stage.store.release("orders", taken.receipts()[3:5], Release(error="boom"))


@every_store
async def test_pages_of_any_size_show_what_a_look_at_each_message_shows(stage: Stage) -> None:
    await furnish(stage)
    shown = {message.id: message for message in (await stage.store.peek("orders", most=100)).messages}
    assert len(shown) == 28
    for most in (1, 4, 100):
        ids: list[str] = []
        for page in await pages(stage, most=most):
            assert len(page) <= most
            ids += page.ids
            for row, message_id in enumerate(page.ids):
                message = shown[message_id]
                assert page.body is not None
                assert bytes(page.body[row]) == message.body
                assert STATES[page.place[row]] == message.place
                assert (page.tier[row], page.sent_tier[row]) == (message.tier, message.sent_tier)
                assert (page.sent_at_ms[row], page.deliveries[row]) == (message.sent_at_ms, message.deliveries)
                assert (b"" if page.group is None else bytes(page.group[row])) == message.group
                assert (b"" if page.error is None else bytes(page.error[row])).decode() == message.error
                assert (b"" if page.attributes is None else bytes(page.attributes[row])) == message.attributes
        assert len(ids) == len(set(ids)) == 28


@every_store
async def test_every_number_of_a_range_is_live_or_told_of_in_the_history(stage: Stage) -> None:
    await furnish(stage)
    await drain(stage, want=4)
    page = await stage.store.live("orders", most=100, with_bodies=False, is_told=True)
    assert page.history_offset is not None
    settled = await stage.store.shard_history(page.shard, HistoryRange(until_offset=page.history_offset, most=1_000))
    given = {number << 3 | lane for lane, end in enumerate(page.next_numbers) for number in range(end)}
    looked_at = {number << 3 | lane for lane, first, end in page.ranges for number in range(first, end)}
    gone = {settled.key_of(row) for row in range(len(settled))}
    assert looked_at == given
    assert len(given) == 31
    assert set(page.key) | gone == given
    assert not set(page.key) & gone


@every_store
async def test_a_dead_letter_keeps_its_id_and_has_a_place_of_its_own(stage: Stage) -> None:
    await stage.store.create("once", QueueSettings(deliveries_max=1, dead_letters="grave", history=History.OFF))
    await stage.store.create("grave", QueueSettings(deliveries_max=0))
    await send(stage, b"other", queue="grave")
    (moved,) = await send(stage, b"a", queue="once")
    failed = await lease(stage, queue="once")
    await stage.store.release("once", failed.receipts(), Release(delay_ms=0, error="boom"))
    await stage.store.tidy()
    (page,) = await pages(stage, "grave")
    row = list(page.ids).index(moved)
    assert (page.key[row], page.deliveries[row]) == (1 << 3 | 2, 1)
    assert page.home[row] != page.queue_number
    assert page.body is not None
    assert bytes(page.body[row]) == b"a"


@every_store
async def test_a_list_is_told_only_when_what_it_rests_on_is_durable(stage: Stage) -> None:
    async with asyncio.TaskGroup() as tasks:
        sent = await begin(tasks, send(stage, b"a"))
        # A store that has several connections may look before it sends.
        while not len(seen := await stage.store.live("orders", most=10)):
            pass
        await stage.crash()
    assert sent.result() == list(seen.ids) == list((await stage.store.live("orders", most=10)).ids)


@every_store
async def test_a_list_of_live_messages_has_limits_that_are_named(stage: Stage) -> None:
    for most in (0, HISTORY_ROWS_MAX + 1):
        with pytest.raises(ValueError, match="HISTORY_ROWS_MAX"):
            await stage.store.live("orders", most=most)
    for after in ("x", "-1", "5", "9" * 20, " 0", "٣"):
        with pytest.raises(ValueError, match="page ended"):
            await stage.store.live("orders", most=1, after=after)
    assert len(await stage.store.live("orders", most=1, after="8888888888888888880")) == 0
    with pytest.raises(QueueNotFound):
        await stage.store.live("nowhere", most=1)
