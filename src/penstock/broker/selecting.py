"""Which messages an operator means: a filter, and the ids of what fits it, page by page."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from penstock.contract.limits import PAGE_MAX
from penstock.store.interface import Message, QueueStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Messages that fit all that is said; None says nothing."""

    place: str | None = None
    tier: int | None = None
    group: bytes | None = None
    text: bytes | None = None
    error: str | None = None
    origin: str | None = None

    def fits(self, message: Message) -> bool:
        """Whether a message that the store has found fits what the store was not asked for."""
        if self.error is not None and self.error not in message.error:
            return False
        return self.origin is None or (message.past is not None and self.origin in message.past[:2])


async def select(
    store: QueueStore, queue: str, selection: Selection, *, most: int
) -> AsyncGenerator[list[str] | None, None]:
    """Yield the ids of at most ``most`` messages, in pages. Between pages the queue moves on."""
    left = most
    async with aclosing(pages(store, queue, selection)) as found:
        async for messages in found:
            ids = [message.id for message in messages][:left]
            left -= len(ids)
            if ids:
                yield ids
            if not left:
                return


async def pages(store: QueueStore, queue: str, selection: Selection) -> AsyncGenerator[list[Message], None]:
    """Yield the messages that fit, page by page; a page may be empty."""
    after = ""
    while True:
        page = await store.peek(
            queue,
            most=PAGE_MAX,
            after=after,
            place=selection.place,
            tier=selection.tier,
            group=selection.group,
            text=selection.text,
        )
        yield [message for message in page.messages if selection.fits(message)]
        after = page.next
        if not after:
            return
