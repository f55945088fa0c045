"""One look at all queues that every open console shares, and the points of their trends.

    console ──▶ overview ──▶ is the last look old enough? ──▶ look, in turns ──▶ rows as JSON, compressed
                                                        └──▶ 304: it is the one that the browser has

Laws of this file
-----------------
1. However many consoles are open, queues are looked at once: at most each second, and so that all looks together take
   no more than `BUSY_PERCENT` of the time. While no console is open there is a look for the trends now and then.
2. Nothing holds up the loop: a look goes by `TURN` queues, and what it found is written by as many.
3. A caller sees the queues, topics and groups that its key may list. Callers with the same patterns share one answer.

A point of a trend is what a look found, `EVERY_MS` after the one before: messages by tier, ages by tier, and rates
since then. Numbers are floats of four bytes in one array for each queue. A queue that is empty and idle has none.
"""

import asyncio
import zlib
from array import array
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from math import nan
from typing import Any, NamedTuple

import msgspec

from penstock.api.rest.request import Streams
from penstock.broker.access import Caller, Role
from penstock.broker.consumer_groups import GroupNotFound
from penstock.broker.queues import Queues
from penstock.broker.traffic import Totals
from penstock.contract.limits import PAGE_MAX
from penstock.contract.messages import TIERS
from penstock.contract.names import is_dead_letters
from penstock.log.interface import LogClosed
from penstock.runtime.interface import beside
from penstock.store.errors import QueueNotFound, StoreForbids, StoreUnreachable
from penstock.store.interface import Counts, Description

LOOK_MS = 1_000
# Of the time, while a console is open, and while none is.
BUSY_PERCENT, IDLE_PERCENT = 5, 1
# Rates are those of the last seconds: of one alone they would jump.
RATE_S = 5.0
TURN = 50
QUEUES_MAX = 20_000
_ANSWERS_MAX = 50
# Of a queue that was not there at the look before.
_NONE_YET = (0, 0, 0, 0)
_encode = msgspec.json.Encoder().encode


class Row(NamedTuple):
    name: str
    # JSON up to before its last brace.
    shown: bytes
    # What else is shown to those who may see this dead-letter queue.
    dead_letters: str | None = None
    dead: bytes = b""

    def to(self, caller: Caller) -> bytes:
        is_whole = self.dead_letters is not None and caller.may_list(self.dead_letters)
        return self.shown + (self.dead if is_whole else b"") + b"}"


@dataclass(slots=True)
class Look:
    """What was found: one row for each queue, topic and group, in JSON."""

    number: int
    at_ms: int
    queues: list["Row"] = field(default_factory=list)
    topics: list["Row"] = field(default_factory=list)
    groups: list["Row"] = field(default_factory=list)
    # The servers of a database, for those who may see all of it.
    servers: list[dict[str, object]] = field(default_factory=list)
    # Queues beyond QUEUES_MAX, which are not shown.
    omitted: int = 0
    answers: OrderedDict[Any, tuple[bytes, bytes]] = field(default_factory=OrderedDict)


class Monitor:
    def __init__(
        self,
        queues: Queues,
        streams: Streams | None,
        about: Callable[[], dict[str, object]],
        now_s: Callable[[], float],
    ) -> None:
        self.trends = Trends()
        self._queues = queues
        self._streams = streams
        # The health of the server, for those who may see all of it.
        self._about = about
        self._now_s = now_s
        # Lists the servers of the database, where there may be several.
        self.list_servers: Callable[[], Awaitable[list[dict[str, object]]]] | None = None
        self._look = Look(0, 0)
        self._looking = asyncio.Lock()
        self._due_at_s = 0.0
        # What had gone through each queue at looks of the last RATE_S, and at one before.
        self._before: deque[tuple[float, dict[str, tuple[int, ...]]]] = deque()
        self._points_before: tuple[int, dict[str, tuple[int, ...]]] = (0, {})

    async def overview(self, caller: Caller) -> tuple[bytes, bytes]:
        """Return the tag of the last look, and what the caller may see of it: JSON, compressed with gzip."""
        if self._look.number == 0 or self._now_s() >= self._due_at_s:
            await self.look()
        look = self._look
        key = caller.patterns(Role.SEE), caller.patterns(Role.READ), caller.is_owner
        found = look.answers.get(key)
        if found is None:
            tag = b'"%d-%x"' % (look.number, look.at_ms)
            found = look.answers[key] = tag, await self._written(look, caller)
            while len(look.answers) > _ANSWERS_MAX:
                look.answers.popitem(last=False)
        return found

    async def look(self) -> None:
        """Look at all queues, unless another call has just done so."""
        number = self._look.number
        async with self._looking:
            if self._look.number != number:
                return
            begun_s = self._now_s()
            look = Look(number + 1, self._queues.now_ms())
            await self._look_at_queues(look)
            await self._look_at_streams(look)
            if self.list_servers is not None:
                look.servers = await self.list_servers()
            self._look = look
            took_s = self._now_s() - begun_s
            self._due_at_s = begun_s + max(LOOK_MS / 1_000, took_s * 100 / BUSY_PERCENT)

    async def _look_at_queues(self, look: Look) -> None:
        names = await self._names()
        look.omitted = max(0, len(names) - QUEUES_MAX)
        found: list[tuple[Description, Counts]] = []
        # What each has to say is gathered by pages: a database is asked once for many.
        for first in range(0, min(len(names), QUEUES_MAX), PAGE_MAX):
            page = await self._queues.placement.summaries(names[first : first + PAGE_MAX])
            found += [each for each in page if each is not None]
        live = {description.queue: counts.live for description, counts in found}
        now_s = self._now_s()
        since_s, before = self._before[0] if self._before else (0.0, {})
        totals: dict[str, tuple[int, ...]] = {}
        for place, (description, counts) in enumerate(found):
            name = description.queue
            total = self._queues.traffic.totals.get(name) or Totals()
            totals[name] = total.sent, total.received, total.acked, total.released
            rates = _rates(totals[name], before.get(name, _NONE_YET), now_s - since_s if before else 0)
            look.queues.append(_row(description, counts, rates, live, look.at_ms))
            if place % TURN == 0:
                await asyncio.sleep(0)
        self._before.append((now_s, totals))
        while len(self._before) > 1 and now_s - self._before[1][0] >= RATE_S:
            self._before.popleft()
        if look.at_ms >= self.trends.is_due_at_ms:
            await self._add_points(look.at_ms, found, totals)

    async def _add_points(
        self, at_ms: int, found: list[tuple[Description, Counts]], totals: dict[str, tuple[int, ...]]
    ) -> None:
        since_ms, before = self._points_before
        points: dict[str, Point] = {}
        for place, (description, counts) in enumerate(found):
            name = description.queue
            ages = [0.0 if each is None else max(0, at_ms - each) / 1_000 for each in counts.oldest_sent_at_ms]
            rates = _rates(totals[name], before.get(name, _NONE_YET), (at_ms - since_ms) / 1_000 if before else 0)
            points[name] = [*counts.ready, *ages, counts.leased, counts.delayed, *rates]
            if place % TURN == 0:
                await asyncio.sleep(0)
        self._points_before = at_ms, totals
        self.trends.add(at_ms, points)

    async def _names(self) -> list[str]:
        names: list[str] = []
        while page := await self._queues.placement.queues(after=names[-1] if names else "", most=PAGE_MAX):
            names += page
        return names

    async def _look_at_streams(self, look: Look) -> None:
        if self._streams is None:
            return
        topics = self._streams.topics
        await topics.refresh()
        await topics.look_at(topics.list())
        for place, topic in enumerate(topics.list()):
            ends = [(each.start_offset, each.high_watermark) for each in topic.partitions]
            records, newest = sum(end - start for start, end in ends), sum(end for _, end in ends)
            row = {"name": topic.name, "partitions": len(ends), "records": records, "end": newest}
            look.topics.append(Row(topic.name, _encode(row)[:-1]))
            if place % TURN == 0:
                await asyncio.sleep(0)
        for place, listed in enumerate(await self._streams.groups.listed()):
            try:
                lags = await self._streams.groups.lag(listed.group)
            except GroupNotFound:
                continue
            row = {
                "name": listed.group,
                "state": listed.state.value,
                "members": listed.member_count,
                "lag": sum(each.lag or 0 for each in lags),
                "topics": sorted({each.topic for each in lags})[:20],
            }
            look.groups.append(Row(listed.group, _encode(row)[:-1]))
            if place % (TURN // 5) == 0:
                await asyncio.sleep(0)

    async def _written(self, look: Look, caller: Caller) -> bytes:
        """Return what a caller may see of a look."""
        packer = zlib.compressobj(1, wbits=31)
        said: dict[str, object] = {"at_ms": look.at_ms, "omitted": look.omitted, "looks_every_s": LOOK_MS / 1_000}
        if caller.patterns(Role.READ) is None:
            said |= self._about()
            said["servers"] = look.servers
        parts = [packer.compress(_encode(said)[:-1])]
        for kind, rows, role in (
            (b"queues", look.queues, Role.SEE),
            (b"topics", look.topics, Role.SEE),
            (b"groups", look.groups, Role.READ),
        ):
            parts.append(packer.compress(b',"%s":[' % kind))
            is_first = True
            for first in range(0, len(rows), 10 * TURN):
                seen = [row.to(caller) for row in rows[first : first + 10 * TURN] if caller.has(role, row.name)]
                if seen:
                    parts.append(packer.compress((b"" if is_first else b",") + b",".join(seen)))
                    is_first = False
                await asyncio.sleep(0)
            parts.append(packer.compress(b"]"))
        return b"".join([*parts, packer.compress(b"}"), packer.flush()])

    async def _run(self) -> None:
        """Look now and then, for the trends alone: a console that is open asks for its own."""
        while True:
            begun_s = self._now_s()
            try:
                await self.look()
            except (StoreUnreachable, StoreForbids, QueueNotFound, LogClosed, OSError):
                # A console that is open is told, and this asks again.
                pass
            took_s = self._now_s() - begun_s
            await asyncio.sleep(max(EVERY_MS / 1_000, took_s * 100 / IDLE_PERCENT))


@asynccontextmanager
async def running(monitor: Monitor) -> AsyncIterator[Monitor]:
    """Take points of the trends for as long as this is entered."""
    async with beside(monitor._run()):
        yield monitor


def _rates(now: tuple[int, ...], before: tuple[int, ...], seconds: float) -> list[float]:
    if seconds <= 0:
        return [0.0] * len(now)
    return [round(max(0, new - old) / seconds, 2) for new, old in zip(now, before, strict=True)]


def _row(description: Description, counts: Counts, rates: list[float], live: dict[str, int], now_ms: int) -> Row:
    oldest = min((each for each in counts.oldest_sent_at_ms if each is not None), default=None)
    buried_in = description.dead_letters
    row = {
        "name": description.queue,
        "ready": counts.ready,
        "in_flight": counts.leased,
        "delayed": counts.delayed,
        "stuck": counts.stuck,
        "stuck_s": None if counts.stuck_since_ms is None else max(0, now_ms - counts.stuck_since_ms) / 1_000,
        "oldest_s": None if oldest is None else max(0, now_ms - oldest) / 1_000,
        "paused": description.settings.is_paused,
        "fifo": description.settings.is_fifo,
        "size_max": description.settings.size_max,
        "rates": rates,
        "is_dead": is_dead_letters(description.queue),
    }
    dead = {} if buried_in is None else {"dead": live.get(buried_in, 0), "dead_in": buried_in}
    return Row(description.queue, _encode(row)[:-1], buried_in, b"," + _encode(dead)[1:-1])


EVERY_MS = 10_000
POINTS = 90
TREND_QUEUES_MAX = 2_000
# Ready by tier, age of the oldest by tier in seconds, in flight, delayed; per second: sent, received, acked, released.
WIDTH = 2 * TIERS + 2 + 4
Point = Sequence[float]
_NO_POINT = array("f", [nan] * WIDTH)


class Trends:
    def __init__(self) -> None:
        self._times: list[int] = []
        # As many points as there are times, the oldest first.
        self._rings: dict[str, array[float]] = {}

    @property
    def is_due_at_ms(self) -> int:
        return self._times[-1] + EVERY_MS if self._times else 0

    def add(self, at_ms: int, points: dict[str, Point]) -> None:
        """Add a point for each queue, of `WIDTH` numbers."""
        before = len(self._times)
        self._times.append(at_ms)
        surplus = max(0, len(self._times) - POINTS)
        del self._times[:surplus]
        for name in [name for name in self._rings if name not in points]:
            del self._rings[name]
        for name, point in points.items():
            ring = self._rings.get(name)
            if ring is None:
                if not any(point) or len(self._rings) >= TREND_QUEUES_MAX:
                    continue
                ring = self._rings[name] = _NO_POINT * before
            ring.extend(point)
            del ring[: surplus * WIDTH]
            if not any(value for value in ring if value == value):  # noqa: PLR0124 - not a number.
                del self._rings[name]

    def of(self, name: str) -> tuple[list[int], list[list[float | None]]]:
        """Return the times and the points of a queue; None stands for what was not looked at."""
        ring = self._rings.get(name)
        if ring is None:
            return list(self._times), []
        return list(self._times), [
            [None if value != value else round(value, 3) for value in ring[at : at + WIDTH]]  # noqa: PLR0124
            for at in range(0, len(ring), WIDTH)
        ]

    def brief(self, name: str, points: int) -> list[list[float | None]] | None:
        """Return what a small chart shows: messages that are ready, and what was sent and acked per second."""
        _, found = self.of(name)
        if not found:
            return None
        chosen = found[-points:]
        return [
            [None if row[0] is None else sum(each or 0 for each in row[:TIERS]) for row in chosen],
            [row[-4] for row in chosen],
            [row[-2] for row in chosen],
        ]
