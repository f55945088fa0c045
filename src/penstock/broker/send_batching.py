"""Small sends of many clients, gathered: one decision, one event and one record for all of a turn.

    send ─┐
    send ─┼─▶ waiting for the turn ──▶ one send of the store ──▶ each gets its own ids
    send ─┘        (while the one before is on its way to the disk, the next gathers)

A send of one message costs the store almost what a send of a hundred does, and so do
the events and the records that it leaves behind.

Laws of this file
-----------------
1. A send is gathered whole: its messages are neighbours, in their order.
2. No send suffers for a neighbour: if what was gathered is refused, each is sent alone
   and gets its own answer.
3. What has a sender is not gathered: that is remembered for each send by itself.
4. No send waits for a clock: what has gathered goes when the one before is durable.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple

from penstock.contract.limits import GATHERED_BYTES_MAX, GATHERED_MESSAGES_MAX
from penstock.contract.messages import Tier
from penstock.core.queue.message import Drafts
from penstock.frame import size_of
from penstock.runtime.coroutines import drive
from penstock.store.placement import Placement

_NORMAL = bytes((Tier.NORMAL,))
# Larger sends gain nothing by company.
SMALL = 64


class PendingSend(NamedTuple):
    drafts: Drafts
    answer: "asyncio.Future[Sequence[str]]"


@dataclass(slots=True)
class QueueBatch:
    """The sends to one queue: those that gather, and whether others are on their way."""

    waiting: list[PendingSend] = field(default_factory=list)
    messages: int = 0
    size_bytes: int = 0
    is_sending: bool = False


class SendBatching:
    def __init__(self, placement: Placement) -> None:
        self._placement = placement
        self._only = placement.only
        self._batches: dict[str, QueueBatch] = {}
        # The owner of the broker owns the tasks.
        self.tasks: asyncio.TaskGroup | None = None
        # What sends without a task wait for; the store ends that when it is closed.
        self._waits: set[asyncio.Future[object]] = set()

    async def send(self, queue: str, drafts: Drafts) -> Sequence[str]:
        store = self._only or self._placement.of(queue)
        if self.tasks is None or len(drafts) > SMALL:
            return await store.send(queue, drafts)
        size_bytes = size_of(drafts.bodies)
        if size_bytes > GATHERED_BYTES_MAX // 8:
            return await store.send(queue, drafts)
        batch = self._batches.get(queue)
        if batch is None:
            batch = self._batches[queue] = QueueBatch()
        if batch.messages + len(drafts) > GATHERED_MESSAGES_MAX or batch.size_bytes + size_bytes > GATHERED_BYTES_MAX:
            return await store.send(queue, drafts)
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Sequence[str]] = loop.create_future()
        batch.waiting.append(PendingSend(drafts, answer))
        batch.messages += len(drafts)
        batch.size_bytes += size_bytes
        if not batch.is_sending:
            batch.is_sending = True
            # In the next turn, so that all requests of this one are in it.
            loop.call_soon(self._begin, queue, batch)
        return await answer

    def _begin(self, queue: str, batch: QueueBatch) -> None:
        assert self.tasks is not None
        sending = self._send_gathered(queue, batch)
        if self._only is None or self._only.needs_tasks:
            self.tasks.create_task(sending)
        else:
            drive(sending, self._waits)

    async def _send_gathered(self, queue: str, batch: QueueBatch) -> None:
        together: list[PendingSend] = []
        try:
            while batch.waiting:
                together = [each for each in batch.waiting if not each.answer.done()]
                batch.waiting, batch.messages, batch.size_bytes = [], 0, 0
                if together:
                    await self._send_all(queue, together)
        finally:
            batch.is_sending = False
            self._batches.pop(queue, None)
            # A send without an answer by now gets none: this was cancelled, and so is the send.
            for each in (*together, *batch.waiting):
                each.answer.cancel()

    async def _send_all(self, queue: str, together: list[PendingSend]) -> None:
        if len(together) == 1:
            await self._send_alone(queue, together[0])
            return
        try:
            store = self._only or self._placement.of(queue)
            ids = await store.send(queue, merge([each.drafts for each in together]))
        except Exception:
            # One of them may be the cause: each is sent alone, and gets its own answer.
            for each in together:
                await self._send_alone(queue, each)
            return
        start = 0
        for drafts, answer in together:
            end = start + len(drafts)
            if not answer.done():
                answer.set_result(ids[start:end])
            start = end

    async def _send_alone(self, queue: str, waiting: PendingSend) -> None:
        answer = waiting.answer
        try:
            store = self._only or self._placement.of(queue)
            ids = await store.send(queue, waiting.drafts)
        except Exception as error:
            if not answer.done():
                answer.set_exception(error)
        else:
            if not answer.done():
                answer.set_result(ids)


def merge(together: Sequence[Drafts]) -> Drafts:
    """Return all drafts as one; a column that only some have is filled with empty values for the others.

    >>> merge([Drafts(bodies=[b"a"]), Drafts(bodies=[b"b"], groups=[b"g"])]).groups
    [b'', b'g']
    """
    tiers = None
    if any(drafts.tiers is not None for drafts in together):
        tiers = b"".join(drafts.tiers or _NORMAL * len(drafts) for drafts in together)
    return Drafts(
        bodies=list(chain.from_iterable(drafts.bodies for drafts in together)),
        tiers=tiers,
        visible_at_ms=_column(together, lambda drafts: drafts.visible_at_ms, 0),
        groups=_column(together, lambda drafts: drafts.groups, b""),
        dedup_ids=_column(together, lambda drafts: drafts.dedup_ids, b""),
        attributes=_column(together, lambda drafts: drafts.attributes, b""),
        deliveries_max=_column(together, lambda drafts: drafts.deliveries_max, 0),
    )


def _column(together: Sequence[Drafts], of: Callable[[Drafts], Any], nothing: object) -> list[Any] | None:
    columns = [of(drafts) for drafts in together]
    if all(column is None for column in columns):
        return None
    found: list[Any] = []
    for drafts, column in zip(together, columns, strict=True):
        found += [nothing] * len(drafts) if column is None else column
    return found
