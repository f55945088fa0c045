"""How long messages waited, were handled and took in all: percentiles that can be added.

Spans are whole milliseconds. Below 128 ms they count as they are; above, they are put into 64
classes for each doubling, and a class counts as its middle. So a percentile is within 0.8 % of the
exact one (linear between neighbours, as numpy has it); mean and maximum are exact. Unlike sketches
it does not depend on how the rows were dealt to the machines: the same rows give the same report. And
classes of tiers and windows add up to those of the queue, so the rows are read once for all of them.

    wait       came → first received      in the window in which it was received
    handling   last received → settled    acked and buried only, in the window in which it was settled
    total      came → settled             the same
"""

from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as f

from penstock.pipeline.transforms.signals_steps import HANDLED

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from penstock.pipeline.transforms.signals_counts import Windows

MEASURES = ("wait", "handling", "total")
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
EXACT_MS = 128
_CLASSES_PER_DOUBLING = 64


def classes(steps: "DataFrame", by: str, windows: "Windows") -> "DataFrame":
    """How many spans of each class there are, by queue, ``by``, window and measure."""
    handled = steps.where(f.col("outcome").isin(*HANDLED))
    parts = [
        _of(steps, "wait", since="came_ms", until="received_ms", by=by, windows=windows),
        _of(handled, "handling", since="last_ms", until="settled_ms", by=by, windows=windows),
        _of(handled, "total", since="came_ms", until="settled_ms", by=by, windows=windows),
    ]
    return reduce(lambda left, right: left.unionByName(right), parts)


def percentiles(classed: "DataFrame", *keys: str) -> "DataFrame":
    """Percentiles, mean and maximum of each measure, by ``keys``; null where there is no span."""
    shares = f.array(*[f.lit(share) for share in SHARES.values()])
    found = []
    for measure in MEASURES:
        is_it = f.col("measure") == measure
        found += [
            f.percentile(f.when(is_it, f.col("class_ms")), shares, f.col("spans")).alias(f"{measure}_shares"),
            f.max(f.when(is_it, f.col("longest_ms"))).alias(f"{measure}_ms_max"),
            (f.sum(f.when(is_it, f.col("sum_ms"))) / f.sum(f.when(is_it, f.col("spans")))).alias(f"{measure}_ms_mean"),
        ]
    return classed.groupBy(*keys).agg(*found).select(*keys, *_figures())


def names() -> list[str]:
    """The columns of percentiles, in order."""
    return [f"{measure}_ms_{word}" for measure in MEASURES for word in (*SHARES, "max", "mean")]


def class_of(span_ms: "Column") -> "Column":
    """The middle of the class of a span, rounded down; spans below `EXACT_MS` are their own."""
    doublings = f.floor(f.log2(f.greatest(span_ms, f.lit(1)) / _CLASSES_PER_DOUBLING))
    width = f.pow(f.lit(2), doublings).cast("bigint")
    middle = span_ms - span_ms % width + f.floor(width / 2)
    return f.when(span_ms < EXACT_MS, span_ms).otherwise(middle)


def _of(steps: "DataFrame", measure: str, *, since: str, until: str, by: str, windows: "Windows") -> "DataFrame":
    # Clocks of two machines may differ: nothing takes less than no time.
    span_ms = f.greatest(f.col(until) - f.col(since), f.lit(0))
    return (
        steps.where(f.col(since).isNotNull() & f.col(until).isNotNull())
        .select("queue", by, windows.number(f.col(until)).alias("window"), span_ms.alias("span_ms"))
        # A range is chosen by the time of settling: what was received before it is no part of it.
        .where(f.col("window") >= windows.first)
        .groupBy("queue", by, "window", class_of(f.col("span_ms")).alias("class_ms"))
        .agg(f.count("*").alias("spans"), f.sum("span_ms").alias("sum_ms"), f.max("span_ms").alias("longest_ms"))
        .withColumn("measure", f.lit(measure))
    )


def _figures() -> "list[Column]":
    """A percentile is never above the greatest: the middle of a class may be."""
    found = []
    for measure in MEASURES:
        longest = f.col(f"{measure}_ms_max")
        for at, word in enumerate(SHARES):
            value = f.least(f.col(f"{measure}_shares")[at], longest.cast("double"))
            found.append(value.alias(f"{measure}_ms_{word}"))
        found += [longest, f.col(f"{measure}_ms_mean")]
    return found
