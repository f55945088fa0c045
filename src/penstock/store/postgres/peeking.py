"""Pages of what is in a queue, for people: what waits first, the most urgent tier first.

    position     r-tier-number             behind a message nothing has happened to
                 w-tier-since-ordinal      behind one that waits and has something of its own
                 o-since-ordinal           behind one that rests or is spent
                 l-lease-row               behind one that somebody holds

A position says where to go on, whether or not what it names is still there. Numbers are
hexadecimal; nobody else makes sense of them.
"""

import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass

from penstock.contract.limits import PAGE_MAX, PEEK_BYTES_MAX
from penstock.contract.messages import TIERS
from penstock.core.queue.listing import BadCursor
from penstock.core.queue.rows import RESTING, SPENT, WAITING
from penstock.store.interface import MessageFilter, Page
from penstock.store.postgres.columns import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue
from penstock.store.postgres.messages import NameOf, Row, message

_CURSOR = re.compile(r"(?:r(?:-[0-9a-f]{1,15}){2}|w(?:-[0-9a-f]{1,15}){3}|[ol](?:-[0-9a-f]{1,15}){2})")
# Rows that are read in one go: some of them may be large. Where a text is sought more are, if they are known to be
# small: bodies without it stay in the database.
_READ_MOST = 64
_SEARCHED_MOST = 1_000
_SEARCHED_BYTES = 4 * 1024 * 1024
_SECTIONS = "rwol"
# Where a message is, the message (without a body if a text is sought that is not in it), and how large it is.
Found = tuple[str, Row, int]


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
    known: KnownQueue
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
                plain = Row(key, WAITING, tier, sent_at_ms, 0, 0, *(None,) * 6, False, body, attributes)
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
                yield _text(section, since_ms, ordinal), Row(*row[:-3]), size
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
                yield _text("l", lease, place), Row(*row[:-3]), size
            if len(rows) < most:
                return
            reach.learn([row[-3] for row in rows])
