"""What every store promises about the history of a queue: a row for each settled message, in pages that join."""

from itertools import pairwise
from typing import NamedTuple

import pytest

from penstock.contract.history_columns import BodyState
from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.contract.messages import MessageOutcome
from penstock.contract.queue_settings import History, QueueSettings
from penstock.core.queue.message import Drafts
from penstock.store.errors import NotWrittenYet, QueueNotFound, ShardNotFound
from penstock.store.interface import Release
from penstock.store.pages import Coded, HistoryPage, HistoryRange
from tests.conformance.stores import Stage, drain, every_store, lease, send
from tests.waiting import eventually


class Row(NamedTuple):
    id: str
    ending: MessageOutcome
    tier: int
    sent_tier: int
    deliveries: int
    group: bytes
    error: bytes
    body: bytes | None


def rows(page: HistoryPage) -> list[Row]:
    found = []
    for row, name in enumerate(page.ids):
        is_kept = page.body_state is not None and page.body_state[row] == BodyState.KEPT
        found.append(
            Row(
                name,
                MessageOutcome(page.ending[row]),
                page.tier[row],
                page.sent_tier[row],
                page.deliveries[row],
                _word(page.group, row),
                _word(page.error, row),
                bytes(page.body[row]) if is_kept and page.body is not None else None,
            )
        )
    return found


def _word(column: Coded | None, row: int) -> bytes:
    return b"" if column is None else bytes(column[row])


async def told(stage: Stage, queue: str = "orders", *, most: int = 1_000) -> list[Row]:
    """Return all rows of a queue, page by page, once the history has told everything."""
    await stage.reopen()
    page = await stage.store.history(queue, HistoryRange(most=most))
    found = rows(page)
    while page.next_offset < page.end_offset:
        assert len(page) <= most
        page = await stage.store.history(queue, HistoryRange(most=most, from_offset=page.next_offset))
        found += rows(page)
    return found


async def ack_one(stage: Stage, queue: str = "orders") -> None:
    await stage.store.ack(queue, (await lease(stage, 1, queue=queue)).receipts())


@every_store
async def test_a_settled_message_is_a_row_of_its_queue(stage: Stage) -> None:
    before_ms = stage.now_ms()
    drafts = Drafts(bodies=[b"a", b"b"], tiers=bytes([1, 4]), groups=[b"g", b""])
    ids = await stage.store.send("orders", drafts)
    await stage.advance(1_000)
    delivery = await lease(stage)
    await stage.store.ack("orders", [receipt for receipt in delivery.receipts() if receipt.row == 0])
    failed = [receipt for receipt in delivery.receipts() if receipt.row == 1]
    await stage.store.release("orders", failed, Release(delay_ms=0, error="boom"))
    await ack_one(stage)
    found = await told(stage)
    assert sorted(found) == sorted(
        [
            Row(ids[0], MessageOutcome.ACKED, 1, 1, 1, b"g", b"", None),
            Row(ids[1], MessageOutcome.ACKED, 4, 4, 2, b"", b"boom", None),
        ]
    )
    page = await stage.store.history("orders", HistoryRange(most=10))
    assert all(before_ms <= at_ms <= before_ms + 999 for at_ms in page.sent_at_ms)
    for first_ms, last_ms, settled_ms in zip(
        page.first_leased_ms, page.last_leased_ms, page.settled_at_ms, strict=True
    ):
        assert before_ms + 1_000 <= first_ms <= last_ms <= settled_ms <= stage.now_ms()


@every_store
async def test_pages_of_any_size_join_without_a_gap(stage: Stage) -> None:
    await stage.store.create("mail", QueueSettings())
    sent = []
    for _ in range(4):
        for _ in range(5):
            sent += await send(stage, b"a", b"b")
            await send(stage, b"c", queue="mail")
        for queue in ("orders", "mail"):
            await drain(stage, queue=queue, want=3)
        await stage.reopen()
    whole = await told(stage)
    assert sorted(row.id for row in whole) == sorted(sent)
    for most in (1, 3, 7, 39, 40, 41):
        assert await told(stage, most=most) == whole
    assert len(await told(stage, "mail", most=3)) == 20


@every_store
async def test_a_row_comes_soon_after_its_message_is_settled(stage: Stage) -> None:
    await send(stage, b"a")
    await ack_one(stage)
    await stage.advance(2_000)
    # The store looks at its history by its own clock, which may be real.
    page = await eventually(lambda: stage.store.history("orders", HistoryRange(most=10)))
    assert len(page) == 1


@every_store
async def test_a_reader_at_the_end_is_told_to_ask_there_again(stage: Stage) -> None:
    empty = await stage.store.history("orders", HistoryRange(most=10))
    assert (len(empty), empty.next_offset, empty.group, empty.body) == (0, empty.offset, None, None)
    await send(stage, b"a", b"b")
    await ack_one(stage)
    await stage.reopen()
    first = await stage.store.history("orders", HistoryRange(most=10))
    end = await stage.store.history("orders", HistoryRange(most=10, from_offset=first.next_offset))
    assert (len(end), end.next_offset, end.end_offset) == (0, first.next_offset, first.next_offset)
    far = await stage.store.history("orders", HistoryRange(most=10, from_offset=first.next_offset + 2**60))
    assert (len(far), far.next_offset) == (0, first.next_offset + 2**60)
    await ack_one(stage)
    await stage.reopen()
    assert len(await stage.store.history("orders", HistoryRange(most=10, from_offset=first.next_offset))) == 1
    assert len(await stage.store.history("orders", HistoryRange(most=10, from_offset=first.first_kept_offset))) == 2


@every_store
async def test_the_history_may_be_read_from_a_time_on(stage: Stage) -> None:
    times = []
    for _ in range(5):
        for _ in range(2):
            await send(stage, b"a")
            await stage.advance(1_000)
            times.append(stage.now_ms())
            await ack_one(stage)
        await stage.reopen()
    for first, at_ms in enumerate(times):
        for most in (1, 100):
            page = await stage.store.history("orders", HistoryRange(most=most, from_ms=at_ms))
            found = page.settled_at_ms.tolist()
            while page.next_offset < page.end_offset:
                page = await stage.store.history(
                    "orders", HistoryRange(most=most, from_ms=at_ms, from_offset=page.next_offset)
                )
                found += page.settled_at_ms.tolist()
            assert len(found) == len(times) - first
            assert min(found) >= at_ms
    assert len(await stage.store.history("orders", HistoryRange(most=10, from_ms=stage.now_ms() + 1_000_000))) == 0


@every_store
async def test_a_queue_with_full_history_keeps_bodies_and_attributes(stage: Stage) -> None:
    await stage.store.create("full", QueueSettings(history=History.FULL))
    await send(stage, b"elsewhere")
    await ack_one(stage)
    await stage.store.send("full", Drafts(bodies=[b"one", b"two"], attributes=[b"{}", b""]))
    await drain(stage, queue="full")
    assert sorted(row.body or b"" for row in await told(stage, "full")) == [b"one", b"two"]
    page = await stage.store.history("full", HistoryRange(most=10))
    assert page.attributes is not None
    assert sorted(map(bytes, page.attributes)) == [b"", b"{}"]
    await stage.store.change("full", QueueSettings(history=History.FACTS))
    await send(stage, b"three", queue="full")
    await drain(stage, queue="full")
    assert sorted(str(row.body) for row in await told(stage, "full")) == ["None", "b'one'", "b'two'"]


@every_store
async def test_a_queue_tells_nothing_of_an_earlier_queue_of_its_name(stage: Stage) -> None:
    await send(stage, b"a")
    await drain(stage)
    await stage.store.delete("orders")
    await stage.store.create("orders", QueueSettings())
    assert await told(stage) == []
    with pytest.raises(QueueNotFound):
        await stage.store.history("nowhere", HistoryRange(most=1))


@every_store
async def test_a_page_of_the_history_has_limits_that_are_named(stage: Stage) -> None:
    for most in (0, HISTORY_ROWS_MAX + 1):
        with pytest.raises(ValueError, match="HISTORY_ROWS_MAX"):
            await stage.store.history("orders", HistoryRange(most=most))
    with pytest.raises(ValueError, match="from_offset"):
        await stage.store.history("orders", HistoryRange(most=1, from_offset=-1))


async def whole(stage: Stage, *, most: int = HISTORY_ROWS_MAX) -> dict[int, list[tuple[int, str, str]]]:
    """Return all that the shards tell, page by page: offset, queue and id of each row."""
    found: dict[int, list[tuple[int, str, str]]] = {}
    for shard, first, end in await stage.store.history_shards():
        rows, at = found.setdefault(shard, []), first
        while at < end:
            page = await stage.store.shard_history(shard, HistoryRange(from_offset=at, most=most))
            names = [page.names[queue] for queue in page.queue]
            rows += zip(page.offsets.tolist(), names, page.ids, strict=True)
            at = page.next_offset
    return found


@every_store
async def test_the_history_of_a_shard_has_the_rows_of_all_its_queues(stage: Stage) -> None:
    sent = {"orders": [*await send(stage, b"a", b"b", b"c")], "mail": [], "old": []}
    for queue in ("mail", "old"):
        await stage.store.create(queue, QueueSettings())
        sent[queue] += await send(stage, b"d", b"e", queue=queue)
    for queue in sent:
        await drain(stage, queue=queue, want=2)
    await stage.store.delete("old")
    await stage.reopen()
    told_of = await whole(stage)
    rows = [row for shard in told_of.values() for row in shard]
    assert sorted((queue, message) for _, queue, message in rows) == sorted(
        (queue, message) for queue, messages in sent.items() for message in messages
    )
    for shard in told_of.values():
        offsets = [offset for offset, _, _ in shard]
        assert offsets == sorted(set(offsets))
    for most in (1, 2, 5):
        assert await whole(stage, most=most) == told_of


@every_store
async def test_a_history_is_read_in_parts_that_join_without_a_gap(stage: Stage) -> None:
    for _ in range(6):
        await send(stage, b"a", b"b", b"c")
        await drain(stage)
        await stage.reopen()
    told_of = await whole(stage)
    for shard, first, end in await stage.store.history_shards():
        offsets = [offset for offset, _, _ in told_of[shard]]
        cuts, at = [first], first
        while at < end:
            at = await stage.store.history_offset_after(shard, at, rows=4)
            cuts.append(at)
        # Two frames of three rows are the first to have four.
        assert cuts == sorted(set(cuts))
        assert cuts[-1] == end
        assert len(cuts) == len(offsets) // 6 + 1
        found: list[int] = []
        for low, high in pairwise([*cuts[:1], *(offset + 1 for offset in offsets[1::4]), end]):
            at = low
            while at < high:
                page = await stage.store.shard_history(shard, HistoryRange(from_offset=at, until_offset=high, most=2))
                assert all(low <= offset < high for offset in page.offsets)
                found += page.offsets.tolist()
                at = page.next_offset
            assert at >= high
        assert found == offsets
        assert await stage.store.history_offset_after(shard, end, rows=1) == end
        assert await stage.store.history_offset_after(shard, 2**62, rows=1) == end


@every_store
async def test_every_row_of_a_time_or_later_is_at_its_offset_or_above(stage: Stage) -> None:
    times = []
    for _ in range(5):
        await send(stage, b"a")
        await stage.advance(1_000)
        times.append(stage.now_ms())
        await ack_one(stage)
        await stage.reopen()
    # Whichever shard the queue is in.
    rows = 0
    for shard, first, end in await stage.store.history_shards():
        page = await stage.store.shard_history(shard, HistoryRange(most=100))
        rows += len(page)
        for at_ms in (0, *times, times[-1] + 1_000_000):
            offset = await stage.store.history_offset_at(shard, at_ms)
            assert first <= offset <= end
            since = zip(page.offsets, page.settled_at_ms, strict=True)
            assert all(at >= offset for at, settled_ms in since if settled_ms >= at_ms)
    assert rows == 5


@every_store
async def test_a_moved_message_has_a_place_in_each_queue_that_it_left(stage: Stage) -> None:
    await stage.store.create("once", QueueSettings(deliveries_max=1, dead_letters="grave"))
    await stage.store.create("grave", QueueSettings(deliveries_max=0))
    await send(stage, b"other", queue="grave")
    (moved,) = await send(stage, b"a", queue="once")
    failed = await lease(stage, queue="once")
    await stage.store.release("once", failed.receipts(), Release(delay_ms=0))
    await stage.store.tidy()
    await drain(stage, queue="grave")
    await stage.reopen()
    for queue, places in (("once", {moved: 2}), ("grave", {moved: 1 << 3 | 2})):
        page = await stage.store.history(queue, HistoryRange(most=10))
        found = {message: page.key_of(row) for row, message in enumerate(page.ids)}
        assert found.items() >= places.items()


@every_store
async def test_trimming_lets_go_of_nothing_that_was_not_read(stage: Stage) -> None:
    await send(stage, b"a")
    await drain(stage)
    await stage.reopen()
    for shard, first, end in await stage.store.history_shards():
        with pytest.raises(NotWrittenYet, match=str(end)):
            await stage.store.trim_history(shard, before=end + 1)
        # All of it is in the segment that is written to, which stays.
        assert await stage.store.trim_history(shard, before=end) == first
    assert len(await told(stage)) == 1
    for nowhere in (-1, 99):
        with pytest.raises(ShardNotFound, match="no shard"):
            await stage.store.shard_history(nowhere, HistoryRange(most=1))
        with pytest.raises(ShardNotFound, match="no shard"):
            await stage.store.trim_history(nowhere, before=0)
