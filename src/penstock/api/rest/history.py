"""The history of settled messages: rows of JSON or MessagePack, or columns as an Arrow IPC stream.

Arrow is an extra (`penstock[arrow]`), and imported when somebody asks for it.
"""

from collections.abc import Callable
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.calling import Answer, Call
from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.formats import ARROW_TYPE, Format
from penstock.api.rest.leasing import show_attributes, show_body
from penstock.api.rest.times import instant, maybe_instant, read_instant
from penstock.broker.access import Role
from penstock.core.limits import HISTORY_ROWS_MAX
from penstock.store.history import BodyState, HistoryPage
from penstock.store.ids import parse
from penstock.wire import operating as wire
from penstock.wire.messages import LIST_MAX
from penstock.wire.operating import OUTCOMES, HistoryRow
from penstock.wire.queues import PRIORITIES

NEXT_OFFSET = b"penstock-next-offset"
# Who asks for a message that is settled is told how, if it was lately and among not too many.
SEARCHED_ROWS_MAX = 10_000
SEARCHED_MS = 10 * 60 * 1_000
_HINT = "this server has no Arrow; install penstock[arrow] beside it, or accept application/json"


class HistoryQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    offset: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType = UNSET
    since: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=HISTORY_ROWS_MAX)] = LIST_MAX


async def history(call: Call) -> Answer:
    queue = await call.queue(Role.READ)
    asked: HistoryQuery = call.query(HistoryQuery)
    to_stream = _arrow() if call.form is Format.ARROW else None
    if to_stream is None and asked.limit > LIST_MAX:
        raise bad_field(f"limit is {asked.limit}; only Arrow has more than {LIST_MAX} in a page", "limit", LIST_MAX)
    page = await call.queues.store.history(
        queue,
        from_offset=None if isinstance(asked.offset, UnsetType) else asked.offset,
        from_ms=None if isinstance(asked.since, UnsetType) else _since_ms(asked.since),
        most=asked.limit,
    )
    headers = ((NEXT_OFFSET, b"%d" % page.next_offset),)
    if to_stream is not None:
        return Answer(to_stream(page), headers=headers, content_type=ARROW_TYPE.encode())
    value = wire.HistoryPage(
        rows=rows_of(page, call.form),
        next_offset=page.next_offset,
        first_kept_offset=page.first_kept_offset,
        end_offset=page.end_offset,
    )
    return Answer(value, headers=headers)


def _since_ms(since: str) -> int:
    try:
        return read_instant(float(since), "since")
    except ValueError:
        return read_instant(since, "since")


def rows_of(page: HistoryPage, form: Format) -> list[HistoryRow]:
    return [_row(page, row, message_id, form) for row, message_id in enumerate(page.ids)]


def _row(page: HistoryPage, row: int, message_id: str, form: Format) -> HistoryRow:
    shown = HistoryRow(
        message_id=message_id,
        priority=PRIORITIES[page.tier[row]],
        sent_priority=PRIORITIES[page.sent_tier[row]],
        sent_at=instant(page.sent_at_ms[row]),
        first_received_at=maybe_instant(page.first_leased_ms[row]),
        last_received_at=maybe_instant(page.last_leased_ms[row]),
        settled_at=instant(page.settled_at_ms[row]),
        delivery_count=page.deliveries[row],
        outcome=OUTCOMES[page.ending[row]],
    )
    if page.group is not None and len(page.group[row]):
        shown.group = bytes(page.group[row]).decode(errors="replace")
    if page.error is not None and len(page.error[row]):
        shown.error = bytes(page.error[row]).decode(errors="replace")
    if page.body is not None and page.body_state is not None and page.body_state[row] == BodyState.KEPT:
        attributes = memoryview(b"") if page.attributes is None else page.attributes[row]
        shown.data, shown.data_base64 = show_body(page.body[row], attributes, form)
        shown.attributes = show_attributes(attributes, form)
    return shown


async def ending_of(call: Call, queue: str, message_id: str) -> str | None:
    """Return how a message ended, if that is among the last that were settled here; None if nobody knows."""
    sought = parse(message_id)
    if sought is None:
        return None
    from_ms = call.queues.now_ms() - SEARCHED_MS
    page = await call.queues.store.history(queue, from_ms=from_ms, most=SEARCHED_ROWS_MAX)
    found = None
    for row, number in enumerate(page.number):
        if number == sought.number and page.sent_tier[row] == sought.lane and page.home[row] == sought.queue:
            found = f"it was {OUTCOMES[page.ending[row]]} at {instant(page.settled_at_ms[row])}"
    return found


def _arrow() -> Callable[[HistoryPage], bytes]:
    try:
        from penstock.api.rest.arrows import arrow_stream  # noqa: PLC0415 - it may not be installed.
    except ImportError:
        raise Refused("not_acceptable", _HINT, field="Accept") from None
    return arrow_stream
