"""Reads the messages that are in queues now: from a server, a task for each queue, page by page.

Each page is one look of the server at the queue, and `seen_at` says when; between two
pages the queue goes on. A message is there at most once, as no page comes back to keys
of another; what was settled while a queue was read may be in its history already.
"""

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]
from pyspark.sql.datasource import InputPartition

from penstock.pipeline.http import Asking, ServerRefused
from penstock.pipeline.source.options import ReadOptions
from penstock.pipeline.source.server_arrow import converted

PAGE_ROWS = 10_000
_BODIES = {"data", "attributes"}


def live_partitions(options: ReadOptions) -> list[InputPartition]:
    """Return a partition for each queue: those that were named, or all."""
    return [InputPartition(queue) for queue in options.queues or _all_queues(options)]


def _all_queues(options: ReadOptions) -> Iterator[str]:
    cursor = ""
    with Asking(options.url, options.key) as asking:
        while True:
            page = asking.json("/api/queues", limit=100, cursor=cursor)
            yield from (each["queue_name"] for each in page["queues"])
            cursor = page["next"]
            if not cursor:
                return


def read_live(options: ReadOptions, queue: str) -> Iterator[Any]:
    """Yield what is in a queue. One that was listed and is deleted by now has nothing; one that was named must be."""
    try:
        yield from _pages(options, queue)
    except ServerRefused as error:
        if options.queues or error.status != 404:
            raise


def _pages(options: ReadOptions, queue: str) -> Iterator[Any]:
    names = {"tier" if column.name == "priority" else column.name for column in options.columns} - {"seen_at"}
    if not options.has_bodies:
        names -= _BODIES
    query: dict[str, object] = {"limit": PAGE_ROWS, "bodies": str(bool(names & _BODIES)).lower()}
    # A page without columns would not say how many rows it has.
    query["columns"] = ",".join(sorted(names) or ["key"])
    with Asking(options.url, options.key) as asking:
        while True:
            page = asking.arrow(f"/api/queues/{quote(queue)}/live", **query)
            with pa.ipc.open_stream(pa.py_buffer(page)) as stream:
                said = {name.decode(): value.decode() for name, value in stream.schema.metadata.items()}
                seen_at = pa.scalar(int(said["seen_at"]), pa.timestamp("ms", tz="UTC")).as_py()
                for batch in stream:
                    if batch.num_rows:
                        yield converted(batch, options.columns, {"seen_at": seen_at})
            if not said["next"]:
                return
            query["after"] = said["next"]
