"""One look at every queue, for an audit: what is in each, and which numbers were looked at.

`mapInArrow` runs this on executors, a queue at a time. A row is a live message, or with
`lane` set a range of numbers: every number in it is live, or was settled before `seen_at`
and has its row below `history_offset` of the history of its shard; or, where numbers
`may_skip`, it was never used.

A look cannot be repeated: the caller must keep the result (`localCheckpoint`).
"""

import json
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.contract.history_columns import LIVE, Column, ddl
from penstock.history_arrow import plain_batch, read_stream
from penstock.pipeline.http import ServerClient, ServerRefused

PAGE_ROWS = 65_536
_OF_MESSAGES = ("queue", "queue_id", "first_queue", "sent_tier", "number", "key", "state", "sent_at")
_COLUMNS = (
    *(column for column in LIVE if column.name in {*_OF_MESSAGES, "seen_at"}),
    Column("lane", "TINYINT", "The lane of a range; null in the row of a message."),
    Column("first", "BIGINT", "The first number of the range."),
    Column("end", "BIGINT", "The number behind it."),
    Column("shard", "INT", "The shard whose history tells of it."),
    Column("history_offset", "BIGINT", "Below it, that history tells of all that was settled before the look."),
    Column("may_skip", "BOOLEAN", "Whether some of its numbers may never have been used."),
)
LOOK = ddl(_COLUMNS)


def looker(url: str, key: str) -> "Callable[[Iterator[Any]], Iterator[Any]]":
    """Return what makes, of batches with a column `queue`, batches of what is in these queues."""

    def look(batches: "Iterator[Any]") -> "Iterator[Any]":
        with ServerClient(url, key) as client:
            for batch in batches:
                for queue in batch.column("queue").to_pylist():
                    yield from _look_at(client, queue)

    return look


def _look_at(client: ServerClient, queue: str) -> Iterator[Any]:
    query: dict[str, object] = {
        "limit": PAGE_ROWS,
        "bodies": "false",
        "told": "true",
        "columns": ",".join(_OF_MESSAGES),
    }
    while True:
        try:
            answer = client.arrow(f"/api/queues/{quote(queue)}/live", **query)
        except ServerRefused as error:
            if "queue_not_found" in str(error):
                # It was deleted since the queues were listed, and its messages are in the history.
                return
            raise
        batches, said = read_stream(answer)
        seen_at = pa.scalar(int(said["seen_at"]), pa.timestamp("ms", tz="UTC")).as_py()
        for batch in batches:
            found = dict(zip(batch.schema.names, batch.columns, strict=True))
            yield plain_batch({**found, "seen_at": seen_at}, _COLUMNS, batch.num_rows)
        yield _ranges(queue, seen_at, said)
        if not said["next_cursor"]:
            return
        query["cursor"] = said["next_cursor"]


def _ranges(queue: str, seen_at: datetime, said: dict[str, str]) -> Any:
    ranges = json.loads(said["ranges"])
    lanes, firsts, ends = (pa.array([each[place] for each in ranges], pa.int64()) for place in range(3))
    found = {
        "queue": queue,
        "queue_id": int(said["queue_id"]),
        "seen_at": seen_at,
        "lane": lanes,
        "first": firsts,
        "end": ends,
        "shard": int(said["shard"]),
        "history_offset": int(said["history_offset"]) if said["history_offset"] else None,
        "may_skip": said["may_skip_numbers"] == "true",
    }
    return plain_batch(found, _COLUMNS, len(ranges))
