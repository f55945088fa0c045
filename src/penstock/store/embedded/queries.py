"""What can be asked of the queues of a shard. Nothing here writes, and every answer is durable.

What is where is found out at one moment. Bodies are read after it, one record after the
other; what is dropped from the journal meanwhile waits for the reading (`shard.Readers`).

`peek` makes a page in turns of some hundred messages, with others served between them.

`live` lists all that is in a queue, for programs that count everything: one look of the core makes a page.
If a look finds nothing in a long stretch of settled numbers, the end of the stretch is searched for
in turns, and the queue is looked at again from there.
"""

import asyncio
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

from penstock.contract.history_columns import FRAME_ROW_BITS
from penstock.contract.limits import HISTORY_ROWS_MAX, PAGE_MAX, PEEK_BYTES_MAX, TURN_MESSAGES, TURN_ROWS
from penstock.contract.messages import TIERS
from penstock.contract.names import dead_letters_of
from penstock.core.queue import queries
from penstock.core.queue.explain import explain as explain_core
from penstock.core.queue.listing import (
    START,
    BrowseFilter,
    ListCursor,
    Listing,
    browse,
    from_text,
    has_many_leases,
    list_live,
    next_live,
    next_numbers,
    to_text,
)
from penstock.core.queue.message import Origin, Receipt, Run
from penstock.core.queue.queries import MessageView
from penstock.core.queue.queries import wakes_at_ms as wakes_at_ms_of
from penstock.core.queue.queue import Queue
from penstock.core.queue.state import State
from penstock.frame import Blobs
from penstock.store.embedded.body_index import BodyIndex, Span
from penstock.store.embedded.shard import Shard
from penstock.store.embedded.shard_lifecycle import ShardLifecycle
from penstock.store.embedded.shard_set import ShardSet
from penstock.store.ids import MessageIds, message_id, parse, queue_id
from penstock.store.interface import (
    Bound,
    Counts,
    Description,
    Escalation,
    Explained,
    Message,
    MessageFilter,
    Page,
    Past,
    check_ids,
    check_most,
)
from penstock.store.pages import Coded, LivePage, NumberRange

# From the number of a queue to its name, None if it is deleted.
NameOf = Callable[[int], str | None]


UNBOUNDED = 2**40


def present(shard: Shard, queue: str) -> Queue:
    """Return a queue, moved to the present."""
    found = shard.queue(queue)
    found.advance(shard.now_ms())
    return found


async def queues(shards: ShardSet, *, prefix: str, after: str, most: int) -> list[str]:
    check_most(most)
    async with shards.answer:
        names = sorted(chain.from_iterable(shard.memory.numbers for shard in shards.all))
        first = max(bisect_right(names, after), bisect_left(names, prefix))
        return list(takewhile(lambda name: name.startswith(prefix), names[first : first + most]))


async def counts(shard: Shard, queue: str) -> Counts:
    async with shard.answer:
        return _counts(present(shard, queue).state)


_NONE = (None,) * TIERS


def _counts(state: State) -> Counts:
    found = queries.counts(state)
    if not found.live:
        return Counts(found.ready, 0, 0, _NONE)
    oldest = tuple(queries.oldest_sent_at_ms(state)) if any(found.ready) else _NONE
    delayed, stuck_since_ms = found.resting + found.moving, queries.spent_since_ms(state)
    noisy = queries.noisy(state)
    leased_sent_at_ms = queries.leased_sent_at_ms(state) if found.leased else None
    return Counts(found.ready, found.leased, delayed, oldest, found.spent, stuck_since_ms, *noisy, leased_sent_at_ms)


async def summaries(shards: ShardSet, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]:
    """Describe and count some queues: all of them are looked at at once, and wait for the disk together."""
    async with shards.answer:
        found: list[tuple[Description, Counts] | None] = []
        for queue in queues:
            shard = shards.find(queue)
            if shard is None:
                found.append(None)
                continue
            state = present(shard, queue).state
            found.append((_description(shards, queue, state), _counts(state)))
        return found


def wakes_at_ms(shard: Shard, queue: str) -> int | None:
    return wakes_at_ms_of(present(shard, queue).state)


async def describe(shards: ShardSet, queue: str) -> Description:
    async with shards.answer:
        return _description(shards, queue, present(await shards.at(queue), queue).state)


def _description(shards: ShardSet, queue: str, state: State) -> Description:
    grave = grave_of(queue, state)
    shard = shards.find(grave)
    grave_id = None if shard is None else queue_id(shard.memory.numbers[grave])
    return Description(
        queue=queue,
        id=queue_id(state.queue),
        settings=state.settings,
        created_at_ms=state.created_at_ms or None,
        dead_letters=None if grave_id is None else grave,
        dead_letters_id=grave_id,
        bounds=tuple(map(Bound._make, queries.bounds(state, state.now_ms))),
    )


def grave_of(queue: str, state: State) -> str:
    """Return the name of the queue that a queue buries in."""
    return state.settings.dead_letters or dead_letters_of(queue)


def room_of(target: Queue) -> int:
    """Return how many messages may be moved into a queue."""
    size_max = target.state.settings.size_max
    return max(0, size_max - target.state.live) if size_max else UNBOUNDED


async def find_holders(shard: Shard, queue: str) -> None:
    """Have leases found by their messages from now on; the first time that is long work, done in turns."""
    # The caller reports a queue that is gone, when that is durable.
    while (number := shard.memory.numbers.get(queue)) is not None:
        if shard.memory.queues[number].state.leases.make_index(TURN_ROWS):
            return
        await asyncio.sleep(0)


async def explain(shard: Shard, queue: str, message_id: str) -> Explained | None:
    await find_holders(shard, queue)
    async with shard.answer:
        state = present(shard, queue).state
        message = key_of(state, message_id)
        explanation = None if message is None else explain_core(state, message)
        if explanation is None:
            return None
        leases = explanation.leases_bound
        bound = None if leases is None else Bound(leases, state.started.ms_for(leases, state.now_ms))
        return Explained(message_id, explanation, bound)


async def receipts(shard: Shard, queue: str, ids: Sequence[str], *, outlives: bool = False) -> list[Receipt | None]:
    check_ids(ids)
    await find_holders(shard, queue)
    async with shard.answer:
        state = present(shard, queue).state
        keys = [key_of(state, each) for each in ids]
        known = [key for key in keys if key is not None]
        held = queries.holders(state, known)
        if outlives:
            held |= queries.late_holders(state, known)
        return [_receipt(state, held[key]) if key in held else None for key in keys]


def _receipt(state: State, held: tuple[int, int]) -> Receipt:
    lease, row = held
    return Receipt(lease, state.leases.token[state.leases.find(lease)], row)


async def audit(shard: Shard, queue: str, *, most: int) -> list[Escalation]:
    check_most(most)
    async with shard.answer:
        state = present(shard, queue).state
        newest = list(state.audit)[: -most - 1 : -1]
        return [
            Escalation(each.at_ms, each.actor, each.reason, each.tier, each.until_ms, _ids_of_runs(state, each.runs))
            for each in newest
        ]


def _ids_of_runs(state: State, runs: Sequence[Run]) -> list[str]:
    return [id_of(state, number << 3 | lane) for lane, first, count in runs for number in range(first, first + count)]


_EMPTY = memoryview(b"")
# Messages that are passed over in one turn of the loop: most cost less than one that is shown.
_TURN_STEPS = 4 * TURN_MESSAGES


async def peek(shard: Shard, queue: str, sought: MessageFilter, *, most: int, after: str, name_of: NameOf) -> Page:
    check_most(most)
    position, text = from_text(after), sought.text
    browsed = BrowseFilter(sought.place, sought.tier, sought.group)
    messages: list[Message] = []
    size_bytes = looked_at = 0
    while True:
        if position:
            # Bodies in memory are read without a pause: let others have their turn.
            await asyncio.sleep(0)
        with shard.readers.current:
            async with shard.answer:
                state = present(shard, queue).state
                # A search looks into more bodies than it returns.
                few = TURN_MESSAGES if sought.is_search else min(most - len(messages), TURN_MESSAGES)
                found = browse(state, browsed, after=position, most=few, steps_max=_TURN_STEPS)
                unread = _Unread(shard, state, found.seen, name_of)
            for row, where in enumerate(found.positions):
                message = await unread.message(row)
                size_bytes += len(message.body) + len(message.attributes)
                if (text is None or text in bytes(message.body)) and sought.fits_story(message):
                    messages.append(message)
                is_full = len(messages) == most or size_bytes >= PEEK_BYTES_MAX
                if is_full and row + 1 < len(found.positions):
                    return Page(messages, to_text(where))
        looked_at += max(_TURN_STEPS // 4, len(found.seen))
        if found.after is None or len(messages) == most or size_bytes >= PEEK_BYTES_MAX or looked_at >= PAGE_MAX:
            return Page(messages, to_text(found.after))
        position = found.after


async def look(shard: Shard, queue: str, message_id: str, *, name_of: NameOf) -> Message | None:
    await find_holders(shard, queue)
    with shard.readers.current:
        async with shard.answer:
            state = present(shard, queue).state
            message = key_of(state, message_id)
            seen = None if message is None else queries.look(state, message)
            unread = None if seen is None else _Unread(shard, state, [seen], name_of)
        return None if unread is None else await unread.message(0)


class _Unread:
    """Messages as they were at one moment, whose bodies are still to be read."""

    def __init__(self, shard: Shard, state: State, seen: Sequence[MessageView], name_of: NameOf) -> None:
        self._shard = shard
        self._seen = seen
        self._ids = ids_of(state, [each.message for each in seen])
        self._pasts = [past_of(each.origin, name_of) for each in seen]
        places = shard.memory.places[state.queue]
        self._spans: list[Span] = [places.span(each.message & 7, each.message >> 3) for each in seen]

    async def message(self, row: int) -> Message:
        (body,), attributes = await self._shard.bodies([self._spans[row]])
        seen = self._seen[row]
        return Message(
            id=self._ids[row],
            body=body,
            attributes=_EMPTY if attributes is None else attributes[0],
            place=seen.place,
            tier=seen.tier,
            sent_tier=seen.sent_tier,
            sent_at_ms=seen.sent_at_ms,
            deliveries=seen.deliveries,
            visible_at_ms=seen.visible_at_ms or None,
            group=seen.group,
            error=seen.error,
            past=self._pasts[row],
            is_escalated=seen.is_escalated,
        )


_CURSOR = re.compile(r"[0-9]{1,19}")


class LiveQuery(NamedTuple):
    """From where on, how many, and what besides them."""

    after: str
    most: int
    with_bodies: bool
    is_told: bool


async def live(running: ShardLifecycle, index: int, queue: str, look: LiveQuery) -> LivePage:
    start = _start(look.after, look.most)
    shard = running.shard
    if has_many_leases(shard.queue(queue).state):
        await find_holders(shard, queue)
    passed: list[NumberRange] = []
    while True:
        with shard.readers.current:
            async with shard.answer:
                state = present(shard, queue).state
                places = shard.memory.places[state.queue]
                found = _list(state, places, start, look)
                seen_at_ms, nexts = state.now_ms, next_numbers(state)
                spans = places.spans(found.runs) if look.with_bodies else []
            body, attributes = await _bodies(shard, spans) if look.with_bodies else (None, None)
        ranges = _joined(passed, [NumberRange(*each) for each in found.ranges])
        if len(found) or found.after is None:
            break
        start = await _pass_over(shard, queue, found.after)
        passed = _joined(ranges, [NumberRange(found.after.lane, found.after.number, start.number)])
    history_offset = None
    if look.is_told and await shard.tell_history():
        history_offset = running.history_log.durable_offset << FRAME_ROW_BITS
    return LivePage(
        queue=queue,
        queue_number=state.queue,
        shard=index,
        seen_at_ms=seen_at_ms,
        ranges=ranges,
        next_numbers=nexts,
        next="" if found.after is None else str(found.after.number << 3 | found.after.lane),
        history_offset=history_offset,
        home=memoryview(found.homes),
        sent_tier=memoryview(found.home_lanes),
        number=memoryview(found.home_numbers),
        key=memoryview(found.keys),
        tier=memoryview(found.tiers),
        place=memoryview(found.places),
        sent_at_ms=memoryview(found.sent_at_ms),
        deliveries=memoryview(found.deliveries),
        group=_coded(found.groups, len(found)),
        error=_coded({row: error.encode() for row, error in found.errors.items()}, len(found)),
        body=body,
        attributes=attributes,
    )


async def _pass_over(shard: Shard, queue: str, start: ListCursor) -> ListCursor:
    """Return where something may be live next, behind numbers that are settled; looked for in turns."""
    await find_holders(shard, queue)
    place = start
    for found in next_live(shard.queue(queue).state, start):
        place = found
        await asyncio.sleep(0)
    return place


def _joined(ranges: Sequence[NumberRange], more: Sequence[NumberRange]) -> list[NumberRange]:
    """Return ranges in the order of their numbers, as one where they follow each other."""
    joined = list(ranges)
    for each in more:
        if joined and joined[-1].lane == each.lane and joined[-1].end == each.first:
            joined[-1] = NumberRange(each.lane, joined[-1].first, each.end)
        else:
            joined.append(each)
    return joined


def _start(after: str, most: int) -> ListCursor:
    if not 1 <= most <= HISTORY_ROWS_MAX:
        raise ValueError(f"most is {most}; it must be from 1 to HISTORY_ROWS_MAX ({HISTORY_ROWS_MAX})")
    if not after:
        return START
    key = int(after) if _CURSOR.fullmatch(after) else -1
    if key < 0 or key & 7 >= TIERS:
        raise ValueError(f"{after[:100]!r} is not where a page ended")
    return ListCursor(key & 7, key >> 3)


async def _bodies(shard: Shard, spans: Sequence[Span]) -> tuple[Blobs, Blobs | None]:
    bodies, attributes = await shard.bodies(spans)
    return Blobs.of(list(bodies)), None if attributes is None else Blobs.of(list(attributes))


def _list(state: State, places: BodyIndex, start: ListCursor, look: LiveQuery) -> Listing:
    """Return a list whose bodies fit into an answer, by the means of the records they are in; of one at least."""
    most = look.most
    while True:
        found = list_live(state, start=start, most=most)
        size = places.size_bytes(found.runs) if look.with_bodies else 0
        if size <= PEEK_BYTES_MAX or len(found) <= 1:
            return found
        most = max(1, len(found) * PEEK_BYTES_MAX // size)


def _coded(words: Mapping[int, bytes], rows: int) -> Coded | None:
    if not words:
        return None
    known: dict[bytes, int] = {b"": 0}
    codes = array("i", bytes(4 * rows))
    for row, word in words.items():
        codes[row] = known.setdefault(word, len(known))
    return Coded(memoryview(codes), Blobs.of(list(known)))


def id_of(state: State, message: int) -> str:
    """Return the id of a message: number and lane in the queue it was first sent to."""
    queue, lane, number = queries.identity(state, message)
    return message_id(queue, number << 3 | lane)


def ids_of(state: State, messages: Sequence[int]) -> Sequence[str]:
    if not state.rows.origins:
        return MessageIds(state.queue, messages)
    return [id_of(state, message) for message in messages]


def key_of(state: State, text: str) -> int | None:
    """Return the key of the message with this id, None if it cannot be in this queue. It may be settled."""
    identity = parse(text)
    if identity is None:
        return None
    message = queries.find(state, *identity)
    # A message that came from elsewhere has a number here, but that is no part of its id.
    return message if message is not None and queries.identity(state, message) == identity else None


def past_of(origin: Origin | None, name_of: NameOf) -> Past | None:
    if origin is None:
        return None
    return Past(name_of(origin.queue), queue_id(origin.queue), origin.sent_at_ms, origin.deliveries)
