"""Pages as Arrow IPC streams of one batch, with what else there is to say in the metadata of the schema.

Nothing is made for each row, so the id of a message is three columns, of which its text is
`<first_queue>-<number · 8 + sent_tier>` in hexadecimal.

Importing this module needs `penstock[arrow]`.
"""

import json
from collections.abc import Sequence

from penstock.contract.history_columns import LIVE, REST_HISTORY
from penstock.history_arrow import KeptRows, Part, record_batch, write_stream
from penstock.store.pages import HistoryPage, LivePage

_HISTORY = {column.name: column for column in REST_HISTORY}
_LIVE = {column.name: column for column in LIVE}


def history_stream(page: HistoryPage, wanted: Sequence[str]) -> bytes:
    """Return some columns of a page of the history."""
    rows = KeptRows([Part(page, 0, len(page))], page.names)
    metadata = {
        "next_offset": page.next_offset,
        "first_kept_offset": page.first_kept_offset,
        "end_offset": page.end_offset,
    }
    return write_stream(record_batch(rows, [_HISTORY[name] for name in wanted], dictionary=True), metadata)


def live_stream(page: LivePage, wanted: Sequence[str]) -> bytes:
    """Return some columns of what is in a queue."""
    columns = [_LIVE[name] for name in wanted]
    same = {"queue": page.queue, "queue_id": page.queue_number}
    given = {name: value for name, value in same.items() if name in wanted}
    metadata = {
        "seen_at": page.seen_at_ms,
        "next_cursor": page.next,
        "ranges": json.dumps(page.ranges),
        "next_numbers": json.dumps(page.next_numbers),
        "shard": page.shard,
        "queue": page.queue,
        "queue_id": page.queue_number,
        "history_offset": "" if page.history_offset is None else page.history_offset,
        "may_skip_numbers": json.dumps(page.may_skip_numbers),
    }
    return write_stream(
        record_batch(KeptRows([Part(page, 0, len(page))], {}), columns, given, dictionary=True), metadata
    )
