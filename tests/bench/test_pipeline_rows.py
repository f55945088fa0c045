"""The rows of the pipeline: what is beside what, and how growth is told. Spark is not started here."""

import pytest

from bench.pipeline import Pipeline, Setting, rows_of
from bench.pipeline_run import ARCHIVE, ARCHIVE_PEER, SIGNALS, SIGNALS_PEER, Took


def measured(rows: int, *, archive_s: float) -> dict[str, Took]:
    seconds = {ARCHIVE: archive_s, ARCHIVE_PEER: archive_s / 2, SIGNALS: 4.0, SIGNALS_PEER: 8.0}
    return {step: Took(step, rows, took_s) for step, took_s in seconds.items()}


def test_a_step_is_compared_with_its_peer_of_the_same_session() -> None:
    found = {Setting(1_000, 1): measured(1_000, archive_s=2.0), Setting(1_000, 2): measured(1_000, archive_s=1.0)}

    rows = {row.name: row for row in rows_of(found)}

    archive = rows["pipeline: archive, 1,000 rows, 2 cores"]
    assert archive.figure == pytest.approx(1_000)
    assert archive.to_parquet == pytest.approx(0.5)
    assert rows["pipeline: signals of a folder, 1,000 rows, 1 core"].to_parquet == pytest.approx(2.0)
    # The peer of one step is a figure of its own, the other one only a peer.
    assert rows["pipeline: signals, 1,000 rows, 1 core"].to_parquet is None
    assert len(rows) == 6


def test_the_row_of_most_rows_and_cores_says_how_it_grows() -> None:
    found = {
        Setting(100, 1): measured(100, archive_s=1.0),
        Setting(100, 2): measured(100, archive_s=0.5),
        Setting(1_000, 1): measured(1_000, archive_s=8.0),
        Setting(1_000, 2): measured(1_000, archive_s=4.0),
    }

    remarks = {row.name: row.remark for row in rows_of(found) if row.remark}

    assert remarks["pipeline: archive, 1,000 rows, 2 cores"] == "× 1.25 the rate of 100 rows, × 2 that of 1 core"
    assert len(remarks) == 3


def test_a_run_has_the_steps_for_each_size_and_number_of_cores() -> None:
    assert Pipeline(rows=1_000).steps == 4 * 4
    assert Pipeline(rows=1_000, cores=(2,)).steps == 2 * 4
