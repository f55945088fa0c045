"""Who was ahead of a message in line, and how many leases went by while it waited: whole columns at once, on executors.

A queue's time is cut into buckets. Spark brings all rows of a queue and bucket together; what happened before the
bucket is one number for each tier (`Before`), so a bucket is looked at by itself.

A message that came and left in one bucket is judged at once, and told only if it was served too late. One that left in
a later bucket has two rows, each with its part; Spark adds the two up.

To import this module is to need numpy and pyarrow only.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy
import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]

from penstock.core.queue.fairness import TIERS

Batches = Iterator[pyarrow.RecordBatch]
OUTPUT = (
    "queue STRING, queue_id INT, key BIGINT, tier INT, came_ms BIGINT, received_ms BIGINT, ahead BIGINT, "
    "turns BIGINT, passed BIGINT"
)
_SCHEMA = pyarrow.schema(
    [
        ("queue", pyarrow.string()),
        ("queue_id", pyarrow.int32()),
        ("key", pyarrow.int64()),
        ("tier", pyarrow.int32()),
        ("came_ms", pyarrow.int64()),
        ("received_ms", pyarrow.int64()),
        ("ahead", pyarrow.int64()),
        ("turns", pyarrow.int64()),
        ("passed", pyarrow.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Before:
    """What was before each bucket, by place: queues in the order of ``queues``, buckets from ``first`` on."""

    queues: tuple[str, ...]
    # Weights by queue and tier.
    weights: Any
    bucket_ms: int
    first: int
    # How many are in line, and how many turns the tier has had, by queue, tier and bucket.
    line: Any
    turns: Any
    # How many leases there were, by queue and bucket.
    leases: Any


def before(totals: pyarrow.Table, weights: Mapping[str, Sequence[int]], bucket_ms: int) -> Before:
    """Add up what joined and left the line in each bucket: ``totals`` has queue, tier, bucket, line, turn and lease."""
    queues = tuple(sorted(weights))
    bucket = totals["bucket"].to_numpy()
    first = int(bucket.min()) if len(bucket) else 0
    size = int(bucket.max()) - first + 1 if len(bucket) else 1
    places = (_places(totals["queue"], queues), totals["tier"].to_numpy(), bucket - first)
    line, turns = numpy.zeros((2, len(queues), TIERS, size), numpy.int64)
    leases = numpy.zeros((len(queues), size), numpy.int64)
    numpy.add.at(line, places, totals["line"].to_numpy())
    numpy.add.at(turns, places, totals["turn"].to_numpy())
    numpy.add.at(leases, (places[0], places[2]), totals["lease"].to_numpy())
    return Before(
        queues,
        numpy.array([weights[queue] for queue in queues], numpy.int64).reshape(len(queues), TIERS),
        bucket_ms,
        first,
        numpy.cumsum(line, axis=2) - line,
        numpy.cumsum(turns, axis=2) - turns,
        numpy.cumsum(leases, axis=1) - leases,
    )


def served(known: Before) -> Callable[[Batches], Batches]:
    """Return what tells of each message that was served too late, or left in another bucket; for `mapInArrow`.

    It is given whole buckets: queue, queue_id, key, tier, bucket, came_ms, left_ms, turns, is_received, is_asked.
    """

    def told(batches: Batches) -> Batches:
        given = [batch for batch in batches if batch.num_rows]
        if given:
            yield from _told(pyarrow.Table.from_batches(given), known).to_batches()

    return told


def _told(rows: pyarrow.Table, known: Before) -> pyarrow.Table:
    queue, tier = _places(rows["queue"], known.queues), rows["tier"].to_numpy()
    bucket, came_ms, left_ms = (rows[name].to_numpy() for name in ("bucket", "came_ms", "left_ms"))
    is_received, is_asked = (rows[name].to_numpy() for name in ("is_received", "is_asked"))
    has_come, has_left = (at_ms // known.bucket_ms == bucket for at_ms in (came_ms, left_ms))
    at = bucket - known.first
    has_leased = has_left & is_received
    # Leases of the queue, and turns of the tier: how many there were before the bucket, and in it up to a moment.
    leases = _Counted(queue, left_ms, has_leased, numpy.ones(rows.num_rows, numpy.int64), bucket * known.bucket_ms)
    turns = _Counted(queue * TIERS + tier, left_ms, has_leased, rows["turns"].to_numpy(), bucket * known.bucket_ms)

    def between(counted: _Counted, earlier: Any) -> Any:
        """Of a message that came or left in another bucket, only the part of this one: the other has the rest."""
        until = numpy.where(has_left, earlier + counted.before(left_ms, "left"), 0)
        return until - numpy.where(has_come, earlier + counted.before(came_ms, "right"), 0)

    passed, taken = between(leases, known.leases[queue, at]), between(turns, known.turns[queue, tier, at])
    ahead = known.line[queue, tier, at] + _ahead(rows, queue * TIERS + tier, has_come, has_left)
    weights = known.weights[queue, tier]
    bound = -(-(ahead + taken + 1) * known.weights.sum(axis=1)[queue] // weights) + TIERS
    is_late = ~(has_come & has_left) | (numpy.maximum(passed, 0) + 1 > bound)
    chosen = pyarrow.array(numpy.flatnonzero(is_asked & is_late))
    columns = [rows[name] for name in ("queue", "queue_id", "key", "tier", "came_ms", "left_ms")]
    columns += [pyarrow.array(ahead, mask=~has_come), pyarrow.array(taken), pyarrow.array(passed)]
    return pyarrow.Table.from_arrays([column.take(chosen) for column in columns], names=_SCHEMA.names).cast(_SCHEMA)


class _Counted:
    """How much happened in each row's line, from the start of its bucket up to a moment: weights, summed by time."""

    def __init__(self, line: Any, at_ms: Any, is_counted: Any, weight: Any, start_ms: Any) -> None:
        # Times of all lines in one order: those of a line lie behind each other.
        self._line = line
        self._first_ms = int(min(at_ms.min(), start_ms.min()))
        self._range_ms = int(at_ms.max()) - self._first_ms + 2
        places = self._places(at_ms)[is_counted]
        order = numpy.argsort(places)
        self._sorted = places[order]
        self._sums = numpy.concatenate([[0], numpy.cumsum(weight[is_counted][order])])
        self._begin = self._summed(start_ms, "left")

    def before(self, at_ms: Any, side: Any) -> Any:
        return self._summed(at_ms, side) - self._begin

    def _summed(self, at_ms: Any, side: Any) -> Any:
        return self._sums[numpy.searchsorted(self._sorted, self._places(at_ms), side)]

    def _places(self, at_ms: Any) -> Any:
        return self._line * self._range_ms + at_ms - self._first_ms


def _ahead(rows: pyarrow.Table, lane: Any, has_come: Any, has_left: Any) -> Any:
    """How many joined the line of a lane before each row did, less those that left it, within its bucket.

    In one millisecond those that come are before those that leave, each in the order of their keys.
    """
    key, bucket = rows["key"].to_numpy(), rows["bucket"].to_numpy()
    came, left = numpy.flatnonzero(has_come), numpy.flatnonzero(has_left)
    row = numpy.concatenate([came, left])
    at_ms = numpy.concatenate([rows["came_ms"].to_numpy()[came], rows["left_ms"].to_numpy()[left]])
    step = numpy.repeat([1, -1], [len(came), len(left)])
    order = numpy.lexsort((key[row], at_ms * 2 + (step < 0), bucket[row], lane[row]))
    summed = numpy.cumsum(step[order]) - step[order]
    line = numpy.stack([lane[row][order], bucket[row][order]])
    is_first = numpy.ones(len(order), bool)
    is_first[1:] = (line[:, 1:] != line[:, :-1]).any(axis=0)
    within = summed - summed[is_first][numpy.cumsum(is_first) - 1]
    found = numpy.zeros(rows.num_rows, numpy.int64)
    is_come = step[order] > 0
    found[row[order][is_come]] = within[is_come]
    return found


def _places(names: Any, queues: tuple[str, ...]) -> Any:
    places = pyarrow.compute.index_in(names, value_set=pyarrow.array(queues, pyarrow.string()))
    return places.to_numpy().astype(numpy.int64)
