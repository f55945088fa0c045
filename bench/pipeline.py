"""The pipeline over millions of settled messages: how fast, and how it grows with rows and cores.

    python -m bench --only pipeline:            ten million rows, as part of the report
    python -m bench.pipeline --rows 1000000     fewer, by itself

A history is made in the format a store writes (`pipeline_data.py`), of all the rows and of a
tenth of them. Over each, a fresh process with one core and one with two runs every step
(`pipeline_run.py`), the peer's in the same session as ours. What a step took is said on standard error when it is
done, and kept in a file if one is named: a run that is stopped has shown something.
"""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench import Bench, Row, Workload, number
from bench.pipeline_data import write_history
from bench.pipeline_run import ARCHIVE, ARCHIVE_PEER, SIGNALS, SIGNALS_PEER, STEPS, Took
from bench.processes import StartFailed, environment, unwind_when_ended

ROWS = 10_000_000
# Enough to have every kind of row, few enough to take no time.
WARM_ROWS = 20_000
CORES = (1, 2)
# Which step is beside which: above 1, reading with our own source is faster.
PEERS = {ARCHIVE: ARCHIVE_PEER, SIGNALS: SIGNALS_PEER}


@dataclass(frozen=True, slots=True)
class Setting:
    """Over how many rows, on how many cores."""

    rows: int
    cores: int

    @property
    def shown(self) -> str:
        return f"{self.rows:,} rows, {self.cores} core{'s' if self.cores > 1 else ''}"


Results = Mapping[Setting, Mapping[str, Took]]


def say(setting: Setting, took: Took) -> None:
    """Print how far it is: ten million take a while."""
    print(
        f"{setting.shown}: {took.step} took {took.seconds:,.1f} s, {took.rate:,.0f} rows/s", file=sys.stderr, flush=True
    )


@dataclass(frozen=True, slots=True)
class Pipeline:
    name: str = "pipeline: archive and signals"
    rows: int = ROWS
    is_long: bool = True
    cores: tuple[int, ...] = CORES
    told: Callable[[Setting, Took], None] = say

    @property
    def steps(self) -> int:
        return len(self._settings()) * len(STEPS)

    def run(self, bench: Bench) -> list[Row]:
        found: dict[Setting, dict[str, Took]] = {}
        with bench.folder() as folder:
            write_history(folder / "small", WARM_ROWS)
            # The smaller first: it says how long the larger will take.
            for setting in self._settings():
                history = folder / str(setting.rows)
                if not history.exists():
                    write_history(history, setting.rows)
                with bench.folder() as work:
                    for took in _measured(setting, folder, work):
                        found.setdefault(setting, {})[took.step] = took
                        self.told(setting, took)
                        bench.step_done()
        return rows_of(found)

    def _settings(self) -> list[Setting]:
        return [Setting(rows, cores) for rows in (self.rows // 10, self.rows) for cores in self.cores]


def _measured(setting: Setting, histories: Path, work: Path) -> Iterator[Took]:
    """Yield what each step took, as soon as it is known."""
    command = [sys.executable, "-m", "bench.pipeline_run", f"local[{setting.cores}]"]
    command += [str(histories / str(setting.rows)), str(histories / "small"), str(work)]
    with (
        (work / "errors").open("w+") as errors,
        subprocess.Popen(
            command, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as child,
    ):
        assert child.stdout is not None
        try:
            for line in child.stdout:
                yield Took(**json.loads(line))
        except BaseException:
            # After the last one the rest is of no use.
            child.kill()
            raise
        if child.wait():
            errors.seek(0)
            raise StartFailed(f"{' '.join(command)} failed: {errors.read()[-2_000:]}")


def rows_of(found: Results) -> list[Row]:
    """Make a row of each step and setting; those of the most rows and cores say how it grows, too."""
    return [_row(found, setting, step) for step in STEPS if step != ARCHIVE_PEER for setting in found]


def _row(found: Results, setting: Setting, step: str) -> Row:
    took = found[setting][step]
    peer = PEERS.get(step)
    return Row(
        name=f"pipeline: {step}, {setting.shown}",
        figure=took.rate,
        unit="rows/s",
        to_parquet=None if peer is None else took.rate / found[setting][peer].rate,
        remark=_growth(found, step) if setting == _largest(found) else "",
    )


def _largest(found: Results) -> Setting:
    return max(found, key=lambda setting: (setting.rows, setting.cores))


def _growth(found: Results, step: str) -> str:
    """Say what ten times the rows do to the rate, and what the second core does.

    A rate that stays with more rows is time that grows as they do.
    """
    most = _largest(found)
    fewest_rows = Setting(min(setting.rows for setting in found), most.cores)
    fewest_cores = Setting(most.rows, min(setting.cores for setting in found))
    rate = found[most][step].rate
    return (
        f"× {number(rate / found[fewest_rows][step].rate)} the rate of {fewest_rows.rows:,} rows, "
        f"× {number(rate / found[fewest_cores][step].rate)} that of {fewest_cores.cores} core"
    )


WORKLOADS: tuple[Workload, ...] = (Pipeline(),)


def main(
    rows: Annotated[int, typer.Option(min=1_000, help="How many rows the larger history has.")] = ROWS,
    cores: Annotated[list[int] | None, typer.Option(min=1, help="On so many cores; may be repeated.")] = None,
    data: Annotated[Path, typer.Option(help="A folder on the disk to measure.", file_okay=False)] = Path(),
    steps: Annotated[Path | None, typer.Option(help="Append what each step took to this file, as JSON lines.")] = None,
) -> None:
    """Measure the pipeline alone."""
    unwind_when_ended()

    def told(setting: Setting, took: Took) -> None:
        say(setting, took)
        if steps is not None:
            with steps.open("a") as file:
                print(json.dumps(asdict(setting) | asdict(took)), file=file)

    for row in Pipeline(rows=rows, cores=tuple(cores or CORES), told=told).run(Bench(data, 1.0, lambda: None)):
        ratio = "" if row.to_parquet is None else f"{row.to_parquet:.2f} × Parquet"
        print(f"{row.name:<60}{row.figure:>14,.0f} {row.unit:<10}{ratio:<16} {row.remark}".rstrip(), flush=True)


if __name__ == "__main__":
    typer.run(main)
