"""Read from a server over HTTP: its history, a topic, or the messages that are in queues now.

    driver      /api/history/shards, /api/history/offset      what there is, and where to cut it
    executors   /api/history?shard=…&offset=…&until=…         pages, until the range is read

    driver      /api/topics/{topic}                           partitions, and what each holds
    executors   /api/topics/{topic}/records, as batches       from an offset on, until the range is read

    executors   /api/queues/{queue}/live                      a task for each queue, page by page

A topic has partitions where a history has shards. Its offsets are those that Kafka's clients see. Nothing is
committed, and no consumer group knows of it.

Of live messages each page is one look of the server at the queue, and `seen_at` says when. Between two pages the
queue goes on. A message is there at most once, as no page comes back to keys of another. What was settled while a
queue was read may be in its history already.

The module imports only the standard library and pyarrow: executors do not have the packages of a server.
"""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import quote

import pyarrow as pa  # type: ignore[import-untyped]
from pyarrow import compute
from pyspark.sql.datasource import InputPartition

from penstock.contract.history_columns import Column, Form
from penstock.history_arrow import in_words, plain_batch, read_stream
from penstock.pipeline.http import ServerClient, ServerRefused
from penstock.pipeline.options import PARTITION, ReadOptions
from penstock.pipeline.source.ranges import HistoryEndsBefore, Range, Slice, Wanted, chosen_of, cut, dropped
from penstock.pipeline.source.record_batches import batch_of, read_batches

_MS = pa.timestamp("ms", tz="UTC")


def asked_of(names: Iterable[str], *, wanted: Wanted) -> list[str]:
    """Return the columns to ask a server for: those that are wanted, and those by which rows are chosen."""
    asked = {"tier" if name == "priority" else name for name in names if name != "shard"}
    if wanted.queues:
        asked.add("queue")
    if wanted.from_ms is not None or wanted.until_ms is not None:
        asked.add("settled_at")
    # A page without columns would not say how many rows it has.
    return sorted(asked) or ["offset"]


def chosen(batch: Any, wanted: Wanted) -> Any:
    """Return the wanted rows of what a server answered."""
    if wanted.queues:
        queue = batch.column("queue")
        codes = [code for code, name in enumerate(queue.dictionary.to_pylist()) if name in wanted.queues]
        batch = batch.filter(compute.is_in(queue.indices, value_set=pa.array(codes, queue.indices.type)))
    if wanted.from_ms is not None:
        batch = batch.filter(compute.greater_equal(batch.column("settled_at"), pa.scalar(wanted.from_ms, _MS)))
    if wanted.until_ms is not None:
        batch = batch.filter(compute.less(batch.column("settled_at"), pa.scalar(wanted.until_ms, _MS)))
    return batch


def converted(batch: Any, columns: tuple[Column, ...], given: Mapping[str, Any]) -> Any:
    """Return a batch with these columns; ``given`` has a value for each that is the same in every row."""
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    if "tier" in found:
        found["priority"] = in_words(found["tier"], Form.PRIORITY)
    return plain_batch({**found, **given}, columns, batch.num_rows)


# As many as a server gives at once.
PAGE_ROWS = 65_536


class ServerHistories:
    def __init__(self, client: ServerClient) -> None:
        self._client = client

    def kept(self) -> dict[int, Range]:
        said = self._client.json("/api/history/shards")["shards"]
        return {each["shard"]: Range(each["shard"], each["first_kept_offset"], each["end_offset"]) for each in said}

    def offset_since(self, kept: Range, at_ms: int) -> int:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
        since = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        offset: int = self._client.json("/api/history/offset", shard=kept.shard, since=since)["offset"]
        return min(max(offset, kept.start), kept.end)

    def offset_after(self, rows: Range, count: int) -> int:
        found = self._client.json("/api/history/offset", shard=rows.shard, offset=rows.start, rows=count)
        return max(min(int(found["offset"]), rows.end), rows.start)

    def slices(self, rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
        parts, start = [], rows.start
        while start < rows.end:
            end = self.offset_after(Range(rows.shard, start, rows.end), count)
            # A server that knows no more rows than this has nothing to cut.
            end = end if end > start else rows.end
            parts.append(Slice(Range(rows.shard, start, end), goes_on=goes_on))
            start = end
        return parts

    def has_reached(self, shard: int, offset: int) -> bool:
        kept = self.kept().get(shard)
        return kept is not None and offset <= kept.end

    def read(self, part: Slice, wanted: Wanted) -> Iterator[Any]:
        shard, offset, end = part.rows
        names = ",".join(asked_of((column.name for column in wanted.columns), wanted=wanted))
        while offset < end:
            page = self._client.arrow(
                "/api/history", shard=shard, offset=offset, until=end, limit=PAGE_ROWS, columns=names
            )
            batches, said = read_stream(page)
            first_kept, next_offset = int(said["first_kept_offset"]), int(said["next_offset"])
            if first_kept > offset and not part.goes_on:
                raise dropped(shard, offset, first_kept)
            if next_offset <= offset:
                raise HistoryEndsBefore(f"shard {shard} was to be read up to {end}, and ends at {offset} now")
            for batch in batches:
                rows = chosen(batch, wanted)
                if rows.num_rows:
                    yield converted(rows, wanted.columns, {"shard": shard})
            offset = next_offset


class ServerTopic:
    def __init__(self, client: ServerClient, topic: str, partitions: tuple[int, ...]) -> None:
        self._client = client
        self._topic = topic
        # Empty for all.
        self._partitions = partitions
        self._path = f"/api/topics/{quote(topic, safe='')}"

    def kept(self) -> dict[int, Range]:
        said = self._client.json(self._path)["partitions"]
        found = {
            each["partition"]: Range(each["partition"], each["start_offset"], each["high_watermark"]) for each in said
        }
        return chosen_of(found, self._topic, self._partitions)

    def offset_since(self, kept: Range, at_ms: int) -> int:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
        since = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        page = self._client.json(f"{self._path}/records", partition=kept.shard, since=since, limit=1)
        offset: int = page["records"][0]["offset"] if page["records"] else page["next_offset"]
        return min(max(offset, kept.start), kept.end)

    def offset_after(self, rows: Range, count: int) -> int:
        return min(rows.start + count, rows.end)

    def slices(self, rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
        return cut(rows, count, goes_on=goes_on)

    def has_reached(self, shard: int, offset: int) -> bool:
        kept = self.kept().get(shard)
        return kept is not None and offset <= kept.end

    def read(self, part: Slice, wanted: Wanted) -> Iterator[Any]:
        partition, offset, end = part.rows
        while offset < end:
            batches = list(read_batches(memoryview(self._fetch(part, offset))))
            if not batches:
                offset = self._further(part, offset)
                continue
            rows = batch_of(batches, self._topic, partition, (offset, end), wanted)
            if rows is not None:
                yield rows
            offset = batches[-1].next_offset

    def _fetch(self, part: Slice, offset: int) -> bytes:
        """Return batches from the one that holds an offset on; nothing if there is no such offset any more."""
        try:
            return self._client.batches(f"{self._path}/records", partition=part.rows.shard, offset=offset)
        except ServerRefused as error:
            if error.status == 400 and offset < self.kept()[part.rows.shard].start:
                return b""
            raise

    def _further(self, part: Slice, offset: int) -> int:
        """Return where to go on where there is nothing at an offset, if that may be."""
        kept = self.kept()[part.rows.shard]
        if kept.start <= offset:
            raise HistoryEndsBefore(
                f"partition {kept.shard} of {self._topic} was to be read up to {part.rows.end}, and ends at {offset}"
            )
        if not part.goes_on:
            raise dropped(kept.shard, offset, kept.start, noun=PARTITION)
        return kept.start


LIVE_PAGE_ROWS = 10_000
_BODIES = {"data", "attributes"}


def live_partitions(options: ReadOptions) -> list[InputPartition]:
    """Return a partition for each queue: those that were named, or all."""
    if options.queues:
        return [InputPartition(queue) for queue in options.queues]
    with ServerClient(options.url, options.key) as client:
        return [InputPartition(queue["queue_name"]) for queue in client.queues()]


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
    query: dict[str, object] = {"limit": LIVE_PAGE_ROWS, "bodies": str(bool(names & _BODIES)).lower()}
    # A page without columns would not say how many rows it has.
    query["columns"] = ",".join(sorted(names) or ["key"])
    with ServerClient(options.url, options.key) as client:
        while True:
            page = client.arrow(f"/api/queues/{quote(queue)}/live", **query)
            batches, said = read_stream(page)
            seen_at = pa.scalar(int(said["seen_at"]), _MS).as_py()
            for batch in batches:
                yield converted(batch, options.columns, {"seen_at": seen_at})
            if not said["next_cursor"]:
                return
            query["cursor"] = said["next_cursor"]
