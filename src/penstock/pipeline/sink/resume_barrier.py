"""Whether a run that goes on where another ended may send: not before it is known that its rows are spread as before.

A task sees the rows of its own partition. If they were in another one before, it cannot know that
they were sent. So in a run that resumes another one all partitions on record show their chunks first:

    <manifest>/<job>/<write | batch-…>/resuming/<run>/
        seen-00003                      partition 3 has shown all that is on record of it, unchanged
        rows-00003-<attempt>.arrow      what a task may not send yet (`holding.py`)

Laws of the folder
------------------
1. Once all partitions on record are seen, everything that was ever sent is at its place in this run,
   too; so whatever is not on record was never sent, wherever it is. Before that nothing is sent.
2. Nobody waits for a mark. Tasks take turns, and whoever waits may keep the one that is waited for
   from beginning. A task holds its rows instead, and may leave them to the driver (decision 29).
3. It is the rows of this run that were compared, so the next run looks for marks of its own.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from penstock.pipeline.sink.folders import Folder

RESUMING = "resuming"
_SEEN = "seen-"


class NotYet(Exception):
    """A partition on record was not seen yet, so nothing may be sent."""


@dataclass
class Resumption:
    """What a task knows of the others. A run that resumes nothing is clear from the start."""

    folder: Folder
    # Of this run.
    place: str
    partition: int
    # Whether an earlier run has left something of this partition.
    is_on_record: bool
    # Which partitions earlier runs have left something of.
    list_on_record: Callable[[], set[int]]
    # Whether all of them were seen: they stay so.
    is_clear: bool = False
    _is_noted: bool = field(default=False, init=False)

    def note_seen(self) -> None:
        """Say that this partition has shown all that is on record of it."""
        if self.is_on_record and not self._is_noted:
            self.folder.put(f"{self.place}/{_SEEN}{self.partition:05}", "")
            self._is_noted = True

    def look(self) -> bool:
        """Whether all partitions on record were seen by now."""
        if not self.is_clear:
            self.is_clear = not self._on_record or self._on_record <= self._seen()
        return self.is_clear

    def check(self) -> None:
        """Raise `NotYet` unless all partitions on record were seen."""
        if not self.look():
            raise NotYet

    def rows_name(self, attempt: str) -> str:
        return f"{self.place}/rows-{self.partition:05}-{attempt}.arrow"

    @cached_property
    def _on_record(self) -> set[int]:
        return self.list_on_record()

    def _seen(self) -> set[int]:
        names = [name.rpartition("/")[2] for name in self.folder.names(self.place)]
        return {int(name.removeprefix(_SEEN)) for name in names if name.startswith(_SEEN)}
