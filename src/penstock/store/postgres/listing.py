"""Everything that is in a queue, page by page, for whoever counts: by lane and number, as columns.

Which numbers were given is read while nobody sends. What is read after that is either
there, or was settled meanwhile, or belonged to a send that was rolled back: a sequence
of PostgreSQL does not take numbers back, so such a number is given and never used.
"""

import asyncio
import re
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.contract.limits import HISTORY_ROWS_MAX, PEEK_BYTES_MAX
from penstock.contract.messages import TIERS
from penstock.frame import Blobs
from penstock.store.pages import LivePage, NumberRange
from penstock.store.postgres.database import Database
from penstock.store.postgres.history import HistoryReader
from penstock.store.postgres.known import KnownQueue
from penstock.store.postgres.unpacking import coded

_CURSOR = re.compile(r"[0-9]{1,19}")
# How often, and how far apart, it is looked whether older transactions have ended.
_LOOKS, _LOOK_S = 50, 0.02


class Look(NamedTuple):
    """From where on, how many, and what besides them."""

    after: str
    most: int
    with_bodies: bool
    is_told: bool


def start(look: Look) -> tuple[int, int]:
    """Return the lane and the number at which a page begins."""
    if not 1 <= look.most <= HISTORY_ROWS_MAX:
        raise ValueError(f"most is {look.most}; it must be from 1 to HISTORY_ROWS_MAX ({HISTORY_ROWS_MAX})")
    if not look.after:
        return 0, 0
    place = int(look.after) if _CURSOR.fullmatch(look.after) and look.after.isascii() else -1
    if not 0 <= place < 2**63 or place & 7 >= TIERS:
        raise ValueError(f"{look.after[:100]!r} is not where a page ended")
    return place & 7, place >> 3


async def live(database: Database, reader: HistoryReader, known: KnownQueue, look: Look, seen_at_ms: int) -> LivePage:
    first_lane, first = start(look)
    (nexts,) = await database.call("next_numbers", known.number, known.version)
    found = _Found(known, nexts, seen_at_ms)
    for lane in range(first_lane, TIERS):
        begin = min(first, nexts[lane]) if lane == first_lane else 0
        if found.is_full(look):
            found.after = begin << 3 | lane
            break
        await found.add(database, look, lane, begin)
        if found.after is not None:
            break
    history_offset = await _told(database, reader) if look.is_told else None
    return found.page(look, history_offset, reader.shard)


async def _told(database: Database, reader: HistoryReader) -> int | None:
    """Return where the history ends that tells of all that was settled before; None if it takes too long."""
    ((_, end),) = await database.ask("history_now")
    for _ in range(_LOOKS):
        ((reached, *_),) = await database.ask("history_end")
        if reached >= end:
            return await reader.look()
        await asyncio.sleep(_LOOK_S)
    return None


class _Found:
    def __init__(self, known: KnownQueue, nexts: Sequence[int], seen_at_ms: int) -> None:
        self._known = known
        self._nexts = nexts
        self._seen_at_ms = seen_at_ms
        self._rows: list[Any] = []
        self._ranges: list[NumberRange] = []
        self._size_bytes = 0
        self.after: int | None = None

    def is_full(self, look: Look) -> bool:
        return len(self._rows) >= look.most or self._size_bytes >= PEEK_BYTES_MAX

    async def add(self, database: Database, look: Look, lane: int, begin: int) -> None:
        """Add messages of a lane from a number on, and note which numbers were looked at."""
        end = self._nexts[lane]
        left = look.most - len(self._rows)
        rows = await database.ask(
            "list_live", queue=self._known.number, lane=lane, first=begin, end=end, most=left,
            with_bodies=look.with_bodies, now=self._seen_at_ms, aging_ms=self._known.aging_column,
        )  # fmt: skip
        for at, row in enumerate(rows):
            self._rows.append(row)
            self._size_bytes += len(row[-2] or b"") + len(row[-1] or b"")
            is_cut = self._size_bytes >= PEEK_BYTES_MAX and at + 1 < len(rows)
            if is_cut or at + 1 == left:
                end = (row[0] >> 3) + 1
                break
        self._ranges.append(NumberRange(lane, begin, end))
        if end < self._nexts[lane]:
            self.after = end << 3 | lane

    def page(self, look: Look, history_offset: int | None, shard: int) -> LivePage:
        known = self._known
        (keys, places, tiers, sent, deliveries, groups, errors, homes, home_keys, bodies, attributes) = (
            zip(*self._rows, strict=True) if self._rows else ((),) * 11
        )
        identities = [
            (known.number, key) if home is None else (home, own)
            for key, home, own in zip(keys, homes, home_keys, strict=True)
        ]
        has_attributes = look.with_bodies and any(each is not None for each in attributes)
        return LivePage(
            queue=known.name,
            queue_number=known.number,
            shard=shard,
            seen_at_ms=self._seen_at_ms,
            ranges=self._ranges,
            next_numbers=tuple(self._nexts),
            next="" if self.after is None else str(self.after),
            history_offset=history_offset,
            home=_numbers("I", [home for home, _ in identities]),
            sent_tier=_numbers("B", [key & 7 for _, key in identities]),
            number=_numbers("Q", [key >> 3 for _, key in identities]),
            key=_numbers("Q", keys),
            tier=_numbers("B", tiers),
            place=_numbers("B", places),
            sent_at_ms=_numbers("q", sent),
            deliveries=_numbers("I", deliveries),
            group=coded([group or b"" for group in groups]),
            error=coded([(error or "").encode() for error in errors]),
            body=Blobs.of([body or b"" for body in bodies]) if look.with_bodies else None,
            attributes=Blobs.of([each or b"" for each in attributes]) if has_attributes else None,
            # A sequence takes nothing back from a transaction that is rolled back, nor from a crash.
            may_skip_numbers=True,
        )


def _numbers(code: str, values: Sequence[int]) -> memoryview:
    return memoryview(array(code, values))
