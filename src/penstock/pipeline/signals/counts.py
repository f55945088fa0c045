"""What happened in each window of time, as numbers that can be added: over tiers, over tenants, over queues.

Levels (how many are there) are sums of what came and went. Of each event not only the number is
counted but also the time from it to the end of its window: so a level's mean over a window is exact,
and no row is ever sorted for it:

    level at the end  = level at the start + came − went
    mean              = level at the start + (time left of those that came − of those that went) / window

What lies before the first window is counted into one more window before it: it was there at the start.

Frames here are of pandas, with a row for each window: what Spark had to do is in `signals_facts`.
"""

from typing import Any

import numpy
import pandas  # type: ignore[import-untyped]

from penstock.contract.messages import OUTCOMES
from penstock.pipeline.signals.facts import Kind
from penstock.pipeline.signals.stays import HANDLED
from penstock.pipeline.signals.windows import Windows

# Events of each window.
COUNTED = ("sent", "moved_in", "received", "settled", *OUTCOMES, "retries", "unknown_arrivals")
# What levels are made of; `…_left` is the time left of the window, in milliseconds, summed.
_MOVING = (
    *("came", "came_left", "gone", "gone_left", "called", "begun", "begun_left", "ended", "ended_left"),
    *("held", "freed"),
)


def counts(figures: Any, by: str) -> Any:
    """What happened, by queue, ``by`` and window: a column for each of `COUNTED`, and for what levels are made of."""
    claims = _claims(figures["kind"].to_numpy())
    events, left_ms = figures["events"].to_numpy(), figures["left_ms"].to_numpy()
    made = {"queue": figures["queue"], by: figures["part"], "window": figures["window"]}
    made |= {name: numpy.where(claim, events, 0) for name, claim in claims.items()}
    made |= {
        f"{name}_left": numpy.where(claim, left_ms, 0) for name, claim in claims.items() if f"{name}_left" in _MOVING
    }
    made["retries"] = figures["retries"]
    return pandas.DataFrame(made).groupby(["queue", by, "window"], as_index=False).sum()


def filled(counted: Any, by: str, windows: Windows) -> Any:
    """For each queue and ``by`` all windows, also those in which nothing happened, with the levels at their ends."""
    keys = ["queue", by, "window"]
    parts = counted[["queue", by]].drop_duplicates()
    every = numpy.arange(windows.first - 1, windows.last + 1)
    grid = parts.loc[parts.index.repeat(len(every))].assign(window=numpy.tile(every, len(parts)))
    whole = counted.set_index(keys)[[*COUNTED, *_MOVING]].reindex(pandas.MultiIndex.from_frame(grid), fill_value=0)
    leveled = _levels(whole.reset_index(), ["queue", by])
    return leveled[leveled["window"] >= windows.first].reset_index(drop=True)


def together(filled: Any) -> Any:
    """The same for whole queues: everything here can be added."""
    return filled.drop(columns="tier").groupby(["queue", "window"], as_index=False).sum()


def oldest(pairs: Any, windows: Windows) -> Any:
    """When the oldest message came that was in the queue at the end of a window, by queue, tier and window.

    Pairs of windows in the order of coming: each answers for the windows that no older one reaches, so each window
    is told once.
    """
    ordered = pairs.sort_values(["queue", "tier", "came_ms", "end"], ascending=[True, True, True, False])
    lines = ordered.groupby(["queue", "tier"])
    told = ordered.assign(reached=lines["end"].cummax()).groupby(["queue", "tier"])["reached"].shift(1)
    first = numpy.maximum(ordered["begin"], told.fillna(windows.first).astype("int64")).clip(lower=windows.first)
    is_told = first < ordered["end"]
    ordered, first = ordered[is_told], first[is_told].to_numpy()
    spread = ordered["end"].to_numpy() - first
    # The windows of each pair, one after another: how far each row is from the first of its pair.
    behind = numpy.arange(spread.sum()) - numpy.repeat(numpy.cumsum(spread) - spread, spread)
    rows = ordered.loc[ordered.index.repeat(spread), ["queue", "tier", "came_ms"]].reset_index(drop=True)
    return rows.rename(columns={"came_ms": "oldest_ms"}).assign(window=numpy.repeat(first, spread) + behind)


def _claims(kind: Any) -> dict[str, Any]:
    """Of which events each column is the number."""
    is_settled = kind >= Kind.SETTLED
    outcome, is_known, is_held = (kind - Kind.SETTLED) // 4, is_settled & (kind & 2 > 0), is_settled & (kind & 1 > 0)
    is_received = (kind == Kind.RECEIVED) | (kind == Kind.RECEIVED_UNKNOWN)
    is_handled = numpy.isin(outcome, [OUTCOMES.index(each) for each in HANDLED])
    return {
        "sent": kind == Kind.SENT,
        "moved_in": kind == Kind.MOVED_IN,
        "received": is_received,
        "settled": is_settled,
        **{each: is_settled & (outcome == at) for at, each in enumerate(OUTCOMES)},
        "unknown_arrivals": is_settled & ~is_known,
        "came": (kind == Kind.SENT) | (kind == Kind.MOVED_IN),
        "gone": is_known,
        # Those that left without ever having been received have waited until then.
        "called": (kind == Kind.RECEIVED) | (is_known & ~is_held),
        "begun": kind == Kind.BEGUN,
        "ended": is_held & is_handled,
        "held": is_received,
        "freed": is_held,
    }


def _levels(whole: Any, keys: list[str]) -> Any:
    lines = [whole[key] for key in keys]

    def level(plus: str, minus: str) -> Any:
        return (whole[plus] - whole[minus]).groupby(lines).cumsum()

    depth, waiting, busy = level("came", "gone"), level("came", "called"), level("begun", "ended")
    return whole.assign(
        depth=depth,
        waiting=waiting,
        in_flight_max=level("held", "freed"),
        in_flight_min=busy,
        # At the start, and what was added over the window.
        depth_before=depth - whole["came"] + whole["gone"],
        waiting_before=waiting - whole["came"] + whole["called"],
        busy_before=busy - whole["begun"] + whole["ended"],
        depth_left=whole["came_left"] - whole["gone_left"],
        busy_left=whole["begun_left"] - whole["ended_left"],
    )
