"""`penstock probe`: try a server the way its users do, once or every few minutes.

A probe makes a queue of its own, uses it and deletes it. The name of the queue says which probe made it and when:

    penstock-probe-dead-letter-1799999999-8c1f

Nothing is left behind. A probe that is stopped or fails deletes its queue before it ends. If it is killed, its
*caretaker* does so: a process that it starts first, that reads from a pipe, and that finds the pipe closed when the
probe is gone. If both are killed, the next probe deletes what is older than `LEFTOVER_S`.
"""

import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.config import Session, asks_server, exit_code_of
from penstock.cli.key import span_ms
from penstock.cli.output import ExitCode, console, print_json, refuse, remark, say, table
from penstock.client import PenstockError, QueueNotFound, SyncClient, SyncMessage, SyncQueue
from penstock.telemetry import PROBE_DURATION, PROBE_LAST_SUCCESS, PROBE_RUNS, PROBE_STEP_DURATION, PROBE_SUCCESS

PREFIX = "penstock-probe-"
# A probe that is older than this has ended, one way or another.
LEFTOVER_S = 600
# How long the server has for each thing that a probe waits for.
WAIT_S = 20.0
# The lease that the dead-letter probe lets lapse.
LEASE_S = 1.0
LOOK_S = 0.1
_CLOSE_S = 10.0

Every = Annotated[
    str | None, typer.Option(help="Go on until Ctrl-C or SIGTERM, with this much time in between, such as 5m or 30s.")
]
Textfile = Annotated[
    Path | None, typer.Option(help="Write the metrics here after each run, for the node exporter of Prometheus.")
]
Metrics = Annotated[
    str | None, typer.Option("--metrics", help="Serve the metrics at this HOST:PORT, with --every.", metavar="ADDRESS")
]

app = typer.Typer(no_args_is_help=True, help="Try a server the way its users do.")


class ProbeFailed(Exception):
    """The server answered, and not as it should; the message says what happened and what should have."""


@dataclass(slots=True)
class Run:
    """One run of a probe: its steps with their times in seconds, and what went wrong, if anything did."""

    probe: str
    started_at: float
    steps: dict[str, float] = field(default_factory=dict)
    error: str = ""
    failed_step: str = ""
    exit_code: ExitCode = ExitCode.DONE

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        except BaseException:
            self.failed_step = self.failed_step or name
            raise
        finally:
            self.steps[name] = time.monotonic() - began

    @property
    def duration_s(self) -> float:
        return sum(self.steps.values())

    def as_json(self) -> dict[str, Any]:
        return {
            "probe": self.probe,
            "ok": not self.error,
            "started_at": self.started_at,
            "duration_s": round(self.duration_s, 6),
            "steps": {name: round(seconds, 6) for name, seconds in self.steps.items()},
            "failed_step": self.failed_step or None,
            "error": self.error or None,
        }


@app.command("ready")
@asks_server
def ready(session: Session) -> None:
    """Ask whether the server is ready; exit with 0 if it is, and with 1 if not.

    It needs no key. A container's health check can run it.

    [bold]Example:[/]

    penstock probe ready --url http://127.0.0.1:8080
    """
    answer = session.client.health()
    if session.is_json:
        print_json(answer)
    else:
        say(", ".join([answer["status"], *answer["reasons"]]))
    if answer["status"] != "ready":
        raise typer.Exit(ExitCode.NOTHING)


@app.command("happy-path")
@asks_server
def happy_path(session: Session, *, every: Every = None, textfile: Textfile = None, metrics: Metrics = None) -> None:
    """Make a queue, send a message, receive it, ack it, and delete the queue.

    The exit code is 0 if all of that worked, 69 if no server answered, and 1 otherwise. The
    key needs the role admin on penstock-probe-*.

    [bold]Examples:[/]

    penstock probe happy-path
    penstock probe happy-path --json
    penstock probe happy-path --every 5m --metrics 127.0.0.1:9188
    """
    _probe(session, "happy-path", _try_happy_path, every, textfile, metrics)


@app.command("dead-letter")
@asks_server
def dead_letter(session: Session, *, every: Every = None, textfile: Textfile = None, metrics: Metrics = None) -> None:
    """Let a message fail, find it in the dead-letter queue, requeue it, and ack it.

    Its queue allows one delivery. The probe receives the message, lets the lease lapse,
    and waits until the message is in the dead-letter queue. Exit codes and rights are those of
    happy-path.

    [bold]Examples:[/]

    penstock probe dead-letter
    penstock probe dead-letter --every 5m --textfile /var/lib/node_exporter/penstock.prom
    """
    _probe(session, "dead-letter", _try_dead_letter, every, textfile, metrics)


def _try_happy_path(client: SyncClient, name: str, run: Run) -> None:
    with run.step("create"):
        client.create_queue(name)
    queue = client.queue(name)
    with run.step("send"):
        sent = queue.send({"probe": name})
    with run.step("receive"):
        message = _received(queue)
        if message.id != sent:
            raise ProbeFailed(f"message {sent} was sent, and {message.id} was received")
    with run.step("ack"):
        message.ack()
    with run.step("describe"):
        left = queue.describe().current_message_count
        if left:
            raise ProbeFailed(f"the queue should be empty after the ack, and has {left} messages")


def _try_dead_letter(client: SyncClient, name: str, run: Run) -> None:
    with run.step("create"):
        client.create_queue(name, max_deliveries=1, visibility_timeout=LEASE_S)
    queue = client.queue(name)
    with run.step("send"):
        queue.send({"probe": name})
    with run.step("receive"):
        _received(queue)
    with run.step("bury"):
        dead, message_id = _buried(client, queue)
    with run.step("requeue"):
        dead.requeue(message_id)
    with run.step("receive_again"):
        message = _received(queue)
        if message.json() != {"probe": name}:
            raise ProbeFailed(f"the message came back with another body: {message.text}")
    with run.step("ack"):
        message.ack()


def _received(queue: SyncQueue) -> SyncMessage:
    message = queue.receive(wait_s=WAIT_S)
    if message is None:
        raise ProbeFailed(f"the message was not delivered within {WAIT_S:g} s")
    return message


def _buried(client: SyncClient, queue: SyncQueue) -> tuple[SyncQueue, str]:
    """Wait until the message is a dead letter; return the queue that it is in, and its id there."""
    ends = time.monotonic() + LEASE_S + WAIT_S
    while time.monotonic() < ends:
        view = queue.describe()
        if view.dlq_id is not None:
            dead = client.queue(view.dead_letter_queue or view.dlq_id)
            if found := dead.peek(limit=1).messages:
                return dead, found[0].message_id
        time.sleep(LOOK_S)
    raise ProbeFailed(f"the message was not in the dead-letter queue {WAIT_S:g} s after its lease had ended")


Try = Callable[[SyncClient, str, Run], None]


def _probe(
    session: Session, probe: str, attempt: Try, every: str | None, textfile: Path | None, metrics: str | None
) -> None:
    every_s = None if every is None else span_ms("--every", every) / 1_000
    if metrics and every_s is None:
        refuse("--metrics needs --every: a probe that runs once is over before anyone can ask. Use --textfile.")
    numbers = _Numbers(probe, textfile, metrics)
    # SIGTERM ends a probe as Ctrl-C does: its queue is deleted first.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        while True:
            run = run_once(session, probe, attempt)
            numbers.count(run)
            _show(session, run, in_full=every_s is None)
            if every_s is None:
                break
            time.sleep(every_s)
    except KeyboardInterrupt:
        # With --every this is the normal end, wherever it comes.
        if every_s is None:
            raise
        return
    if run.error:
        raise typer.Exit(run.exit_code)


def run_once(session: Session, probe: str, attempt: Try) -> Run:
    """Run a probe on a queue of its own, which is gone afterwards."""
    client, run = session.client, Run(probe, time.time())
    name = f"{PREFIX}{probe}-{int(run.started_at)}-{secrets.token_hex(2)}"
    with _caretaker(session, name):
        try:
            try:
                _delete_leftovers(client, run.started_at)
                attempt(client, name, run)
            finally:
                with run.step("delete"):
                    delete(client, name)
        except ProbeFailed as error:
            run.error, run.exit_code = str(error), ExitCode.NOTHING
        except PenstockError as error:
            code = exit_code_of(error)
            run.error = error.detail
            run.exit_code = code if code is ExitCode.UNREACHABLE else ExitCode.NOTHING
    return run


def delete(client: SyncClient, name: str) -> None:
    """Delete the queue of a probe and its dead letters, if it is there."""
    with suppress(QueueNotFound):
        client.queue(name).delete(with_dead_letters=True)


def _delete_leftovers(client: SyncClient, now: float) -> None:
    for row in list(client.queues(PREFIX)):
        made_at = row.queue_name.removesuffix(".dead").rpartition("-")[0].rpartition("-")[2]
        if made_at.isdecimal() and int(made_at) < now - LEFTOVER_S:
            delete(client, row.queue_name)


@contextmanager
def _caretaker(session: Session, name: str) -> Iterator[None]:
    """Have another process delete the queue if this one is killed meanwhile."""
    url, key = session.settings.url, session.settings.key
    if not url.startswith(("http:", "https:", "postgresql:", "postgres:")):
        # A queue in this process is gone with it.
        yield
        return
    environment = {**os.environ, "PENSTOCK_URL": url, **({"PENSTOCK_KEY": key} if key else {})}
    process = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli.probe", name],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env=environment,
        # What kills the whole group of the probe, as Ctrl-C does, leaves it alone.
        start_new_session=True,
    )
    assert process.stdin is not None
    try:
        yield
    finally:
        with suppress(OSError):
            process.stdin.write(b"done")
            process.stdin.close()
        process.wait(_CLOSE_S)


def take_care(name: str) -> None:
    """Delete a queue once standard input ends, unless it says that there is nothing to do."""
    import penstock

    if sys.stdin.buffer.read() != b"done":
        with penstock.connect(timeout_s=60) as client:
            delete(client, name)


class _Numbers:
    """The metrics of one probe, in a file or at an address."""

    def __init__(self, probe: str, textfile: Path | None, address: str | None) -> None:
        self._probe, self._textfile = probe, textfile
        self._is_wanted = textfile is not None or address is not None
        if not self._is_wanted:
            return
        from prometheus_client import CollectorRegistry, Counter, Gauge, start_http_server

        self._registry = registry = CollectorRegistry()

        def gauge(metric: Any) -> Any:
            return Gauge(metric.name, metric.meaning, metric.labels, registry=registry)

        self._success, self._duration = gauge(PROBE_SUCCESS), gauge(PROBE_DURATION)
        self._steps, self._last_success = gauge(PROBE_STEP_DURATION), gauge(PROBE_LAST_SUCCESS)
        self._runs = Counter(PROBE_RUNS.name, PROBE_RUNS.meaning, PROBE_RUNS.labels, registry=registry)
        if address is not None:
            host, _, port = address.rpartition(":")
            if not port.isdecimal() or int(port) > 65_535:
                refuse(f"--metrics is {address!r}; it must be HOST:PORT, such as 127.0.0.1:9188")
            try:
                start_http_server(int(port), host or "127.0.0.1", registry)
            except OSError as error:
                refuse(f"--metrics {address} cannot be listened on: {error.strerror}", ExitCode.CONFLICT)

    def count(self, run: Run) -> None:
        if not self._is_wanted:
            return
        from prometheus_client import write_to_textfile

        self._success.labels(self._probe).set(0 if run.error else 1)
        self._duration.labels(self._probe).set(run.duration_s)
        self._runs.labels(self._probe, "failure" if run.error else "success").inc()
        self._steps.clear()
        for name, seconds in run.steps.items():
            self._steps.labels(self._probe, name).set(seconds)
        if not run.error:
            self._last_success.labels(self._probe).set(time.time())
        if self._textfile is not None:
            try:
                write_to_textfile(str(self._textfile), self._registry)
            except OSError as error:
                refuse(f"--textfile {self._textfile} cannot be written: {error.strerror}", ExitCode.CONFLICT)


def _show(session: Session, run: Run, *, in_full: bool) -> None:
    if session.is_json:
        print_json(run.as_json())
    elif in_full:
        rows = [(name, f"{seconds * 1_000:,.1f}") for name, seconds in run.steps.items()]
        console.print(table("step", "ms", numbers=["ms"], rows=rows))
    sentence = f"{run.probe} failed at {run.failed_step}: {run.error}" if run.error else f"{run.probe} works."
    if not session.is_json:
        (remark if run.error else say)(f"{sentence} It took {run.duration_s * 1_000:,.0f} ms.")


if __name__ == "__main__":
    take_care(sys.argv[1])
