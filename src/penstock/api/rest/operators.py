"""What operators do: escalate messages, requeue and redrive dead letters, and read the audit log."""

from collections.abc import Sequence
from contextlib import aclosing
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.inspect import PLACES, missing, show_escalation
from penstock.api.rest.request import Answer, Decoder, Request, instant, maybe_instant, read_instant, read_query_instant
from penstock.api.rest.send import read_priority
from penstock.broker.access import Caller, Role
from penstock.broker.activity import Wanted as WantedEntries
from penstock.broker.redrives import RedriveRequest, Task, check_goes_back, pages
from penstock.contract.limits import DURATION_MS_MAX, PAGE_MAX, RETRY_AFTER_MS_UNKNOWN
from penstock.contract.messages import PRIORITIES
from penstock.store.audit_log import Entry
from penstock.store.errors import QueueNotFound
from penstock.store.interface import EscalationOrder, Message, MessageFilter, Outcome, RedriveOrder
from penstock.wire import operators as wire
from penstock.wire.messages import LIST_MAX
from penstock.wire.operators import (
    AuditEntry,
    AuditPage,
    Escalate,
    Escalated,
    Escalations,
    Filter,
    RedriveTask,
    RedriveTasks,
    Requeue,
    Requeued,
)

_read_escalate = Decoder(Escalate)
_read_requeue = Decoder(Requeue)
_read_redrive = Decoder(wire.Redrive)


AuditWord = Annotated[str, Meta(min_length=1, max_length=255)]
InstantText = Annotated[str, Meta(max_length=64)]


class AuditQuery(Struct, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = 100


async def escalate(request: Request) -> Answer:
    queue = await request.queue(Role.ADMIN)
    asked: Escalate = await request.body(_read_escalate)
    _check_one_of(asked, is_needed=True)
    order = _Escalation(request, queue, asked)
    if not isinstance(asked.message_ids, UnsetType):
        await order.move(asked.message_ids)
    elif not isinstance(asked.filter, UnsetType):
        await order.move_all(filter_of(asked.filter))
    if order.result.moved:
        said = f"{len(order.result.moved)} messages to {PRIORITIES[order.tier]}: {asked.reason}"
        await request.did("queue.escalate", queue, label=asked.actor, detail=said)
    return Answer(order.result)


class _Escalation:
    """One escalation, page by page; each page is a decision of its own, and an entry of the audit trail."""

    def __init__(self, request: Request, queue: str, asked: Escalate) -> None:
        self._placement = request.queues.placement
        self._queue = queue
        self._asked = asked
        self.tier = read_priority(asked.priority, "priority")
        self._order = EscalationOrder(
            tier=self.tier,
            actor=request.caller.signature(asked.actor),
            reason=asked.reason,
            until_ms=_until_ms(request, asked),
            lowers=asked.lower,
        )
        self.result = Escalated([], [], [], [])

    async def move_all(self, sought: MessageFilter) -> None:
        """Move what fits, up to the limit; what has no way to go counts for nothing."""
        async with aclosing(pages(self._placement, self._queue, sought)) as found:
            async for messages in found:
                ids = [message.id for message in messages if self._has_a_way(message)]
                if ids:
                    await self.move(ids[: self._asked.limit - len(self.result.moved)])
                    self.result.unchanged.clear()
                if len(self.result.moved) >= self._asked.limit:
                    break

    def _has_a_way(self, message: Message) -> bool:
        if message.tier == self.tier:
            # It may get another end.
            return message.is_escalated
        return message.tier < self.tier if self._asked.lower else message.tier > self.tier

    async def move(self, ids: Sequence[str]) -> None:
        outcomes = await self._placement.of(self._queue).escalate(self._queue, ids, self._order)
        places = {
            Outcome.DONE: self.result.moved,
            Outcome.UNCHANGED: self.result.unchanged,
            Outcome.NOT_PENDING: self.result.not_pending,
            Outcome.UNKNOWN: self.result.unknown,
        }
        for message_id, outcome in zip(ids, outcomes, strict=True):
            places[outcome].append(message_id)


def _until_ms(request: Request, asked: Escalate) -> int:
    if isinstance(asked.until, UnsetType):
        return 0
    until_ms, now_ms = read_instant(asked.until, "until"), request.queues.now_ms()
    if until_ms <= now_ms:
        raise bad_field(f"until is over; it is {instant(now_ms)} now", "until", instant(now_ms))
    if until_ms > now_ms + DURATION_MS_MAX:
        raise bad_field("that is more than 366 days from now", "until", instant(now_ms + DURATION_MS_MAX))
    return until_ms


async def escalations(request: Request) -> Answer:
    queue = await request.queue(Role.READ)
    asked: AuditQuery = request.query(AuditQuery)
    return Answer(
        Escalations(
            [show_escalation(each) for each in await request.queues.placement.of(queue).audit(queue, most=asked.limit)]
        )
    )


async def requeue(request: Request) -> Answer:
    """Send one dead letter back, or say why it does not go."""
    queue, message_id = await request.queue(Role.ADMIN), request.parameter("message_id")
    asked: Requeue = await request.body(_read_requeue, may_be_empty=True)
    into = await target_of(request, queue, asked.target_queue)
    if into is None:
        await _check_goes_back(request, queue, message_id)
    result = await request.queues.placement.redrive(queue, RedriveOrder(into=into, most=1, ids=[message_id]))
    if result.moved:
        (name,) = result.moved
        request.queues.traffic.of(queue).requeued += 1
        await request.did("queue.requeue", queue, detail=f"{message_id} to {name}")
        return Answer(Requeued(message_id, (await request.queues.placement.of(name).describe(name)).id, name))
    raise await _why_not(request, queue, message_id, is_without_origin=message_id in result.without_origin)


async def _check_goes_back(request: Request, queue: str, message_id: str) -> None:
    if request.caller.patterns(Role.SEND) is None:
        return
    message = await request.queues.placement.of(queue).look(queue, message_id)
    if message is not None:
        check_goes_back(request.caller, message)


async def _why_not(request: Request, queue: str, message_id: str, *, is_without_origin: bool) -> Exception:
    if is_without_origin:
        return Refused(
            "origin_not_found",
            f"the queue that {message_id!r} came from is gone; name another queue in `target_queue`",
            field="target_queue",
        )
    message = await request.queues.placement.of(queue).look(queue, message_id)
    if message is None:
        return await missing(request, queue, message_id)
    if message.past is None or message.past.queue == queue:
        return Refused("not_dead_letter", f"{message_id!r} was sent to {queue!r} itself; it is no dead letter")
    if message.place not in {"waiting", "resting"}:
        return Refused(
            "message_in_flight", f"{message_id!r} is {message.place}; it stays until it is released or its lease ends"
        )
    return Refused(
        "queue_full", f"there is no room where {message_id!r} would go", retry_after_s=RETRY_AFTER_MS_UNKNOWN / 1_000
    )


async def begin_redrive(request: Request) -> Answer:
    queue = await request.queue(Role.ADMIN)
    request.queues.check_running()
    asked: wire.Redrive = await request.body(_read_redrive, may_be_empty=True)
    _check_one_of(asked, is_needed=False)
    order = RedriveRequest(
        into=await target_of(request, queue, asked.target_queue),
        ids=None if isinstance(asked.message_ids, UnsetType) else tuple(asked.message_ids),
        filter=None if isinstance(asked.filter, UnsetType) else filter_of(asked.filter),
        most=None if isinstance(asked.limit, UnsetType) else asked.limit,
        rate_per_s=None if isinstance(asked.rate_per_s, UnsetType) else asked.rate_per_s,
        is_dry_run=asked.dry_run,
    )
    return await begin_redrive_of(request, queue, order)


async def begin_redrive_of(request: Request, queue: str, order: RedriveRequest) -> Answer:
    task = await request.queues.redrives.begin(queue, order, caller=request.caller)
    # As it begins: it may have ended by the time that the audit log is written.
    begun = _task(request.caller, task)
    if not order.is_dry_run:
        await request.did("queue.redrive", queue, detail=task.id)
    headers = ((b"location", f"/api/queues/{queue}/redrive/{task.id}".encode()),)
    return Answer(begun, status=200 if order.is_dry_run else 202, headers=headers)


async def list_redrives(request: Request) -> Answer:
    queue = await _present(request, Role.READ)
    return Answer(RedriveTasks([_task(request.caller, task) for task in await request.queues.redrives.all_of(queue)]))


async def get_redrive(request: Request) -> Answer:
    queue = await _present(request, Role.READ)
    return Answer(_task(request.caller, await request.queues.redrives.look(queue, request.parameter("task_id"))))


async def end_redrive(request: Request) -> Answer:
    queue = await _present(request, Role.ADMIN)
    task = await request.queues.redrives.look(queue, request.parameter("task_id"))
    ended = await request.queues.redrives.end(task)
    await request.did("queue.stop_redrive", queue, detail=task.id)
    return Answer(_task(request.caller, ended))


async def _present(request: Request, role: Role) -> str:
    """Return the name of the queue in the path, if it is there: what was of a deleted queue went with it."""
    queue = await request.queue(role)
    await request.queues.placement.of(queue).describe(queue)
    return queue


def filter_of(asked: Filter) -> MessageFilter:
    return MessageFilter(
        place=None if isinstance(asked.state, UnsetType) else PLACES[asked.state],
        tier=None if isinstance(asked.priority, UnsetType) else read_priority(asked.priority, "filter.priority"),
        group=None if isinstance(asked.group, UnsetType) else asked.group.encode(),
        text=None if isinstance(asked.text, UnsetType) else asked.text.encode(),
        error=None if isinstance(asked.error, UnsetType) else asked.error,
        origin=None if isinstance(asked.origin_queue, UnsetType) else asked.origin_queue,
    )


def _check_one_of(asked: Escalate | wire.Redrive, *, is_needed: bool) -> None:
    """Refuse a request with both: what it means cannot be guessed."""
    has_ids, has_filter = not isinstance(asked.message_ids, UnsetType), not isinstance(asked.filter, UnsetType)
    if has_ids and has_filter:
        raise bad_field("message_ids and filter are both there; give one of them", "filter")
    if is_needed and not (has_ids or has_filter):
        raise bad_field("which messages? give message_ids, or a filter; an empty filter is all", "message_ids")


async def target_of(request: Request, queue: str, into: str | UnsetType) -> str | None:
    """Return the name of the queue that dead letters are to go to, if it is said and the caller may send there."""
    if isinstance(into, UnsetType):
        return None
    try:
        name = await request.queues.allowed(request.caller, Role.SEND, into)
        await request.queues.placement.of(name).describe(name)
    except QueueNotFound as error:
        raise Refused("queue_not_found", str(error), field="target_queue") from None
    if name == queue:
        raise bad_field(f"target_queue is {name!r}, the queue they are in; name another one", "target_queue")
    return name


def _task(caller: Caller, task: Task) -> RedriveTask:
    # Another key may have sent them into a queue that this one may not know of.
    moved = {queue: count for queue, count in task.moved.items() if caller.may_list(queue)}
    return RedriveTask(
        task_id=task.id,
        state=task.state.value,
        dead_letter_queue=task.dead_letters,
        dry_run=task.order.is_dry_run,
        moved=moved,
        moved_total=task.moved_total,
        without_origin=task.without_origin,
        not_allowed=task.not_allowed,
        remaining=task.remaining,
        started_at=instant(task.started_at_ms),
        ended_at=maybe_instant(task.ended_at_ms),
        error=task.error,
        reason=task.reason,
        sample_message_ids=list(task.sample),
    )


class AuditLogQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    target: Annotated[AuditWord | UnsetType, Meta(description="A queue, topic, group or key.")] = UNSET
    actor: Annotated[AuditWord | UnsetType, Meta(description="The name of a key.")] = UNSET
    action: Annotated[
        AuditWord | UnsetType, Meta(description="Such as `queue.purge`, or `queue` for all of these.")
    ] = UNSET
    since: Annotated[
        InstantText | UnsetType, Meta(description="Done at this instant or later: RFC 3339, or seconds since 1970.")
    ] = UNSET
    until: Annotated[
        InstantText | UnsetType, Meta(description="Done before this instant: RFC 3339, or seconds since 1970.")
    ] = UNSET
    limit: Annotated[int, Meta(ge=1, le=PAGE_MAX)] = 100
    cursor: Annotated[str, Meta(max_length=20)] = ""


async def audit_log(request: Request) -> Answer:
    asked: AuditLogQuery = request.query(AuditLogQuery)
    wanted = WantedEntries(
        target=None if isinstance(asked.target, UnsetType) else asked.target,
        actor=None if isinstance(asked.actor, UnsetType) else asked.actor,
        action=None if isinstance(asked.action, UnsetType) else asked.action,
        from_ms=None if isinstance(asked.since, UnsetType) else read_query_instant(asked.since, "since"),
        until_ms=None if isinstance(asked.until, UnsetType) else read_query_instant(asked.until, "until"),
    )
    if asked.cursor and not (asked.cursor.isascii() and asked.cursor.isdecimal() and int(asked.cursor) < 2**63):
        raise bad_field("this is no cursor; give back `next_cursor` of the page before", "cursor")
    before = int(asked.cursor) if asked.cursor else None
    entries, more = await request.queues.activity.read(request.caller, wanted, before=before, most=asked.limit)
    return Answer(AuditPage([_shown_entry(entry) for entry in entries], None if more is None else str(more)))


def _shown_entry(entry: Entry) -> AuditEntry:
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
