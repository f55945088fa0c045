"""Looking without receiving: pages of messages, one with its whole story, and what it waits for."""

from typing import Annotated, TypeVar

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.calling import Answer, Call
from penstock.api.rest.errors import bad_field
from penstock.api.rest.formats import Format
from penstock.api.rest.history import ending_of
from penstock.api.rest.leasing import show_attributes, show_body, show_past
from penstock.api.rest.sending import read_priority
from penstock.api.rest.times import instant, maybe_instant
from penstock.broker.access import Role
from penstock.broker.queues import MessageNotFound
from penstock.contract.messages import PRIORITIES, STATES
from penstock.store.interface import Escalation as StoredEscalation
from penstock.store.interface import Explained, Message
from penstock.wire import messages as wire
from penstock.wire.messages import LIST_MAX, Group, Priority, Seen, SeenPage, State, Text
from penstock.wire.operating import Escalation, Story

# The states of REST, and what a store calls them.
PLACES: dict[State, str] = dict(zip(STATES, ("waiting", "resting", "leased", "spent", "moving"), strict=True))
_STATES: dict[str, State] = {place: state for state, place in PLACES.items()}

# An escalation may be of thousands; of a message, the last ones are told.
SEARCHED_ESCALATIONS_MAX = 100

S = TypeVar("S", bound=Seen)


class PeekQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    state: State | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    group: Group | UnsetType = UNSET
    text: Text | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=LIST_MAX)] = 100
    cursor: Annotated[str, Meta(max_length=128)] = ""


async def peek(call: Call) -> Answer:
    queue = await call.queue(Role.READ)
    asked: PeekQuery = call.query(PeekQuery)
    tier = None if isinstance(asked.priority, UnsetType) else read_priority(asked.priority, "priority")
    try:
        page = await call.queues.store.peek(
            queue,
            most=asked.limit,
            after=asked.cursor,
            place=None if isinstance(asked.state, UnsetType) else PLACES[asked.state],
            tier=tier,
            group=None if isinstance(asked.group, UnsetType) else asked.group.encode(),
            text=None if isinstance(asked.text, UnsetType) else asked.text.encode(),
        )
    except ValueError as error:
        # Everything else was checked before.
        raise bad_field(f"{error}; give back `next` of the page before", "cursor") from None
    return Answer(SeenPage([see(Seen, each, call.form) for each in page.messages], page.next or None))


async def look(call: Call) -> Answer:
    """Show one message with its whole story; of one that is settled say at least how it ended, if that is known."""
    queue, message_id = await call.queue(Role.READ), call.parameter("message_id")
    store = call.queues.store
    message, explained = await store.look(queue, message_id), await store.explain(queue, message_id)
    if message is None or explained is None:
        raise await missing(call, queue, message_id)
    story = see(Story, message, call.form)
    explanation = explained.explanation
    story.waits, story.reason = explanation.waits.name.lower(), explanation.waits.value
    story.until = maybe_instant(explanation.until_ms)
    story.escalations = []
    if message.is_escalated:
        trail = await store.audit(queue, most=SEARCHED_ESCALATIONS_MAX)
        story.escalations = [show_escalation(each, only=message_id) for each in trail if message_id in each.ids]
    return Answer(story)


async def explain(call: Call) -> Answer:
    queue, message_id = await call.queue(Role.READ), call.parameter("message_id")
    explained = await call.queues.store.explain(queue, message_id)
    if explained is None:
        raise await missing(call, queue, message_id)
    return Answer(_explained(explained))


async def missing(call: Call, queue: str, message_id: str) -> MessageNotFound:
    """Return the error for a message that is not in a queue, with how it ended if that was lately."""
    ending = await ending_of(call, queue, message_id)
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


def _explained(explained: Explained) -> wire.Explained:
    found, bound = explained.explanation, explained.bound
    shown = wire.Explained(
        message_id=explained.id,
        state=_STATES[found.message.place],
        waits=found.waits.name.lower(),
        reason=found.waits.value,
        priority=PRIORITIES[found.message.tier],
        sent_priority=PRIORITIES[found.message.sent_tier],
        tiers_gained=found.tiers_gained,
        delivery_count=found.message.deliveries,
        ahead=found.ahead,
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
