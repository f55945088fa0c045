"""Read a topic out of the data folder of a server, which may be running or not.

    <data>/streams/catalog            which topics there are
    <data>/streams/partitions/17-0    partition 0 of topic number 17: a log of record batches

As with the history of a folder, nothing is locked or changed, every CRC is checked, and
only what is proven durable is read: of a running server, the last commit of a partition
is seen when the next one is written, or when the log has been quiet for two seconds.

Importing this module needs `crc32c`, which is installed with `penstock`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from penstock.contract.limits import MIB
from penstock.pipeline.options import PARTITION, BadOption
from penstock.pipeline.source import log_files
from penstock.pipeline.source.ranges import HistoryEndsBefore, Range, Slice, Wanted, chosen_of, cut, dropped
from penstock.pipeline.source.record_batches import Batch, batch_of, read_batches
from penstock.streams.embedded.topic_catalog import Facts, TopicFacts, facts_of

BATCH_BYTES = 4 * MIB


class FolderTopic:
    def __init__(self, path: str, topic: str, partitions: tuple[int, ...]) -> None:
        self._streams = Path(path) / "streams"
        self._topic = topic
        # Empty for all.
        self._partitions = partitions

    def kept(self) -> dict[int, Range]:
        facts = self._facts()
        found = {partition: self._kept(facts, partition) for partition in range(facts.settings.partitions)}
        return chosen_of(found, self._topic, self._partitions)

    def _kept(self, facts: TopicFacts, partition: int) -> Range:
        spans = log_files.list_spans(self._folder(facts, partition))
        start = max(spans[0].base_offset, facts.partition(partition).trimmed_offset)
        return Range(partition, start, max(start, spans[-1].next_offset))

    def _facts(self) -> TopicFacts:
        """Return what the catalog says of the topic."""
        folder = self._streams / "catalog"
        if not log_files.is_created(folder):
            raise BadOption(f"there are no topics in {self._streams.parent}: path names the data folder of a server")
        spans = log_files.list_spans(folder)
        facts = Facts(is_known=not spans or spans[0].base_offset == 0)
        for span in spans:
            for _, batch in log_files.batches(folder, span, (span.base_offset, 0)):
                for kind, fact in facts_of(batch):
                    facts.apply(kind, fact)
        for found in facts.topics.values():
            if found.name == self._topic:
                return found
        names = ", ".join(sorted(found.name for found in facts.topics.values()))
        raise BadOption(f"there is no topic {self._topic} in {self._streams.parent}; there are: {names or 'none'}")

    def _folder(self, facts: TopicFacts, partition: int) -> Path:
        return self._streams / "partitions" / f"{facts.number}-{partition}"

    def offset_since(self, kept: Range, at_ms: int) -> int:
        """Return where the first batch begins that says it has a record of this time or later."""
        folder = self._folder(self._facts(), kept.shard)
        for span in log_files.list_spans(folder):
            if span.next_offset <= kept.start:
                continue
            for header, _ in log_files.batches(folder, span, (span.base_offset, 0)):
                if header.max_timestamp_ms >= at_ms and header.next_offset > kept.start:
                    return max(header.base_offset, kept.start)
        return kept.end

    def offset_after(self, rows: Range, count: int) -> int:
        return min(rows.start + count, rows.end)

    def slices(self, rows: Range, count: int, *, goes_on: bool) -> list[Slice]:
        return cut(rows, count, goes_on=goes_on)

    def has_reached(self, shard: int, offset: int) -> bool:
        folder = self._folder(self._facts(), shard)
        return offset <= log_files.written_end(folder, log_files.list_spans(folder)[-1])

    def read(self, part: Slice, wanted: Wanted) -> Iterator[Any]:
        partition, start, end = part.rows
        batches: list[Batch] = []
        size_bytes = 0
        for batch in self._batches(part):
            batches.append(batch)
            size_bytes += len(batch.records)
            if size_bytes >= BATCH_BYTES:
                rows = batch_of(batches, self._topic, partition, (start, end), wanted)
                batches, size_bytes = [], 0
                if rows is not None:
                    yield rows
        rows = batch_of(batches, self._topic, partition, (start, end), wanted)
        if rows is not None:
            yield rows

    def _batches(self, part: Slice) -> Iterator[Batch]:
        """Yield the batches of a part. Segments that retention or compaction takes meanwhile are looked for again."""
        at = part.rows.start
        while at < part.rows.end:
            facts = self._facts()
            kept = self._kept(facts, part.rows.shard)
            if kept.start > at and not part.goes_on:
                raise dropped(part.rows.shard, at, kept.start, noun=PARTITION)
            at = max(at, kept.start)
            if at >= kept.end:
                raise HistoryEndsBefore(
                    f"partition {kept.shard} of {self._topic} was to be read up to {part.rows.end}, and its files end "
                    f"at {kept.end}"
                )
            folder = self._folder(facts, part.rows.shard)
            spans = log_files.list_spans(folder)
            span = spans[log_files.span_of(spans, at)]
            entry = (span.base_offset, 0) if span.is_active else log_files.index_of(folder, span).entry_of(at)
            try:
                for header, content in log_files.batches(folder, span, entry):
                    if header.next_offset > at and at < part.rows.end:
                        # A copy of its own: the next one is read into the same place.
                        yield from read_batches(memoryview(bytes(content)))
                        at = header.next_offset
                    if at >= part.rows.end:
                        return
            except FileNotFoundError:
                continue
            at = max(at, span.next_offset)
