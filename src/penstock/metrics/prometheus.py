"""Numbers for Prometheus: counts of requests, and families computed in small turns when Prometheus asks.

Counting a request looks up one histogram, by operation and status, in a dict. Nothing is counted here for a
message. Queues are looked at, and written out, some at a time, so that other requests have their turn in between
(`queue_series.py`). Only `QUEUES_MAX` queues, by name, have samples of their own; one more sample says how
many are left out.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from penstock import telemetry
from penstock.broker.access import Access, KeyNeeded, KeyUnknown, NotAllowed, Role, key_id_of
from penstock.broker.queues import Queues
from penstock.contract.limits import PAGE_MAX
from penstock.core.queue.events import Tally
from penstock.metrics.health import Commits, Health, Watchdog, refused
from penstock.metrics.histograms import add_histogram, histogram_family
from penstock.metrics.queue_series import TIERS, Block, QueueSeries, head, refusal_line, texts
from penstock.runtime.interface import Histogram, Space, Timings
from penstock.store.errors import StoreUnreachable
from penstock.store.interface import Counts, Description
from penstock.telemetry import Metric

QUEUES_MAX = 5_000
# Blocks made, and samples written, before others have their turn: about half a millisecond.
_TURN_BLOCKS = 50
_TURN_SAMPLES = 200
# Queues asked for at a time, so that a database does not have them all in one statement.
_ASKED_MAX = 500
_NOTHING: dict[tuple[str, str], int] = {}
_OPENMETRICS = "application/openmetrics-text"
_MARK = b"# EOF\n"

Scope = Mapping[str, Any]


class Requests:
    """``name_of`` says which operation a request was for. There are few, so there are few cells."""

    def __init__(self, name_of: Callable[[Scope], str]) -> None:
        self._name_of = name_of
        self.cells: dict[tuple[str, int], Histogram] = {}

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        key = self._name_of(scope), status
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Histogram()
        cell.add(seconds)

    def by_operation(self) -> dict[str, Histogram]:
        found: dict[str, Histogram] = {}
        for (operation, _), cell in self.cells.items():
            found.setdefault(operation, Histogram()).merge(cell)
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
        timings: Timings | None = None,
    ) -> None:
        self._timings = timings or Timings()
        self._series = QueueSeries(queues.traffic, self._tally, queues.now_ms)
        # Of the logs of topics, on a server that has them; and the room where the data is, if it is in a folder.
        self.of_partitions: Timings | None = None
        self.space: Callable[[], Space] | None = None
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
            text = await self.page(is_openmetrics=is_open)
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

    async def page(self, *, is_openmetrics: bool = False) -> bytes:
        """Return the text of all metrics. One is made at a time: a client that asks in a loop delays its like only."""
        async with self._asking:
            return await self.text(is_openmetrics=is_openmetrics)

    async def text(self, *, is_openmetrics: bool) -> bytes:
        parts = [part async for part in self._of_queues(is_openmetrics=is_openmetrics)]
        for family in await self.families():
            for part in _written(family, is_openmetrics=is_openmetrics):
                parts.append(part)
                await asyncio.sleep(0)
        return b"".join(parts) + (_MARK if is_openmetrics else b"")

    async def families(self) -> list[Family]:
        """Return everything that is not of a single queue."""
        return [
            *self._of_traffic(),
            self._counted(),
            self._timed(),
            *self._of_journals(),
            *self._of_logs(),
            *self._of_loop(),
            *self._of_database(),
            *self._of_connections(),
            *(await self.of_streams() if self.of_streams is not None else ()),
            *self._process.collect(),
        ]

    async def _of_queues(self, *, is_openmetrics: bool) -> AsyncIterator[bytes]:
        names = await self._names()
        summaries = await self._summaries(names[:QUEUES_MAX])
        live = {description.queue: counts.live for description, counts in summaries}
        refusals = self._refusals(live)
        self._series.begin(names)
        blocks: list[Block] = []
        for place, (description, counts) in enumerate(summaries):
            dead_letters = None if description.dead_letters is None else live.get(description.dead_letters)
            own = refusals.get(description.queue, _NOTHING)
            blocks.append(self._series.block(description, counts, dead_letters, own))
            if place % _TURN_BLOCKS == 0:
                await asyncio.sleep(0)
        strangers = "".join(refusal_line("", *which, count) for which, count in refusals.get("", _NOTHING).items())
        for metric, text in texts(blocks, {telemetry.QUEUE_OPERATIONS.name: strangers}):
            if text:
                yield head(metric, is_openmetrics=is_openmetrics)
                yield text
            await asyncio.sleep(0)
        families = _Families()
        families.add(telemetry.QUEUES, (), len(names))
        families.add(telemetry.QUEUES_OMITTED, (), max(0, len(names) - QUEUES_MAX))
        for family in families.all():
            for part in _written(family, is_openmetrics=is_openmetrics):
                yield part

    def _refusals(self, live: Mapping[str, int]) -> dict[str, dict[tuple[str, str], int]]:
        """Return what was refused, by queue; under an empty name, of queues that are not there or not shown."""
        traffic = self._queues.traffic
        traffic.fold(live.__contains__)
        found: dict[str, dict[tuple[str, str], int]] = {}
        for (queue, operation, outcome), count in traffic.refusals.items():
            found.setdefault(queue, {})[operation, outcome] = count
        return found

    def _of_traffic(self) -> list[Family]:
        traffic, waiting = self._queues.traffic, self._queues.waiting
        waits = histogram_family(telemetry.QUEUE_WAIT)
        for tier, histogram in zip(TIERS, traffic.waits, strict=True):
            add_histogram(waits, (tier,), histogram)
        families = [waits]
        for metric, histogram in (
            (telemetry.HANDLING, self._timings.handling),
            (telemetry.POLL_WAIT, waiting.waits),
            (telemetry.POLL_WORK, waiting.works),
        ):
            family = histogram_family(metric)
            add_histogram(family, (), histogram)
            families.append(family)
        logins = _Families()
        for via, count in self._queues.activity.failed_logins.items():
            logins.add(telemetry.FAILED_LOGINS, (via,), count)
        return [*families, *logins.all()]

    def _of_logs(self) -> list[Family]:
        """Return how long disks took: of the journals, and of partitions, which have workers of their own."""
        fsync, commit = histogram_family(telemetry.FSYNC), histogram_family(telemetry.COMMIT)
        for log, timings in (("queues", self._timings), ("topics", self.of_partitions)):
            if timings is not None and timings.commit.count:
                add_histogram(commit, (log,), timings.commit)
                add_histogram(fsync, (log,), timings.fsync)
        families = _Families()
        space = None if self.space is None else self.space()
        if space is not None:
            families.add(telemetry.DISK_FREE, (), space.free_bytes)
            families.add(telemetry.DISK_SIZE, (), space.total_bytes)
        return [fsync, commit, *families.all()]

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
        found: list[tuple[Description, Counts] | None] = []
        for first in range(0, len(names), _ASKED_MAX):
            asked = names[first : first + _ASKED_MAX]
            try:
                found += await placement.summaries(asked)
            except StoreUnreachable:
                for name in asked:
                    with suppress(StoreUnreachable):
                        found += await placement.summaries([name])
        return [each for each in found if each is not None]

    def _tally(self, queue: str) -> Tally | None:
        placement = self._queues.placement
        return (placement.only or placement.of(queue)).tally(queue)

    def _counted(self) -> Family:
        metric = telemetry.REQUESTS
        family = CounterMetricFamily(metric.name, metric.meaning, labels=metric.labels)
        for (operation, status), cell in sorted(self._requests.cells.items()):
            family.add_metric((operation, str(status)), cell.count)
        return family

    def _timed(self) -> Family:
        metric = telemetry.REQUEST_SECONDS
        family = histogram_family(metric)
        for operation, histogram in sorted(self._requests.by_operation().items()):
            add_histogram(family, (operation,), histogram)
        return family

    def _of_journals(self) -> list[Family]:
        families = _Families()
        for journal in self._health.journals():
            families.add(telemetry.JOURNAL_BYTES, (journal.name,), journal.size_bytes)
            families.add(telemetry.JOURNAL_RECORDS, (journal.name,), journal.end_offset)
            families.add(telemetry.JOURNAL_LAG, (journal.name,), journal.end_offset - journal.durable_offset)
            families.add(telemetry.HISTORY_LAG, (journal.name,), journal.history_lag)
        if self._health.may_lose:
            families.add(telemetry.MAY_LOSE, (self._health.fsync,), 1)
        families.add(telemetry.CLOCK_DOUBTED, (), bool(self._health.warnings()))
        families.add(telemetry.READY, (), not self._health.reasons())
        return families.all()

    def _of_loop(self) -> list[Family]:
        watchdog = self.watchdog
        if watchdog is None:
            return []
        lag = histogram_family(telemetry.LOOP_LAG)
        add_histogram(lag, (), watchdog.lags)
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


def _written(family: Family, *, is_openmetrics: bool) -> Iterator[bytes]:
    """Write a family out piece by piece; what is said about all of it stands before the first."""
    samples = family.samples
    for start in range(0, max(1, len(samples)), _TURN_SAMPLES):
        piece = Family(family.name, family.documentation, family.type, family.unit)
        piece.samples = samples[start : start + _TURN_SAMPLES]
        write: Callable[[CollectorRegistry], bytes] = openmetrics.generate_latest if is_openmetrics else generate_latest
        text = write(_Piece(piece))
        text = text.removesuffix(_MARK)
        yield text if start == 0 else b"".join(line for line in text.splitlines(True) if not line.startswith(b"#"))
