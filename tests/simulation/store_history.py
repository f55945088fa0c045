"""What the history of a store tells, and whether it can be true.

What must hold when every queue has been drained, however often the process died
-------------------------------------------------------------------------------
1. Each message that was accepted left each queue that it was in, and once for each
   time it came to it: it was buried as often as it came to the dead letters, redriven
   as often as it came back, and left for good once.
2. How it ended is what its clients know: one that was acked ended so, in that queue,
   with as many deliveries as its consumer was told. No other ended so, unless an
   answer was lost.
3. Its body is told where the queue keeps bodies, and is what was sent.
4. The rows of a queue are as many as the messages that ever were in it. So nothing is
   told of a message that a crash has undone.

Rows of several shards have no order: what arrived in one may be settled there before
the other has written that it is gone.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.contract.messages import MessageOutcome
from penstock.contract.queue_settings import History, QueueSettings
from penstock.store.embedded.history_writer import frames
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.ids import message_id
from tests.simulation.store_books import NEVER, Books, Message

GRAVE = ".dead"
FOR_GOOD = frozenset({MessageOutcome.ACKED, MessageOutcome.EXPIRED, MessageOutcome.PURGED, MessageOutcome.DELETED})


class Row(NamedTuple):
    """One row of the history."""

    message: str
    queue: str
    queue_number: int
    home: int
    ending: MessageOutcome
    deliveries: int
    sent_at_ms: int
    settled_at_ms: int
    group: bytes
    # None if the queue keeps none.
    body: bytes | None


async def read_rows(store: EmbeddedStore) -> list[Row]:
    """Return all rows of all shards; those of each in their order."""
    rows: list[Row] = []
    for running in store._shards.running:
        log = running.history_log
        async for _, frame in frames(log, log.start_offset):
            names = frame.names()
            for row in range(frame.head.rows):
                is_kept = frame.body_state is not None and frame.body_state[row]
                rows.append(
                    Row(
                        message_id(frame.home[row], frame.number[row] << 3 | frame.sent_tier[row]),
                        names[frame.queue[row]],
                        frame.queue[row],
                        frame.home[row],
                        MessageOutcome(frame.ending[row]),
                        frame.deliveries[row],
                        frame.sent_at_ms[row],
                        frame.settled_at_ms[row],
                        b"" if frame.group is None else bytes(frame.group[row]),
                        bytes(frame.body[row]) if is_kept and frame.body is not None else None,
                    )
                )
    return rows


def ends(rows: Iterable[Row]) -> dict[str, Row]:
    """Return how each message left for good; it must have come and gone by turns."""
    by_message: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_message[row.message].append(row)
    return {message: _end(message, told) for message, told in by_message.items()}


def _end(message: str, rows: list[Row]) -> Row:
    story = f"{message}: " + ", ".join(f"{row.ending.name} in {row.queue}" for row in rows)
    last = [row for row in rows if row.ending in FOR_GOOD]
    assert len(last) == 1, f"the history tells of {len(last)} ends: {story}"
    buried = [row for row in rows if row.ending is MessageOutcome.BURIED]
    redriven = [row for row in rows if row.ending is MessageOutcome.REDRIVEN]
    assert len(last) + len(buried) + len(redriven) == len(rows), f"an unknown ending: {story}"
    assert all(row.queue_number == row.home for row in buried), f"buried from where it was not sent to: {story}"
    assert all(row.queue_number != row.home for row in redriven), f"redriven from where it was sent to: {story}"
    came = len(buried) - len(redriven)
    assert came == (last[0].queue_number != last[0].home), f"{came} burials too many: {story}"
    counts = [row.deliveries for row in buried]
    assert len(set(counts)) == len(counts), f"one burial is told twice: {story}"
    return last[0]


def check_totals(store: EmbeddedStore, rows: Iterable[Row]) -> None:
    """Of queues that are there, and empty: as many messages have left as ever came."""
    told: dict[int, int] = defaultdict(int)
    for row in rows:
        told[row.queue_number] += 1
    for shard in store._shards.all:
        for number, queue in shard.memory.queues.items():
            came = sum(lane.next for lane in queue.state.lanes)
            name = shard.memory.names[number]
            assert told[number] == came, f"{came} messages came to {name}, and the history tells of {told[number]}"


def judge(books: Books, rows: list[Row], settings: Mapping[str, QueueSettings]) -> None:
    """Compare the history of drained queues with what the clients know."""
    last = ends(rows)
    for message in books.messages.values():
        assert message.id in last, f"the history has not told of {message.id} of {message.queue}"
    for row in last.values():
        _judge_end(books, row, settings)
    for row in rows:
        is_full = row.queue in settings and settings[row.queue].history is History.FULL
        assert (row.body is not None) == is_full, f"{row.message} of {row.queue}: is its body to be kept?"
        _judge_contents(books, row)


def _judge_end(books: Books, row: Row, settings: Mapping[str, QueueSettings]) -> None:
    name, message = row.message, books.messages.get(row.message)
    if row.ending is MessageOutcome.ACKED:
        assert message is not None, f"{name} was acked without a lease"
        _judge_ack(message, row)
        return
    assert message is None or message.gone == NEVER, f"{name} was acked, and told as {row.ending.name}"
    if row.ending is MessageOutcome.EXPIRED:
        keeps_ms = settings[row.queue].retention_ms
        assert 0 < keeps_ms <= row.settled_at_ms - row.sent_at_ms, f"{name} of {row.queue} was not too old"
    else:
        since = 0 if message is None else message.begun
        assert books.may_be_emptied(row.queue, since), f"{name}: {row.ending.name}, without a verb"


def _judge_ack(message: Message, row: Row) -> None:
    if message.gone == NEVER:
        assert message.acks_unknown, f"{message.id} was acked by no client"
        return
    assert message.acked is not None
    assert row.queue == message.acked.queue, f"{message.id} was acked in {message.acked.queue}, not in {row.queue}"
    told = message.acked.deliveries
    assert row.deliveries == told, f"{message.id} was acked at delivery {told}, not {row.deliveries}"


def _judge_contents(books: Books, row: Row) -> None:
    message = books.messages.get(row.message)
    draft = None if message is None else message.draft
    if message is None or draft is None:
        return
    assert row.queue in (message.queue, message.queue + GRAVE), f"{row.message} was never in {row.queue}"
    assert row.group == draft.group, f"{row.message}: not its group"
    assert draft.send.begun_at_ms <= row.sent_at_ms <= row.settled_at_ms, f"{row.message}: not its times"
    assert row.body in (None, draft.body), f"{row.message}: not its body"
