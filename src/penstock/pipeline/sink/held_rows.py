"""Rows that may not be sent yet: kept as Arrow in the folder of the manifest, until they may be.

    first pass    rows are kept as they pass, while what is on record of them is compared
    not yet       the rest is kept, too, with a look now and then whether that is still needed
    second pass   all of them once more: in the same task, or on the driver when all tasks have ended

A second pass is the same work with the same rows, so it needs no rules of its own. What is kept is for this run alone
and need not outlive it: the next one has its rows from where this one had them.
"""

from collections.abc import Iterable, Iterator
from itertools import chain

import pyarrow as pa  # type: ignore[import-untyped]

from penstock.pipeline.sink.folders import Folder
from penstock.pipeline.sink.resume_barrier import Resumption

# A look costs a listing: little beside so much.
LOOK_BYTES = 32 * 1024 * 1024


class HeldRows:
    """The rows of a partition, each of which is kept as long as it may be needed again."""

    def __init__(self, batches: Iterable[pa.RecordBatch], folder: Folder, name: str, resumption: Resumption) -> None:
        self._batches = iter(batches)
        self._folder = folder
        self._name = name
        self._resumption = resumption
        self._file: pa.NativeFile | None = None
        self._writer: pa.RecordBatchFileWriter | None = None

    @property
    def name(self) -> str:
        """Where the rows are; empty if there are none."""
        return "" if self._file is None else self._name

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        if self._writer is None and self._resumption.look():
            return batch
        if not self._resumption.is_clear:
            self._keep(batch)
        return batch

    def keep_rest(self) -> bool:
        """Keep what is left. Returns False as soon as that is not needed any more."""
        since_look = 0
        for batch in self:
            since_look += batch.nbytes
            if since_look >= LOOK_BYTES:
                since_look = 0
                if self._resumption.look():
                    return False
        return not self._resumption.look()

    def again(self) -> Iterator[pa.RecordBatch]:
        """All rows from the first one on: those that were kept, and those that are still to come."""
        self.close()
        return chain(held_rows(self._folder, self.name), self._batches)

    def close(self) -> None:
        if self._writer is not None and self._file is not None:
            self._writer.close()
            self._file.close()
            self._writer = None

    def _keep(self, batch: pa.RecordBatch) -> None:
        if self._writer is None:
            self._file = self._folder.open_output(self._name)
            self._writer = pa.ipc.new_file(self._file, batch.schema)
        self._writer.write_batch(batch)


def held_rows(folder: Folder, name: str) -> Iterator[pa.RecordBatch]:
    """Return what was kept under a name of `HeldRows`; raises `FileNotFoundError` if it is not there."""
    return _read(folder.open_input(name)) if name else iter(())


def _read(file: pa.NativeFile) -> Iterator[pa.RecordBatch]:
    with file:
        # It has its end on record: one that is cut short is no file.
        reader = pa.ipc.open_file(file)
        for place in range(reader.num_record_batches):
            yield reader.get_batch(place)
