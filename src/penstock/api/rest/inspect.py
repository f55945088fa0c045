"""Reading without receiving: a page of messages, one message with its story, why a message waits, and all of a queue.

`peek` and `look` are for people. `live` returns all of a queue, page by page, for programs that count or copy it.
"""

from collections.abc import Sequence
from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import bad_field
from penstock.api.rest.history import arrows, check_plain, chosen, ending_of
from penstock.api.rest.receive import show_attributes, show_body, show_past
from penstock.api.rest.request import ARROW_TYPE, Answer, Format, Request, instant, maybe_instant
from penstock.api.rest.send import read_priority
from penstock.broker.access import Role
from penstock.broker.queues import MessageNotFound
from penstock.contract.history_columns import LIVE
from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.contract.messages import PRIORITIES, STATES
from penstock.core.queue.explain import SENTENCES
from penstock.store.ids import queue_id
from penstock.store.interface import Escalation as StoredEscalation
from penstock.store.interface import Explained, Message, MessageFilter
from penstock.store.pages import LivePage
from penstock.wire import messages as wire
from penstock.wire.messages import LIST_MAX, Group, LiveRange, LiveRow, Priority, Seen, SeenPage, State, Text
from penstock.wire.operators import Escalation, Story

# The states of REST, and what a store calls them.
PLACES: dict[State, str] = dict(zip(STATES, ("waiting", "resting", "leased", "spent", "moving"), strict=True))
_STATES: dict[str, State] = {place: state for state, place in PLACES.items()}

# How many of a queue's last escalations are searched for those of one message.
SEARCHED_ESCALATIONS_MAX = 100

S = TypeVar("S", bound=Seen)


class PeekQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    state: State | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    group: Group | UnsetType = UNSET
    text: Text | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = 100
    cursor: Annotated[str, Meta(max_length=128)] = ""


async def peek(request: Request) -> Answer:
    queue = await request.queue(Role.READ)
    asked: PeekQuery = request.query(PeekQuery)
    tier = None if isinstance(asked.priority, UnsetType) else read_priority(asked.priority, "priority")
    sought = MessageFilter(
        place=None if isinstance(asked.state, UnsetType) else PLACES[asked.state],
        tier=tier,
        group=None if isinstance(asked.group, UnsetType) else asked.group.encode(),
        text=None if isinstance(asked.text, UnsetType) else asked.text.encode(),
    )
    try:
        page = await request.queues.placement.of(queue).peek(queue, sought, most=asked.limit, after=asked.cursor)
    except ValueError as error:
        # Everything else was checked before.
        raise bad_field(f"{error}; give back `next_cursor` of the page before", "cursor") from None
    return Answer(SeenPage([see(Seen, each, request.form) for each in page.messages], page.next or None))


async def look(request: Request) -> Answer:
    """Show one message with its whole story; of one that is settled say at least how it ended, if that is known."""
    queue, message_id = await request.queue(Role.READ), request.parameter("message_id")
    store = request.queues.placement.of(queue)
    message, explained = await store.look(queue, message_id), await store.explain(queue, message_id)
    if message is None or explained is None:
        raise await missing(request, queue, message_id)
    story = see(Story, message, request.form)
    explanation = explained.explanation
    story.wait_reason, story.reason = explanation.wait_reason, SENTENCES[explanation.wait_reason]
    story.until = maybe_instant(explanation.until_ms)
    story.escalations = []
    if message.is_escalated:
        trail = await store.audit(queue, most=SEARCHED_ESCALATIONS_MAX)
        story.escalations = [show_escalation(each, only=message_id) for each in trail if message_id in each.ids]
    return Answer(story)


async def explain(request: Request) -> Answer:
    queue, message_id = await request.queue(Role.READ), request.parameter("message_id")
    explained = await request.queues.placement.of(queue).explain(queue, message_id)
    if explained is None:
        raise await missing(request, queue, message_id)
    return Answer(explained_of(explained))


async def missing(request: Request, queue: str, message_id: str) -> MessageNotFound:
    """Return the error for a message that is not in a queue, with how it ended if that was lately."""
    ending = await ending_of(request, queue, message_id)
    detail = f"; {ending}" if ending else ""
    return MessageNotFound(f"there is no message {message_id[:64]!r} in {queue!r}{detail}")


def see(kind: type[S], message: Message, form: Format) -> S:
    data, encoded = show_body(message.body, message.attributes, form)
    seen = kind(
        message_id=message.id,
        data=data,
        data_base64=encoded,
        state=_STATES[message.place],
        priority=PRIORITIES[message.tier],
        tier=message.tier,
        sent_priority=PRIORITIES[message.sent_tier],
        attributes=show_attributes(message.attributes, form),
        delivery_count=message.deliveries,
        sent_at=instant(message.sent_at_ms),
        escalated=message.is_escalated,
    )
    if message.visible_at_ms is not None:
        seen.visible_at = instant(message.visible_at_ms)
    if message.group:
        seen.group = message.group.decode(errors="replace")
    if message.error:
        seen.last_error = message.error
    show_past(seen, message.past)
    return seen


def explained_of(explained: Explained) -> wire.Explained:
    found, bound = explained.explanation, explained.bound
    shown = wire.Explained(
        message_id=explained.id,
        state=_STATES[found.message.place],
        wait_reason=found.wait_reason,
        reason=SENTENCES[found.wait_reason],
        priority=PRIORITIES[found.message.tier],
        sent_priority=PRIORITIES[found.message.sent_tier],
        promotions=found.promotions,
        delivery_count=found.message.deliveries,
        messages_ahead=found.messages_ahead,
        until=maybe_instant(found.until_ms),
        worst_wait_messages=None if bound is None else bound.leases,
        worst_wait_s=None if bound is None or bound.wait_ms is None else bound.wait_ms / 1_000,
        estimated_start=maybe_instant(found.start_estimate_ms),
    )
    if found.message.group:
        shown.group = found.message.group.decode(errors="replace")
    if found.message.error:
        shown.last_error = found.message.error
    return shown


def show_escalation(escalation: StoredEscalation, *, only: str | None = None) -> Escalation:
    return Escalation(
        at=instant(escalation.at_ms),
        actor=escalation.actor,
        reason=escalation.reason,
        priority=PRIORITIES[escalation.tier],
        until=maybe_instant(escalation.until_ms),
        message_ids=list(escalation.ids) if only is None else [only],
    )


# What Spark reads, but for the time of the look, which is said once.
LIVE_BODIES = ("data", "attributes")
LIVE_COLUMNS = tuple(column.name for column in LIVE if column.name not in {*LIVE_BODIES, "seen_at"})


class LiveQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    cursor: Annotated[str, Meta(max_length=19)] = ""
    limit: Annotated[int, Meta(ge=1, le=HISTORY_ROWS_MAX)] = LIST_MAX
    bodies: bool = True
    told: bool = False
    columns: Annotated[str, Meta(max_length=1_000)] | UnsetType = UNSET


async def live(request: Request) -> Answer:
    queue = await request.queue(Role.READ)
    asked: LiveQuery = request.query(LiveQuery)
    columns: Sequence[str] = ()
    to_stream = None
    if request.form is Format.ARROW:
        columns = chosen(asked.columns, (*LIVE_COLUMNS, *LIVE_BODIES) if asked.bodies else LIVE_COLUMNS)
        to_stream = (await arrows()).live_stream
    else:
        check_plain(asked.limit, asked.columns)
    try:
        page = await request.queues.placement.of(queue).live(
            queue, after=asked.cursor, most=asked.limit, with_bodies=asked.bodies, is_told=asked.told
        )
    except ValueError as error:
        # Everything else was checked before.
        raise bad_field(f"{error}; give back `next_cursor` of the page before", "cursor") from None
    if to_stream is not None:
        return Answer(to_stream(page, columns), content_type=ARROW_TYPE.encode())
    return Answer(_live_page(page, request.form))


def _live_page(page: LivePage, form: Format) -> wire.LivePage:
    return wire.LivePage(
        queue=page.queue,
        queue_id=queue_id(page.queue_number),
        messages=[_live_row(page, row, message_id, form) for row, message_id in enumerate(page.ids)],
        next_cursor=page.next or None,
        seen_at=instant(page.seen_at_ms),
        ranges=[LiveRange(*each) for each in page.ranges],
        next_numbers=list(page.next_numbers),
        shard=page.shard,
        history_offset=page.history_offset,
        may_skip_numbers=page.may_skip_numbers,
    )


def _live_row(page: LivePage, row: int, message_id: str, form: Format) -> LiveRow:
    shown = LiveRow(
        message_id=message_id,
        key=page.key[row],
        # A place of 0 stands for none.
        state=STATES[page.place[row] - 1],
        priority=PRIORITIES[page.tier[row]],
        sent_priority=PRIORITIES[page.sent_tier[row]],
        sent_at=instant(page.sent_at_ms[row]),
        delivery_count=page.deliveries[row],
    )
    if page.group is not None and len(page.group[row]):
        shown.group = bytes(page.group[row]).decode(errors="replace")
    if page.error is not None and len(page.error[row]):
        shown.last_error = bytes(page.error[row]).decode(errors="replace")
    if page.body is not None:
        attributes = memoryview(b"") if page.attributes is None else page.attributes[row]
        shown.data, shown.data_base64 = show_body(page.body[row], attributes, form)
        shown.attributes = show_attributes(attributes, form)
    return shown
