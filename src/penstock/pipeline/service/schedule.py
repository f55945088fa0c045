"""When a job runs next. Time is an argument: this is arithmetic, and its tests need no clock."""

from dataclasses import asdict, dataclass
from typing import Any

from penstock.pipeline.service.plan import DAY_S, Plan, PlannedJob


@dataclass(slots=True)
class Past:
    """What is known of the runs of a job; kept in a file, so that a restart goes on from it. Times are Unix seconds."""

    began_at: float = 0.0
    ended_at: float = 0.0
    # When the last run that worked began: all that was settled before is in its results.
    succeeded_at: float = 0.0
    # In a row, since the last run that worked.
    failures: int = 0
    runs: int = 0
    failed: int = 0
    rows: int = 0
    duration_s: float = 0.0
    is_good: bool = True
    said: str = ""
    error: str = ""

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def due_at(job: PlannedJob, past: Past, plan: Plan, *, began_at: float) -> float:
    """Return when a job runs next, of a service that began at this time.

    After a failure it waits, each time twice as long, up to a limit. A job with a time of day that never ran waits for
    it; one that missed its time, because nothing ran or it failed, is due at once.
    """
    if past.failures:
        return past.ended_at + min(plan.retry_s * 2.0 ** min(past.failures - 1, 30), plan.retry_s_max)
    if job.every_s is not None:
        return max(past.began_at + job.every_s, past.ended_at) if past.runs else began_at
    assert job.at_s is not None
    since = past.succeeded_at or began_at
    today = since - since % DAY_S + job.at_s
    return today if today > since else today + DAY_S
