"""Who was ahead, and how many leases went by: buckets dealt to several workers, without Spark."""

from collections import Counter
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pytest

from penstock.core.queue.fairness import TIERS
from penstock.pipeline.signals.lines import Before, before, served
from tests.pipeline import signals_by_hand as by_hand

WEIGHTS = (16, 8, 4, 2, 1)
WORKERS = 3
ROWS = pyarrow.schema(
    [
        *[(name, pyarrow.int64()) for name in ("key", "came_ms", "left_ms", "turns", "bucket")],
        *[(name, pyarrow.int32()) for name in ("queue_id", "tier")],
        *[(name, pyarrow.bool_()) for name in ("is_received", "is_asked")],
        ("queue", pyarrow.string()),
    ]
)


def _times(stay: by_hand.Stay) -> tuple[int, int]:
    left = stay.settled if stay.received is None else stay.received
    return by_hand.START_MS + stay.came, by_hand.START_MS + left


def _rows(stays: list[by_hand.Stay], bucket_ms: int) -> list[dict[str, Any]]:
    rows = []
    for stay in stays:
        came_ms, left_ms = _times(stay)
        row = {
            "queue": stay.queue,
            "queue_id": 1,
            "key": stay.number * 8 + stay.tier,
            "tier": stay.tier,
            "came_ms": came_ms,
            "left_ms": left_ms,
            "turns": by_hand.turns(stay),
            "is_received": stay.received is not None,
            "is_asked": stay.received is not None and stay.group is None,
        }
        rows += [{**row, "bucket": bucket} for bucket in {came_ms // bucket_ms, left_ms // bucket_ms}]
    return rows


def _known(stays: list[by_hand.Stay], bucket_ms: int) -> Before:
    line: Counter[tuple[str, int, int]] = Counter()
    leases: Counter[tuple[str, int, int]] = Counter()
    turns: Counter[tuple[str, int, int]] = Counter()
    for stay in stays:
        came, left = ((stay.queue, stay.tier, at_ms // bucket_ms) for at_ms in _times(stay))
        line[came] += 1
        line[left] -= 1
        leases[left] += stay.received is not None
        turns[left] += by_hand.turns(stay)
    totals = [
        {
            **dict(zip(("queue", "tier", "bucket"), at, strict=True)),
            "line": many,
            "turn": turns[at],
            "lease": leases[at],
        }
        for at, many in line.items()
    ]
    return before(pyarrow.Table.from_pylist(totals), {"orders": WEIGHTS, "mails": WEIGHTS}, bucket_ms)


@pytest.mark.parametrize(("count", "bucket_ms"), [(400, 10**9), (900, 1_000), (600, 60_000)])
def test_messages_served_too_late_are_found_however_their_buckets_are_dealt(count: int, bucket_ms: int) -> None:
    stays = by_hand.made_up(count, seed=3)
    tell = served(_known(stays, bucket_ms))
    rows = _rows(stays, bucket_ms)
    ahead: dict[tuple[str, int], int] = {}
    passed: Counter[tuple[str, int]] = Counter()
    turns: Counter[tuple[str, int]] = Counter()
    for worker in range(WORKERS):
        own = [row for row in rows if (row["bucket"] + len(row["queue"])) % WORKERS == worker]
        for batch in tell(iter(pyarrow.Table.from_pylist(own, ROWS).to_batches(max_chunksize=50))):
            for row in batch.to_pylist():
                message = (row["queue"], row["key"] // 8)
                passed[message] += row["passed"]
                turns[message] += row["turns"]
                if row["ahead"] is not None:
                    ahead[message] = row["ahead"]

    tiers = {(stay.queue, stay.number): stay.tier for stay in stays}
    found = {}
    for message, waiting in ahead.items():
        others = waiting + turns[message]
        leases = max(passed[message], 0) + 1
        bound = -(-(others + 1) * sum(WEIGHTS) // WEIGHTS[tiers[message]]) + TIERS
        if leases > bound:
            found[message] = (others, leases, bound)
    expected = by_hand.late(stays, WEIGHTS)
    assert len(expected) > 20
    assert found == expected
    # A message that came and left in one bucket in time is not reported.
    assert len(ahead) < sum(stay.received is not None and stay.group is None for stay in stays)
