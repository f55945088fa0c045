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
from penstock.core.queue.listing import PLACES, BadCursor
from penstock.core.queue.rows import RESTING, SPENT, WAITING
from penstock.store.interface import Page
from penstock.store.postgres.columns import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.known import KnownQueue
from penstock.store.postgres.messages import NameOf, Row, check_most, message

_CURSOR = re.compile(r"(?:r(?:-[0-9a-f]{1,15}){2}|w(?:-[0-9a-f]{1,15}){3}|[ol](?:-[0-9a-f]{1,15}){2})")
# Rows that are read in one go: some of them may be large. Where a text is sought more are, if they are known to be
# small: bodies without it stay in the database.
_READ_MOST = 64
_SEARCHED_MOST = 1_000
_SEARCHED_BYTES = 4 * 1024 * 1024
_SECTIONS = "rwol"
# Where a message is, the message (without a body if a text is sought that is not in it), and how large it is.
Found = tuple[str, Row, int]


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages; None for any."""

    place: str | None
    tier: int | None
    group: bytes | None
    text: bytes | None
    # Now: what somebody holds has aged since it was leased.
    now_ms: int


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


async def peek(
    database: Database, known: KnownQueue, sought: MessageFilter, *, most: int, after: str, name_of: NameOf
) -> Page:
    page = Page([], "")
    size_bytes = seen = 0
    seen_most = PAGE_MAX if sought.text else most
    last = ""
    async for where, row, row_bytes in _walk(database, known, sought, Position(after)):
        # One more than fits: so this page has a next one.
        if len(page.messages) == most or seen == seen_most or size_bytes >= PEEK_BYTES_MAX:
            return Page(page.messages, last)
        seen += 1
        last = where
        size_bytes += row_bytes
        if row.body is not None:
            page.messages.append(message(known.number, row, name_of))
    return page


def check(sought: MessageFilter, most: int) -> None:
    check_most(most)
    if sought.place is not None and sought.place not in PLACES:
        raise ValueError(f"place is {sought.place!r}; it is one of {', '.join(PLACES)}")
    if sought.tier is not None and not 0 <= sought.tier < TIERS:
        raise ValueError(f"tier is {sought.tier}; it must be from 0 to {TIERS - 1}")


async def _walk(database: Database, known: KnownQueue, sought: MessageFilter, after: Position) -> AsyncIterator[Found]:
    queue = known.number
    tiers = [tier for tier in range(TIERS) if sought.tier in {None, tier}]
    begun = _SECTIONS.find(after.section) if after.section else -1
    if sought.place in {None, "waiting"} and begun < _SECTIONS.index("o"):
        first = after.numbers[0] if after.section else 0
        for tier in (tier for tier in tiers if tier >= first):
            here = after if after.section and tier == first else Position("")
            async for each in _waiting(database, queue, sought, tier, here):
                yield each
    states = [each for each, name in ((RESTING, "resting"), (SPENT, "spent")) if sought.place in {None, name}]
    if states and begun < _SECTIONS.index("l"):
        since, ordinal = after.numbers if after.section == "o" else (-1, -1)
        which = {"states": SENT_AS["smallint[]"](states), "tiers": SENT_AS["smallint[]"](tiers)}
        async for each in _marked(database, ("peek_still", "o"), {"queue": queue, **which}, sought, since, ordinal):
            yield each
    if sought.place in {None, "leased"}:
        lease, row = after.numbers if after.section == "l" else (-1, -1)
        async for each in _leased(database, known, sought, tiers, lease, row):
            yield each


async def _waiting(
    database: Database, queue: int, sought: MessageFilter, tier: int, after: Position
) -> AsyncIterator[Found]:
    if not sought.group and after.section != "w":
        async for each in _ready(database, queue, sought, tier, after.numbers[1] + 1 if after.section else 0):
            yield each
    since, ordinal = after.numbers[1:] if after.section == "w" else (-1, -1)
    which = {"queue": queue, "tier": tier}
    async for each in _marked(database, ("peek_waiting", f"w-{tier:x}"), which, sought, since, ordinal):
        yield each


async def _ready(database: Database, queue: int, sought: MessageFilter, tier: int, number: int) -> AsyncIterator[Found]:
    reach = Reach(sought)
    while True:
        most = reach.most
        rows = await database.ask("peek_ready", queue=queue, tier=tier, number=number, most=most, text=sought.text)
        for key, sent_at_ms, body, attributes, size in rows:
            plain = Row(key, WAITING, tier, sent_at_ms, 0, 0, *(None,) * 6, False, body, attributes)
            yield _text("r", tier, key >> 3), plain, size
        if len(rows) < most:
            return
        reach.learn([row[-1] for row in rows])
        number = (rows[-1][0] >> 3) + 1


async def _marked(
    database: Database,
    asked: tuple[str, str],
    which: Mapping[str, object],
    sought: MessageFilter,
    since_ms: int,
    ordinal: int,
) -> AsyncIterator[Found]:
    (name, section), reach = asked, Reach(sought)
    while True:
        most = reach.most
        rows = await database.ask(
            name, **which, group=sought.group, text=sought.text, since=since_ms, ordinal=ordinal, most=most
        )
        for row in rows:
            size, since_ms, ordinal = row[-3:]
            yield _text(section, since_ms, ordinal), Row(*row[:-3]), size
        if len(rows) < most:
            return
        reach.learn([row[-3] for row in rows])


async def _leased(
    database: Database, known: KnownQueue, sought: MessageFilter, tiers: list[int], lease: int, place: int
) -> AsyncIterator[Found]:
    wanted, reach = SENT_AS["smallint[]"](tiers), Reach(sought)
    while True:
        most = reach.most
        rows = await database.ask(
            "peek_leased", queue=known.number, tiers=wanted, group=sought.group, lease=lease, row=place,
            most=most, now=sought.now_ms, aging_ms=known.aging_column, text=sought.text,
        )  # fmt: skip
        for row in rows:
            size, lease, place = row[-3:]
            yield _text("l", lease, place), Row(*row[:-3]), size
        if len(rows) < most:
            return
        reach.learn([row[-3] for row in rows])
