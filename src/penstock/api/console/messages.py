"""Messages as people look at them: pages that fit a filter, one message with its story, and a body as it was sent.

A page shows the beginning of each body only: fifty bodies may be fifty megabytes. What a body is, is said here and
decided by its bytes: it is sent as text that a page puts into a text node, or as bytes to be saved.

What became of a message is searched in the history from a time on, a part with each request. The answer says how far it
came, so that a page goes on from there or stops, and no request takes long.
"""

import asyncio
from dataclasses import replace
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import bad_field
from penstock.api.rest.history import row_of
from penstock.api.rest.inspect import PLACES, SEARCHED_ESCALATIONS_MAX, explained_of, missing, see, show_escalation
from penstock.api.rest.request import Answer, Format, Request, instant, read_query_instant
from penstock.api.rest.send import read_priority
from penstock.broker.access import Role
from penstock.contract.history_columns import BodyState
from penstock.contract.limits import PAGE_MAX
from penstock.contract.messages import NUMBERED_OUTCOMES, OUTCOMES
from penstock.core.queue.explain import SENTENCES
from penstock.store.ids import Identity, parse
from penstock.store.interface import Message, MessageFilter
from penstock.store.pages import HistoryPage, HistoryRange
from penstock.wire.messages import Group, Priority, Seen, State, Text
from penstock.wire.operators import HistoryRow, Offset

PREVIEW_BYTES = 400
# Messages that one request looks at: with a filter by time most of them may not fit.
LOOKED_AT_MAX = 5_000
_NOTHING = memoryview(b"")
_InstantText = Annotated[str, Meta(max_length=64)]


class MessagesQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    state: State | UnsetType = UNSET
    priority: Priority | UnsetType = UNSET
    group: Group | UnsetType = UNSET
    text: Text | UnsetType = UNSET
    error: Text | UnsetType = UNSET
    since: _InstantText | UnsetType = UNSET
    until: _InstantText | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Annotated[str, Meta(max_length=128)] = ""


class Preview(Seen, omit_defaults=True, kw_only=True):
    """A message with the beginning of its body."""

    size_bytes: int = 0
    # The first bytes as text; what is no UTF-8 is replaced.
    preview: str = ""
    is_binary: bool = False


async def messages(request: Request) -> Answer:
    """Return a page of messages that fit a filter, with the beginning of each body."""
    queue = await request.queue(Role.READ)
    asked: MessagesQuery = request.query(MessagesQuery)
    sought = MessageFilter(
        place=None if isinstance(asked.state, UnsetType) else PLACES[asked.state],
        tier=None if isinstance(asked.priority, UnsetType) else read_priority(asked.priority, "priority"),
        group=None if isinstance(asked.group, UnsetType) else asked.group.encode(),
        text=None if isinstance(asked.text, UnsetType) else asked.text.encode(),
        error=None if isinstance(asked.error, UnsetType) else asked.error,
    )
    from_ms = 0 if isinstance(asked.since, UnsetType) else read_query_instant(asked.since, "since")
    until_ms = 2**62 if isinstance(asked.until, UnsetType) else read_query_instant(asked.until, "until")
    has_time = from_ms > 0 or until_ms < 2**62
    store, found, looked_at, cursor = request.queues.placement.of(queue), list[Message](), 0, asked.cursor
    while True:
        try:
            # Whole pages are taken, so that the cursor is that of a store.
            most = asked.limit - len(found) if not has_time else min(PAGE_MAX, asked.limit - len(found))
            page = await store.peek(queue, sought, most=most, after=cursor)
        except ValueError as error:
            raise bad_field(f"{error}; give back `next_cursor` of the page before", "cursor") from None
        looked_at += len(page.messages)
        found += [each for each in page.messages if from_ms <= each.sent_at_ms < until_ms]
        cursor = page.next
        if not cursor or len(found) >= asked.limit or looked_at >= LOOKED_AT_MAX or not page.messages:
            break
        await asyncio.sleep(0)
    value = {
        "messages": [_preview(each) for each in found],
        "next_cursor": cursor or None,
        "looked_at": looked_at,
    }
    return Answer(value)


def _preview(message: Message) -> Preview:
    # Without its body, which would be decoded.
    seen = see(Preview, replace(message, body=_NOTHING), Format.JSON)
    seen.data = UNSET
    seen.size_bytes = len(message.body)
    seen.preview, is_text = _text_of(message.body)
    seen.is_binary = not is_text
    return seen


def _text_of(body: memoryview) -> tuple[str, bool]:
    start = bytes(body[:PREVIEW_BYTES])
    text = start.decode(errors="replace")
    try:
        start.decode()
    except UnicodeDecodeError as error:
        # A character that the cut went through is no reason to call it binary.
        return text, len(body) > PREVIEW_BYTES and error.start >= PREVIEW_BYTES - 3
    return text, "\0" not in text


async def message(request: Request) -> Answer:
    """Return one message: where it is, what it waits for and why, and who moved it."""
    queue, message_id = await request.queue(Role.READ), request.parameter("message_id")
    store = request.queues.placement.of(queue)
    found, explained = await store.look(queue, message_id), await store.explain(queue, message_id)
    if found is None or explained is None:
        raise await missing(request, queue, message_id)
    preview = _preview(found)
    trail = await store.audit(queue, most=SEARCHED_ESCALATIONS_MAX) if found.is_escalated else []
    description, counts = await request.queues.describe(queue)
    settings = description.settings
    return Answer(
        {
            "message": preview,
            "explained": explained_of(explained),
            "sentence": SENTENCES[explained.explanation.wait_reason],
            "escalations": [show_escalation(each, only=message_id) for each in trail if message_id in each.ids],
            # What an explanation speaks of.
            "queue": {
                "paused": settings.is_paused,
                "fifo": settings.is_fifo,
                "strict": settings.is_strict,
                "weights": settings.weights,
                "aging_s": [each / 1_000 for each in settings.aging_ms],
                "max_deliveries": settings.deliveries_max,
                "dead_letter_queue": description.dead_letters,
                "ready": counts.ready,
            },
        }
    )


async def body(request: Request) -> Answer:
    """Return the bytes of a body as they were sent. A browser saves them: it never shows them as a page."""
    queue, message_id = await request.queue(Role.READ), request.parameter("message_id")
    found = await request.queues.placement.of(queue).look(queue, message_id)
    if found is None:
        raise await missing(request, queue, message_id)
    headers = (
        (b"content-disposition", b'attachment; filename="message.bin"'),
        (b"x-content-type-options", b"nosniff"),
        (b"content-security-policy", b"default-src 'none'; sandbox"),
        (b"cache-control", b"no-store"),
    )
    return Answer(bytes(found.body), headers=headers, content_type=b"application/octet-stream")


PAGE_ROWS = 500
ROWS_MAX = 20_000
BODY_BYTES_MAX = 400
_TURN = 100


class SearchQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    id: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    text: Annotated[str, Meta(min_length=1, max_length=1_000)] | UnsetType = UNSET
    outcome: str | UnsetType = UNSET
    since: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=500)] = 100


class Found(Struct):
    row: HistoryRow
    # The beginning of the body, if the history keeps it.
    preview: str | None


async def search(request: Request) -> Answer:
    queue = await request.queue(Role.READ)
    asked: SearchQuery = request.query(SearchQuery)
    wanted = _Wanted(asked)
    offset = None if isinstance(asked.offset, UnsetType) else asked.offset
    from_ms = None if isinstance(asked.since, UnsetType) else read_query_instant(asked.since, "since")
    store, rows, read, reached_ms = request.queues.placement.of(queue), list[Found](), 0, None
    while True:
        page = await store.history(queue, HistoryRange(from_offset=offset, from_ms=from_ms, most=PAGE_ROWS))
        ids, bare = page.ids, replace(page, body=None)
        for row in range(len(page)):
            if wanted.fits(page, row):
                rows.append(Found(row=row_of(bare, row, ids[row], Format.JSON), preview=_kept_text(page, row)))
            if row % _TURN == 0:
                await asyncio.sleep(0)
        read += len(page)
        if len(page):
            reached_ms = page.settled_at_ms[len(page) - 1]
        offset = page.next_offset
        is_end = offset >= page.end_offset
        if is_end or read >= ROWS_MAX or len(rows) >= asked.limit:
            break
    value = {
        "rows": rows,
        "next_offset": None if is_end else offset,
        "read": read,
        "reached_at": None if reached_ms is None else instant(reached_ms),
        "first_kept_offset": page.first_kept_offset,
    }
    return Answer(value)


class _Wanted:
    def __init__(self, asked: SearchQuery) -> None:
        self._text = None if isinstance(asked.text, UnsetType) else asked.text.encode()
        self._id: Identity | None = None
        self._outcome = 0
        if not isinstance(asked.id, UnsetType):
            self._id = parse(asked.id)
            if self._id is None:
                raise bad_field(f"{asked.id!r} is no id of a message", "id")
        if not isinstance(asked.outcome, UnsetType):
            if asked.outcome not in OUTCOMES:
                raise bad_field(f"outcome is {asked.outcome[:50]!r}; it is one of {', '.join(OUTCOMES)}", "outcome")
            self._outcome = NUMBERED_OUTCOMES.index(asked.outcome)

    def fits(self, page: HistoryPage, row: int) -> bool:
        if self._outcome and page.ending[row] != self._outcome:
            return False
        sought = self._id
        if sought is not None and (
            page.number[row] != sought.number or page.sent_tier[row] != sought.lane or page.home[row] != sought.queue
        ):
            return False
        return self._text is None or self._has_text(page, row, self._text)

    def _has_text(self, page: HistoryPage, row: int, text: bytes) -> bool:
        if page.error is not None and text in bytes(page.error[row]):
            return True
        if page.group is not None and text in bytes(page.group[row]):
            return True
        if page.body is None or page.body_state is None or page.body_state[row] != BodyState.KEPT:
            return False
        return text in bytes(page.body[row])


def _kept_text(page: HistoryPage, row: int) -> str | None:
    if page.body is None or page.body_state is None or page.body_state[row] != BodyState.KEPT:
        return None
    return bytes(page.body[row][:BODY_BYTES_MAX]).decode(errors="replace")
