"""Runs the jobs of a plan for as long as it is not told to stop: two lanes in one Spark session.

    lane of the archive   archive                        a report that takes minutes does not make the archive late
    lane of the reports   signals, triage, audit, …      one at a time: what is due for longest comes first

What happened is in `<out>/service.json`, written after each run, so a restart goes on from there. A job that fails is
tried again after a wait that grows; the others go on. Jobs can be killed at any moment, so a stop waits for them only
for so long, and then cancels them. If Java is gone every job would fail for ever, so the service ends instead, and
whatever started it starts it again.

One service at a time works in a folder: it holds a lock there that ends with its process, however that ends.
"""

import fcntl
import json
import os
import platform
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from penstock.pipeline.job import JobFailed, NoRows, Outcome, Table, counted, explained, first_line
from penstock.pipeline.service.jobs import run_planned
from penstock.pipeline.service.plan import ARCHIVE, Plan, PlannedJob
from penstock.pipeline.service.schedule import Past, due_at
from penstock.pipeline.service.status import JobView, status_page
from penstock.pipeline.service.tables import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STATE, _LOCK = "service.json", ".service.lock"
_VERSION = 1
# How often a lane looks whether something is due; a clock may be set.
_LOOK_S = 0.5
_CANCEL_S = 15.0


@contextmanager
def only_instance(out: str) -> Iterator[None]:
    """Hold the folder of a service; raise `JobFailed` if another one has it."""
    path = Path(out) / _LOCK
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = path.open("a+", encoding="utf-8")
    except OSError as error:
        raise JobFailed(f"{out} cannot be written: {error.strerror}. Name another folder as pipeline.out") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            raise JobFailed(
                f"another `penstock pipeline run` works in {out}: {file.read().strip() or 'it does not say which'}. "
                "Stop that one, or name another folder as pipeline.out"
            ) from None
        file.truncate(0)
        since = datetime.now(UTC).isoformat(timespec="seconds")
        file.write(f"process {os.getpid()} on {platform.node()}, since {since}\n")
        file.flush()
        yield


@dataclass(slots=True)
class _Running:
    """The progress of a run, for the status page."""

    began_at: float
    text: str = "Beginning"
    # Its own: a job may set it when it ends, which is no reason for the others to end.
    stopping: threading.Event = field(default_factory=threading.Event)

    def step(self, text: str) -> None:
        self.text = text

    def rows(self, count: int, *, total: int | None = None, lag_s: float | None = None) -> None:
        pass


class Service:
    def __init__(
        self, spark: "SparkSession", plan: Plan, *, tell: Callable[[str], None], stopping: threading.Event
    ) -> None:
        self._spark = spark
        self._plan = plan
        self._tell = tell
        self._stopping = stopping
        self._began_at = time.time()
        self._saving = threading.Lock()
        self._pasts = _read_state(Path(plan.out), plan.jobs)
        self._running: dict[str, _Running] = {}
        # Why the service cannot go on.
        self._broken = ""

    def once(self) -> Outcome:
        """Run each job one time, the archive first."""
        for job in sorted(self._plan.jobs, key=lambda each: each.kind != ARCHIVE):
            if not self._stopping.is_set():
                self._run(job)
        return self._outcome()

    def serve(self) -> Outcome:
        """Run jobs when they are due, until the service is told to stop."""
        with status_page(self._plan.listen, self.view) as address:
            self._tell(f"{counted(len(self._plan.jobs), 'job')}; status and metrics at {address}")
            lanes = [[job for job in self._plan.jobs if (job.kind == ARCHIVE) == is_archive] for is_archive in (1, 0)]
            threads = [threading.Thread(target=self._lane, args=(lane,), daemon=True) for lane in lanes if lane]
            for thread in threads:
                thread.start()
            self._stopping.wait()
            self._end(threads)
        if self._broken:
            raise JobFailed(self._broken)
        return self._outcome()

    def view(self) -> Sequence[JobView]:
        now = time.time()
        found = []
        for job in self._plan.jobs:
            running = self._running.get(job.name)
            past = replace(self._pasts[job.name])
            found.append(
                JobView(
                    name=job.name,
                    kind=job.kind,
                    interval_s=job.interval_s,
                    past=past,
                    step=running.text if running else "",
                    due_at=self._due_at(job, now),
                    behind_s=max(now - (past.succeeded_at or self._began_at), 0.0),
                    out=self._plan.out_of(job),
                )
            )
        return found

    def _lane(self, jobs: Sequence[PlannedJob]) -> None:
        while not self._stopping.is_set():
            now = time.time()
            job = min(jobs, key=lambda each: self._due_at(each, now))
            if self._due_at(job, now) > now:
                self._stopping.wait(_LOOK_S)
            else:
                self._run(job)

    def _due_at(self, job: PlannedJob, now: float) -> float:
        if self._waits_for_archive(job):
            return inf
        due = due_at(job, self._pasts[job.name], self._plan, began_at=self._began_at)
        # The clock was put back: what happened in its future is no reason to wait for it.
        return min(due, now + max(job.interval_s, self._plan.retry_s_max))

    def _waits_for_archive(self, job: PlannedJob) -> bool:
        """A report on an archive that is not there yet would only fail."""
        writers = [each for each in self._plan.jobs if each.kind == ARCHIVE]
        reads_archive = self._plan.archive and self._plan.place_of(job).where == self._plan.archive
        return bool(reads_archive and writers and not self._pasts[writers[0].name].succeeded_at)

    def _run(self, job: PlannedJob) -> None:
        past, running = self._pasts[job.name], _Running(time.time())
        self._running[job.name] = running
        before = time.monotonic()
        try:
            outcome = self._try(job, running)
        except Exception as error:
            if self._stopping.is_set():
                # It was cancelled, and says nothing of the job.
                del self._running[job.name]
                return
            # A bug of one job, too, is no reason to end the others.
            self._failed(job, past, error)
            outcome = None
        past.began_at, past.ended_at = running.began_at, time.time()
        past.duration_s = time.monotonic() - before
        past.runs += 1
        if outcome is not None:
            past.failures, past.error, past.said = 0, "", outcome.sentence
            past.succeeded_at, past.is_good = running.began_at, outcome.is_good
            past.rows += int(outcome.figures.get("rows_new", outcome.figures.get("rows", 0)))
            if job.kind != ARCHIVE or outcome.figures.get("rows") or not outcome.is_good:
                self._tell(f"{job.name}: {outcome.sentence}")
        del self._running[job.name]
        self._save()

    def _try(self, job: PlannedJob, running: _Running) -> Outcome:
        # Tasks of the two lanes get their turns, if Spark was told to be fair.
        self._spark.sparkContext.setLocalProperty(
            "spark.scheduler.pool", "archive" if job.kind == ARCHIVE else "reports"
        )
        try:
            outcome = run_planned(self._spark, self._plan, job, running, running.stopping)
        except NoRows as nothing:
            return Outcome(sentence=f"{nothing}.")
        running.step("Making tables")
        publish(
            Path(self._plan.out),
            kind=job.kind,
            job=job.name,
            results=Path(self._plan.out_of(job)),
            run_at=running.began_at,
            keep_s=self._plan.keep_s,
        )
        return outcome

    def _failed(self, job: PlannedJob, past: Past, error: Exception) -> None:
        past.failures += 1
        past.failed += 1
        said = str(error) if isinstance(error, JobFailed) else explained(error)
        past.error = said or f"{type(error).__name__}: {first_line(str(error))}"
        self._tell(f"{job.name} failed ({past.failures}): {past.error}")
        if said is None:
            self._tell("".join(traceback.format_exception(error)))
        if not self._has_java():
            self._broken = "Java, which Spark runs in, has ended: start the service again"
            self._stopping.set()

    def _has_java(self) -> bool:
        try:
            self._spark.sparkContext._jvm.java.lang.System.nanoTime()  # type: ignore[union-attr] # a classic session.
        except Exception:
            return False
        return True

    def _end(self, threads: Sequence[threading.Thread]) -> None:
        """Wait for jobs that run, and cancel them if they take too long: each can be cut off anywhere."""
        if self._running:
            self._tell(f"Stopping; waiting for {', '.join(list(self._running))}")
        for running in list(self._running.values()):
            running.stopping.set()
        for thread in threads:
            thread.join(0 if self._broken else self._plan.stop_wait_s)
        if any(thread.is_alive() for thread in threads) and not self._broken:
            self._tell(f"Cancelling {', '.join(list(self._running))}")
            with suppress(Exception):
                self._spark.sparkContext.cancelAllJobs()
                for query in self._spark.streams.active:
                    query.stop()
            for thread in threads:
                thread.join(_CANCEL_S)

    def _save(self) -> None:
        with self._saving:
            told = {name: past.as_json() for name, past in self._pasts.items()}
            draft = Path(self._plan.out) / f".{_STATE}.new"
            draft.write_text(json.dumps({"version": _VERSION, "jobs": told}, indent=1) + "\n", encoding="utf-8")
            draft.replace(Path(self._plan.out) / _STATE)

    def _outcome(self) -> Outcome:
        pasts = [(job.name, self._pasts[job.name]) for job in self._plan.jobs]
        failing = [name for name, past in pasts if past.failures]
        bad = [name for name, past in pasts if not past.failures and not past.is_good]
        parts = [f"{counted(len(pasts) - len(failing), 'job')} of {len(pasts)} worked"]
        parts += [f"{', '.join(failing)} failed"] if failing else []
        parts += [f"{', '.join(bad)} found something wrong"] if bad else []
        rows: list[list[str | int | float | None]] = [
            [name, past.runs, past.failed, past.rows, past.duration_s, past.error or past.said] for name, past in pasts
        ]
        columns = ("job", "runs", "failed", "rows", "last s", "said")
        return Outcome(
            sentence=f"{'; '.join(parts)}.",
            tables=[Table("Jobs", columns, rows)],
            written=[self._plan.out],
            is_good=not failing and not bad,
            figures={"jobs": len(pasts), "failing": len(failing)},
        )


def _read_state(out: Path, jobs: Sequence[PlannedJob]) -> dict[str, Past]:
    """Return what is known of each job; nothing if there is no such file, or it is not ours."""
    kept: dict[str, Any] = {}
    with suppress(OSError, ValueError, AttributeError):
        said = json.loads((out / _STATE).read_text(encoding="utf-8"))
        kept = said["jobs"] if said.get("version") == _VERSION else {}
    found = {}
    for job in jobs:
        try:
            found[job.name] = Past(**kept.get(job.name, {}))
        except TypeError:
            found[job.name] = Past()
    return found
