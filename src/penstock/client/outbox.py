"""What of a client is on its way: for each queue the sends and the settlements, under one bound of memory."""

import asyncio
from collections.abc import Iterator

from penstock.client.batching import IN_FLIGHT_MAX, MemoryLimit, SendBatcher, SettlementBatcher
from penstock.client.caller import Caller
from penstock.client.delivery import Delivery, ListedSends, SentIds
from penstock.client.drafts import Drafts
from penstock.client.errors import ClientClosed
from penstock.contract.limits import REQUEST_MESSAGES_MAX

PENDING_BYTES_MAX = 64 * 1024 * 1024
REQUEST_BYTES_MAX = 8 * 1024 * 1024


class Outbox:
    """Belongs to one client and one event loop. ``sender_id`` is what the server knows its sends by."""

    def __init__(self, caller: Caller, sender_id: int, *, pending_bytes_max: int = PENDING_BYTES_MAX) -> None:
        self.caller = caller
        self.timeout_s = caller.timeout_s
        self._sender_id = sender_id
        self._memory = MemoryLimit(pending_bytes_max)
        self._deliveries: dict[str, Delivery] = {}
        self._send_batchers: dict[str, SendBatcher] = {}
        self._settlement_batchers: dict[str, SettlementBatcher] = {}
        self._is_closed = False

    def send_batcher(self, queue: str) -> SendBatcher:
        found = self._send_batchers.get(queue)
        if found is None:
            found = self._send_batchers[queue] = SendBatcher(self._delivery(queue), self._memory)
        return found

    def settlement_batcher(self, queue: str) -> SettlementBatcher:
        found = self._settlement_batchers.get(queue)
        if found is None:
            self._check_open()
            found = self._settlement_batchers[queue] = SettlementBatcher(self.caller, queue)
        return found

    async def send_many(self, queue: str, drafts: Drafts, timeout_s: float | None) -> SentIds:
        """Send drafts in as many requests as they need; several at once if their order does not matter."""
        delivery = self._delivery(queue)
        time_s = self.timeout_s if timeout_s is None else timeout_s
        deadline_s = asyncio.get_running_loop().time() + time_s
        batches = [ListedSends(part, deadline_s) for part in _parts(drafts)]
        if len(batches) == 1:
            await delivery.deliver(batches[0])
        else:
            waiting = iter(batches)
            async with asyncio.TaskGroup() as tasks:
                for _ in range(1 if drafts.has_groups else IN_FLIGHT_MAX):
                    tasks.create_task(_deliver_each(delivery, waiting))
        return _result(batches)

    async def close(self) -> None:
        """Wait for what is on its way; cancelling this abandons it."""
        self._is_closed = True
        batchers: tuple[SendBatcher | SettlementBatcher, ...] = (
            *self._send_batchers.values(),
            *self._settlement_batchers.values(),
        )
        try:
            for each in batchers:
                await each.drain()
        finally:
            for each in batchers:
                await each.abandon()

    def _delivery(self, queue: str) -> Delivery:
        self._check_open()
        found = self._deliveries.get(queue)
        if found is None:
            found = self._deliveries[queue] = Delivery(self.caller, queue, self._sender_id)
        return found

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")


async def _deliver_each(delivery: Delivery, waiting: Iterator[ListedSends]) -> None:
    for batch in waiting:
        await delivery.deliver(batch)
        if batch.error is not None:
            # What comes after is not sent: the others of this send find nothing left.
            for _ in waiting:
                pass


def _parts(drafts: Drafts) -> list[Drafts]:
    """Cut drafts where a request is full."""
    if len(drafts) <= REQUEST_MESSAGES_MAX and sum(map(len, drafts.bodies)) <= REQUEST_BYTES_MAX:
        return [drafts]
    parts, start, size = [], 0, 0
    for position, body in enumerate(drafts.bodies):
        if position - start == REQUEST_MESSAGES_MAX or (size + len(body) > REQUEST_BYTES_MAX and position > start):
            parts.append(drafts.part(start, position))
            start, size = position, 0
        size += len(body)
    return [*parts, drafts.part(start, len(drafts))]


def _result(batches: list[ListedSends]) -> SentIds:
    error = next((batch.error for batch in batches if batch.error is not None), None)
    if error is not None:
        error.sent = [known for batch in batches for known in batch.known_ids()]
        raise error
    return SentIds([ids for batch in batches for ids in batch.ids()])
