"""One queue in virtual time: the core decides who is served, workers take, take their time, and hand back.

    arrivals ──▶ core.Queue ──lease──▶ workers ──ack──▶ done
                     ▲                    │
                     └── release, rest ───┘   while it has attempts left

At one and the same millisecond those that are done come first, then those that arrive, and then free workers take. A
worker is never idle while something can be leased. Nothing is lost, lapses, expires or is turned away. So a
simulation knows less than the world did: the baseline shows by how much.

A scenario changes weights, aging, strictness or workers. What it does not name stays as it is:

    urgent first:weights=32,8,4,2,1,aging=0,0,0,10m,20m,workers=12
    strict:mode=strict

A list goes on until the next `name=`. Times are seconds, or have a unit: ms, s, m, h, d.

Waits by tier are compared as they were and as they would have been, on executors, where the rows are. A wait is the
time from arriving to being received first. Only messages that were received are counted, in both; those that never were
(expired, purged) are simulated as work all the same, with the median handling time of their queue.

Columns in (`INPUT`), rows in any order:

    arrived_ms    when it came to this queue          handling_ms   of one attempt; null if never received
    lane          the tier it was sent at             attempts      how often it was received here
    key           its place in the queue              rest_ms       between two attempts
    received_ms   when it was first received          last_ms, settled_ms   the last attempt, to count workers

The *bound* of `core/queue/fairness.py`: a message with p ahead in its tier is served within (p + 1) · W / w + 5
messages. How many met it is counted from times alone, and where times are equal, in favour of the queue. A message
with a group waits for its group, and a strict queue promises nothing: there it is null.
"""

import heapq
import re
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.contract.limits import LEASE_MESSAGES_MAX, LEASE_MS_MAX
from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.core.queue.fairness import Shares
from penstock.core.queue.message import Drafts
from penstock.core.queue.queue import Queue
from penstock.pipeline.job import JobFailed

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]


BASELINE = "baseline"
HAPPENED = "happened"
WORKERS_MAX = 10_000

_UNITS_MS = {"ms": 1, "": 1_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAME_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name, and what is other than now; None stays as it is."""

    name: str
    weights: tuple[int, ...] | None = None
    aging_ms: tuple[int, ...] | None = None
    is_strict: bool | None = None
    workers: int | None = None

    def settings(self, now: QueueSettings) -> QueueSettings:
        said = {"weights": self.weights, "aging_ms": self.aging_ms, "is_strict": self.is_strict}
        changed: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        return replace(now, **changed)


def read_scenario(text: str) -> Scenario:
    """Read a scenario as it is typed.

    >>> read_scenario("calm:weights=4,2,2,1,1,mode=weighted,workers=8")
    Scenario(name='calm', weights=(4, 2, 2, 1, 1), aging_ms=None, is_strict=False, workers=8)
    """
    name, colon, rest = text.partition(":")
    name = name.strip()
    if not colon or not 0 < len(name) <= _NAME_CHARACTERS_MAX or name in {BASELINE, HAPPENED}:
        raise JobFailed(f"{text!r} is no scenario: it has a name of its own, as in calm:weights=4,2,2,1,1,workers=8")
    said: dict[str, Any] = {}
    for option, value in _options(rest, text):
        field, read = _OPTIONS[option]
        try:
            said[field] = read(value)
        except ValueError as error:
            raise JobFailed(f"scenario {name!r}: {option}={value} is not understood: {error}") from None
    scenario = Scenario(name, **said)
    try:
        scenario.settings(QueueSettings())
    except BadSettings as error:
        raise JobFailed(f"scenario {name!r}: {error}") from None
    return scenario


def of_weights(text: str) -> Scenario:
    """Return the scenario that `--weights` stands for."""
    return read_scenario(f"weights {text}:weights={text}")


def _options(text: str, whole: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for word in text.split(","):
        option, equals, value = word.strip().partition("=")
        if equals and option in _OPTIONS:
            found.append((option, value))
        elif found and not equals:
            found[-1] = (found[-1][0], f"{found[-1][1]},{option}")
        else:
            raise JobFailed(f"{whole!r}: {word!r} is not understood; a scenario may say {', '.join(_OPTIONS)}")
    return found


def _mode(text: str) -> bool:
    if text not in {"strict", "weighted"}:
        raise ValueError("a mode is strict or weighted")
    return text == "strict"


def _workers(text: str) -> int:
    count = int(text)
    if not 1 <= count <= WORKERS_MAX:
        raise ValueError(f"there may be 1 to {WORKERS_MAX:,}")
    return count


def _list(text: str, read: Callable[[str], int]) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) != TIERS:
        raise ValueError(f"it has {len(words)} numbers; there are {TIERS} tiers")
    return tuple(read(word.strip()) for word in words)


def _span_ms(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d|)", text)
    if found is None:
        raise ValueError(f"{text!r} is no time, as 30, 30s, 10m or 1h")
    return int(float(found[1]) * _UNITS_MS[found[2]])


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "weights": ("weights", lambda text: _list(text, int)),
    "aging": ("aging_ms", lambda text: _list(text, _span_ms)),
    "mode": ("is_strict", _mode),
    "workers": ("workers", _workers),
}


_TOKEN = 1
# Not received yet.
NEVER = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrivals:
    """Messages in the order of their arrival, as columns."""

    arrived_ms: Sequence[int]
    # The tier each was sent at.
    tiers: bytes
    # How long one attempt takes.
    handling_ms: Sequence[int]
    # How often it is received until it is done, at least once.
    attempts: Sequence[int]
    # How long it rests between two attempts.
    rest_ms: Sequence[int]
    # b"" for none; None if no message has one.
    groups: Sequence[bytes] | None = None

    def __len__(self) -> int:
        return len(self.tiers)


def simulate(arrivals: Arrivals, settings: QueueSettings, *, workers: int, batch: int = 1) -> "array[int]":
    """Return when each message is first received."""
    assert workers >= 1
    assert 1 <= batch <= LEASE_MESSAGES_MAX
    simulation = _Simulation(arrivals, settings, workers=workers, batch=batch)
    simulation.run()
    return simulation.received_ms


def plain(settings: QueueSettings) -> QueueSettings:
    """Settings without what a simulation must not do: refuse, delay, forget, bury or pause."""
    return replace(settings, size_max=0, delay_ms=0, retention_ms=0, deliveries_max=0, is_paused=False)


class _Simulation:
    def __init__(self, arrivals: Arrivals, settings: QueueSettings, *, workers: int, batch: int) -> None:
        self._given = arrivals
        self._queue = Queue(1, plain(settings))
        self._free = workers
        self._batch = batch
        self._left = array("q", arrivals.attempts)
        # By lane: which message has a number there. Numbers are given in the order of sending.
        self._sent: list[array[int]] = [array("q") for _ in range(TIERS)]
        self._next = 0
        # What ends when: (time, order, lease, bit, message, whether a worker is free then); lease 0 is a waking.
        self._ends: list[tuple[int, int, int, int, int, bool]] = []
        self._order = 0
        self.received_ms = array("q", [NEVER]) * len(arrivals)

    def run(self) -> None:
        arrived_ms, count, ends = self._given.arrived_ms, len(self._given), self._ends
        while self._next < count or ends:
            now_ms = ends[0][0] if ends else arrived_ms[self._next]
            if self._next < count and arrived_ms[self._next] < now_ms:
                now_ms = arrived_ms[self._next]
            while ends and ends[0][0] <= now_ms:
                self._end(now_ms)
            if self._next < count and arrived_ms[self._next] <= now_ms:
                self._send(now_ms)
            if self._free:
                self._lease(now_ms)

    def _send(self, now_ms: int) -> None:
        given, first = self._given, self._next
        upto, count = first + 1, len(given)
        while upto < count and given.arrived_ms[upto] <= now_ms:
            upto += 1
        self._next = upto
        tiers = given.tiers[first:upto]
        groups = None if given.groups is None else given.groups[first:upto]
        drafts = Drafts(bodies=(b"",) * (upto - first), tiers=tiers, groups=groups)
        event = self._queue.send(drafts, now_ms=now_ms).event
        assert event is not None
        self._queue.apply(event)
        for message, tier in enumerate(tiers, first):
            self._sent[tier].append(message)

    def _lease(self, now_ms: int) -> None:
        """Let everybody who is free take. Who takes one at a time takes as in one lease: the core shares both alike.

        Not so in a FIFO queue, where one lease may take a group's next messages together, and two leases may not.
        """
        batch, queue = self._batch, self._queue
        are_joined = batch == 1 and not queue.state.settings.is_fifo
        while self._free:
            want = min(self._free, LEASE_MESSAGES_MAX) if are_joined else batch
            event = queue.lease(want, now_ms=now_ms, token=_TOKEN, lease_ms=LEASE_MS_MAX)
            if event is None:
                return
            queue.apply(event)
            messages = [
                message for lane, start, length in event.runs for message in self._sent[lane][start : start + length]
            ]
            if are_joined:
                self._free -= len(messages)
                self._begin(event.lease, messages, now_ms)
            else:
                self._free -= 1
                self._begin_together(event.lease, messages, now_ms)

    def _begin(self, lease: int, messages: Sequence[int], now_ms: int) -> None:
        for row, message in enumerate(messages):
            self._receive(message, now_ms)
            self._order += 1
            end_ms = now_ms + self._given.handling_ms[message]
            heapq.heappush(self._ends, (end_ms, self._order, lease, 1 << row, message, True))

    def _begin_together(self, lease: int, messages: Sequence[int], now_ms: int) -> None:
        """One worker has taken several: it handles one after the other, and is free after the last."""
        end_ms = now_ms
        for row, message in enumerate(messages):
            self._receive(message, now_ms)
            self._order += 1
            end_ms += self._given.handling_ms[message]
            is_last = row == len(messages) - 1
            heapq.heappush(self._ends, (end_ms, self._order, lease, 1 << row, message, is_last))

    def _receive(self, message: int, now_ms: int) -> None:
        if self.received_ms[message] == NEVER:
            self.received_ms[message] = now_ms

    def _end(self, now_ms: int) -> None:
        _, _, lease, bit, message, is_free = heapq.heappop(self._ends)
        self._free += is_free
        if not lease:
            return
        self._left[message] -= 1
        if self._left[message] <= 0:
            done = self._queue.ack(lease, _TOKEN, bit, now_ms=now_ms)
            assert done is not None
            self._queue.apply(done)
            return
        rest_ms = self._given.rest_ms[message]
        back = self._queue.release(lease, _TOKEN, bit, now_ms=now_ms, roll=0.0, delay_ms=rest_ms)
        assert back is not None
        self._queue.apply(back)
        if rest_ms:
            self._order += 1
            heapq.heappush(self._ends, (now_ms + rest_ms, self._order, 0, 0, message, False))


Numbers = npt.NDArray[np.int64]

INPUT = (
    "queue STRING, scenario STRING, arrived_ms BIGINT, key BIGINT, lane TINYINT, received_ms BIGINT, last_ms BIGINT, "
    "settled_ms BIGINT, handling_ms BIGINT, attempts INT, rest_ms BIGINT, tenant STRING"
)
OUTPUT = (
    "queue STRING, scenario STRING, tier INT, messages BIGINT, wait_ms_p50 DOUBLE, wait_ms_p90 DOUBLE, "
    "wait_ms_p99 DOUBLE, wait_ms_max DOUBLE, wait_ms_mean DOUBLE, bound_share DOUBLE, workers INT, simulated BIGINT, "
    "simulated_s DOUBLE"
)
_COLUMNS = tuple(part.split()[0] for part in OUTPUT.split(", "))


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to simulate; it travels to executors."""

    scenarios: Mapping[str, Scenario]
    # Of queues by name; the others have the defaults.
    present: Mapping[str, QueueSettings] = field(default_factory=dict)
    # 0 to find out, for each queue.
    workers: int = 0
    batch: int = 1


class Seen(NamedTuple):
    """Messages of one queue in the order of their arrival."""

    arrived_ms: Numbers
    lanes: Numbers
    received_ms: Numbers
    is_received: npt.NDArray[np.bool_]
    has_group: npt.NDArray[np.bool_]


def compare(rows: "Table", plan: Plan) -> "Table":
    """Simulate one scenario of one queue; beside the baseline, tell what happened too."""
    import pyarrow as pa  # noqa: PLC0415

    queue, name = rows.column("queue")[0].as_py(), rows.column("scenario")[0].as_py()
    scenario = plan.scenarios[name]
    order = np.lexsort((_numbers(rows, "key"), _numbers(rows, "arrived_ms")))
    rows = rows.take(pa.array(order))
    present = plan.present.get(queue, QueueSettings())
    settings = scenario.settings(present)
    workers = scenario.workers or plan.workers or workers_seen(_numbers(rows, "last_ms"), _numbers(rows, "settled_ms"))
    seen = _seen(rows)
    began_s = time.perf_counter()
    received_ms = simulate(_arrivals(rows), settings, workers=workers, batch=plan.batch)
    taken_s = time.perf_counter() - began_s
    would = seen._replace(received_ms=np.frombuffer(received_ms, dtype=np.int64))
    told = {"queue": queue, "workers": workers, "simulated": len(order), "simulated_s": taken_s}
    found = [{**told, "scenario": name, **row} for row in waits(would, settings)]
    if name == BASELINE:
        happened = {"queue": queue, "workers": workers, "simulated": 0, "simulated_s": 0.0, "scenario": HAPPENED}
        found += [{**happened, **row} for row in waits(seen, present)]
    return pa.table({column: [row[column] for row in found] for column in _COLUMNS}, schema=_schema())


def waits(seen: Seen, settings: QueueSettings) -> list[dict[str, Any]]:
    """Return for each tier that received something how long its messages waited."""
    waited = seen.received_ms - seen.arrived_ms
    is_met = within_bound(seen, settings)
    found = []
    for tier in range(TIERS):
        mine = seen.is_received & (seen.lanes == tier)
        if not mine.any():
            continue
        # The nearest rank: a wait that some message had.
        p50, p90, p99 = np.percentile(waited[mine], (50, 90, 99), method="inverted_cdf")
        promised = mine & ~seen.has_group
        share = None if is_met is None or not promised.any() else float(is_met[promised].mean())
        found.append(
            {
                "tier": tier,
                "messages": int(mine.sum()),
                "wait_ms_p50": float(p50),
                "wait_ms_p90": float(p90),
                "wait_ms_p99": float(p99),
                "wait_ms_max": float(waited[mine].max()),
                "wait_ms_mean": float(waited[mine].mean()),
                "bound_share": share,
            }
        )
    return found


def within_bound(seen: Seen, settings: QueueSettings) -> npt.NDArray[np.bool_] | None:
    """Whether each message was served within the bound of its tier; None if there is no bound."""
    if settings.is_strict:
        return None
    shares = Shares(settings.weights)
    leased = np.sort(seen.received_ms[seen.is_received])
    # Those received after it came, up to those that came at the very moment it was received itself.
    served = np.searchsorted(leased, seen.received_ms, "left") - np.searchsorted(leased, seen.arrived_ms, "right")
    is_met = np.zeros(len(seen.lanes), dtype=np.bool_)
    for tier in range(TIERS):
        mine = seen.lanes == tier
        arrived = seen.arrived_ms[mine]
        gone = np.sort(seen.received_ms[mine & seen.is_received])
        ahead = np.arange(len(arrived)) - np.searchsorted(gone, arrived, "left")
        # Groups take turns, so those that come later may go before it.
        grouped = np.sort(seen.received_ms[mine & seen.is_received & seen.has_group])
        turns = np.searchsorted(grouped, seen.received_ms[mine], "left") - np.searchsorted(grouped, arrived, "right")
        before = np.maximum(ahead, 0) + np.maximum(turns, 0)
        bounds = np.array([shares.bound(tier, ahead=int(p)) for p in before], dtype=np.int64)
        is_met[mine] = served[mine] <= bounds
    return is_met


def workers_seen(last_ms: Numbers, settled_ms: Numbers) -> int:
    """Return the most messages that were handled at once: between their last receipt and their end.

    >>> workers_seen(np.array([0, 5, 9]), np.array([10, 9, 12]))
    2
    """
    known = last_ms >= 0
    if not known.any():
        return 1
    moments = np.concatenate((last_ms[known], settled_ms[known]))
    steps = np.concatenate((np.ones(known.sum(), dtype=np.int64), -np.ones(known.sum(), dtype=np.int64)))
    # One that ends as another begins may have had the same worker.
    return max(1, int(np.cumsum(steps[np.lexsort((steps, moments))]).max()))


def _seen(rows: "Table") -> Seen:
    received_ms = _numbers(rows, "received_ms")
    has_group = np.array([bool(tenant) for tenant in rows.column("tenant").to_pylist()], dtype=np.bool_)
    return Seen(_numbers(rows, "arrived_ms"), _numbers(rows, "lane"), received_ms, received_ms >= 0, has_group)


def _arrivals(rows: "Table") -> Arrivals:
    handling_ms = _numbers(rows, "handling_ms")
    known = handling_ms[handling_ms >= 0]
    handling_ms[handling_ms < 0] = int(np.median(known)) if len(known) else 0
    tenants = rows.column("tenant")
    has_groups = tenants.null_count < len(tenants)
    return Arrivals(
        arrived_ms=_numbers(rows, "arrived_ms").tolist(),
        tiers=_numbers(rows, "lane").astype(np.uint8).tobytes(),
        handling_ms=handling_ms.tolist(),
        attempts=_numbers(rows, "attempts").tolist(),
        rest_ms=_numbers(rows, "rest_ms").tolist(),
        groups=[(tenant or "").encode() for tenant in tenants.to_pylist()] if has_groups else None,
    )


def _numbers(rows: "Table", name: str) -> Numbers:
    """A column as numbers; -1 where there is none."""
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.compute as pc  # type: ignore[import-untyped] # noqa: PLC0415

    found: Numbers = pc.fill_null(rows.column(name).cast(pa.int64()), -1).to_numpy().copy()
    return found


def _schema() -> Any:
    import pyarrow as pa  # noqa: PLC0415

    kinds = {"STRING": pa.string(), "INT": pa.int32(), "BIGINT": pa.int64(), "DOUBLE": pa.float64()}
    return pa.schema([(name, kinds[kind]) for name, kind in (part.split() for part in OUTPUT.split(", "))])
