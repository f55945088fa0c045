"""What a store of queues promises: the verbs of a queue, in batches, and nothing of how.

Laws for every store
--------------------
1. An answer comes only after what it says is durable; also an answer that wrote
   nothing, such as "already acked".
2. A verb does all of its batch or, where it says so, answers row by row. Nothing
   is half done.
3. No verb waits for messages: that is the broker's business.
4. Queues are named; an unknown name raises `QueueNotFound`.

SQL, files and wire formats stay on their own sides of this line. What the core
raises (`QueueFull`, `BadDraft`, `BadSettings`, `SenderFenced`, `SendForgotten`)
passes through, and so do `LogFull` and `LogBusy` of a store that has a log.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

from penstock.core.message import Drafts, Receipt, Receipts, Sender
from penstock.core.settings import QueueSettings


class QueueNotFound(Exception):
    """There is no queue of this name."""


class QueueExists(Exception):
    """There is a queue of this name, with other settings."""


class Outcome(Enum):
    """What became of one receipt."""

    DONE = "done"
    # The lease has ended, or the message was settled: the receipt is worth nothing any more.
    STALE = "stale"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Messages handed out under one lease, as columns with one row for each."""

    lease: int
    token: int
    # The queue's own number for each message: what an id is made of.
    ids: Sequence[str]
    bodies: Sequence[memoryview]
    attributes: Sequence[memoryview] | None
    tiers: bytes
    deliveries: Sequence[int]
    sent_at_ms: Sequence[int]
    groups: Sequence[bytes] | None
    until_ms: int

    def __len__(self) -> int:
        return len(self.bodies)

    def receipts(self) -> Receipts:
        return Receipts(self.lease, self.token, len(self.bodies))


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages a queue holds; a tuple has one number for each tier."""

    ready: tuple[int, ...]
    leased: int
    delayed: int
    oldest_sent_at_ms: tuple[int | None, ...]

    @property
    def live(self) -> int:
        return sum(self.ready) + self.leased + self.delayed


class QueueStore(Protocol):
    async def create(self, queue: str, settings: QueueSettings) -> None:
        """Make a queue; again with equal settings changes nothing; with others raises `QueueExists`."""
        ...

    async def change(self, queue: str, settings: QueueSettings) -> None:
        """Replace the settings of a queue."""
        ...

    async def delete(self, queue: str) -> None:
        """Remove a queue and every message in it. Its dead letters are a queue of their own and stay."""
        ...

    async def send(self, queue: str, drafts: Drafts, *, sender: Sender | None = None) -> list[str]:
        """Number the drafts and return their ids; a duplicate gets the id of the first.

        A ``sender`` makes repeating harmless: the same sequence again answers as
        the first time and adds nothing.
        """
        ...

    async def lease(self, queue: str, *, want: int, lease_ms: int | None = None) -> Delivery | None:
        """Hand out at most ``want`` visible messages, hidden from others for ``lease_ms`` or the queue's own time.

        Returns at once, with None if nothing is visible.
        """
        ...

    async def ack(self, queue: str, receipts: Sequence[Receipt]) -> list[Outcome]:
        """Settle messages for good. Acking twice is acking once: the second is stale."""
        ...

    async def release(
        self, queue: str, receipts: Sequence[Receipt], *, delay_ms: int | None = None, error: str = ""
    ) -> list[Outcome]:
        """Give messages back, to rest for ``delay_ms`` or, if that is None, for the queue's backoff."""
        ...

    async def extend(self, queue: str, receipts: Sequence[Receipt], *, lease_ms: int) -> list[Outcome]:
        """Hold messages for ``lease_ms`` from now on."""
        ...

    async def purge(self, queue: str) -> int:
        """Settle every message in the queue, leased or not, and return how many."""
        ...

    async def counts(self, queue: str) -> Counts: ...

    async def tidy(self) -> None:
        """Do what is due without anyone asking: bury what is spent, let go of what is too old."""
        ...
