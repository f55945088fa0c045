"""The race: it measures what it says, with real servers, and leaves nothing behind."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from bench.race import in_turns, report
from bench.race.__main__ import app
from bench.race.sides import SIDES
from bench.race.workloads import WORKLOADS, Found

pytestmark = pytest.mark.real_time


def _race(*options: str, out: Path) -> dict[str, list[dict[str, object]]]:
    done = CliRunner().invoke(
        app, [*options, "--rounds", "1", "--seconds", "0.3", "--out", str(out), "--data", str(out)]
    )
    assert done.exit_code == 0, (done.output, done.exception)
    told: dict[str, list[dict[str, object]]] = json.loads((out / "race.json").read_text())
    return told


@pytest.mark.slow
@pytest.mark.parametrize("is_sync", [False, True])
def test_calls_in_turns_are_told_for_each_verb(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], is_sync: bool
) -> None:
    in_turns.main(peers="penstock", calls=10, is_sync=is_sync, data=tmp_path)
    told = capsys.readouterr().out
    assert [line.split(" | ")[0] for line in told.splitlines()] == [
        "| call",
        "|---|---|---|---|---|---|",
        "| send",
        "| lease",
        "| ack",
    ]
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_a_race_tells_rates_versions_and_what_an_answer_means(tmp_path: Path) -> None:
    told = _race("--peers", "penstock", "--only", "one", "--backlogs", "", out=tmp_path)
    measured = {str(each["workload"]): each["rounds"] for each in told["measured"]}
    assert {"send, one at a time", "lease + ack, one at a time", "ack and lease in one round trip"} <= measured.keys()
    for name, rounds in measured.items():
        assert isinstance(rounds, list)
        assert all(each["rate"] > 0 and each["p50_ms"] > 0 for each in rounds), name
    assert told["sides"][0]["ack"] == "on disk: after an fsync"
    table = (tmp_path / "race.md").read_text()
    assert "| send, one at a time |" in table
    # The servers and their folders are gone.
    assert not list(tmp_path.glob("*.tmp"))


@pytest.mark.slow
def test_a_backlog_is_filled_worked_on_and_opened_again(tmp_path: Path) -> None:
    told = _race("--peers", "penstock", "--only", "backlog", "--backlogs", "5000", out=tmp_path)
    (backlog,) = told["backlogs"]
    assert backlog["messages"] == 5_000
    for figure in ("fill_rate", "rate", "memory_mb", "disk_mb", "restart_s"):
        assert backlog[figure] > 0, figure  # type: ignore[operator]


def test_a_cell_has_the_median_and_the_spread_of_the_rounds() -> None:
    sides, workload = [SIDES[0]], WORKLOADS[0]
    rounds = [Found(rate, [1.0], 1.0, 1.0, 0.0) for rate in (1_234, 5_678, 2_345)]
    table = "\n".join(report._rows(sides, [workload], {(workload.name, sides[0].name): rounds}))
    assert "| send, one at a time | 2,340 (1,230–5,680) |" in table


def test_latencies_are_told_as_the_median_of_the_rounds() -> None:
    workload = next(each for each in WORKLOADS if each.is_latency)
    rounds = [Found(200, [p50] * 98 + [p99] * 2, 1.0, 1.0, 0.0) for p50, p99 in ((1.0, 9.0), (2.0, 4.0), (3.0, 5.0))]
    table = "\n".join(report._rows([SIDES[0]], [workload], {(workload.name, SIDES[0].name): rounds}))
    assert "| 2.00 / 5.00 ms |" in table
