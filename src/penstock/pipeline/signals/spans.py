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

from typing import TYPE_CHECKING, Any

import numpy
from pyspark.sql import functions as f

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column

MEASURES = ("wait", "handling", "total")
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
EXACT_MS = 128
_CLASSES_PER_DOUBLING = 64


def class_of(span_ms: "Column") -> "Column":
    """The middle of the class of a span, rounded down; spans below `EXACT_MS` are their own."""
    doublings = f.floor(f.log2(f.greatest(span_ms, f.lit(1)) / _CLASSES_PER_DOUBLING))
    width = f.pow(f.lit(2), doublings).cast("bigint")
    middle = span_ms - span_ms % width + f.floor(width / 2)
    return f.when(span_ms < EXACT_MS, span_ms).otherwise(middle)


def names() -> list[str]:
    """The columns of percentiles, in order."""
    return [f"{measure}_ms_{word}" for measure in MEASURES for word in (*SHARES, "max", "mean")]


def percentiles(figures: Any, kinds: "Mapping[str, int]", keys: "Sequence[str]") -> Any:
    """Percentiles, mean and maximum of each measure, by ``keys``; null where there is no span.

    ``figures`` are those of one level, as pandas has them; ``kinds`` is the kind of each measure.
    """
    by_measure = [_of(figures[figures["kind"] == kinds[measure]], measure, keys) for measure in MEASURES]
    whole = by_measure[0]
    for other in by_measure[1:]:
        whole = whole.merge(other, on=list(keys), how="outer")
    return whole


def _of(rows: Any, measure: str, keys: "Sequence[str]") -> Any:
    """A percentile is never above the greatest: the middle of a class may be."""
    made = rows[list(keys)].copy()
    for word in SHARES:
        made[f"{measure}_ms_{word}"] = numpy.minimum(rows[word], rows["longest_ms"])
    made[f"{measure}_ms_max"] = rows["longest_ms"]
    made[f"{measure}_ms_mean"] = rows["span_ms"] / rows["events"]
    return made
