"""The four golden signals as tables: their columns, in order, are the contract of `docs/reference/signals.md`.

signals_steps    what each message did in each queue       every row, by Spark
signals_facts    the same added up                         every row, by Spark
signals_bounds   breaches of the worst-wait bound          every row, by Spark; starvation, on the driver
signals_lines    who was ahead in line                     every row, in numpy, on executors
signals_counts   what happened in each window; levels      one row for each window, on the driver
signals_spans    how long it took                          the same
here             the same put together, one row for each window or for the whole range
"""

from typing import TYPE_CHECKING, Any

import numpy
import pyarrow  # type: ignore[import-untyped]

from penstock.pipeline.signals.counts import COUNTED
from penstock.pipeline.signals.spans import MEASURES
from penstock.pipeline.signals.spans import names as span_names
from penstock.pipeline.signals.windows import Windows

if TYPE_CHECKING:
    from collections.abc import Sequence

RATES = ("sent", "moved_in", "received", "settled")
LEVELS = ("depth", "waiting", "in_flight_min", "in_flight_max")
_KINDS = {
    **dict.fromkeys(("queue", "tenant"), pyarrow.string()),
    **dict.fromkeys(("tier", "tenant_rank"), pyarrow.int32()),
    **dict.fromkeys((*COUNTED, *LEVELS, "depth_max", "oldest_age_ms", "others_received"), pyarrow.int64()),
    **dict.fromkeys((f"{measure}_ms_max" for measure in MEASURES), pyarrow.int64()),
    "is_others": pyarrow.bool_(),
    "window_start": pyarrow.timestamp("us", "UTC"),
}


def of_windows(levels: Any, spans: Any, keys: "Sequence[str]", windows: Windows) -> Any:
    """One row for each of ``keys`` and window: traffic, errors, latency and saturation."""
    size_s = windows.size_ms / 1_000
    whole = levels.merge(spans, on=[*keys, "window"], how="left")
    busy_mean = whole["busy_before"] + whole["busy_left"] / windows.size_ms
    busiest = busy_mean.groupby([whole[key] for key in keys]).transform("max")
    start_ms = whole["window"] * windows.size_ms
    made = whole.assign(
        window_start=start_ms * 1_000,
        window_s=size_s,
        **{f"{name}_per_s": whole[name] / size_s for name in RATES},
        dead_letter_rate=_rate(whole, "buried"),
        depth_mean=whole["depth_before"] + whole["depth_left"] / windows.size_ms,
        busy_mean=busy_mean,
        utilisation=(busy_mean / busiest).where(busiest > 0),
    )
    columns = [*keys, "window_start", "window_s", *_traffic(), *LEVELS, "depth_mean", "busy_mean", "utilisation"]
    if "oldest_ms" in whole.columns:
        made["oldest_age_ms"] = start_ms + windows.size_ms - whole["oldest_ms"]
        columns.append("oldest_age_ms")
    return made[columns]


def of_range(levels: Any, spans: Any, keys: "Sequence[str]", windows: Windows) -> Any:
    """One row for each of ``keys``: the whole range in figures."""
    range_ms = windows.size_ms * windows.count
    seconds = range_ms / 1_000
    busy_mean = levels["busy_before"] + levels["busy_left"] / windows.size_ms
    by_keys = levels.assign(busy=busy_mean).groupby(list(keys), as_index=False)
    summed = by_keys[[*COUNTED, "busy_before", "busy_left"]].sum()
    # Of whole numbers: a sum of fractions would depend on the order in which they are added.
    busy_ms = summed["busy_before"] * windows.size_ms + summed["busy_left"]
    whole = summed.assign(
        depth_max=by_keys["depth"].max()["depth"],
        busy_mean=busy_ms / range_ms,
        busy_mean_max=by_keys["busy"].max()["busy"],
        **{f"{name}_per_s": summed[name] / seconds for name in RATES},
        dead_letter_rate=_rate(summed, "buried"),
    ).merge(spans, on=list(keys), how="left")
    return whole[[*keys, *_traffic(), "depth_max", "busy_mean", "busy_mean_max"]]


def with_tenant_names(table: Any, top: Any, count: int) -> Any:
    """Give ranks their names: null for messages of nobody, and for all others beyond the top."""
    named = table.merge(top[["queue", "tenant_rank", "tenant"]], on=["queue", "tenant_rank"], how="left")
    named["is_others"] = named["tenant_rank"] > count
    rest = [name for name in table.columns if name not in {"queue", "tenant_rank"}]
    return named[["queue", "tenant_rank", "tenant", "is_others", *rest]]


def as_arrow(frame: Any) -> "pyarrow.Table":
    """The rows in the order of their keys, with the kinds of the contract: the same rows are the same file."""
    keys = [name for name in ("queue", "tier", "tenant_rank", "window_start") if name in frame.columns]
    ordered = frame.sort_values(keys) if keys else frame
    kinds = [(name, _KINDS.get(name, pyarrow.float64())) for name in ordered.columns]
    arrays = [pyarrow.array(ordered[name], kind, from_pandas=True) for name, kind in kinds]
    return pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(kinds))


def _traffic() -> list[str]:
    return [*COUNTED, *(f"{name}_per_s" for name in RATES), "dead_letter_rate", *span_names()]


def _rate(whole: Any, name: str) -> Any:
    return whole[name] / whole["settled"].where(whole["settled"] > 0, numpy.nan)
