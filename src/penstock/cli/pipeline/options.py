"""What all jobs share on the command line: their options, a Spark session, a progress bar, and a summary at the end.

Spark's Java inherits the error stream of the process that starts it, and writes dozens of lines there that no user of a
job can use. So its error stream is a file while it starts. The file is removed when the job ends well; otherwise its
path is printed.
"""

import importlib.util
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import rich.table
import typer
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from penstock.cli.config import with_options
from penstock.cli.output import ExitCode, counted, errors, refuse, remark, show, table
from penstock.pipeline.http import ServerUnreachable
from penstock.pipeline.job import JobFailed, Outcome, Table, explained

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.pipeline.locations import HistoryLocation

Options = TypeVar("Options")

Master = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Where Spark runs: local[*], local[2], spark://host:7077, yarn, k8s://… "
        "By default on this machine, or where spark-submit says.",
        rich_help_panel="Spark",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option("--conf", help="A setting of Spark, as name=value. May be repeated.", rich_help_panel="Spark"),
]
Json = Annotated[bool, typer.Option("--json", help="Print the outcome as one line of JSON.")]
Queues = Annotated[list[str] | None, typer.Option("--queue", "-q", help="Only this queue. May be repeated.")]
FullRefresh = Annotated[
    bool,
    typer.Option(
        "--full-refresh", help="Read the whole history, and not only what is new since the last run into --out."
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        help="An archive, a server as http://127.0.0.1:8080, its data folder, or its database, as postgresql://… "
        "(with ?schema=… if it is not in penstock).",
        metavar="SOURCE",
    ),
]
Since = Annotated[str, typer.Option(help="Only messages settled from this time on: RFC 3339, as 2026-03-01T00:00:00Z.")]
Until = Annotated[str, typer.Option(help="Only messages settled before this time.")]
KeyText = Annotated[
    str,
    typer.Option(
        "--key",
        envvar="PENSTOCK_KEY",
        help="The API key, if a server is read or written. Others on this machine can see it; PENSTOCK_KEY hides it.",
        rich_help_panel="Server",
    ),
]


@dataclass(frozen=True, slots=True)
class SparkJob:
    """A job as it was asked for: where it runs, with what settings of Spark, and how its outcome is printed."""

    key: str
    master: str | None
    settings: dict[str, str]
    is_json: bool


@dataclass(frozen=True, slots=True)
class HistoryJob(SparkJob):
    """A job that reads history, and which."""

    place: "HistoryLocation"


@contextmanager
def asking_spark(
    *, key: KeyText = "", master: Master = None, conf: Conf = None, as_json: Json = False
) -> Iterator[SparkJob]:
    """End with a sentence where Spark is not installed: a job imports it, and would end with a traceback."""
    if importlib.util.find_spec("pyspark") is None:
        refuse("Spark is not installed. Install it with: pip install 'penstock[spark]'", ExitCode.UNREACHABLE)
    yield SparkJob(key, master, pairs_of(conf or (), "--conf"), as_json)


@contextmanager
def asking_history(
    source: Source,
    *,
    queue: Queues = None,
    since: Since = "",
    until: Until = "",
    key: KeyText = "",
    master: Master = None,
    conf: Conf = None,
    as_json: Json = False,
) -> Iterator[HistoryJob]:
    with asking_spark(key=key, master=master, conf=conf, as_json=as_json) as job:
        from penstock.pipeline.locations import HistoryLocation

        place = HistoryLocation(where=source, key=key, queues=tuple(queue or ()), since=since, until=until)
        yield HistoryJob(key, master, job.settings, as_json, place)


asks_spark, reads_history = with_options(asking_spark), with_options(asking_history)


def pairs_of(words: Iterable[str], name: str) -> dict[str, str]:
    """Return what was said as NAME=VALUE, each name once."""
    found: dict[str, str] = {}
    for word in words:
        left, equals, right = word.partition("=")
        if not equals or not left.strip() or left.strip() in found:
            raise typer.BadParameter(f"{name} is {word!r}; it is NAME=VALUE, and each name once")
        found[left.strip()] = right
    return found


# Without a terminal, at most this often: people read the log of a follower, too.
TOLD_EVERY_S = 10.0


class Bar:
    """What a job tells, on the terminal; without one, line by line."""

    def __init__(self, bar: Progress) -> None:
        self._bar = bar
        self._task = bar.add_task("Starting Spark", total=None, rate="")
        self._began_s = self._told_s = time.monotonic()

    def step(self, text: str) -> None:
        self._began_s = time.monotonic()
        self._bar.update(self._task, description=text, rate="", completed=0, total=None)
        if self._bar.disable:
            remark(text)

    def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
        rate = count / max(time.monotonic() - self._began_s, 1e-3)
        said = f"{counted(count, 'row')}, {rate:,.0f}/s" + ("" if lag_s is None else f", {lag_s:,.0f} s behind")
        self._bar.update(self._task, completed=count, total=total, rate=said)
        if count and self._bar.disable and time.monotonic() - self._told_s >= TOLD_EVERY_S:
            self._told_s = time.monotonic()
            remark(f"  {said}")


def run_job(
    job: SparkJob, name: str, work: "Callable[[SparkSession, Options, Bar], Outcome]", options: Options, where: str = ""
) -> None:
    """Run a job in a session of its own, show how it goes and what came of it, and end with its code.

    ``where`` is what is read: a small folder is read by a Java that does not take long to be fast.
    """
    from penstock.pipeline.spark import NoSpark, open_session, settings_for

    settings = (settings_for(where) if where else {}) | job.settings
    said = JvmOutput()
    columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[rate]}"))
    try:
        with Progress(
            *columns, TimeElapsedColumn(), console=errors, transient=True, disable=not errors.is_terminal
        ) as bar:
            shown = Bar(bar)
            with said.begin():
                session = open_session(master=job.master, name=f"penstock-{name}", settings=settings)
            hush_spark()
            try:
                outcome = work(session, options, shown)
            finally:
                session.stop()
    except NoSpark as error:
        said.forget()
        refuse(str(error), ExitCode.UNREACHABLE)
    except JobFailed as error:
        said.forget()
        refuse(str(error), exit_code_of(error))
    except KeyboardInterrupt:
        said.forget()
        raise
    except Exception as error:
        if sentence := explained(error) or said.why_it_ended(error):
            said.forget()
            refuse(sentence, exit_code_of(error))
        if said.keep():
            remark(f"What Spark said is in {said.path}")
        raise
    said.forget()
    show_outcome(outcome, as_json=job.is_json)
    if not outcome.is_good:
        raise typer.Exit(ExitCode.NOTHING)


def exit_code_of(error: Exception) -> ExitCode:
    """Return the exit code: a scheduler retries a job if there was no server, and not otherwise."""
    # What a task of Spark has met is a text when it comes here.
    is_away = any(
        isinstance(each, ServerUnreachable) or f".{ServerUnreachable.__name__}: " in str(each)
        for each in (error, error.__context__)
    )
    return ExitCode.UNREACHABLE if is_away else ExitCode.BAD_DATA


def show_outcome(outcome: Outcome, *, as_json: bool) -> None:
    tables = {each.title: [dict(zip(each.columns, row, strict=True)) for row in each.rows] for each in outcome.tables}
    value = {
        "sentence": outcome.sentence,
        "is_good": outcome.is_good,
        "figures": outcome.figures,
        "tables": tables,
        "written": list(outcome.written),
    }
    shown: list[str | rich.table.Table] = []
    for each in outcome.tables:
        shown += (f"\n{each.title}", _table(each))
    shown.append(f"\n{outcome.sentence}" if outcome.tables else outcome.sentence)
    show(value, *shown, *(f"  wrote {path}" for path in outcome.written), as_json=as_json)


def _table(given: Table) -> rich.table.Table:
    def is_number(at: int) -> bool:
        return all(isinstance(row[at], int | float) or row[at] is None for row in given.rows)

    numbers = [column for at, column in enumerate(given.columns) if is_number(at)]
    return table(*given.columns, numbers=numbers, rows=[[*map(_rounded, row)] for row in given.rows])


def _rounded(value: str | float | None) -> str | int | None:
    if not isinstance(value, float):
        return value
    return f"{value:,.1f}" if abs(value) >= 1 or not value else f"{value:.2g}"


_STDERR = 2
# What PySpark says when its Java is gone, and the line in which Java says why.
_NO_JAVA = "JAVA_GATEWAY_EXITED"
_FATAL = re.compile(r'^(?:Exception in thread "main" [\w.$]+: |Error: )(.+)$', re.MULTILINE)
# By which PySpark says on the terminal, as a line of JSON with the whole stack, what it raises as well.
_LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger")


def hush_spark() -> None:
    """Let PySpark raise what is wrong with an expression, and not print it too."""
    from pyspark.logger import PySparkLogger

    for name in _LOGGERS:
        # Made by PySpark's own hand: it calls them with words that a plain logger does not take.
        PySparkLogger.getLogger(name).disabled = True


class JvmOutput:
    """The file, from the start of Java to the end of the job."""

    def __init__(self) -> None:
        handle, path = tempfile.mkstemp(prefix="penstock-spark-", suffix=".log")
        self._handle = handle
        self.path = Path(path)

    @contextmanager
    def begin(self) -> Iterator[None]:
        """Let whatever is started meanwhile write to the file, and our own words still reach the terminal."""
        terminal = os.dup(_STDERR)
        before = sys.stderr
        sys.stderr.flush()
        with os.fdopen(terminal, "w", buffering=1, closefd=False) as ours:
            sys.stderr = ours
            os.dup2(self._handle, _STDERR)
            try:
                yield
            finally:
                ours.flush()
                os.dup2(terminal, _STDERR)
                sys.stderr = before
                os.close(terminal)

    def why_it_ended(self, error: Exception) -> str | None:
        """Return why Java has not even started, in its own words; None if it has."""
        found = _FATAL.search(self.path.read_text(errors="replace")) if _NO_JAVA in str(error) else None
        return f"Spark does not start: {found[1].rstrip('.')}. Look at --master and --conf" if found else None

    def forget(self) -> None:
        os.close(self._handle)
        self.path.unlink(missing_ok=True)

    def keep(self) -> bool:
        """Leave the file where it is; say whether there is anything in it."""
        os.close(self._handle)
        return self.path.stat().st_size > 0
