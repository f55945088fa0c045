"""Queues as a resource: create, list, describe, change, delete, purge; and their settings in the words of REST."""

from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, json

from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.request import (
    CURSOR_CHARACTERS_MAX,
    Answer,
    Decoder,
    Request,
    cursor_after,
    maybe_instant,
    read_cursor,
)
from penstock.broker.access import Role
from penstock.broker.queues import visible_queues
from penstock.broker.traffic import Totals
from penstock.contract.limits import PAGE_MAX
from penstock.contract.messages import PRIORITIES
from penstock.contract.names import dead_letters_of, is_dead_letters
from penstock.contract.queue_settings import DedupScope, QueueSettings, as_said, from_said
from penstock.store.errors import QueueExists
from penstock.store.interface import Counts, Description
from penstock.wire import queues as wire
from penstock.wire.queue_settings import PART_TYPES, Settings
from penstock.wire.queues import CreateQueue, QueueList, QueueName, QueueView, TierView

_read_create = Decoder(CreateQueue)
_read_change = Decoder(Settings)


class ListQuery(Struct, forbid_unknown_fields=True):
    prefix: Annotated[str, Meta(max_length=85)] = ""
    cursor: Annotated[str, Meta(max_length=CURSOR_CHARACTERS_MAX)] = ""
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100


class DeleteQuery(Struct, forbid_unknown_fields=True):
    with_dead_letters: bool = False


async def create(request: Request) -> Answer:
    asked: CreateQueue = await request.body(_read_create)
    name = asked.queue_name
    request.caller.check(Role.ADMIN, name)
    settings = settings_of(asked, name)
    try:
        is_new = await request.queues.create(name, settings, caller=request.caller)
    except QueueExists:
        there = (await request.queues.placement.of(name).describe(name)).settings
        # Labels belong to other front ends. A difference there is no reason to refuse.
        if replace(settings, labels=there.labels) != there:
            raise _exists(name, there, settings) from None
        is_new = False
    if is_new:
        await request.did("queue.create", name, detail=_said(asked))
    view = await _view(request, name)
    headers = ((b"location", f"/api/queues/{view.queue_id}".encode()),)
    return Answer(view, status=201 if is_new else 200, headers=headers)


async def list_queues(request: Request) -> Answer:
    asked: ListQuery = request.query(ListQuery)
    after = read_cursor(asked.cursor)
    names = await visible_queues(
        request.queues.placement, request.caller, prefix=asked.prefix, after=after, most=asked.limit
    )
    # A queue without a summary was deleted after it was listed.
    summaries = await request.queues.placement.summaries(names)
    found = [_row(request, *summary) for summary in summaries if summary is not None]
    return Answer(QueueList(found, cursor_after(names[-1]) if len(names) == asked.limit else None))


async def describe(request: Request) -> Answer:
    return Answer(await _view(request, await request.queue(Role.SEE)))


async def change(request: Request) -> Answer:
    queue = await request.queue(Role.ADMIN)
    asked: Settings = await request.body(_read_change)
    # Of two who change a queue at once, each changes what it names; the later one wins where both name the same.
    await request.queues.change(queue, partial(settings_of, asked, queue), caller=request.caller)
    await request.did("queue.change", queue, detail=_said(asked))
    return Answer(await _view(request, queue))


async def delete(request: Request) -> Answer:
    queue = await request.queue(Role.ADMIN)
    asked: DeleteQuery = request.query(DeleteQuery)
    queue_id, remains = await request.queues.delete(
        queue, with_dead_letters=asked.with_dead_letters, caller=request.caller
    )
    await request.did("queue.delete", queue, detail="with its dead letters" if remains.is_deleted else "")
    return Answer(
        wire.Deleted(
            queue_id=queue_id,
            queue_name=queue,
            deleted=True,
            dead_letter_queue=remains.dead_letters,
            # The count is only for callers that may see that queue.
            dead_letters=remains.count if request.caller.may_list(remains.dead_letters or queue) else 0,
            dead_letters_deleted=remains.is_deleted,
        )
    )


async def purge(request: Request) -> Answer:
    queue = await request.queue(Role.ADMIN)
    purged = await request.queues.placement.of(queue).purge(queue)
    await request.did("queue.purge", queue, detail=f"{purged} messages")
    return Answer(wire.Purged(purged))


def _said(asked: Settings) -> str:
    """Return the settings that were asked for, as text."""
    return json.encode(asked).decode()


async def _view(request: Request, queue: str) -> QueueView:
    description, counts = await request.queues.describe(queue)
    return QueueView(
        queue_id=description.id,
        queue_name=queue,
        created_at=maybe_instant(description.created_at_ms),
        current_message_count=counts.live,
        ready=sum(counts.ready),
        in_flight=counts.leased,
        delayed=counts.delayed,
        stuck=counts.stuck,
        stuck_age_s=_age_s(counts.stuck_since_ms, request.queues.now_ms()),
        by_tier=_tiers(description, counts, request.queues.now_ms()),
        totals=_totals(request, queue),
        dlq_id=_dead_letter_queue_id(request, description),
        **view_of(description.settings, queue),
    )


def _row(request: Request, description: Description, counts: Counts) -> QueueName:
    oldest = min((at_ms for at_ms in counts.oldest_sent_at_ms if at_ms is not None), default=None)
    return QueueName(
        queue_id=description.id,
        queue_name=description.queue,
        current_message_count=counts.live,
        ready=sum(counts.ready),
        in_flight=counts.leased,
        delayed=counts.delayed,
        stuck=counts.stuck,
        paused=description.settings.is_paused,
        oldest_age_s=_age_s(oldest, request.queues.now_ms()),
        totals=_totals(request, description.queue),
        dlq_id=_dead_letter_queue_id(request, description),
    )


def _dead_letter_queue_id(request: Request, description: Description) -> str | None:
    if description.dead_letters is None or not request.caller.may_list(description.dead_letters):
        return None
    return description.dead_letters_id


def _exists(queue: str, there: QueueSettings, settings: QueueSettings) -> Refused:
    """Return what is wrong with making a queue that is there already: which settings are others."""
    seen = view_of(there, queue)
    different = [name for name, value in view_of(settings, queue).items() if value != seen[name]]
    return Refused(
        "queue_exists",
        f"there is a queue {queue!r}, and it differs in {', '.join(different)}",
        field=different[0] if different else None,
    )


def _tiers(description: Description, counts: Counts, now_ms: int) -> list[TierView]:
    return [
        TierView(
            priority=PRIORITIES[tier],
            ready=counts.ready[tier],
            oldest_age_s=_age_s(counts.oldest_sent_at_ms[tier], now_ms),
            worst_wait_messages=bound.leases,
            worst_wait_s=None if bound.wait_ms is None else bound.wait_ms / 1_000,
        )
        for tier, bound in enumerate(description.bounds)
    ]


def _age_s(sent_at_ms: int | None, now_ms: int) -> float | None:
    return None if sent_at_ms is None else max(0, now_ms - sent_at_ms) / 1_000


def _totals(request: Request, queue: str) -> wire.Totals:
    found = request.queues.traffic.totals.get(queue) or Totals()
    return wire.Totals(found.sent, found.received, found.acked, found.released)


def settings_of(asked: Settings, queue: str, old: QueueSettings | None = None) -> QueueSettings:
    """Return the settings that were asked for; what is left out is as in ``old``, or has its default."""
    found = from_said(msgspec.to_builtins(asked))
    is_live = old is None or old.dedup_scope is DedupScope.LIVE
    if "dedup_window_ms" in found and "dedup_scope" not in found and is_live:
        # A window length without a scope means the scope `window`.
        found["dedup_scope"] = DedupScope.WINDOW
    if "dead_letters" in found:
        found["dead_letters"] = _own_dead_letter_queue(found["dead_letters"], queue)
    if old is not None:
        if found.get("is_fifo", old.is_fifo) is not old.is_fifo:
            raise bad_field("fifo is chosen when a queue is created, and stays", "fifo")
        return replace(old, **found)
    if is_dead_letters(queue) and not found.get("dead_letters"):
        # A message in a dead-letter queue has nowhere to be buried.
        found.setdefault("deliveries_max", 0)
    return QueueSettings(**found)


def view_of(settings: QueueSettings, queue: str) -> dict[str, Any]:
    """Return all settings, by the names they have in a `QueueView`."""
    found = as_said(settings)
    default = None if is_dead_letters(queue) else dead_letters_of(queue)
    return (
        found
        | {part: kind(**found[part]) for part, kind in PART_TYPES.items()}
        | {"dead_letter_queue": settings.dead_letters or default}
    )


def _own_dead_letter_queue(dead_letters: str, queue: str) -> str:
    """The default name is the same as none, so that a view can be sent back as it is."""
    if dead_letters == queue:
        raise bad_field("a queue cannot be its own dead-letter queue", "dead_letter_queue")
    return "" if dead_letters == dead_letters_of(queue) else dead_letters
