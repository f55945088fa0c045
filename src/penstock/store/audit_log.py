"""The audit log: who changed what and when, and who was not let in. Entries are only added, and the oldest go.

An entry is at a position, a number that grows. It is kept where the queues are: in files
of its own beside an embedded store, in a table that all servers share on PostgreSQL, or
in memory.
"""

from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Protocol

from msgspec import Struct, json

MEMORY_ENTRIES_MAX = 10_000


class Entry(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One action, or several equal ones."""

    at_ms: int
    # The name of the key; what a client says of itself is only a label.
    actor: str
    # What it is about, and what was done, such as `queue.purge`.
    action: str
    # The name of the queue, topic, group or key.
    target: str = ""
    label: str = ""
    detail: str = ""
    # How it was asked for: `rest`, `sqs`, `kafka` or `command`.
    via: str = ""
    # The address that it came from.
    source: str = ""
    count: int = 1


class AuditLog(Protocol):
    async def append(self, entries: Sequence[Entry]) -> None:
        """Keep entries; durable on return. Raises `OSError`, `StoreUnreachable` or `StoreForbids`."""
        ...

    async def newest(self, *, before: int | None, most: int) -> list[tuple[int, Entry]]:
        """Return at most ``most`` entries with their positions, the newest first: those below ``before``, if given."""
        ...

    async def trim(self, now_ms: int) -> None:
        """Let go of what is too old, or more than is kept."""
        ...


class MemoryAuditLog:
    """An audit log of a store in memory; it ends with the process."""

    def __init__(self) -> None:
        self._entries: deque[tuple[int, Entry]] = deque(maxlen=MEMORY_ENTRIES_MAX)
        self._next = 1

    async def append(self, entries: Sequence[Entry]) -> None:
        for entry in entries:
            self._entries.append((self._next, entry))
            self._next += 1

    async def newest(self, *, before: int | None, most: int) -> list[tuple[int, Entry]]:
        found = (each for each in reversed(self._entries) if before is None or each[0] < before)
        return list(islice(found, most))

    async def trim(self, now_ms: int) -> None:
        """Do nothing: it has a limit, and is younger than the process."""


encode_entry = json.Encoder().encode
decode_entry = json.Decoder(Entry).decode
