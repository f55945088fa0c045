"""The reference page of the metrics: what is declared, and the tiers and operations that labels name."""

from penstock.metrics.health import DATABASE_SILENT, DISK_BEHIND, DISK_FULL, HISTORY_BEHIND, STARTING, STOPPING
from penstock.metrics.prometheus import QUEUES_MAX
from penstock.pipeline.service.status import PIPELINE_METRICS
from penstock.telemetry import METRICS, PROBE_METRICS, Metric

REASONS = {
    STARTING: "The store is being opened. Large journals take a while.",
    STOPPING: "It was told to stop. Nothing new is taken; running requests are finished.",
    DISK_FULL: "A journal has no room for the largest message. Sends are refused with 507; receiving and acking go on.",
    DISK_BEHIND: "A journal had something to write and got nothing onto its disk for three seconds.",
    HISTORY_BEHIND: "More settled messages wait for the history than should. Its disk is full, or slow.",
    DATABASE_SILENT: "The store is in PostgreSQL, and that did not answer within five seconds.",
}

OPENING = (
    "`GET /metrics` answers in the text format of Prometheus, or in OpenMetrics for those who accept it. Numbers are\n"
    f"computed when they are asked for. At most {QUEUES_MAX:,} queues have numbers of their own. Beside these there\n"
    "are `process_*`: memory, CPU, start time and open files of the process."
)


PIPELINE = "`penstock pipeline run` tells these at the `listen` of [its file](pipeline-file.md), for each of its jobs."
PROBES = "`penstock probe … --every 5m` tells these at `--metrics`, or writes them to `--textfile`."


def _table(metrics: tuple[Metric, ...]) -> list[str]:
    lines = ["| metric | kind | labels | what it tells you |", "|---|---|---|---|"]
    for metric in metrics:
        labels = ", ".join(f"`{label}`" for label in metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind} | {labels} | {metric.meaning} |")
    return lines


def metrics_lines() -> list[str]:
    lines = [*_table(METRICS), "", "## Metrics of a probe", "", PROBES, "", *_table(PROBE_METRICS)]
    lines += ["", "## Metrics of the pipeline", "", PIPELINE, "", *_table(PIPELINE_METRICS)]
    lines += ["", "## Reasons not to be ready", "", "| reason | meaning |", "|---|---|"]
    return lines + [f"| `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]
