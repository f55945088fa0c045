"""Messages as they are now, with their bodies: one by its id, or a page of those that are sought.

What is where is found out at one moment; the bodies are read after it, one record
after the other, until a page is full or as large as one may be. A page is made in turns of some
hundred messages, with others served between them. Whatever is dropped
from the journal meanwhile waits for the reading (`readers.py`).
"""

import asyncio
from collections.abc import Sequence

from penstock.contract.limits import PAGE_MAX, PEEK_BYTES_MAX, TURN_MESSAGES
from penstock.core.queue import queries
from penstock.core.queue.listing import BrowseFilter, browse, from_text, to_text
from penstock.core.queue.queries import MessageView
from penstock.core.queue.state import State
from penstock.store.embedded.asking import find_holders, present
from penstock.store.embedded.bodies import Span
from penstock.store.embedded.naming import NameOf, ids_of, key_of, past_of
from penstock.store.embedded.shard import Shard
from penstock.store.interface import Message, MessageFilter, Page, check_most

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
        with shard.readers.begin():
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
    with shard.readers.begin():
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
