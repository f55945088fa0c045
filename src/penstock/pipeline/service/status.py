"""What a service says of itself over HTTP: a page for people, JSON for programs, metrics for Prometheus.

/              a table of the jobs, with links to nothing: reports are files
/status        the same as JSON
/metrics       in the text format of Prometheus
/health/live   200 while the process answers
"""

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from html import escape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from math import isfinite

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from penstock.pipeline.job import JobFailed
from penstock.pipeline.service.schedule import Past
from penstock.telemetry import Metric

# Not `job`, which is Prometheus's own label.
PIPELINE_RUNNING = Metric("penstock_pipeline_running", "gauge", ("job_name",), "1 while a job runs, else 0.")
PIPELINE_BEHIND = Metric(
    "penstock_pipeline_behind_seconds",
    "gauge",
    ("job_name",),
    "The lag behind the source: all that was settled so long ago is in the results of a job.",
)
PIPELINE_INTERVAL = Metric(
    "penstock_pipeline_interval_seconds", "gauge", ("job_name",), "How often a job runs when all is well."
)
PIPELINE_FAILURES = Metric(
    "penstock_pipeline_failures", "gauge", ("job_name",), "How many times in a row a job has failed; 0 once it works."
)
PIPELINE_DURATION = Metric(
    "penstock_pipeline_run_duration_seconds", "gauge", ("job_name",), "How long the last run took."
)
PIPELINE_LAST_SUCCESS = Metric(
    "penstock_pipeline_last_success_timestamp_seconds",
    "gauge",
    ("job_name",),
    "When the last run that worked began, as a Unix time; 0 if there was none.",
)
PIPELINE_GOOD = Metric(
    "penstock_pipeline_good", "gauge", ("job_name",), "0 if the last run found a loss, a double or rows that cannot be."
)
PIPELINE_ROWS = Metric("penstock_pipeline_rows_total", "counter", ("job_name",), "Rows that a job has read or written.")
PIPELINE_RUNS = Metric(
    "penstock_pipeline_runs_total", "counter", ("job_name", "result"), "Runs of a job: `success` or `failure`."
)
PIPELINE_METRICS = (
    PIPELINE_RUNNING, PIPELINE_BEHIND, PIPELINE_INTERVAL, PIPELINE_FAILURES, PIPELINE_DURATION, PIPELINE_LAST_SUCCESS,
    PIPELINE_GOOD, PIPELINE_ROWS, PIPELINE_RUNS,
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JobView:
    """A job as it is now."""

    name: str
    kind: str
    interval_s: int
    past: Past
    # Empty if it does not run.
    step: str
    # Infinite while it waits for another job.
    due_at: float
    # All that was settled so long ago is in its results.
    behind_s: float
    out: str


View = Callable[[], Sequence[JobView]]
_TEXT, _HTML, _JSON = "text/plain; version=0.0.4; charset=utf-8", "text/html; charset=utf-8", "application/json"


class _Jobs(Collector):
    def __init__(self, view: View) -> None:
        self._view = view

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        jobs = self._view()
        gauges: dict[Metric, Callable[[JobView], float]] = {
            PIPELINE_RUNNING: lambda job: int(bool(job.step)),
            PIPELINE_BEHIND: lambda job: job.behind_s,
            PIPELINE_INTERVAL: lambda job: job.interval_s,
            PIPELINE_FAILURES: lambda job: job.past.failures,
            PIPELINE_DURATION: lambda job: job.past.duration_s,
            PIPELINE_LAST_SUCCESS: lambda job: job.past.succeeded_at,
            PIPELINE_GOOD: lambda job: int(job.past.is_good),
        }
        for metric, value in gauges.items():
            family = GaugeMetricFamily(metric.name, metric.meaning, labels=metric.labels)
            for job in jobs:
                family.add_metric([job.name], value(job))
            yield family
        rows = CounterMetricFamily(PIPELINE_ROWS.name, PIPELINE_ROWS.meaning, labels=PIPELINE_ROWS.labels)
        runs = CounterMetricFamily(PIPELINE_RUNS.name, PIPELINE_RUNS.meaning, labels=PIPELINE_RUNS.labels)
        for job in jobs:
            rows.add_metric([job.name], job.past.rows)
            runs.add_metric([job.name, "failure"], job.past.failed)
            runs.add_metric([job.name, "success"], job.past.runs - job.past.failed)
        yield rows
        yield runs


@contextmanager
def status_page(listen: tuple[str, int], view: View) -> Iterator[str]:
    """Answer at an address while the block runs; give the address."""
    registry = CollectorRegistry()
    registry.register(_Jobs(view))
    pages: dict[str, tuple[str, Callable[[], bytes]]] = {
        "/": (_HTML, lambda: _page(view()).encode()),
        "/status": (_JSON, lambda: _json(view())),
        "/metrics": (_TEXT, lambda: generate_latest(registry)),
        "/health/live": (_TEXT, lambda: b"ok\n"),
    }

    class Request(BaseHTTPRequestHandler):
        # A client that says nothing keeps a thread for so long.
        timeout = 10

        def do_GET(self) -> None:
            kind, make = pages.get(self.path.partition("?")[0], (_TEXT, None))
            body = b"there are / /status /metrics /health/live\n" if make is None else make()
            self.send_response(404 if make is None else 200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: object) -> None:
            pass

    try:
        server = ThreadingHTTPServer(listen, Request)
    except OSError as error:
        raise JobFailed(f"pipeline.listen {listen[0]}:{listen[1]} cannot be listened on: {error.strerror}") from None
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://{listen[0]}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def _json(jobs: Sequence[JobView]) -> bytes:
    told = [{**asdict(job), "due_at": job.due_at if isfinite(job.due_at) else None} for job in jobs]
    return json.dumps({"jobs": told}, indent=1).encode() + b"\n"


_HEAD = ("job", "kind", "now", "behind", "last run took", "runs", "failed", "rows", "next", "said", "results")
_STYLE = (
    "body{font:15px system-ui,sans-serif;margin:2em}table{border-collapse:collapse}"
    "td,th{padding:.4em .8em;text-align:left;border-bottom:1px solid #ccc}.bad{color:#b00020;font-weight:600}"
)


def _page(jobs: Sequence[JobView]) -> str:
    head = "".join(f"<th>{name}</th>" for name in _HEAD)
    rows = "".join(f"<tr>{_cells(job)}</tr>" for job in jobs)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="5">'
        f"<title>Penstock pipeline</title><style>{_STYLE}</style><h1>Penstock pipeline</h1>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></html>"
    )


def _cells(job: JobView) -> str:
    past = job.past
    state = job.step or ("waits for the archive" if not isfinite(job.due_at) else "waits")
    due = _clock(job.due_at) if isfinite(job.due_at) else "–"
    said = past.error or past.said
    is_bad = bool(past.failures) or not past.is_good
    cells = (
        job.name, job.kind, state, f"{job.behind_s:,.0f} s", f"{past.duration_s:,.1f} s", f"{past.runs:,}",
        f"{past.failed:,}", f"{past.rows:,}", due, said, job.out,
    )  # fmt: skip
    return "".join(
        f'<td class="bad">{escape(cell)}</td>' if is_bad and cell is said else f"<td>{escape(cell)}</td>"
        for cell in cells
    )


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S")
