"""A consumer in a group, as a loop: records one by one, commits behind them, dead letters for what always fails.

    getmany ──► hand out ──► done ──────────────► commit, now and then
                  ▲  │
       rest, then │  └─ failed ──► attempts spent ──► dead letter ──► done
       once more  └───────┘

Laws of this file
-----------------
1. An offset is committed only when every record below it was processed, or is a durable
   dead letter. So a record comes at least once, and one that always fails does not hold up others.
2. Commits come behind: at the latest after `COMMIT_S`, after every batch, when
   partitions go to another member, and in the end.
3. What was fetched before partitions went away is not handed out afterwards, and
   its offsets are not committed: another member has them, or they are fetched again.

A record as a consumer sees it:

    async for record in topic.consume(group="billing"):
        with record:
            bill(record.json())

A `with` that ends well has processed the record. One that ends with an error keeps the error in the record and goes on:
the same record comes again, as its next attempt, until it has had all of them and goes to the dead letters. Without a
`with`, a record has been processed when the loop takes the next one, and an error ends the loop: the record comes again
to the next consumer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

import msgspec

from penstock.client.errors import PenstockError
from penstock.client.topics.kafka import kafka_errors, start
from penstock.contract.limits import ERROR_CHARACTERS_MAX

COMMIT_S = 1.0
# Fetched ahead; what is not processed when the process dies comes again.
RECORDS_MAX = 500

TopicPartition = Any


class Source(Protocol):
    """What a loop needs of a consumer: aiokafka's has it."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def getmany(self, *, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]: ...

    async def commit(self, offsets: dict[TopicPartition, int]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How often a record is tried, and how long it rests in between."""

    attempts: int = 5
    rest_s: float = 0.2
    rest_s_max: float = 10.0

    def rest_after(self, attempt: int) -> float:
        return float(min(self.rest_s_max, self.rest_s * 2 ** (attempt - 1)))


Headers = tuple[tuple[str, bytes], ...]

# What the headers of a dead letter say, beside those that the record had.
ERROR_HEADER = "penstock-error"
ERROR_KIND_HEADER = "penstock-error-kind"
TOPIC_HEADER = "penstock-topic"
PARTITION_HEADER = "penstock-partition"
OFFSET_HEADER = "penstock-offset"
ATTEMPTS_HEADER = "penstock-attempts"
GROUP_HEADER = "penstock-group"


class Place(NamedTuple):
    """Where a produced record is."""

    partition: int
    offset: int


@dataclass(slots=True)
class Record:
    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = -1
    # How often it has been handed out in this loop, this time included.
    attempt: int = 1
    error: Exception | None = field(default=None, repr=False)
    # Whether a `with` has ended well.
    is_done: bool = False

    def json(self) -> Any:
        return msgspec.json.decode(self.value or b"null")

    @property
    def text(self) -> str:
        return (self.value or b"").decode()

    def header(self, name: str) -> bytes | None:
        """Return the last header of this name."""
        return next((value for key, value in reversed(self.headers) if key == name), None)

    def __enter__(self) -> Self:
        self.error, self.is_done = None, False
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if isinstance(error, Exception):
            self.error = error
            return True
        # `break` ends the block well; a cancellation does not.
        self.is_done = error is None
        return False


def dead_letter_headers(record: Record, *, group: str) -> Headers:
    """Return the headers of a dead letter: its own, and what says where it is from and why it is here."""
    error = record.error
    said = {
        ERROR_HEADER: str(error)[:ERROR_CHARACTERS_MAX],
        ERROR_KIND_HEADER: type(error).__name__,
        TOPIC_HEADER: record.topic,
        PARTITION_HEADER: str(record.partition),
        OFFSET_HEADER: str(record.offset),
        ATTEMPTS_HEADER: str(record.attempt),
        GROUP_HEADER: group,
    }
    kept = tuple((name, value) for name, value in record.headers if name not in said)
    return (*kept, *((name, value.encode()) for name, value in said.items()))


def body_of(value: object) -> bytes | None:
    """Return a value as it is stored: bytes as they are, text as UTF-8, everything else as JSON."""
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    return msgspec.json.encode(value)


class Loop:
    """Ask it for one record after the other; close it in the end."""

    def __init__(self, source: Source, retry_policy: RetryPolicy, bury: Callable[[Record], Awaitable[None]]) -> None:
        self._source = source
        self._retry_policy = retry_policy
        self._bury = bury
        self._fetched: deque[tuple[TopicPartition, Any]] = deque()
        # What was handed out last, with what the library calls it.
        self._at_hand: tuple[TopicPartition, Any, Record] | None = None
        # The offset to go on from, of partitions of which something was processed and not committed.
        self._processed: dict[TopicPartition, int] = {}
        self._committed_at_s = 0.0
        self._has_begun = self._is_closed = False

    async def next(self) -> Record | None:
        """Settle the record that was handed out last, and return the next; None when the loop was closed."""
        if not self._has_begun and not self._is_closed:
            await start(self._source)
            self._has_begun = True
            self._committed_at_s = _now_s()
        again = await self._settle()
        if again is not None or self._is_closed:
            return again
        while not self._fetched:
            await self._commit()
            if not await self._fetch():
                return None
        return self._hand_out(*self._fetched.popleft(), attempt=1)

    async def aclose(self) -> None:
        """Commit what was processed, and leave the group."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._at_hand is not None and self._at_hand[2].is_done:
            self._done()
        try:
            await self._commit()
        finally:
            if self._has_begun:
                await self._source.stop()

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Partitions go to other members: they are to begin where we have ended."""
        lost = set(revoked)
        if self._at_hand is not None and self._at_hand[2].is_done:
            self._done()
        await self._commit(lost)
        self._fetched = deque(each for each in self._fetched if each[0] not in lost)
        if self._at_hand is not None and self._at_hand[0] in lost:
            self._at_hand = None

    async def _settle(self) -> Record | None:
        """Finish the record at hand, or return it again for another attempt."""
        if self._at_hand is None:
            return None
        partition, row, record = self._at_hand
        if record.error is not None:
            if record.attempt < self._retry_policy.attempts:
                await asyncio.sleep(self._retry_policy.rest_after(record.attempt))
                # It may have gone to another member meanwhile.
                return self._hand_out(partition, row, attempt=record.attempt + 1) if self._has(record) else None
            await self._bury(record)
        self._done()
        if _now_s() - self._committed_at_s >= COMMIT_S:
            await self._commit()
        return None

    def _hand_out(self, partition: TopicPartition, row: Any, *, attempt: int) -> Record:
        headers = tuple((name, bytes(value or b"")) for name, value in row.headers)
        record = Record(row.topic, row.partition, row.offset, row.key, row.value, headers, row.timestamp, attempt)
        self._at_hand = (partition, row, record)
        return record

    async def _fetch(self) -> bool:
        """Fetch some, if there are; return whether there may ever be more."""
        try:
            with kafka_errors():
                batches = await self._source.getmany(timeout_ms=int(COMMIT_S * 1_000), max_records=RECORDS_MAX)
        except Exception:
            # A source that was stopped raises an error of its own in callers that wait for it.
            if self._is_closed:
                return False
            raise
        self._fetched.extend((partition, row) for partition, rows in batches.items() for row in rows)
        return not self._is_closed

    def _has(self, record: Record) -> bool:
        return self._at_hand is not None and self._at_hand[2] is record

    def _done(self) -> None:
        if self._at_hand is not None:
            partition, _, record = self._at_hand
            self._processed[partition] = record.offset + 1
            self._at_hand = None

    async def _commit(self, among: set[TopicPartition] | None = None) -> None:
        offsets = {each: offset for each, offset in self._processed.items() if among is None or each in among}
        self._committed_at_s = _now_s()
        if not offsets:
            return
        for partition in offsets:
            del self._processed[partition]
        try:
            with kafka_errors():
                await self._source.commit(offsets)
        except PenstockError as error:
            if type(error.__cause__).__name__ not in _NOT_OURS:
                raise
            # The group has gone on without us: the member that has the partitions now begins before these records.


# What aiokafka raises when a commit is of a generation that has ended, or of a partition that we have no more.
_NOT_OURS = {"CommitFailedError", "IllegalStateError", "IllegalGenerationError", "UnknownMemberIdError"}


def _now_s() -> float:
    return asyncio.get_running_loop().time()
