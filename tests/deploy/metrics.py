"""Names of metrics in expressions of Prometheus, and those that there are."""

import re

from penstock.pipeline.service.status import PIPELINE_METRICS
from penstock.telemetry import METRICS, PROBE_METRICS

_NAME = re.compile(r"\b(?:penstock|kafka|process)_[a-z_]+\b")
_OF_PROCESS = {"process_cpu_seconds_total", "process_max_fds", "process_open_fds", "process_resident_memory_bytes"}
ALL_METRICS = {metric.name for metric in (*METRICS, *PROBE_METRICS, *PIPELINE_METRICS)} | _OF_PROCESS


def used_metrics(expression: str) -> set[str]:
    """Return the metrics in an expression; parts of a histogram count as the histogram.

    >>> sorted(used_metrics('rate(penstock_loop_lag_seconds_bucket[5m]) / penstock_ready'))
    ['penstock_loop_lag_seconds', 'penstock_ready']
    """
    return {re.sub(r"_(?:bucket|sum|count)$", "", name) for name in _NAME.findall(expression)}
