"""The page of the job `signals`: headline numbers, and for each queue its four signals as small plots."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from penstock.contract.messages import Tier
from penstock.pipeline.reports.html import (
    Cell,
    Figure,
    Section,
    count,
    folded,
    grid,
    headline,
    note,
    page,
    share,
    short,
    span,
    table,
)
from penstock.pipeline.reports.plots import Bar, Series, areas, bars, lines

# The busiest queues have plots; all are in the table.
QUEUES_MAX = 12

Row = Mapping[str, Any]
Tables = Mapping[str, Sequence[Row]]

_OUTCOMES = {"acked": 2, "buried": 3, "expired": 1, "purged": 7, "redriven": 4, "deleted": 5, "cancelled": 6}
_NOTES = """\
The history tells of messages that were settled. Those that are still in a queue are not in it, so towards the end \
of the range traffic and depth show less than there was.
Waits count from when a message came to the queue, also while it rested: one scheduled for tomorrow waits a day.
In flight lies between two figures: the least counts from the last receipt of a message, the most from its first. \
Between the two it may have rested.
The tier of a message is the one it was last received at. Utilisation is the mean number in handling, as a part of \
that in the busiest window.
Percentiles are within 0.8 %; means and maxima are exact.
"""


def signals_page(tables: Tables, about: Row) -> str:
    """Return the whole report."""
    queues = sorted(tables["queues"], key=lambda row: (-row["settled"], row["queue"]))
    sections = [Section("At a glance", [headline(_headline(tables)), _overview(queues, tables)])]
    sections += [_queue(row, tables) for row in queues[:QUEUES_MAX]]
    sections += [
        _late(tables),
        _starved(tables),
        Section("How to read this", [note(text) for text in _NOTES.splitlines()]),
    ]
    if len(queues) > QUEUES_MAX:
        sections[0] = Section("At a glance", sections[0].parts, f"Plots are of the {QUEUES_MAX} busiest queues.")
    lead = (
        f"{count(about['rows'])} settled messages of {about['source']}, from {about['from']} to {about['to']}, "
        f"in {count(about['windows'])} windows of {span(about['window_s'] * 1_000)}. Times are in UTC."
    )
    return page("Golden signals", lead=lead, sections=sections, foot="Made by penstock pipeline signals.")


def tier_name(tier: int) -> str:
    """
    >>> tier_name(0)
    'critical'
    """
    return Tier(tier).name.lower()


def _headline(tables: Tables) -> list[Figure]:
    queues, spans = tables["queues"], tables["range"][0]

    def total(name: str) -> int:
        return sum(row[name] for row in queues)

    late = sum(row["breaches"] for row in tables["bounds"])
    settled, starved = total("settled"), len(tables["starvation"])
    return [
        Figure("Settled", short(settled), f"{short(sum(row['settled_per_s'] for row in queues))} per second"),
        Figure("Wait, median", span(spans["wait_ms_p50"]), f"99 % within {span(spans['wait_ms_p99'])}"),
        Figure("Handling, median", span(spans["handling_ms_p50"]), f"99 % within {span(spans['handling_ms_p99'])}"),
        Figure("Retries", short(total("retries")), f"{share(_part(total('retries'), settled))} of settled"),
        Figure("Dead letters", short(total("buried")), share(_part(total("buried"), settled)), total("buried") > 0),
        Figure("Expired", short(total("expired")), "kept too long", total("expired") > 0),
        Figure("Breaches", short(late), "waited longer than the bound", late > 0),
        Figure("Starved", short(starved), "windows of a tier", starved > 0),
    ]


def _overview(queues: Sequence[Row], tables: Tables) -> str:
    columns = ("queue", "settled", "per s", "wait p50", "wait p99", "handling p50", "handling p99", "retries")
    rows: list[list[Cell]] = [
        [
            row["queue"],
            row["settled"],
            row["settled_per_s"],
            *(span(row[name]) for name in ("wait_ms_p50", "wait_ms_p99", "handling_ms_p50", "handling_ms_p99")),
            row["retries"],
            share(row["dead_letter_rate"]),
            row["depth_max"],
            sum(each["breaches"] for each in _of(tables, "bounds", row["queue"])),
        ]
        for row in queues
    ]
    return table((*columns, "dead letters", "depth max", "breaches"), rows)


def _queue(row: Row, tables: Tables) -> Section:
    name = row["queue"]
    windows = _of(tables, "queue_windows", name)
    times = [each["window_start"] for each in windows]
    plots = [
        *_plots(times, windows),
        *_tier_plots(times, _of(tables, "tier_windows", name)),
        *_tenant_plots(_of(tables, "tenants", name)),
    ]
    lead = f"{count(row['settled'])} settled, {short(row['settled_per_s'])} per second."
    if row["unknown_arrivals"]:
        lead += f" The arrival of {count(row['unknown_arrivals'])} is not known: waits and depth are without them."
    return Section(name, [grid(plots), folded("Tiers in figures", [_tiers(name, tables)])], lead)


def _plots(times: Sequence[datetime], windows: Sequence[Row]) -> list[str]:
    def of(name: str) -> list[float | None]:
        return [row[name] for row in windows]

    traffic = [Series("sent", of("sent_per_s")), Series("received", of("received_per_s"))]
    if any(of("moved_in")):
        traffic.append(Series("moved in", of("moved_in_per_s"), 4))
    outcomes = [Series(name, of(name), colour) for name, colour in _OUTCOMES.items() if any(of(name))]
    levels = [
        Series("depth", of("depth")),
        Series("most in flight", of("in_flight_max"), 3),
        Series("least in flight", of("in_flight_min"), 2),
    ]
    return [
        lines("Traffic, per second", times, [*traffic, Series("settled", of("settled_per_s"), 2)]),
        lines("Wait", times, _percentiles(windows, "wait"), form=span, is_log=True),
        lines("Handling", times, _percentiles(windows, "handling"), form=span, is_log=True),
        lines("Depth and in flight, at the end of windows", times, levels),
        areas("Outcomes, per window", times, outcomes),
        lines("Retries, per window", times, [Series("retries", of("retries"), 1)]),
        lines("Age of the oldest", times, [Series("age", of("oldest_age_ms"), 5)], form=span),
        lines("Utilisation, of the busiest window", times, [Series("utilisation", of("utilisation"), 6)], form=share),
    ]


def _percentiles(windows: Sequence[Row], measure: str) -> list[Series]:
    return [
        Series(word, [row[f"{measure}_ms_{word}"] for row in windows], colour)
        for word, colour in (("p50", 2), ("p90", 1), ("p99", 3))
    ]


def _tier_plots(times: Sequence[datetime], windows: Sequence[Row]) -> list[str]:
    tiers = sorted({row["tier"] for row in windows})

    def series(figure: Callable[[Row], float | None]) -> list[Series]:
        return [Series(tier_name(at), [figure(row) for row in windows if row["tier"] == at], at) for at in tiers]

    return [
        areas("Received, per second, by tier", times, series(lambda row: row["received_per_s"])),
        lines("Wait p99, by tier", times, series(lambda row: row["wait_ms_p99"]), form=span, is_log=True),
        areas("Waiting, by tier", times, series(lambda row: row["waiting"])),
    ]


def _tenant_plots(tenants: Sequence[Row]) -> list[str]:
    ranked = [row for row in tenants if row["tenant_rank"] > 0]
    if not ranked:
        return []
    settled = [Bar(_tenant(row), row["settled"], _hint(row), 7 if row["is_others"] else 0) for row in ranked]
    waits = [Bar(_tenant(row), row["wait_ms_p99"] or 0.0, _hint(row), 7 if row["is_others"] else 3) for row in ranked]
    return [bars("Settled, by tenant", settled), bars("Wait p99, by tenant", waits, form=span)]


def _tenant(row: Row) -> str:
    return "(others)" if row["is_others"] else row["tenant"] or ""


def _hint(row: Row) -> str:
    waits = f"wait p50 {span(row['wait_ms_p50'])}, p99 {span(row['wait_ms_p99'])}"
    return f"{_tenant(row)}: {count(row['settled'])} settled, {waits}"


def _tiers(name: str, tables: Tables) -> str:
    promises = {row["tier"]: row for row in _of(tables, "bounds", name)}
    rows: list[list[Cell]] = [
        [
            tier_name(row["tier"]),
            row["settled"],
            *(span(row[f"wait_ms_{word}"]) for word in ("p50", "p90", "p99", "max")),
            *(span(row[f"handling_ms_{word}"]) for word in ("p50", "p99")),
            row["retries"],
            share(row["dead_letter_rate"]),
            *_promise(promises.get(row["tier"])),
        ]
        for row in _of(tables, "tiers", name)
    ]
    columns = ("tier", "settled", "wait p50", "p90", "p99", "max", "handling p50", "p99", "retries", "dead letters")
    return table((*columns, "weight", "checked", "breaches"), rows)


def _promise(row: Row | None) -> tuple[Cell, Cell, Cell]:
    if row is None:
        return None, None, None
    return ("strict", None, None) if row["is_strict"] else (str(row["weight"]), row["checked"], row["breaches"])


def _late(tables: Tables) -> Section:
    lead = (
        "A message without a group that has p of its tier before it is among the next (p + 1) · W / w + 5 that are "
        "received, where w is the weight of its tier and W the sum of all. A message that rested, or a "
        "queue that was paused, shows here too: the history does not tell."
    )
    if not tables["breaches"]:
        return Section("Breaches of the worst-wait bound", [note("None.")], lead)
    columns = ("queue", "tier", "message", "came", "received", "ahead", "leases", "bound", "times the bound")
    rows: list[list[Cell]] = [
        [
            row["queue"],
            tier_name(row["tier"]),
            row["id"],
            _at(row["came_at"]),
            _at(row["received_at"]),
            *(row[name] for name in ("ahead", "leases", "bound", "times_bound")),
        ]
        for row in tables["breaches"]
    ]
    return Section("Breaches of the worst-wait bound", [note("The worst:"), table(columns, rows)], lead)


def _starved(tables: Tables) -> Section:
    lead = "Windows in which messages of a tier waited all the time, others were received, and none of that tier was."
    by_tier: dict[tuple[str, int], list[Row]] = {}
    for row in tables["starvation"]:
        by_tier.setdefault((row["queue"], row["tier"]), []).append(row)
    if not by_tier:
        return Section("Starvation", [note("None.")], lead)
    rows: list[list[Cell]] = [
        [
            queue,
            tier_name(tier),
            len(found),
            _at(found[0]["window_start"]),
            _at(found[-1]["window_start"]),
            max(row["waiting"] for row in found),
        ]
        for (queue, tier), found in sorted(by_tier.items())
    ]
    return Section("Starvation", [table(("queue", "tier", "windows", "first", "last", "most waiting"), rows)], lead)


def _of(tables: Tables, name: str, queue: str) -> list[Row]:
    return [row for row in tables.get(name, ()) if row["queue"] == queue]


def _part(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _at(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M:%S}"
