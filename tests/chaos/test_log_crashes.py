"""Crash, recover, and crash again at every single step of the recovery."""

import pytest

from tests.simulation import log_crashes


@pytest.mark.parametrize("part", range(4))
def test_a_second_crash_at_every_step_of_recovery_loses_nothing_either(part: int) -> None:
    for step in range(part, log_crashes.steps(), 4):
        log_crashes.run(step)
