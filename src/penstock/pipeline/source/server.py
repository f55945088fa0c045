"""Reads the history from a server: Arrow over HTTP, some tasks side by side, each with its range of offsets.

    driver      /api/history/shards, /api/history/offset      what there is, and where to cut it
    executors   /api/history?shard=…&offset=…&until=…         pages, until the range is read

Only the standard library and pyarrow, so that executors need nothing of a server.
"""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.pipeline.http import Asking
from penstock.pipeline.source.history_arrow import Wanted
from penstock.pipeline.source.ranges import HistoryEndsBefore, Range, Slice, dropped
from penstock.pipeline.source.server_arrow import asked_of, chosen, converted

# As many as a server gives at once.
PAGE_ROWS = 65_536


class ServerHistories:
    def __init__(self, asking: Asking) -> None:
        self._asking = asking

    def kept(self) -> dict[int, Range]:
        said = self._asking.json("/api/history/shards")["shards"]
        return {each["shard"]: Range(each["shard"], each["first_kept_offset"], each["end_offset"]) for each in said}

    def offset_since(self, kept: Range, at_ms: int) -> int:
        at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)
        since = at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
        offset: int = self._asking.json("/api/history/offset", shard=kept.shard, since=since)["offset"]
        return min(max(offset, kept.start), kept.end)

    def offset_after(self, rows: Range, count: int) -> int:
        found = self._asking.json("/api/history/offset", shard=rows.shard, offset=rows.start, rows=count)
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
            page = self._asking.arrow(
                "/api/history", shard=shard, offset=offset, until=end, limit=PAGE_ROWS, columns=names
            )
            with pa.ipc.open_stream(pa.py_buffer(page)) as stream:
                said = {name.decode(): int(value) for name, value in stream.schema.metadata.items()}
                if said["first_kept_offset"] > offset and not part.goes_on:
                    raise dropped(shard, offset, said["first_kept_offset"])
                if said["next_offset"] <= offset:
                    raise HistoryEndsBefore(f"shard {shard} was to be read up to {end}, and ends at {offset} now")
                for batch in stream:
                    rows = chosen(batch, wanted)
                    if rows.num_rows:
                        yield converted(rows, wanted.columns, {"shard": shard})
            offset = said["next_offset"]
