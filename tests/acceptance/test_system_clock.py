"""The real clock: near the wall's time, and never back."""

import time

import pytest

from penstock.runtime.system import SystemClock


def test_the_clock_tells_the_time_and_never_goes_back() -> None:
    clock = SystemClock()
    assert abs(clock.now_ms() - time.time_ns() // 1_000_000) < 60_000
    readings = [clock.now_ms() for _ in range(50_000)]
    assert readings == sorted(readings)


def test_setting_the_wall_clock_back_does_not_move_a_running_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SystemClock()
    before = clock.now_ms()
    monkeypatch.setattr(time, "time_ns", lambda: 0)
    assert before <= clock.now_ms() < before + 60_000
