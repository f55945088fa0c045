"""Waits by tier: as they were, and as they would have been. Runs where the rows are: on executors.

A wait is the time from arriving to being received first. Only messages that were received are counted, in both; those
that never were (expired, purged) are simulated as work all the same, with the median handling time of their queue.

Columns in (`INPUT`), rows in any order:

    arrived_ms    when it came to this queue          handling_ms   of one attempt; null if never received
    lane          the tier it was sent at             attempts      how often it was received here
    key           its place in the queue              rest_ms       between two attempts
    received_ms   when it was first received          last_ms, settled_ms   the last attempt, to count workers

The *bound* of `core/queue/fairness.py`: a message with p ahead in its tier is served within (p + 1) · W / w + 5
messages. How many met it is counted from times alone, and where times are equal, in favour of the queue. A message
with a group waits for its group, and a strict queue promises nothing: there it is null.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.fairness import Shares
from penstock.pipeline.whatif.simulation import BASELINE, HAPPENED, Arrivals, Scenario, simulate

if TYPE_CHECKING:
    from pyarrow import Table  # type: ignore[import-untyped]

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
