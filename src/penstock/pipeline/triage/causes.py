"""A cause as it is told: its burials, how they go on, what it began with, and whether the last run knew it.

What a run has found is remembered in `memory.json` among its results. The next run into the same folder compares:

    new    a cause that the last run did not find
    gone   a cause that only the last run found

So a run over the same history finds nothing new and nothing gone. A run that groups otherwise compares with nothing.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from penstock.pipeline.triage.deploys import Mark, began_with

MEMORY = "memory.json"
_VERSION = 1

# A trend compares the last quarter of the time with what was before, and is not read out of a handful.
_FEW = 8
_STEEP = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """One row of the table of causes."""

    cause_id: str
    signature: str
    burials: int
    since_last: int
    messages: int
    first_seen: datetime
    last_seen: datetime
    queues: Sequence[str]
    # One number for each tier.
    tiers: Sequence[int]
    tenants: int
    # With how many burials each has, the most first.
    top_tenants: Sequence[tuple[str, int]]
    deliveries: int
    still_dead: int
    sample_ids: Sequence[str]
    sample_error: str | None
    sample_body: str | None
    # Burials in equal parts of the time.
    buckets: Sequence[int]
    trend: str
    deploy: str | None
    is_new: bool


class Remembered(NamedTuple):
    """What the last run kept of a cause."""

    signature: str
    burials: int
    first_seen: datetime
    last_seen: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a run found, and until when it knew the history."""

    by_shape: bool
    known_to: datetime
    causes: Mapping[str, Remembered]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the causes of a run are seen against."""

    known_from: datetime
    last: Memory | None
    marks: Sequence[Mark]
    within: timedelta


def cause_of(row: Mapping[str, Any], buckets: Sequence[int], setting: Setting) -> Cause:
    """Make a cause of a row of `transforms.triage.causes`."""
    last = setting.last.causes.get(row["cause_id"]) if setting.last else None
    first_seen = min(row["first_seen"], last.first_seen) if last else row["first_seen"]
    told = {name: row[name] for name in row if name not in {"first_seen", "top_tenants"}}
    return Cause(
        **told,
        first_seen=first_seen,
        top_tenants=[(tenant["tenant"], tenant["burials"]) for tenant in row["top_tenants"] or ()],
        buckets=buckets,
        trend=trend(buckets),
        deploy=began_with(first_seen, setting.marks, within=setting.within, known_from=setting.known_from),
        is_new=setting.last is not None and last is None,
    )


def trend(buckets: Sequence[int]) -> str:
    """Say how a cause goes on at the end of the time.

    >>> trend([0, 0, 0, 1]), trend([5] * 4), trend([1, 1, 1, 9]), trend([9, 9, 9, 1]), trend([9, 9, 9, 0])
    ('few', 'steady', 'rising', 'falling', 'stopped')
    """
    quarter = max(1, len(buckets) // 4)
    before, lately = sum(buckets[:-quarter]) / max(1, len(buckets) - quarter), sum(buckets[-quarter:]) / quarter
    if sum(buckets) < _FEW:
        return "few"
    if not lately:
        return "stopped"
    if lately > before * _STEEP:
        return "rising"
    return "falling" if lately * _STEEP < before else "steady"


def gone(causes: Sequence[Cause], last: Memory | None) -> dict[str, Remembered]:
    """Return what only the last run found."""
    found = {cause.cause_id for cause in causes}
    return {} if last is None else {name: cause for name, cause in last.causes.items() if name not in found}


def remember(folder: Path, memory: Memory) -> None:
    causes = {
        name: [cause.signature, cause.burials, cause.first_seen.isoformat(), cause.last_seen.isoformat()]
        for name, cause in memory.causes.items()
    }
    said = {"version": _VERSION, "by_shape": memory.by_shape, "known_to": memory.known_to.isoformat(), "causes": causes}
    (folder / MEMORY).write_text(json.dumps(said, indent=1) + "\n", encoding="utf-8")


def recall(folder: Path, *, by_shape: bool) -> Memory | None:
    """Return what the last run found; None if there was none, or it grouped otherwise."""
    try:
        said = json.loads((folder / MEMORY).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    if said["version"] != _VERSION or said["by_shape"] != by_shape:
        return None
    causes = {
        name: Remembered(signature, burials, datetime.fromisoformat(first), datetime.fromisoformat(last))
        for name, (signature, burials, first, last) in said["causes"].items()
    }
    return Memory(by_shape=by_shape, known_to=datetime.fromisoformat(said["known_to"]), causes=causes)
