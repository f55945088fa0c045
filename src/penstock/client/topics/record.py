"""A record of a topic, as a consumer sees it, and what becomes of it.

    async for record in topic.consume(group="billing"):
        with record:
            bill(record.json())

A `with` that ends well has processed the record. One that ends with an error keeps the
error in the record and goes on: the same record comes again, as its next attempt, until
it has had all of them and goes to the dead letters. Without a `with`, a record has been
processed when the loop takes the next one, and an error ends the loop: the record comes
again to the next consumer.
"""

from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec

from penstock.contract.limits import ERROR_CHARACTERS_MAX

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
