"""Pages of the messages in a queue: for people in the order of delivery, for audits by tier and number.

    position     r-tier-number             behind a message in `ready`
                 w-tier-since-ordinal      behind a waiting message in `marked`
                 o-since-ordinal           behind a resting or spent one
                 l-lease-row               behind a leased one

A position stays valid when its message has gone. Numbers are hexadecimal, and opaque to clients.

A page for an audit (`live`) first reads which numbers were given, at a moment without senders. A number below that is
either in the queue, or was settled meanwhile, or belonged to a send that was rolled back: PostgreSQL's sequences take
no number back, so such a number is never used.
"""

import asyncio
import re
from array import array
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from penstock.contract.limits import HISTORY_ROWS_MAX, PAGE_MAX, PEEK_BYTES_MAX
from penstock.contract.messages import TIERS
from penstock.core.queue.listing import BadCursor
from penstock.core.queue.rows import RESTING, SPENT, WAITING
from penstock.frame import Blobs
from penstock.store.interface import MessageFilter, Page
from penstock.store.pages import LivePage, NumberRange
from penstock.store.postgres.array_codec import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.history import HistoryReader, coded
from penstock.store.postgres.queries import MessageRow, NameOf, message
from penstock.store.postgres.queue_cache import CachedQueue

_CURSOR = re.compile(r"(?:r(?:-[0-9a-f]{1,15}){2}|w(?:-[0-9a-f]{1,15}){3}|[ol](?:-[0-9a-f]{1,15}){2})")
# Rows that are read in one go: some of them may be large. Where a text is sought more are, if they are known to be
# small: bodies without it stay in the database.
_READ_MOST = 64
_SEARCHED_MOST = 1_000
_SEARCHED_BYTES = 4 * 1024 * 1024
_SECTIONS = "rwol"
# Where a message is, the message (without a body if a text is sought that is not in it), and how large it is.
Found = tuple[str, MessageRow, int]


class Reach:
    """How many rows the next statement reads."""

    __slots__ = ("most", "_is_search")

    def __init__(self, sought: MessageFilter) -> None:
        self.most = _READ_MOST
        self._is_search = sought.text is not None

    def learn(self, sizes: Sequence[int]) -> None:
        if self._is_search and sizes:
            self.most = max(_READ_MOST, min(_SEARCHED_MOST, _SEARCHED_BYTES * len(sizes) // max(1, sum(sizes))))


class Position:
    """Where a page begins: a section, and numbers in it."""

    __slots__ = ("section", "numbers")

    def __init__(self, text: str) -> None:
        if text and not _CURSOR.fullmatch(text):
            raise BadCursor(f"{text[:100]!r} is not where a page ended")
        self.section, *numbers = text.split("-") if text else [""]
        self.numbers = [int(number, 16) for number in numbers]


def _text(section: str, *numbers: int) -> str:
    return "-".join([section, *(f"{number:x}" for number in numbers)])


async def peek(walk: "Walk", *, most: int, after: str, name_of: NameOf) -> Page:
    page, sought = Page([], ""), walk.sought
    size_bytes = seen = 0
    seen_most = PAGE_MAX if sought.is_search else most
    last = ""
    async for where, row, row_bytes in walk.found(Position(after)):
        # One more than fits: so this page has a next one.
        if len(page.messages) == most or seen == seen_most or size_bytes >= PEEK_BYTES_MAX:
            return Page(page.messages, last)
        seen += 1
        last = where
        size_bytes += row_bytes
        if row.body is not None:
            found = message(walk.known.number, row, name_of)
            if sought.fits_story(found):
                page.messages.append(found)
    return page


@dataclass(frozen=True, slots=True)
class Walk:
    """Reads the messages of a queue that fit a filter, from a position on."""

    _database: Database
    known: CachedQueue
    sought: MessageFilter
    # A leased message has aged since it was leased.
    _now_ms: int

    async def found(self, after: Position) -> AsyncIterator[Found]:
        sought = self.sought
        tiers = [tier for tier in range(TIERS) if sought.tier in {None, tier}]
        begun = _SECTIONS.find(after.section) if after.section else -1
        if sought.place in {None, "waiting"} and begun < _SECTIONS.index("o"):
            first = after.numbers[0] if after.section else 0
            for tier in (tier for tier in tiers if tier >= first):
                here = after if after.section and tier == first else Position("")
                async for each in self._waiting(tier, here):
                    yield each
        states = [each for each, name in ((RESTING, "resting"), (SPENT, "spent")) if sought.place in {None, name}]
        if states and begun < _SECTIONS.index("l"):
            since, ordinal = after.numbers if after.section == "o" else (-1, -1)
            which = {"states": SENT_AS["smallint[]"](states), "tiers": SENT_AS["smallint[]"](tiers)}
            async for each in self._marked("peek_still", "o", which, since, ordinal):
                yield each
        if sought.place in {None, "leased"}:
            lease, row = after.numbers if after.section == "l" else (-1, -1)
            async for each in self._leased(tiers, lease, row):
                yield each

    async def _waiting(self, tier: int, after: Position) -> AsyncIterator[Found]:
        if not self.sought.group and after.section != "w":
            async for each in self._ready(tier, after.numbers[1] + 1 if after.section else 0):
                yield each
        since, ordinal = after.numbers[1:] if after.section == "w" else (-1, -1)
        async for each in self._marked("peek_waiting", f"w-{tier:x}", {"tier": tier}, since, ordinal):
            yield each

    async def _ready(self, tier: int, number: int) -> AsyncIterator[Found]:
        reach, queue, text = Reach(self.sought), self.known.number, self.sought.text
        while True:
            most = reach.most
            rows = await self._database.ask("peek_ready", queue=queue, tier=tier, number=number, most=most, text=text)
            for key, sent_at_ms, body, attributes, size in rows:
                plain = MessageRow(key, WAITING, tier, sent_at_ms, 0, 0, *(None,) * 6, False, body, attributes)
                yield _text("r", tier, key >> 3), plain, size
            if len(rows) < most:
                return
            reach.learn([row[-1] for row in rows])
            number = (rows[-1][0] >> 3) + 1

    async def _marked(
        self, statement: str, section: str, which: Mapping[str, object], since_ms: int, ordinal: int
    ) -> AsyncIterator[Found]:
        sought, reach = self.sought, Reach(self.sought)
        while True:
            most = reach.most
            rows = await self._database.ask(
                statement, queue=self.known.number, **which, group=sought.group, text=sought.text, since=since_ms,
                ordinal=ordinal, most=most,
            )  # fmt: skip
            for row in rows:
                size, since_ms, ordinal = row[-3:]
                yield _text(section, since_ms, ordinal), MessageRow(*row[:-3]), size
            if len(rows) < most:
                return
            reach.learn([row[-3] for row in rows])

    async def _leased(self, tiers: list[int], lease: int, place: int) -> AsyncIterator[Found]:
        known, sought = self.known, self.sought
        wanted, reach = SENT_AS["smallint[]"](tiers), Reach(sought)
        while True:
            most = reach.most
            rows = await self._database.ask(
                "peek_leased", queue=known.number, tiers=wanted, group=sought.group, lease=lease, row=place,
                most=most, now=self._now_ms, aging_ms=known.aging_column, text=sought.text,
            )  # fmt: skip
            for row in rows:
                size, lease, place = row[-3:]
                yield _text("l", lease, place), MessageRow(*row[:-3]), size
            if len(rows) < most:
                return
            reach.learn([row[-3] for row in rows])


_NUMBER = re.compile(r"[0-9]{1,19}")
# How often, and how far apart, it is looked whether older transactions have ended.
_LOOKS, _LOOK_S = 50, 0.02


class LivePageRequest(NamedTuple):
    """From where on, how many, and what besides them."""

    after: str
    most: int
    with_bodies: bool
    is_told: bool


def start(look: LivePageRequest) -> tuple[int, int]:
    """Return the lane and the number at which a page begins."""
    if not 1 <= look.most <= HISTORY_ROWS_MAX:
        raise ValueError(f"most is {look.most}; it must be from 1 to HISTORY_ROWS_MAX ({HISTORY_ROWS_MAX})")
    if not look.after:
        return 0, 0
    place = int(look.after) if _NUMBER.fullmatch(look.after) and look.after.isascii() else -1
    if not 0 <= place < 2**63 or place & 7 >= TIERS:
        raise ValueError(f"{look.after[:100]!r} is not where a page ended")
    return place & 7, place >> 3


async def live(
    database: Database, reader: HistoryReader, known: CachedQueue, look: LivePageRequest, seen_at_ms: int
) -> LivePage:
    first_lane, first = start(look)
    (nexts,) = await database.call("next_numbers", known.number, known.version)
    found = _LiveRows(known, nexts, seen_at_ms)
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


class _LiveRows:
    def __init__(self, known: CachedQueue, nexts: Sequence[int], seen_at_ms: int) -> None:
        self._known = known
        self._nexts = nexts
        self._seen_at_ms = seen_at_ms
        self._rows: list[Any] = []
        self._ranges: list[NumberRange] = []
        self._size_bytes = 0
        self.after: int | None = None

    def is_full(self, look: LivePageRequest) -> bool:
        return len(self._rows) >= look.most or self._size_bytes >= PEEK_BYTES_MAX

    async def add(self, database: Database, look: LivePageRequest, lane: int, begin: int) -> None:
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

    def page(self, look: LivePageRequest, history_offset: int | None, shard: int) -> LivePage:
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
