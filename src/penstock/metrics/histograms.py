"""Our histograms as families of the library."""

from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily

from penstock.runtime.interface import Histogram
from penstock.telemetry import Metric


def histogram_family(metric: Metric) -> HistogramMetricFamily:
    return HistogramMetricFamily(metric.name, metric.meaning, labels=metric.labels)


def add_histogram(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram) -> None:
    bounds = [*map(str, histogram.bounds), "+Inf"]
    family.add_metric(labels, list(zip(bounds, accumulate(histogram.buckets), strict=True)), histogram.sum)
