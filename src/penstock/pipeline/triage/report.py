"""The page of a triage: the causes at a glance, then each of the most frequent ones with its samples."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from penstock.contract.messages import PRIORITIES
from penstock.pipeline.job import counted
from penstock.pipeline.reports.html import Figure, Section, count, folded, grid, headline, listing, note, page, table
from penstock.pipeline.reports.plots import Series, areas, cut
from penstock.pipeline.triage.causes import Cause, Remembered

CAUSES_TOLD = 40
_PLOTTED = 7


def report(
    causes: Sequence[Cause],
    gone: Mapping[str, Remembered],
    *,
    known: tuple[datetime, datetime],
    is_first: bool,
    again: str,
    foot: str,
) -> str:
    """Return the page, as HTML. ``again`` is the command that replays a cause, up to the folder of its signatures."""
    known_from, known_to = known
    sections = [_overview(causes, gone, known_from=known_from, known_to=known_to, is_first=is_first)]
    sections += [
        _cause(number, cause, _times(known_from, known_to, len(cause.buckets)), again)
        for number, cause in enumerate(causes[:CAUSES_TOLD], 1)
    ]
    if gone:
        rows = [(name, each.signature, each.burials, stamp(each.last_seen)) for name, each in gone.items()]
        gone_table = table(("cause", "signature", "burials then", "last seen"), rows)
        sections.append(Section("Gone", [gone_table], lead="Found by the last run, and by this one no more."))
    lead = f"Messages buried between {stamp(known_from)} and {stamp(known_to)}, by what their errors have in common."
    return page("Dead letters by cause", lead=lead, sections=sections, foot=foot)


def stamp(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M:%S}"


def _overview(
    causes: Sequence[Cause],
    gone: Mapping[str, Remembered],
    *,
    known_from: datetime,
    known_to: datetime,
    is_first: bool,
) -> Section:
    fresh = [cause for cause in causes if cause.is_new]
    figures = [
        Figure("burials", count(sum(cause.burials for cause in causes))),
        Figure("causes", count(len(causes))),
        Figure("new", "–" if is_first else count(len(fresh)), "since the last run", is_bad=bool(fresh)),
        Figure("gone", "–" if is_first else count(len(gone)), "since the last run"),
        Figure("with a deploy", count(sum(cause.deploy is not None for cause in causes)), "began right after one"),
    ]
    parts = [headline(figures)]
    if causes:
        parts += [grid([_over_time(causes, known_from=known_from, known_to=known_to)]), _listed(causes)]
    if len(causes) > CAUSES_TOLD:
        others = counted(len(causes) - CAUSES_TOLD, "cause is", "causes are")
        parts.append(note(f"The other {others} in causes.csv and causes.parquet."))
    return Section("All causes", parts)


def _listed(causes: Sequence[Cause]) -> str:
    """The table of causes; the plot above it has their numbers."""
    columns = ("#", "cause", "signature", "burials", "trend", "first seen", "last seen", "queues", "tenants", "deploy")
    rows = [
        (
            number,
            cause.cause_id,
            cut(cause.signature, 160),
            cause.burials,
            cause.trend,
            stamp(cause.first_seen),
            stamp(cause.last_seen),
            cut(", ".join(cause.queues), 60),
            cause.tenants,
            cause.deploy,
            "new" if cause.is_new else None,
        )
        for number, cause in enumerate(causes[:CAUSES_TOLD], 1)
    ]
    return table((*columns, "new"), rows)


def _over_time(causes: Sequence[Cause], *, known_from: datetime, known_to: datetime) -> str:
    # By number: that many ids have no room in a legend.
    series = [Series(f"#{number}", list(cause.buckets)) for number, cause in enumerate(causes[:_PLOTTED], 1)]
    if rest := causes[_PLOTTED:]:
        series.append(Series("others", [sum(each) for each in zip(*(cause.buckets for cause in rest), strict=True)]))
    return areas("Burials over time, by cause", _times(known_from, known_to, len(causes[0].buckets)), series)


def _cause(number: int, cause: Cause, times: Sequence[datetime], again: str) -> Section:
    deliveries = counted(cause.deliveries, "delivery", "deliveries")
    tenants = ", ".join(f"{name} {many:,}" for name, many in cause.top_tenants)
    facts: list[tuple[str, str | int]] = [
        ("burials", f"{cause.burials:,} of {counted(cause.messages, 'message')}, after {deliveries}"),
        ("seen", f"{stamp(cause.first_seen)} to {stamp(cause.last_seen)}, {cause.trend}"),
        ("began with", cause.deploy or "no deploy that is known"),
        ("queues", ", ".join(cause.queues)),
        ("tiers", ", ".join(f"{name} {many:,}" for name, many in zip(PRIORITIES, cause.tiers, strict=True) if many)),
        ("tenants", f"{cause.tenants:,}: {tenants}" if cause.tenants else "none: these messages have no group"),
        ("dead letters still", f"{cause.still_dead:,}"),
        ("messages", ", ".join(cause.sample_ids)),
        ("to replay", f"{again}/signatures/{cause.cause_id}.json"),
    ]
    parts = [
        grid([areas("Burials over time", times, [Series("burials", list(cause.buckets))])]),
        table(("", ""), facts),
        folded("The newest error", [listing(cause.sample_error or "(none)")]),
    ]
    if cause.sample_body is not None:
        parts.append(folded("How its body begins", [listing(cause.sample_body)]))
    title = f"#{number} {cause.cause_id}" + (" (new)" if cause.is_new else "")
    return Section(title, parts, lead=cause.signature)


def _times(first: datetime, last: datetime, parts: int) -> list[datetime]:
    return [first + (last - first) * at / parts for at in range(parts)]
