"""The page of a whatif: for each queue a plot of each tier, and the table behind it."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from penstock.contract.messages import PRIORITIES
from penstock.pipeline.reports.figures import share, span
from penstock.pipeline.reports.html import Section, grid, note, page, table
from penstock.pipeline.reports.plots import Bar, bars
from penstock.pipeline.whatif.scenarios import BASELINE, HAPPENED

COLUMNS = ("priority", "scenario", "messages", "p50", "p90", "p99", "max", "mean", "within bound", "workers")

Row = Mapping[str, Any]


def in_order(rows: Iterable[Row], names: Sequence[str]) -> list[Row]:
    """By queue and tier; in a tier what happened, then the baseline, then the scenarios as they were named."""
    places = {name: place for place, name in enumerate((HAPPENED, BASELINE, *names))}
    return sorted(rows, key=lambda row: (row["queue"], row["tier"], places.get(row["scenario"], len(places))))


def told(row: Row) -> tuple[str | int | None, ...]:
    """A row as people read it."""
    spans = (span(row[f"wait_ms_{name}"]) for name in ("p50", "p90", "p99", "max", "mean"))
    workers = None if row["scenario"] == HAPPENED else row["workers"]
    return (PRIORITIES[row["tier"]], row["scenario"], row["messages"], *spans, share(row["bound_share"]), workers)


def report(rows: Sequence[Row], *, remarks: Sequence[str], foot: str) -> str:
    """Return the page, as HTML; rows are `in_order`."""
    sections = [
        Section(queue, [grid(_plots(each)), table(COLUMNS, [told(row) for row in each])])
        for queue, each in ((queue, list(part)) for queue, part in groupby(rows, key=lambda row: row["queue"]))
    ]
    lead = (
        "How long messages waited, beside how long they would have. The baseline is the simulation of things as they "
        "are: by as much as it differs from what happened, the scenarios may be wrong too."
    )
    said = [Section("To know", [note(remark) for remark in remarks])] if remarks else []
    return page("What if", lead=lead, sections=[*sections, *said], foot=foot)


def _plots(rows: Sequence[Row]) -> list[str]:
    found = []
    for name in ("p50", "p99"):
        for tier, part in groupby(rows, key=lambda row: row["tier"]):
            each = [Bar(row["scenario"], row[f"wait_ms_{name}"], colour=row["scenario"] != HAPPENED) for row in part]
            found.append(bars(f"{PRIORITIES[tier]}: wait, {name}", each, form=span))
    return found
