"""The same signals once more, in plain Python and with no thought for speed: what the transforms are held against."""

from collections.abc import Iterable, Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import numpy

from tests.pipeline.rows import NOON, at

START_MS = int(NOON.timestamp() * 1_000)


class Stay(NamedTuple):
    """A message in a queue, in milliseconds after noon."""

    queue: str
    number: int
    tier: int
    group: str | None
    came: int
    received: int | None
    last: int | None
    settled: int
    outcome: str
    deliveries: int


def made_up(count: int, seed: int) -> list[Stay]:
    """A busy quarter of an hour: bursts, retries, burials, messages that were never received."""
    dice = Random(seed)
    stays = []
    for number in range(count):
        came = dice.choice([dice.randrange(900_000), 300_000, 300_000 + dice.randrange(3)])
        outcome = dice.choices(["acked", "buried", "expired", "purged"], [80, 8, 6, 6])[0]
        deliveries = 1 if dice.random() < 0.8 else dice.randrange(2, 5)
        received = came + int(dice.expovariate(1 / 20_000)) if outcome in {"acked", "buried"} else None
        last = None if received is None else received + (0 if deliveries == 1 else dice.randrange(60_000))
        settled = (came if last is None else last) + dice.randrange(120_000)
        stays.append(
            Stay(
                dice.choice(["orders", "mails"]),
                number,
                dice.randrange(3),
                dice.choice([*[None] * 9, "a", "b", "c"]),
                came,
                received,
                last,
                settled,
                outcome,
                0 if received is None else deliveries,
            )
        )
    return stays


def row(stay: Stay) -> dict[str, Any]:
    return {
        "queue": stay.queue,
        "queue_id": 1 if stay.queue == "orders" else 2,
        "number": stay.number,
        "tier": stay.tier,
        "group": stay.group,
        "sent_at": at(stay.came / 1_000),
        "first_received_at": None if stay.received is None else at(stay.received / 1_000),
        "last_received_at": None if stay.last is None else at(stay.last / 1_000),
        "settled_at": at(stay.settled / 1_000),
        "outcome": stay.outcome,
        "delivery_count": stay.deliveries,
    }


def window(stays: Sequence[Stay], begin: int, end: int) -> dict[str, Any]:
    """What a window from ``begin`` to before ``end`` shows of stays of one kind."""
    settled = [stay for stay in stays if begin <= stay.settled < end]
    received = [stay for stay in stays if stay.received is not None and begin <= stay.received < end]
    handled = [stay for stay in settled if stay.outcome in {"acked", "buried"}]
    live = [stay for stay in stays if stay.came < end <= stay.settled]
    seconds = (end - begin) / 1_000
    return {
        "sent": sum(begin <= stay.came < end for stay in stays),
        "received": len(received),
        "settled": len(settled),
        "settled_per_s": len(settled) / seconds,
        "acked": sum(stay.outcome == "acked" for stay in settled),
        "buried": sum(stay.outcome == "buried" for stay in settled),
        "retries": sum(max(stay.deliveries - 1, 0) for stay in settled),
        "dead_letter_rate": sum(stay.outcome == "buried" for stay in settled) / len(settled) if settled else None,
        "depth": len(live),
        "waiting": sum(stay.came < end <= (stay.settled if stay.received is None else stay.received) for stay in stays),
        "in_flight_max": sum(stay.received is not None and stay.received < end <= stay.settled for stay in stays),
        "in_flight_min": sum(stay.last is not None and stay.last < end <= stay.settled for stay in stays),
        "depth_mean": _overlap(((stay.came, stay.settled) for stay in stays), begin, end) / (end - begin),
        "busy_mean": _overlap(((s.last, s.settled) for s in stays if s.last is not None), begin, end) / (end - begin),
        "oldest_age_ms": max((end - stay.came for stay in live), default=None),
        **spans("wait", [stay.received - stay.came for stay in received if stay.received is not None]),
        **spans("handling", [stay.settled - stay.last for stay in handled if stay.last is not None]),
        **spans("total", [stay.settled - stay.came for stay in handled]),
    }


def spans(measure: str, values: Sequence[int]) -> dict[str, float | None]:
    if not values:
        return {f"{measure}_ms_{word}": None for word in ("p50", "p90", "p99", "max", "mean")}
    p50, p90, p99 = (float(value) for value in numpy.percentile(values, [50, 90, 99]))
    figures = {"p50": p50, "p90": p90, "p99": p99, "max": max(values), "mean": sum(values) / len(values)}
    return {f"{measure}_ms_{word}": value for word, value in figures.items()}


def late(stays: Sequence[Stay], weights: Sequence[int]) -> dict[tuple[str, int], tuple[int, int, int]]:
    """The breaches: how many were ahead, how many leases it took, and the bound, by queue and number."""
    found = {}
    for stay in stays:
        others = [other for other in stays if other.queue == stay.queue and other is not stay]
        if stay.received is None or stay.group is not None:
            continue
        ahead = sum(
            other.tier == stay.tier
            and (other.came, other.number) < (stay.came, stay.number)
            and (other.settled if other.received is None else other.received) >= stay.came
            for other in others
        )
        passed = [
            other for other in others if other.received is not None and stay.came < other.received < stay.received
        ]
        leases = 1 + len(passed)
        # Groups take turns, and failed messages come again.
        ahead += sum(turns(other) for other in passed if other.tier == stay.tier)
        bound = -(-(ahead + 1) * sum(weights) // weights[stay.tier]) + 5
        if leases > bound:
            found[stay.queue, stay.number] = (ahead, leases, bound)
    return found


def turns(stay: Stay) -> int:
    """How many leases of its tier a message takes that those waiting before it do not explain."""
    return stay.deliveries - (stay.received is not None and stay.group is None)


def _overlap(pieces: Iterable[tuple[int, int]], begin: int, end: int) -> int:
    return sum(max(0, min(until, end) - max(since, begin)) for since, until in pieces)


def differences(told: Mapping[str, Any], expected: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Where two windows differ by more than is promised: percentiles by 0.8 %, all else by nothing."""
    found = {}
    for name, value in expected.items():
        allowed = 0.008 * (value or 0) + 1 if name.endswith(("_p50", "_p90", "_p99")) else 1e-6
        both_missing = told[name] is None and value is None
        if not both_missing and (told[name] is None or value is None or abs(told[name] - value) > allowed):
            found[name] = (told[name], value)
    return found
