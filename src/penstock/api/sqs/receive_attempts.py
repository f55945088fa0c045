"""`ReceiveRequestAttemptId`: a receive whose answer was lost can be repeated, and returns the same messages.

This holds for five minutes, as long as the lease of every message of the first answer lasts. Then
all leases are renewed for the visibility timeout, and the answer is the same. Otherwise the
repeat is an ordinary receive. Answers are remembered in this process only, and within a limit, so
after a restart the messages of a lost answer come back when their visibility timeout ends.
"""

from collections import OrderedDict
from typing import NamedTuple

from penstock.api.sqs.shapes import Message
from penstock.broker.queues import Queues
from penstock.core.queue.message import Receipts
from penstock.store.interface import Outcome

REMEMBERED_MS = 5 * 60 * 1_000
REMEMBERED_BYTES_MAX = 16 * 1_024 * 1_024
# What an answer takes beside its bodies.
_MESSAGE_BYTES = 1_024


class Answered(NamedTuple):
    receipts: Receipts
    messages: list[Message]
    size_bytes: int
    at_ms: int


class Attempts:
    """Answers by queue and attempt, the oldest first."""

    __slots__ = ("answers", "size_bytes")

    def __init__(self) -> None:
        self.answers: OrderedDict[tuple[int, str], Answered] = OrderedDict()
        self.size_bytes = 0

    def forget(self, key: tuple[int, str]) -> None:
        known = self.answers.pop(key, None)
        if known is not None:
            self.size_bytes -= known.size_bytes

    def remember(self, key: tuple[int, str], answered: Answered) -> None:
        self.forget(key)
        self.answers[key] = answered
        self.size_bytes += answered.size_bytes
        oldest = next(iter(self.answers))
        while self.size_bytes > REMEMBERED_BYTES_MAX or self.answers[oldest].at_ms + REMEMBERED_MS <= answered.at_ms:
            self.forget(oldest)
            if not self.answers:
                return
            oldest = next(iter(self.answers))


class Attempt(NamedTuple):
    """One receive that may be repeated."""

    queue: int
    id: str

    async def again(self, attempts: Attempts, queues: Queues, queue: str, *, lease_ms: int) -> list[Message] | None:
        """Return the earlier answer with its leases renewed; None if a lease has ended."""
        known = attempts.answers.get(self)
        if known is None or queues.now_ms() >= known.at_ms + REMEMBERED_MS:
            return None
        outcomes = await queues.extend(queue, known.receipts, lease_ms=lease_ms)
        if outcomes.count(Outcome.DONE) == len(known.receipts):
            return known.messages
        attempts.forget(self)
        return None

    def remember(self, attempts: Attempts, receipts: Receipts, messages: list[Message], *, now_ms: int) -> None:
        size = sum(len(each.body) + _MESSAGE_BYTES for each in messages)
        attempts.remember(self, Answered(receipts, messages, size, now_ms))
