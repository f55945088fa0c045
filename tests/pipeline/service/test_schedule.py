"""When a job runs next: after a run, after failures, at a time of day, and after a restart."""

from pathlib import Path

import pytest

from penstock.pipeline.service.plan import Plan, read_plan
from penstock.pipeline.service.schedule import Past, due_at

DAY = 86_400
# A midnight in UTC.
MIDNIGHT = 20_000 * DAY
NOON = MIDNIGHT + DAY // 2
BEGAN_AT = float(NOON)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    file = tmp_path / "pipeline.toml"
    file.write_text(
        '[pipeline]\nsource = "data"\nretry = "10s"\nretry_max = "1m"\n[jobs.signals]\nevery = "5m"\n'
        '[jobs.skew]\nat = "03:00"\n'
    )
    return read_plan(file)


def test_a_job_runs_at_once_and_then_from_beginning_to_beginning(plan: Plan) -> None:
    job = plan.jobs[0]

    assert due_at(job, Past(), plan, began_at=BEGAN_AT) == BEGAN_AT
    assert due_at(job, Past(runs=1, began_at=NOON, ended_at=NOON + 20), plan, began_at=BEGAN_AT) == NOON + 300
    # One that takes longer than its interval goes on at once.
    assert due_at(job, Past(runs=1, began_at=NOON, ended_at=NOON + 400), plan, began_at=BEGAN_AT) == NOON + 400


def test_a_job_that_fails_waits_longer_each_time_up_to_a_limit(plan: Plan) -> None:
    for job in plan.jobs:
        waits = [
            due_at(job, Past(runs=9, failures=failures, ended_at=NOON), plan, began_at=BEGAN_AT) - NOON
            for failures in (1, 2, 3, 4, 5_000)
        ]
        assert waits == [10, 20, 40, 60, 60]


def test_a_job_of_the_night_runs_once_a_day_and_makes_up_for_a_run_that_was_missed(plan: Plan) -> None:
    job, three = plan.jobs[1], 3 * 3_600
    # It never ran, and the service began at noon.
    assert due_at(job, Past(), plan, began_at=BEGAN_AT) == MIDNIGHT + DAY + three
    ran = Past(runs=1, succeeded_at=MIDNIGHT + three, ended_at=MIDNIGHT + three + 60)
    assert due_at(job, ran, plan, began_at=BEGAN_AT) == MIDNIGHT + DAY + three
    # Of two days without a service, one run is made up for, and it is due at once.
    missed = due_at(job, ran, plan, began_at=BEGAN_AT + 2 * DAY)
    assert missed == MIDNIGHT + DAY + three < BEGAN_AT + 2 * DAY
