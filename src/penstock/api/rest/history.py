"""The history of settled messages: rows of JSON or MessagePack, or columns as an Arrow IPC stream.

The history of one queue needs a key for that queue. The history of a shard holds rows of all queues,
deleted ones too, so it needs a key for all queues; so do its list of shards, its offsets and trimming.

Arrow is an extra (`penstock[arrow]`). It is imported on first use.
"""

import asyncio
from collections.abc import Callable, Sequence
from importlib import import_module
from types import ModuleType
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.receive import show_attributes, show_body
from penstock.api.rest.request import (
    ARROW_TYPE,
    Answer,
    Decoder,
    Format,
    Request,
    instant,
    maybe_instant,
    read_query_instant,
)
from penstock.broker.access import Role
from penstock.contract.history_columns import REST_HISTORY, BodyState
from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.contract.messages import NUMBERED_OUTCOMES, PRIORITIES
from penstock.store.ids import parse, queue_id
from penstock.store.pages import HistoryPage, HistoryRange
from penstock.wire import operators as wire
from penstock.wire.messages import LIST_MAX
from penstock.wire.operators import (
    HistoryOffset,
    HistoryRow,
    HistoryShard,
    HistoryShards,
    Offset,
    Shard,
    TrimHistory,
    Trimmed,
)

NEXT_OFFSET = b"penstock-next-offset"
# An answer about a settled message says how it ended, if it is among the last of these.
SEARCHED_ROWS_MAX = 10_000
SEARCHED_MS = 10 * 60 * 1_000
# The columns of an Arrow stream, in their order: of rows of all queues, and of one.
COLUMNS = tuple(column.name for column in REST_HISTORY)
QUEUE_COLUMNS = COLUMNS[2:]
_HINT = "this server has no Arrow; install penstock[arrow] beside it, or accept application/json"


class HistoryQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    offset: Offset | UnsetType = UNSET
    until: Offset | UnsetType = UNSET
    since: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=HISTORY_ROWS_MAX)] = LIST_MAX
    columns: Annotated[str, Meta(max_length=1_000)] | UnsetType = UNSET


class ShardHistoryQuery(HistoryQuery, forbid_unknown_fields=True, kw_only=True):
    shard: Shard


async def history(request: Request) -> Answer:
    queue = await request.queue(Role.READ)
    asked: HistoryQuery = request.query(HistoryQuery)
    to_stream = await _stream(request, asked, QUEUE_COLUMNS)
    page = await request.queues.placement.of(queue).history(queue, _range_of(asked))
    return _answer(request, page, to_stream, is_of_all=False)


async def shard_history(request: Request) -> Answer:
    """Return settled messages of all queues of a shard, to a caller that may see all queues."""
    request.caller.check_everywhere(Role.READ)
    asked: ShardHistoryQuery = request.query(ShardHistoryQuery)
    to_stream = await _stream(request, asked, COLUMNS)
    page = await request.queues.placement.of_shard(asked.shard).shard_history(asked.shard, _range_of(asked))
    return _answer(request, page, to_stream, is_of_all=True)


def _range_of(asked: HistoryQuery) -> HistoryRange:
    return HistoryRange(
        from_offset=None if isinstance(asked.offset, UnsetType) else asked.offset,
        until_offset=None if isinstance(asked.until, UnsetType) else asked.until,
        from_ms=None if isinstance(asked.since, UnsetType) else read_query_instant(asked.since, "since"),
        most=asked.limit,
    )


async def _stream(request: Request, asked: HistoryQuery, known: Sequence[str]) -> Callable[[HistoryPage], bytes] | None:
    """Return what makes an Arrow stream of a page; None for another format, which has limits of its own."""
    if request.form is Format.ARROW:
        wanted = chosen(asked.columns, known)
        to_stream = (await arrows()).history_stream
        return lambda page: to_stream(page, wanted)
    check_plain(asked.limit, asked.columns)
    return None


def check_plain(limit: int, columns: str | UnsetType) -> None:
    """Refuse what only Arrow has."""
    if limit > LIST_MAX:
        raise bad_field(f"limit is {limit}; only Arrow has more than {LIST_MAX} in a page", "limit", LIST_MAX)
    if not isinstance(columns, UnsetType):
        raise bad_field(f"columns can be chosen in Arrow alone; accept {ARROW_TYPE}", "columns")


def chosen(columns: str | UnsetType, known: Sequence[str]) -> Sequence[str]:
    """Return the columns that were asked for, in their order; by default all."""
    if isinstance(columns, UnsetType):
        return known
    wanted = columns.split(",")
    for name in wanted:
        if name not in known:
            raise bad_field(f"there is no column {name[:100]!r}; there are {', '.join(known)}", "columns")
    if len(set(wanted)) < len(wanted):
        raise bad_field("a column is named twice", "columns")
    return wanted


def _answer(
    request: Request, page: HistoryPage, to_stream: Callable[[HistoryPage], bytes] | None, *, is_of_all: bool
) -> Answer:
    headers = ((NEXT_OFFSET, b"%d" % page.next_offset),)
    if to_stream is not None:
        return Answer(to_stream(page), headers=headers, content_type=ARROW_TYPE.encode())
    rows = rows_of(page, request.form)
    if is_of_all:
        for row, shown in enumerate(rows):
            shown.queue, shown.queue_id = page.names[page.queue[row]], queue_id(page.queue[row])
            shown.key, shown.offset = page.key_of(row), page.offsets[row]
    value = wire.HistoryPage(
        rows=rows,
        next_offset=page.next_offset,
        first_kept_offset=page.first_kept_offset,
        end_offset=page.end_offset,
    )
    return Answer(value, headers=headers)


def rows_of(page: HistoryPage, form: Format) -> list[HistoryRow]:
    return [row_of(page, row, message_id, form) for row, message_id in enumerate(page.ids)]


def row_of(page: HistoryPage, row: int, message_id: str, form: Format) -> HistoryRow:
    shown = HistoryRow(
        message_id=message_id,
        priority=PRIORITIES[page.tier[row]],
        sent_priority=PRIORITIES[page.sent_tier[row]],
        sent_at=instant(page.sent_at_ms[row]),
        first_received_at=maybe_instant(page.first_leased_ms[row]),
        last_received_at=maybe_instant(page.last_leased_ms[row]),
        settled_at=instant(page.settled_at_ms[row]),
        delivery_count=page.deliveries[row],
        outcome=NUMBERED_OUTCOMES[page.ending[row]],
    )
    if page.group is not None and len(page.group[row]):
        shown.group = bytes(page.group[row]).decode(errors="replace")
    if page.error is not None and len(page.error[row]):
        shown.last_error = bytes(page.error[row]).decode(errors="replace")
    if page.body is not None and page.body_state is not None and page.body_state[row] == BodyState.KEPT:
        attributes = memoryview(b"") if page.attributes is None else page.attributes[row]
        shown.data, shown.data_base64 = show_body(page.body[row], attributes, form)
        shown.attributes = show_attributes(attributes, form)
    return shown


async def ending_of(request: Request, queue: str, message_id: str) -> str | None:
    """Return how a message ended, if it is among the last that were settled here; None otherwise."""
    sought = parse(message_id)
    if sought is None:
        return None
    from_ms = request.queues.now_ms() - SEARCHED_MS
    page = await request.queues.placement.of(queue).history(
        queue, HistoryRange(from_ms=from_ms, most=SEARCHED_ROWS_MAX)
    )
    found = None
    for row, number in enumerate(page.number):
        if number == sought.number and page.sent_tier[row] == sought.lane and page.home[row] == sought.queue:
            found = f"it was {NUMBERED_OUTCOMES[page.ending[row]]} at {instant(page.settled_at_ms[row])}"
    return found


async def arrows() -> ModuleType:
    """Return what writes Arrow. The first import takes a good second: it runs in a thread, and others go on."""
    try:
        return await asyncio.to_thread(import_module, "penstock.api.rest.arrows")
    except ImportError:
        raise Refused("not_acceptable", _HINT, field="Accept") from None


_read_trim = Decoder(TrimHistory)


class OffsetQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    shard: Shard
    since: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET
    rows: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET


async def shards(request: Request) -> Answer:
    request.caller.check_everywhere(Role.READ)
    return Answer(HistoryShards([HistoryShard(*each) for each in await request.queues.placement.history_shards()]))


async def find_offset(request: Request) -> Answer:
    """Return the offset at which a time begins, or at which a number of rows after an offset ends."""
    request.caller.check_everywhere(Role.READ)
    asked: OffsetQuery = request.query(OffsetQuery)
    store = request.queues.placement.of_shard(asked.shard)
    if not isinstance(asked.since, UnsetType):
        if not isinstance(asked.rows, UnsetType) or not isinstance(asked.offset, UnsetType):
            raise bad_field("since is a question of its own; offset and rows are another", "since")
        return Answer(
            HistoryOffset(await store.history_offset_at(asked.shard, read_query_instant(asked.since, "since")))
        )
    if isinstance(asked.rows, UnsetType):
        raise bad_field("what is sought? give since, or rows from an offset on", "rows")
    offset = 0 if isinstance(asked.offset, UnsetType) else asked.offset
    return Answer(HistoryOffset(await store.history_offset_after(asked.shard, offset, rows=asked.rows)))


async def trim(request: Request) -> Answer:
    request.caller.check_everywhere(Role.ADMIN)
    asked: TrimHistory = await request.body(_read_trim)
    first_kept = await request.queues.placement.of_shard(asked.shard).trim_history(asked.shard, before=asked.before)
    await request.did("history.trim", f"shard {asked.shard}", detail=f"kept from {first_kept}")
    return Answer(Trimmed(asked.shard, first_kept))
