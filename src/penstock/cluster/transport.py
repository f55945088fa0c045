"""What replicas of a log say to each other, and how it gets there.

    follower                                  leader
       │── Fetch(epoch, offset, last epoch) ──▶│  "everything below offset is on my disk"
       │◀── Fetched(batches, high watermark) ──│
       │◀── Diverged(epoch, end) ──────────────│  "we part here": cut, and ask again
       │◀── FencedEpoch │ UnknownEpoch ────────│  one of us has missed an election
       │◀── NotLeader ─────────────────────────│

Only followers ask. So a leader holds no queues towards anyone, and a follower
that is slow, gone or from an older epoch costs it nothing.
"""

from dataclasses import dataclass
from typing import Protocol, TypeAlias


class Transport(Protocol):
    async def call(self, receiver: int, request: object, timeout_ms: int) -> object:
        """Send a request to another node and return its answer.

        Raises `TimeoutError` if none came in time, or `ConnectionError` if none
        will: the request may have been taken up all the same, even later.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    replica: int
    broker_epoch: int
    epoch: int  # The leadership the follower believes in.
    offset: int  # Its durable end: a promise, kept through a power cut (R1).
    last_epoch: int  # The epoch its log ends in.


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    batches: tuple[bytes, ...]  # Whole, in order, from the asked offset on; none if there is nothing yet.
    high_watermark: int
    start_offset: int  # What the leader has let go of, its followers may too.


@dataclass(frozen=True, slots=True)
class Diverged:
    """The asker's log is no part of ours: this is our newest epoch up to its last, and where it ends."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class FencedEpoch:
    """The asker believes in an older leadership than ours."""


@dataclass(frozen=True, slots=True)
class UnknownEpoch:
    """The asker knows of a newer leadership than we do."""


@dataclass(frozen=True, slots=True)
class NotLeader:
    """We lead nothing, or have just ceased to."""


FetchAnswer: TypeAlias = Fetched | Diverged | FencedEpoch | UnknownEpoch | NotLeader
