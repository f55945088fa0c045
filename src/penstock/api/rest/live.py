"""Everything that is in a queue, page by page: for whoever counts or copies all of it. People look with peek."""

from collections.abc import Sequence
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.calling import Answer, Call
from penstock.api.rest.errors import bad_field
from penstock.api.rest.formats import ARROW_TYPE, Format
from penstock.api.rest.history import arrows, check_plain, chosen
from penstock.api.rest.leasing import show_attributes, show_body
from penstock.api.rest.times import instant
from penstock.broker.access import Role
from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.contract.messages import PRIORITIES, STATES
from penstock.store.ids import queue_id
from penstock.store.live import LivePage
from penstock.wire import messages as wire
from penstock.wire.messages import LIST_MAX, LiveRange, LiveRow

COLUMNS = (
    "queue",
    "queue_id",
    "first_queue",
    "sent_tier",
    "number",
    "key",
    "tier",
    "priority",
    "state",
    "sent_at",
    "delivery_count",
    "group",
    "error",
)
BODIES = ("data", "attributes")


class LiveQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    after: Annotated[str, Meta(max_length=19)] = ""
    limit: Annotated[int, Meta(ge=1, le=HISTORY_ROWS_MAX)] = LIST_MAX
    bodies: bool = True
    told: bool = False
    columns: Annotated[str, Meta(max_length=1_000)] | UnsetType = UNSET


async def live(call: Call) -> Answer:
    queue = await call.queue(Role.READ)
    asked: LiveQuery = call.query(LiveQuery)
    columns = _columns(call, asked)
    to_stream = None if columns is None else (await arrows()).live_stream
    try:
        page = await call.queues.store.live(
            queue, after=asked.after, most=asked.limit, with_bodies=asked.bodies, is_told=asked.told
        )
    except ValueError as error:
        # Everything else was checked before.
        raise bad_field(f"{error}; give back `next` of the page before", "after") from None
    if to_stream is not None:
        return Answer(to_stream(page, columns), content_type=ARROW_TYPE.encode())
    return Answer(_page(page, call.form))


def _columns(call: Call, asked: LiveQuery) -> Sequence[str] | None:
    """Return the columns of an Arrow stream; None for another format."""
    if call.form is not Format.ARROW:
        check_plain(asked.limit, asked.columns)
        return None
    return chosen(asked.columns, (*COLUMNS, *BODIES) if asked.bodies else COLUMNS)


def _page(page: LivePage, form: Format) -> wire.LivePage:
    return wire.LivePage(
        queue=page.queue,
        queue_id=queue_id(page.queue_number),
        messages=[_row(page, row, message_id, form) for row, message_id in enumerate(page.ids)],
        next=page.next,
        seen_at=instant(page.seen_at_ms),
        ranges=[LiveRange(*each) for each in page.ranges],
        next_numbers=list(page.next_numbers),
        shard=page.shard,
        history_offset=page.history_offset,
        may_skip_numbers=page.may_skip_numbers,
    )


def _row(page: LivePage, row: int, message_id: str, form: Format) -> LiveRow:
    shown = LiveRow(
        message_id=message_id,
        key=page.key[row],
        # The first of the places is that of nobody.
        state=STATES[page.place[row] - 1],
        priority=PRIORITIES[page.tier[row]],
        sent_priority=PRIORITIES[page.sent_tier[row]],
        sent_at=instant(page.sent_at_ms[row]),
        delivery_count=page.deliveries[row],
    )
    if page.group is not None and len(page.group[row]):
        shown.group = bytes(page.group[row]).decode(errors="replace")
    if page.error is not None and len(page.error[row]):
        shown.error = bytes(page.error[row]).decode(errors="replace")
    if page.body is not None:
        attributes = memoryview(b"") if page.attributes is None else page.attributes[row]
        shown.data, shown.data_base64 = show_body(page.body[row], attributes, form)
        shown.attributes = show_attributes(attributes, form)
    return shown
