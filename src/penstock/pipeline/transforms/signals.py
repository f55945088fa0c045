"""The four golden signals as tables: their columns, in order, are the contract of `docs/reference/signals.md`.

signals_steps    what each message did in each queue
signals_counts   what happened in each window; levels
signals_spans    how long it took
signals_bounds   breaches of the worst-wait bound; starvation
here             the same put together, one row for each window or for the whole range
"""

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as f

from penstock.pipeline.transforms.signals_counts import COUNTED, Windows
from penstock.pipeline.transforms.signals_spans import names as span_names

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

RATES = ("sent", "moved_in", "received", "settled")
LEVELS = ("depth", "waiting", "in_flight_min", "in_flight_max")


def of_windows(levels: "DataFrame", spans: "DataFrame", keys: "Sequence[str]", windows: Windows) -> "DataFrame":
    """One row for each of ``keys`` and window: traffic, errors, latency and saturation."""
    size_s = windows.size_ms / 1_000
    busy_mean = f.col("busy_before") + f.col("busy_left") / windows.size_ms
    busiest = f.max("busy_mean").over(Window.partitionBy(*keys))
    start_ms = f.col("window") * windows.size_ms
    whole = levels.join(spans, [*keys, "window"], "left").withColumn("busy_mean", busy_mean)
    return whole.select(
        *keys,
        f.timestamp_millis(start_ms).alias("window_start"),
        f.lit(size_s).alias("window_s"),
        *COUNTED,
        *[(f.col(name) / size_s).alias(f"{name}_per_s") for name in RATES],
        _rate("buried").alias("dead_letter_rate"),
        *span_names(),
        *LEVELS,
        (f.col("depth_before") + f.col("depth_left") / windows.size_ms).alias("depth_mean"),
        "busy_mean",
        f.when(busiest > 0, f.col("busy_mean") / busiest).alias("utilisation"),
        *(
            [(start_ms + windows.size_ms - f.col("oldest_ms")).alias("oldest_age_ms")]
            if "oldest_ms" in whole.columns
            else []
        ),
    )


def of_range(levels: "DataFrame", spans: "DataFrame", keys: "Sequence[str]", windows: Windows) -> "DataFrame":
    """One row for each of ``keys``: the whole range in figures."""
    range_ms = windows.size_ms * windows.count
    seconds = range_ms / 1_000
    # Of whole numbers: a sum of fractions would depend on the order in which they are added.
    busy_ms = f.sum("busy_before") * windows.size_ms + f.sum("busy_left")
    busy_mean = f.col("busy_before") + f.col("busy_left") / windows.size_ms
    summed = levels.groupBy(*keys).agg(
        *[f.sum(name).alias(name) for name in COUNTED],
        f.max("depth").alias("depth_max"),
        (busy_ms / range_ms).alias("busy_mean"),
        f.max(busy_mean).alias("busy_mean_max"),
    )
    return summed.join(spans, list(keys), "left").select(
        *keys,
        *COUNTED,
        *[(f.col(name) / seconds).alias(f"{name}_per_s") for name in RATES],
        _rate("buried").alias("dead_letter_rate"),
        *span_names(),
        "depth_max",
        "busy_mean",
        "busy_mean_max",
    )


def with_tenant_names(table: "DataFrame", top: "DataFrame", count: int) -> "DataFrame":
    """Give ranks their names: null for messages of nobody, and for all others beyond the top."""
    rest = [name for name in table.columns if name not in {"queue", "tenant_rank"}]
    named = table.join(f.broadcast(top.select("queue", "tenant_rank", "tenant")), ["queue", "tenant_rank"], "left")
    is_others = (f.col("tenant_rank") > count).alias("is_others")
    return named.select("queue", "tenant_rank", "tenant", is_others, *rest)


def _rate(name: str) -> "Column":
    return f.when(f.col("settled") > 0, f.col(name) / f.col("settled"))
