"""Archivers that are killed with -9 hundreds of times, at moments drawn by chance: each row of the history once."""

from pathlib import Path

import pytest

from tests.pipeline.archive.test_table import check_after_kills

pytestmark = [pytest.mark.slow, pytest.mark.real_time]


def test_hundreds_of_killed_archivers_leave_each_row_once(tmp_path: Path, seed: int) -> None:
    check_after_kills(tmp_path, kills=200, rows=40_000, seed=seed)
