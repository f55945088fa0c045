"""All that is in a queue, page by page: one look of the core, then the bodies.

The look is made in one turn of the loop, and told when everything it rests on is
durable. The bodies are read after it; what is dropped from the journal meanwhile
waits for the reading (`readers.py`). If a look finds nothing in a long stretch of settled
numbers, the end of the stretch is searched for in turns, and the queue is looked at again from there.
"""

import asyncio
import re
from array import array
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from penstock.contract.history_columns import FRAME_ROW_BITS
from penstock.contract.limits import HISTORY_ROWS_MAX, PEEK_BYTES_MAX
from penstock.contract.messages import TIERS
from penstock.core.queue.listing import START, ListCursor, Listing, has_many_leases, list_live, next_live, next_numbers
from penstock.core.queue.state import State
from penstock.frame import Blobs
from penstock.store.embedded.asking import find_holders, present
from penstock.store.embedded.bodies import Places, Span
from penstock.store.embedded.running import RunningShard
from penstock.store.embedded.shard import Shard
from penstock.store.pages import Coded, LivePage, NumberRange

_CURSOR = re.compile(r"[0-9]{1,19}")


class Look(NamedTuple):
    """From where on, how many, and what besides them."""

    after: str
    most: int
    with_bodies: bool
    is_told: bool


async def live(running: RunningShard, index: int, queue: str, look: Look) -> LivePage:
    start = _start(look.after, look.most)
    shard = running.shard
    if has_many_leases(shard.queue(queue).state):
        await find_holders(shard, queue)
    passed: list[NumberRange] = []
    while True:
        with shard.readers.begin():
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


def _list(state: State, places: Places, start: ListCursor, look: Look) -> Listing:
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
