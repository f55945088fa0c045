"""The audit log, read back: who did what, the newest first."""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import bad_field
from penstock.api.rest.request import Answer, Request, instant, read_query_instant
from penstock.broker.activity import Wanted
from penstock.contract.limits import PAGE_MAX
from penstock.store.audit_log import Entry
from penstock.wire.operators import AuditEntry, AuditPage

Name = Annotated[str, Meta(min_length=1, max_length=255)]
Instant = Annotated[str, Meta(max_length=64)]


class AuditLogQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    target: Annotated[Name | UnsetType, Meta(description="A queue, topic, group or key.")] = UNSET
    actor: Annotated[Name | UnsetType, Meta(description="The name of a key.")] = UNSET
    action: Annotated[Name | UnsetType, Meta(description="Such as `queue.purge`, or `queue` for all of these.")] = UNSET
    since: Annotated[
        Instant | UnsetType, Meta(description="Done at this instant or later: RFC 3339, or seconds since 1970.")
    ] = UNSET
    until: Annotated[
        Instant | UnsetType, Meta(description="Done before this instant: RFC 3339, or seconds since 1970.")
    ] = UNSET
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100
    cursor: Annotated[str, Meta(max_length=20)] = ""


async def audit_log(request: Request) -> Answer:
    asked: AuditLogQuery = request.query(AuditLogQuery)
    wanted = Wanted(
        target=_said(asked.target),
        actor=_said(asked.actor),
        action=_said(asked.action),
        from_ms=None if isinstance(asked.since, UnsetType) else read_query_instant(asked.since, "since"),
        until_ms=None if isinstance(asked.until, UnsetType) else read_query_instant(asked.until, "until"),
    )
    if asked.cursor and not (asked.cursor.isascii() and asked.cursor.isdecimal() and int(asked.cursor) < 2**63):
        raise bad_field("this is no cursor; give back `next_cursor` of the page before", "cursor")
    before = int(asked.cursor) if asked.cursor else None
    entries, more = await request.queues.activity.read(request.caller, wanted, before=before, most=asked.limit)
    return Answer(AuditPage([_shown(entry) for entry in entries], None if more is None else str(more)))


def _said(value: str | UnsetType) -> str | None:
    return None if isinstance(value, UnsetType) else value


def _shown(entry: Entry) -> AuditEntry:
    return AuditEntry(
        at=instant(entry.at_ms),
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        label=entry.label,
        detail=entry.detail,
        via=entry.via,
        source=entry.source,
        count=entry.count,
    )
