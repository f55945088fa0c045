"""What became of a message: settled messages of a queue by id, text, outcome and time.

The history is read from a time on, a part with each request. The answer says how far it came, so that a page goes on
from there or stops, and no request takes long.
"""

import asyncio
from dataclasses import replace
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.errors import bad_field
from penstock.api.rest.history import row_of
from penstock.api.rest.request import Answer, Format, Request, instant, read_query_instant
from penstock.broker.access import Role
from penstock.contract.history_columns import BodyState
from penstock.contract.messages import NUMBERED_OUTCOMES, OUTCOMES
from penstock.store.ids import Identity, parse
from penstock.store.pages import HistoryPage, HistoryRange
from penstock.wire.operators import HistoryRow, Offset

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
                rows.append(Found(row=row_of(bare, row, ids[row], Format.JSON), preview=_preview(page, row)))
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


def _preview(page: HistoryPage, row: int) -> str | None:
    if page.body is None or page.body_state is None or page.body_state[row] != BodyState.KEPT:
        return None
    return bytes(page.body[row][:BODY_BYTES_MAX]).decode(errors="replace")
