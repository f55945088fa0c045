"""Numbers for Prometheus: counts of requests, and families computed in small turns when Prometheus asks.

Counting a request looks up one cell, by operation and status, in a dict; the buckets of its histogram
are a list. Nothing is counted here for a message. Families are gathered queue by queue and written out
a few hundred samples at a time, so that other requests have their turn in between. Only `QUEUES_MAX`
queues, by name, have samples of their own; one more sample says how many are left out.
"""

import asyncio
from bisect import bisect_left
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock import telemetry
from penstock.broker.access import Access, KeyNeeded, KeyUnknown, NotAllowed, Role, key_id_of
from penstock.broker.queues import Queues, Totals
from penstock.contract.limits import PAGE_MAX
from penstock.contract.messages import Tier
from penstock.metrics.health import BOUNDS_S as LAG_BOUNDS_S
from penstock.metrics.health import Commits, Health, Watchdog, refused
from penstock.store.errors import StoreUnreachable
from penstock.store.interface import Counts, Description
from penstock.telemetry import Metric

QUEUES_MAX = 1_000
# Queues looked at, and samples written, before others have their turn: about half a millisecond.
_TURN_QUEUES = 10
_TURN_SAMPLES = 200

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_TIERS = tuple(tier.name.lower() for tier in Tier)
_OPENMETRICS = "application/openmetrics-text"
_MARK = b"# EOF\n"

Scope = Mapping[str, Any]


class Cell:
    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        # One more than there are bounds: what took longer than the last.
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def add(self, other: "Cell") -> None:
        self.buckets = [mine + others for mine, others in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class Requests:
    """``name_of`` says which operation a request was for. There are few, so there are few cells."""

    def __init__(self, name_of: Callable[[Scope], str]) -> None:
        self._name_of = name_of
        self.cells: dict[tuple[str, int], Cell] = {}

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        key = self._name_of(scope), status
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell()
        cell.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        cell.seconds += seconds

    def by_operation(self) -> dict[str, Cell]:
        found: dict[str, Cell] = {}
        for (operation, _), cell in self.cells.items():
            found.setdefault(operation, Cell()).add(cell)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Connections:
    """What a listener has counted."""

    now: int
    most: int
    accepted: int
    refused: int
    timed_out: int
    buffered_bytes: int
    shed: int


class Vitals(Protocol):
    """What is seen of a database that queues are kept in."""

    @property
    def database(self) -> str: ...
    @property
    def is_answering(self) -> bool: ...
    @property
    def commits(self) -> Commits: ...
    @property
    def live_rows(self) -> Mapping[str, int]: ...
    @property
    def dead_rows(self) -> Mapping[str, int]: ...
    @property
    def oldest_snapshot_transactions(self) -> int | None: ...
    @property
    def oldest_snapshot_s(self) -> float | None: ...
    @property
    def holder_pid(self) -> int | None: ...
    @property
    def holder(self) -> str: ...


class Prometheus:
    def __init__(
        self,
        queues: Queues,
        requests: Requests,
        health: Health,
        connections: Callable[[], Connections],
        vitals: Callable[[], Sequence[Vitals]] | None = None,
    ) -> None:
        self._queues = queues
        self._requests = requests
        self._health = health
        self._connections = connections
        self.watchdog: Watchdog | None = None
        # Numbers of topics and groups, on a server that has them.
        self.of_streams: Callable[[], Awaitable[list[Family]]] | None = None
        self._vitals = vitals
        self._process = ProcessCollector(registry=None)
        self._asking = asyncio.Lock()
        self._last_names: list[str] = []

    def routes(self, access: Access, *, is_key_needed: bool) -> list[Route]:
        """Return the route of `/metrics`. If a key is needed, it must have the role metrics on all queues.

        A server without keys needs none. A key for some queues gets nothing: totals tell of the others, too.
        """

        async def answer(request: Request) -> Response:
            problem = self._check(access, request) if is_key_needed else None
            if problem is not None:
                return problem
            is_open = _OPENMETRICS in request.headers.get("accept", "")
            # One at a time: a client that scrapes in a loop delays other scrapes only.
            async with self._asking:
                text = await self.text(is_openmetrics=is_open)
            content_type = openmetrics.CONTENT_TYPE_LATEST if is_open else CONTENT_TYPE_PLAIN_0_0_4
            return Response(text, headers={"content-type": content_type})

        return [Route("/metrics", answer)]

    def _check(self, access: Access, request: Request) -> Response | None:
        shown = request.headers.get("authorization")
        try:
            access.authenticate(shown).check_everywhere(Role.METRICS)
        except KeyUnknown as error:
            source = "" if request.client is None else request.client.host
            self._queues.activity.failed_login(via="metrics", said=key_id_of(shown or ""), source=source)
            return refused("unauthorized", str(error))
        except KeyNeeded as error:
            return refused("unauthorized", str(error))
        except NotAllowed as error:
            return refused("forbidden", str(error))
        return None

    async def text(self, *, is_openmetrics: bool) -> bytes:
        parts = [
            part async for family in self._families() async for part in _written(family, is_openmetrics=is_openmetrics)
        ]
        return b"".join(parts) + (_MARK if is_openmetrics else b"")

    async def _families(self) -> AsyncIterator[Family]:
        for family in await self._of_queues():
            yield family
        yield self._counted()
        yield self._timed()
        for family in self._of_journals():
            yield family
        for family in self._of_loop():
            yield family
        for family in self._of_database():
            yield family
        for family in self._of_connections():
            yield family
        for family in await self.of_streams() if self.of_streams is not None else ():
            yield family
        for family in self._process.collect():
            yield family

    async def _of_queues(self) -> list[Family]:
        families = _Families()
        names = await self._names()
        summaries = await self._summaries(names[:QUEUES_MAX])
        live = {description.queue: counts.live for description, counts in summaries}
        for place, (description, counts) in enumerate(summaries):
            self._of_queue(families, description, counts)
            self._of_dead_letters(families, description, live)
            if place % _TURN_QUEUES == 0:
                await asyncio.sleep(0)
        families.add(telemetry.QUEUES, (), len(names))
        families.add(telemetry.QUEUES_OMITTED, (), max(0, len(names) - QUEUES_MAX))
        return families.all()

    async def _names(self) -> list[str]:
        """Return the names of all queues; while a database does not answer, those of the last time."""
        names: list[str] = []
        try:
            while page := await self._queues.placement.queues(after=names[-1] if names else "", most=PAGE_MAX):
                names += page
        except StoreUnreachable:
            return self._last_names
        self._last_names = names
        return names

    async def _summaries(self, names: Sequence[str]) -> list[tuple[Description, Counts]]:
        """Describe those that are there still; if a database does not answer, those of the others."""
        placement = self._queues.placement
        try:
            found = await placement.summaries(names)
        except StoreUnreachable:
            found = []
            for name in names:
                with suppress(StoreUnreachable):
                    found += await placement.summaries([name])
        return [each for each in found if each is not None]

    def _of_queue(self, families: "_Families", description: Description, counts: Counts) -> None:
        name, now_ms = description.queue, self._queues.now_ms()
        for tier, ready in zip(_TIERS, counts.ready, strict=True):
            families.add(telemetry.QUEUE_MESSAGES, (name, "ready", tier), ready)
        families.add(telemetry.QUEUE_MESSAGES, (name, "in_flight", ""), counts.leased)
        families.add(telemetry.QUEUE_MESSAGES, (name, "delayed", ""), counts.delayed)
        families.add(telemetry.QUEUE_MESSAGES, (name, "stuck", ""), counts.stuck)
        if counts.stuck_since_ms is not None:
            families.add(telemetry.QUEUE_STUCK_AGE, (name,), max(0, now_ms - counts.stuck_since_ms) / 1_000)
        for tier, oldest_ms in zip(_TIERS, counts.oldest_sent_at_ms, strict=True):
            if oldest_ms is not None:
                families.add(telemetry.QUEUE_OLDEST_AGE, (name, tier), max(0, now_ms - oldest_ms) / 1_000)
        for tier, bound in zip(_TIERS, description.bounds, strict=True):
            if bound.wait_ms is not None:
                families.add(telemetry.QUEUE_WAIT_BOUND, (name, tier), bound.wait_ms / 1_000)
        families.add(telemetry.QUEUE_NOISY_GROUPS, (name,), counts.noisy_groups)
        families.add(telemetry.QUEUE_NOISY_MESSAGES, (name, "ready"), counts.noisy_ready)
        families.add(telemetry.QUEUE_NOISY_MESSAGES, (name, "in_flight"), counts.noisy_leased)
        totals = self._queues.totals.get(name) or Totals()
        families.add(telemetry.QUEUE_SENT, (name,), totals.sent)
        families.add(telemetry.QUEUE_RECEIVED, (name,), totals.received)
        families.add(telemetry.QUEUE_ACKED, (name,), totals.acked)
        families.add(telemetry.QUEUE_RELEASED, (name,), totals.released)

    def _of_dead_letters(self, families: "_Families", description: Description, live: Mapping[str, int]) -> None:
        """Compare the dead letters of a queue with what its owner wants to be called for."""
        settings, name = description.settings, description.queue
        if settings.size_max:
            families.add(telemetry.QUEUE_SIZE, (name,), settings.size_max)
        if description.dead_letters is not None and description.dead_letters in live:
            families.add(telemetry.QUEUE_DEAD_LETTERS, (name,), live[description.dead_letters])
        if settings.alert_dead_letters:
            families.add(telemetry.QUEUE_ALERT_DEAD_LETTERS, (name,), settings.alert_dead_letters)

    def _counted(self) -> Family:
        metric = telemetry.REQUESTS
        family = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for (operation, status), cell in sorted(self._requests.cells.items()):
            family.add_metric((operation, str(status)), cell.count)
        return family

    def _timed(self) -> Family:
        metric = telemetry.REQUEST_SECONDS
        family = HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for operation, cell in sorted(self._requests.by_operation().items()):
            buckets, below = [], 0
            for bound, count in zip((*BOUNDS_S, inf), cell.buckets, strict=True):
                below += count
                buckets.append(("+Inf" if bound == inf else str(bound), below))
            family.add_metric((operation,), buckets, cell.seconds)
        return family

    def _of_journals(self) -> list[Family]:
        families = _Families()
        for journal in self._health.journals():
            families.add(telemetry.JOURNAL_BYTES, (journal.name,), journal.size_bytes)
            families.add(telemetry.JOURNAL_RECORDS, (journal.name,), journal.end_offset)
            families.add(telemetry.JOURNAL_LAG, (journal.name,), journal.end_offset - journal.durable_offset)
        if self._health.may_lose:
            families.add(telemetry.MAY_LOSE, (self._health.fsync,), 1)
        families.add(telemetry.CLOCK_DOUBTED, (), bool(self._health.warnings()))
        families.add(telemetry.READY, (), not self._health.reasons())
        return families.all()

    def _of_loop(self) -> list[Family]:
        watchdog = self.watchdog
        if watchdog is None:
            return []
        bounds = [*map(str, LAG_BOUNDS_S), "+Inf"]
        lag = HistogramMetricFamily(telemetry.LOOP_LAG.name, telemetry.LOOP_LAG.meaning)
        lag.add_metric((), list(zip(bounds, accumulate(watchdog.buckets), strict=True)), watchdog.seconds)
        families = _Families()
        families.add(telemetry.LOOP_LAG_MAX, (), watchdog.longest_s)
        families.add(telemetry.LOOP_CPU_MAX, (), watchdog.longest_cpu_s)
        for function, stalls in watchdog.stalls.copy().items():
            families.add(telemetry.LOOP_STALLS, (function,), stalls)
        return [lag, *families.all()]

    def _of_database(self) -> list[Family]:
        families = _Families()
        for found in () if self._vitals is None else self._vitals():
            families.add(telemetry.POSTGRES_ANSWERING, (found.database,), found.is_answering)
            commits = found.commits
            families.add(telemetry.POSTGRES_CONFIRMING, (found.database,), not commits.refusal)
            families.add(telemetry.POSTGRES_STANDBYS_NEEDED, (found.database,), commits.standbys_needed)
            families.add(telemetry.POSTGRES_UNCONFIRMED, (found.database,), commits.unconfirmed)
            if commits.standbys is not None:
                families.add(telemetry.POSTGRES_STANDBYS, (found.database,), commits.standbys)
            for table, rows in found.live_rows.items():
                families.add(telemetry.POSTGRES_ROWS, (found.database, table, "live"), rows)
            for table, rows in found.dead_rows.items():
                families.add(telemetry.POSTGRES_ROWS, (found.database, table, "dead"), rows)
            holder = (found.database, "" if found.holder_pid is None else str(found.holder_pid), found.holder)
            families.add(telemetry.POSTGRES_OLDEST_SNAPSHOT, holder, found.oldest_snapshot_transactions or 0)
            families.add(telemetry.POSTGRES_OLDEST_SNAPSHOT_AGE, holder, found.oldest_snapshot_s or 0.0)
        return families.all()

    def _of_connections(self) -> list[Family]:
        families = _Families()
        found = self._connections()
        families.add(telemetry.LONG_POLLS, (), self._queues.waiting.count)
        families.add(telemetry.CONNECTIONS, (), found.now)
        families.add(telemetry.CONNECTIONS_MAX, (), found.most)
        families.add(telemetry.CONNECTIONS_ACCEPTED, (), found.accepted)
        families.add(telemetry.CONNECTIONS_REFUSED, (), found.refused)
        families.add(telemetry.CONNECTIONS_TIMED_OUT, (), found.timed_out)
        families.add(telemetry.BUFFERED_BYTES, (), found.buffered_bytes)
        families.add(telemetry.REQUESTS_SHED, (), found.shed)
        return families.all()


class _Families:
    """Families of samples that come in any order."""

    def __init__(self) -> None:
        self._found: dict[str, Any] = {}

    def add(self, metric: Metric, labels: tuple[str, ...], value: float) -> None:
        family = self._found.get(metric.name)
        if family is None:
            family = self._found[metric.name] = _family(metric)
        family.add_metric(labels, value)

    def all(self) -> list[Family]:
        return list(self._found.values())


def _family(metric: Metric) -> Any:
    kinds = {"gauge": GaugeMetricFamily, "counter": CounterMetricFamily}
    return kinds[metric.kind](metric.name, metric.meaning, labels=metric.labels)


class _Piece(CollectorRegistry):
    """Some samples of a family, as a registry, which is all that the library writes out."""

    def __init__(self, family: Family) -> None:
        super().__init__()
        self._family = family

    def collect(self) -> Iterator[Family]:
        yield self._family


async def _written(family: Family, *, is_openmetrics: bool) -> AsyncIterator[bytes]:
    """Write a family out piece by piece; what is said about all of it stands before the first."""
    samples = family.samples
    for start in range(0, max(1, len(samples)), _TURN_SAMPLES):
        piece = Family(family.name, family.documentation, family.type, family.unit)
        piece.samples = samples[start : start + _TURN_SAMPLES]
        write: Callable[[CollectorRegistry], bytes] = openmetrics.generate_latest if is_openmetrics else generate_latest
        text = write(_Piece(piece))
        text = text.removesuffix(_MARK)
        yield text if start == 0 else b"".join(line for line in text.splitlines(True) if not line.startswith(b"#"))
        await asyncio.sleep(0)
