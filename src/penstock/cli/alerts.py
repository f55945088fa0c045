"""The alerts of `penstock watch`: the conditions of `deploy/prometheus/rules.yml`, on the metrics of a server.

    /metrics ──▶ samples ──▶ a total for each label ──▶ a rule: which totals are bad ──▶ since when ──▶ alert

A *total* adds up the samples of a metric, or takes the largest, as `sum by (…)` and `max by (…)` do. What a rule needs
to know about the past is kept as totals, not as samples: a server with thousands of queues has many samples.

No I/O and no clock: `Alerts.look` is given the time. The tests hold each rule against Prometheus, with equal numbers.
"""

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Literal

from penstock import telemetry
from penstock.cli.output import duration

Severity = Literal["critical", "warning", "info"]
# By metric: labels and value of each sample.
Samples = Mapping[str, list[tuple[Mapping[str, str], float]]]
# By the values of some labels.
Vector = dict[tuple[str, ...], float]

# A server that does not answer has this at 0, as Prometheus notes it.
UP = "up"
_MINUTE_S = 60.0
# How far back a rule looks at most, and how far apart the totals are that are kept for it.
_PAST_S = 10 * _MINUTE_S
_KEPT_EVERY_S = 30.0
_RUNBOOK = "https://github.com/OWNER/penstock/blob/main/docs/how-to/answer-an-alert.md"


@dataclass(frozen=True, slots=True)
class Total:
    """The samples of a metric, added up, or the largest, by some of their labels; ``where`` has patterns of labels."""

    metric: str
    by: tuple[str, ...]
    where: tuple[tuple[str, str], ...] = ()
    is_largest: bool = False

    def of(self, samples: Samples) -> Vector:
        found: Vector = {}
        for labels, value in samples.get(self.metric, ()):
            if all(re.fullmatch(pattern, labels.get(name, "")) for name, pattern in self.where):
                key = tuple(labels.get(name, "") for name in self.by)
                before = found.get(key)
                if before is None or self.is_largest:
                    found[key] = value if before is None else max(before, value)
                else:
                    found[key] = before + value
        return found


class Looks:
    """What the last look found, and of those before it the totals that rules ask for."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._samples: Samples = {}
        self._wanted: set[Total] = set()
        self._past: deque[tuple[float, dict[Total, Vector]]] = deque()

    def add(self, at_s: float, samples: Samples) -> None:
        is_due = not self._past or self._at_s >= self._past[-1][0] + _KEPT_EVERY_S
        # A look that a server did not answer says nothing about its counters.
        if self._samples and is_due and all(value for _, value in self._samples.get(UP, ())):
            self._past.append((self._at_s, {total: total.of(self._samples) for total in self._wanted}))
        while len(self._past) > 1 and self._past[1][0] <= at_s - _PAST_S:
            self._past.popleft()
        self._at_s, self._samples = at_s, samples

    def now(self, total: Total) -> Vector:
        return total.of(self._samples)

    def grown(self, total: Total, span_s: float) -> Vector:
        """Return by how much a total grew within a time, or since the look before; empty at the first look."""
        self._wanted.add(total)
        if not self._past:
            return {}
        within = (past for at_s, past in self._past if at_s >= self._at_s - span_s)
        before = next(within, self._past[-1][1]).get(total, {})
        # What has come since began at zero.
        return {key: value - before.get(key, 0.0) for key, value in self.now(total).items()}


@dataclass(frozen=True, slots=True)
class Rule:
    """One alert: for how long its condition has to hold, and what finds where it does."""

    name: str
    severity: Severity
    for_s: float
    labels: tuple[str, ...]
    summary: str
    find: Callable[[Looks], Vector]


def _server(metric: telemetry.Metric | str, *labels: str) -> Total:
    return Total(metric if isinstance(metric, str) else metric.name, labels or ("instance",), is_largest=True)


def _increase(found: Vector) -> Vector:
    """Return what counters grew by: one that fell began again, and nothing is known of it."""
    return {key: value for key, value in found.items() if value >= 0}


def _is(total: Total, value: float) -> Callable[[Looks], Vector]:
    return lambda looks: {key: found for key, found in looks.now(total).items() if found == value}


def _above(total: Total, bound: float) -> Callable[[Looks], Vector]:
    return lambda looks: {key: found for key, found in looks.now(total).items() if found > bound}


def _share(part: Vector, whole: Vector) -> Vector:
    return {key: value / whole[key] for key, value in part.items() if whole.get(key)}


def _share_above(part: Total, whole: Total, bound: float) -> Callable[[Looks], Vector]:
    def find(looks: Looks) -> Vector:
        shares = _share(looks.now(part), looks.now(whole))
        return {key: share for key, share in shares.items() if share > bound}

    return find


def _rate_above(part: Total, whole: Total, bound: float) -> Callable[[Looks], Vector]:
    """Find where a part of what was counted in five minutes is above a bound."""

    def find(looks: Looks) -> Vector:
        span_s = 5 * _MINUTE_S
        shares = _share(_increase(looks.grown(part, span_s)), _increase(looks.grown(whole, span_s)))
        return {key: share for key, share in shares.items() if share > bound}

    return find


def _p99_above(metric: telemetry.Metric, bound_s: float, *labels: str) -> Callable[[Looks], Vector]:
    """Find where more than one in a hundred was slower than a bound, which is one of the buckets."""
    total = Total(f"{metric.name}_bucket", labels, (("le", r"\+Inf"),))
    quick = Total(f"{metric.name}_bucket", labels, (("le", re.escape(f"{bound_s:g}")),))

    def find(looks: Looks) -> Vector:
        span_s = 5 * _MINUTE_S
        shares = _share(_increase(looks.grown(quick, span_s)), _increase(looks.grown(total, span_s)))
        return {key: 1 - share for key, share in shares.items() if share < 0.99}

    return find


def _counted(metric: telemetry.Metric, *by: str, **where: str) -> Total:
    return Total(metric.name, by, tuple(where.items()))


_REQUESTS = _counted(telemetry.REQUESTS, "instance")
_FAILED = _counted(telemetry.REQUESTS, "instance", status="5..")
_SENDS = _counted(telemetry.REQUESTS, "instance", operation="send_messages")
_SENDS_REFUSED = _counted(telemetry.REQUESTS, "instance", operation="send_messages", status="429|503|507")
_ASKED = _counted(telemetry.QUEUE_OPERATIONS, "queue")
_ASKED_IN_VAIN = _counted(telemetry.QUEUE_OPERATIONS, "queue", outcome="(?!success$).*")
_RECORDS = _counted(telemetry.JOURNAL_RECORDS, "instance", "journal")
_LAG = _counted(telemetry.GROUP_LAG, "consumergroup", "topic")
_AGE = _server(telemetry.QUEUE_OLDEST_AGE, "queue", "tier")
_STANDBYS_NEEDED = _server(telemetry.POSTGRES_STANDBYS_NEEDED, "database")
_DEAD_ROWS = Total(telemetry.POSTGRES_ROWS.name, ("database", "table"), (("kind", "dead"),), is_largest=True)
_LIVE_ROWS = Total(telemetry.POSTGRES_ROWS.name, ("database", "table"), (("kind", "live"),), is_largest=True)


def _dead_letters(looks: Looks) -> Vector:
    alerting = looks.now(_server(telemetry.QUEUE_ALERT_DEAD_LETTERS, "queue"))
    found = looks.now(_server(telemetry.QUEUE_DEAD_LETTERS, "queue"))
    return {key: count for key, count in found.items() if key in alerting and count >= alerting[key]}


def _wait_bound_broken(looks: Looks) -> Vector:
    bounds = looks.now(_server(telemetry.QUEUE_WAIT_BOUND, "queue", "tier"))
    return {key: age for key, age in looks.now(_AGE).items() if key in bounds and age > 2 * bounds[key]}


def _group_lag(looks: Looks) -> Vector:
    growing = looks.grown(_LAG, 10 * _MINUTE_S)
    return {key: lag for key, lag in looks.now(_LAG).items() if lag > 10_000 and growing.get(key, 0) > 0}


def _disk_stalled(looks: Looks) -> Vector:
    written = looks.grown(_RECORDS, _MINUTE_S)
    lag = looks.now(_server(telemetry.JOURNAL_LAG, "instance", "journal"))
    return {key: records for key, records in lag.items() if records > 0 and written.get(key) == 0}


def _disk_nearly_full(looks: Looks) -> Vector:
    free = _share(looks.now(_server(telemetry.DISK_FREE)), looks.now(_server(telemetry.DISK_SIZE)))
    return {key: share for key, share in free.items() if share < 0.1}


def _standby_missing(looks: Looks) -> Vector:
    there = looks.now(_server(telemetry.POSTGRES_STANDBYS, "database"))
    needed = looks.now(_STANDBYS_NEEDED)
    return {key: count - there[key] for key, count in needed.items() if key in there and count > there[key]}


def _dead_rows(looks: Looks) -> Vector:
    live = looks.now(_LIVE_ROWS)
    dead = looks.now(_DEAD_ROWS)
    return {key: rows for key, rows in dead.items() if rows > 1_000_000 and key in live and rows > 2 * live[key]}


_STUCK = Total(telemetry.QUEUE_MESSAGES.name, ("queue",), (("state", "stuck"),), is_largest=True)
_AGE_OF_LIVING = Total(telemetry.QUEUE_OLDEST_AGE.name, ("queue",), (("queue", r"(?!.*[.]dead$).*"),), is_largest=True)
_FSYNC_POLICY = _server(telemetry.MAY_LOSE, "instance", "fsync")
_SNAPSHOT = _server(telemetry.POSTGRES_OLDEST_SNAPSHOT_AGE, "database")

RULES = (
    Rule("PenstockGone", "critical", 120, ("instance",), "{instance} does not answer", _is(_server(UP), 0)),
    Rule(
        "PenstockNotReady", "critical", 300, ("instance",), "{instance} is not ready", _is(_server(telemetry.READY), 0),
    ),
    Rule(
        "PenstockDatabaseSilent", "critical", 60, ("database",), "{database} does not answer",
        _is(_server(telemetry.POSTGRES_ANSWERING, "database"), 0),
    ),
    Rule(
        "PenstockStandbyMissing", "critical", 60, ("database",), "{database} lacks {value} synchronous standbys",
        _standby_missing,
    ),
    Rule(
        "PenstockErrors", "critical", 300, ("instance",), "{instance} fails {percent} of its requests",
        _rate_above(_FAILED, _REQUESTS, 0.01),
    ),
    Rule(
        "PenstockSendsRefused", "warning", 300, ("instance",), "{instance} refuses {percent} of all sends",
        _rate_above(_SENDS_REFUSED, _SENDS, 0.05),
    ),
    Rule(
        "PenstockQueueErrors", "warning", 600, ("queue",), "{queue} refuses {percent} of what is asked of it",
        _rate_above(_ASKED_IN_VAIN, _ASKED, 0.1),
    ),
    Rule("PenstockDeadLetters", "warning", 0, ("queue",), "{queue} has {value} dead letters", _dead_letters),
    Rule(
        "PenstockQueueStuck", "critical", 300, ("queue",), "{value} messages of {queue} cannot be buried",
        _above(_STUCK, 0),
    ),
    Rule(
        "PenstockQueueOld", "warning", 300, ("queue",), "A message of {queue} has waited for {duration}",
        _above(_AGE_OF_LIVING, 600),
    ),
    Rule(
        "PenstockQueueNearlyFull", "warning", 300, ("queue",), "{queue} is {percent} full",
        _above(_server(telemetry.QUEUE_PRESSURE, "queue"), 0.8),
    ),
    Rule(
        "PenstockWaitBoundBroken", "warning", 600, ("queue", "tier"),
        "{tier} messages of {queue} wait longer than they should", _wait_bound_broken,
    ),
    Rule(
        "PenstockGroupLag", "warning", 600, ("consumergroup", "topic"),
        "{consumergroup} is {value} records behind in {topic}", _group_lag,
    ),
    Rule(
        "PenstockDiskStalled", "critical", 60, ("instance", "journal"), "{instance} gets nothing onto its disk",
        _disk_stalled,
    ),
    Rule(
        "PenstockDiskNearlyFull", "warning", 300, ("instance",), "{instance} has {percent} of its disk left",
        _disk_nearly_full,
    ),
    Rule(
        "PenstockFsyncSlow", "warning", 600, ("instance", "log"), "The disk of {instance} is slow",
        _p99_above(telemetry.FSYNC, 0.25, "instance", "log"),
    ),
    Rule(
        "PenstockLoopSlow", "warning", 300, ("instance",), "The event loop of {instance} stalls",
        _p99_above(telemetry.LOOP_LAG, 0.1, "instance"),
    ),
    Rule(
        "PenstockClockDoubted", "critical", 300, ("instance",), "{instance} does not believe its clock",
        _is(_server(telemetry.CLOCK_DOUBTED), 1),
    ),
    Rule(
        "PenstockMayLose", "info", 0, ("instance", "fsync"), "{instance} answers before the fsync",
        _is(_FSYNC_POLICY, 1),
    ),
    Rule(
        "PenstockConnectionsNearLimit", "warning", 300, ("instance",), "{instance} has {percent} of its connections",
        _share_above(_server(telemetry.CONNECTIONS), _server(telemetry.CONNECTIONS_MAX), 0.9),
    ),
    Rule(
        "PenstockFilesNearLimit", "warning", 300, ("instance",), "{instance} has {percent} of its open files",
        _share_above(_server("process_open_fds"), _server("process_max_fds"), 0.9),
    ),
    Rule(
        "PenstockOldSnapshot", "warning", 300, ("database",), "A snapshot of {database} is {duration} old",
        _above(_SNAPSHOT, 600),
    ),
    Rule(
        "PenstockDeadRows", "warning", 1_800, ("database", "table"), "{table} has {value} dead rows", _dead_rows
    ),
)  # fmt: skip

# The metrics that any rule looks at; a parser can leave out all others.
METRICS = (
    telemetry.READY, telemetry.REQUESTS, telemetry.QUEUE_OPERATIONS, telemetry.QUEUE_DEAD_LETTERS,
    telemetry.QUEUE_ALERT_DEAD_LETTERS, telemetry.QUEUE_MESSAGES, telemetry.QUEUE_OLDEST_AGE, telemetry.QUEUE_PRESSURE,
    telemetry.QUEUE_WAIT_BOUND, telemetry.GROUP_LAG, telemetry.JOURNAL_LAG, telemetry.JOURNAL_RECORDS,
    telemetry.DISK_FREE, telemetry.DISK_SIZE, telemetry.FSYNC, telemetry.LOOP_LAG, telemetry.CLOCK_DOUBTED,
    telemetry.MAY_LOSE, telemetry.CONNECTIONS, telemetry.CONNECTIONS_MAX, telemetry.POSTGRES_ANSWERING,
    telemetry.POSTGRES_STANDBYS, telemetry.POSTGRES_STANDBYS_NEEDED, telemetry.POSTGRES_OLDEST_SNAPSHOT_AGE,
    telemetry.POSTGRES_ROWS,
)  # fmt: skip


@dataclass(slots=True)
class Alert:
    """A rule whose condition holds for these labels: since when, with which value, and whether it has held for long."""

    rule: Rule
    labels: dict[str, str]
    value: float
    since_s: float
    is_firing: bool = False
    ended_s: float | None = None

    @property
    def summary(self) -> str:
        return self.rule.summary.format(
            **self.labels, value=f"{self.value:,.0f}", percent=f"{self.value:.1%}", duration=duration(self.value)
        )

    def as_alertmanager(self) -> dict[str, object]:
        """Return it as Alertmanager tells a webhook of an alert."""
        name = self.rule.name
        return {
            "status": "firing" if self.ended_s is None else "resolved",
            "labels": {"alertname": name, "severity": self.rule.severity, **self.labels},
            "annotations": {"summary": self.summary, "runbook_url": f"{_RUNBOOK}#{name.lower()}"},
            "startsAt": _instant(self.since_s),
            "endsAt": _instant(self.ended_s),
        }


def _instant(at_s: float | None) -> str:
    # What has not ended has Go's first instant, as Alertmanager writes it.
    if at_s is None:
        return "0001-01-01T00:00:00Z"
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Alerts:
    """The rules, and those that fire. Without ``waits`` an alert fires as soon as its condition holds."""

    def __init__(self, *, waits: bool = True) -> None:
        self._waits = waits
        self._looks = Looks()
        self._held: dict[tuple[str, tuple[str, ...]], Alert] = {}

    def firing(self) -> list[Alert]:
        return [alert for alert in self._held.values() if alert.is_firing]

    def look(self, at_s: float, samples: Samples) -> list[Alert]:
        """Take what one look found; return the alerts that fire or end with it."""
        self._looks.add(at_s, samples)
        found: dict[tuple[str, tuple[str, ...]], Alert] = {}
        for rule in RULES:
            for key, value in rule.find(self._looks).items():
                which = rule.name, key
                alert = self._held.get(which) or Alert(rule, dict(zip(rule.labels, key, strict=True)), value, at_s)
                alert.value = value
                found[which] = alert
        changed: list[Alert] = []
        for alert in found.values():
            if not alert.is_firing and (not self._waits or at_s - alert.since_s >= alert.rule.for_s):
                alert.is_firing = True
                changed.append(alert)
        for which, alert in self._held.items():
            if which not in found and alert.is_firing:
                alert.ended_s = at_s
                changed.append(alert)
        self._held = found
        return changed
