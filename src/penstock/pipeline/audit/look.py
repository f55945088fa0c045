"""One look at every queue, for an audit: what is in each, and which numbers were looked at.

`mapInArrow` runs this on executors, a queue at a time. A row is a live message, or with
`lane` set a range of numbers: every number in it is live, or was settled before `seen_at`
and is told of below `history_offset` of the history of its shard; or, where numbers
`may_skip`, it was never used.

A look is not repeatable: its user must keep the result (`localCheckpoint`).
"""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.pipeline.http import ServerClient, ServerRefused

PAGE_ROWS = 65_536
LOOK = (
    "`queue` STRING, `queue_id` BIGINT, `first_queue` BIGINT, `sent_tier` TINYINT, `number` BIGINT, `key` BIGINT, "
    "`state` STRING, `sent_at` TIMESTAMP, `seen_at` TIMESTAMP, "
    "`lane` TINYINT, `first` BIGINT, `end` BIGINT, `shard` INT, `history_offset` BIGINT, `may_skip` BOOLEAN"
)
_TIME = pa.timestamp("us", tz="UTC")
_KINDS = {
    "queue": pa.string(),
    "queue_id": pa.int64(),
    "first_queue": pa.int64(),
    "sent_tier": pa.int8(),
    "number": pa.int64(),
    "key": pa.int64(),
    "state": pa.string(),
    "sent_at": _TIME,
    "seen_at": _TIME,
    "lane": pa.int8(),
    "first": pa.int64(),
    "end": pa.int64(),
    "shard": pa.int32(),
    "history_offset": pa.int64(),
    "may_skip": pa.bool_(),
}
_OF_MESSAGES = ("queue", "queue_id", "first_queue", "sent_tier", "number", "key", "state", "sent_at")


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
                # It was deleted since the queues were listed, and its history tells the rest.
                return
            raise
        with pa.ipc.open_stream(pa.py_buffer(answer)) as stream:
            said = {name.decode(): value.decode() for name, value in stream.schema.metadata.items()}
            for batch in stream:
                if batch.num_rows:
                    yield _messages(batch, said)
        yield _ranges(queue, said)
        if not said["next_cursor"]:
            return
        query["cursor"] = said["next_cursor"]


def _messages(batch: Any, said: dict[str, str]) -> Any:
    seen_at = pa.scalar(int(said["seen_at"]), pa.timestamp("ms", tz="UTC")).cast(_TIME)
    columns = {}
    for name in _OF_MESSAGES:
        column = batch.column(name)
        # Spark takes no dictionaries.
        plain = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        columns[name] = plain.cast(_KINDS[name])
    columns["seen_at"] = pa.repeat(seen_at, batch.num_rows)
    return pa.record_batch(
        [columns.get(name, pa.nulls(batch.num_rows, kind)) for name, kind in _KINDS.items()], names=list(_KINDS)
    )


def _ranges(queue: str, said: dict[str, str]) -> Any:
    rows = [
        {
            "queue": queue,
            "queue_id": int(said["queue_id"]),
            "seen_at": int(said["seen_at"]) * 1_000,
            "lane": lane,
            "first": first,
            "end": end,
            "shard": int(said["shard"]),
            "history_offset": int(said["history_offset"]) if said["history_offset"] else None,
            # A server of before does not say it, and had no such store.
            "may_skip": said.get("may_skip_numbers") == "true",
        }
        for lane, first, end in json.loads(said["ranges"])
    ]
    return pa.record_batch(
        [pa.array([row.get(name) for row in rows], kind) for name, kind in _KINDS.items()], names=list(_KINDS)
    )
