"""The manifest: what of a job was sent, so that nothing is sent twice, however late somebody tries.

    <manifest>/<job>/<write | batch-0000000012>/
        parts/00003/<run>-<attempt>.jsonl    what one task did, in order; one line for each fact
        done.json                            all of it, once all tasks have ended well; the parts are gone then
        aborted-<run>.json                   what a write that failed had sent

The facts of a part, each durable before the task goes on:

    {"fact": "intent", "chunk": 7, "digest": …, "rows": …, "queue": …, "at_ms": …}   before it is sent
    {"fact": "sent", "chunk": 7, "first": …, "last": …}                              after the answer
    {"fact": "refused", "chunk": 7}                                                  the server did nothing
    {"fact": "end", "chunks": 8, "rows": …}                                          the partition has no more

Laws of the file
----------------
1. A chunk that was sent is never sent again.
2. A chunk with an intent and no answer may have been sent. It is sent again, under the same
   sender and sequence, as long as the server surely remembers those; after that somebody has
   to decide (option `inDoubt`).
3. A chunk whose digest is not the one on record is not sent: the rows are not those of the
   last time. Nor is one that another partition has sent in an earlier run: the rows are
   spread in another way.
4. Every attempt of a task writes a file of its own, so a line cut short by a kill is the last
   of its file, and is no fact.
"""

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any
from urllib.parse import quote

from penstock.core.limits import SENDER_MS
from penstock.pipeline.sink.chunks import Chunk
from penstock.pipeline.sink.folders import Folder
from penstock.pipeline.sink.sending import Answered

VERSION = 1
DONE = "done.json"
# A day before the server may forget: clocks differ, and a send takes its time.
REMEMBERED_MS = SENDER_MS - 24 * 60 * 60 * 1_000


class InputChanged(Exception):
    """The rows are not those that the job had before; nothing of this chunk was sent."""


class SendInDoubt(Exception):
    """Nobody can say any more whether a chunk was sent; the message says what to do."""


class ManifestDamaged(Exception):
    """A file of the manifest is not what was written."""


@dataclass(slots=True)
class Entry:
    """A chunk on record."""

    digest: str
    rows: int
    queue: str
    # When it was first tried: a server may have forgotten it since.
    at_ms: int
    first: str = ""
    last: str = ""
    is_sent: bool = False

    def as_row(self) -> list[Any]:
        return [self.digest, self.rows, self.queue, self.at_ms, self.first, self.last, self.is_sent]


@dataclass(slots=True)
class Part:
    """What is on record of one partition."""

    chunks: dict[int, Entry] = field(default_factory=dict)
    # How many chunks there are in all, once that is known.
    end: int | None = None

    @property
    def sent_messages(self) -> int:
        return sum(entry.rows for entry in self.chunks.values() if entry.is_sent)

    @property
    def sent_chunks(self) -> int:
        return sum(entry.is_sent for entry in self.chunks.values())

    @property
    def unsure_messages(self) -> int:
        return sum(entry.rows for entry in self.chunks.values() if not entry.is_sent)

    def add(self, fact: dict[str, Any]) -> None:
        kind, index = fact["fact"], fact.get("chunk", -1)
        if kind == "intent":
            # The first intent counts: it may have been sent at that time.
            self.chunks.setdefault(index, Entry(fact["digest"], fact["rows"], fact["queue"], fact["at_ms"]))
        elif kind == "sent":
            entry = self.chunks[index]
            entry.first, entry.last, entry.is_sent = fact["first"], fact["last"], True
        elif kind == "refused":
            if index in self.chunks and not self.chunks[index].is_sent:
                del self.chunks[index]
        elif kind == "end":
            self.end = fact["chunks"]
        else:
            raise ManifestDamaged(f"a fact of the unknown kind {kind!r}")


class Manifest:
    """What is on record of one write of a job, or of one batch of a stream."""

    def __init__(self, folder: Folder, job: str, batch: int | None, run: str) -> None:
        self._folder = folder
        self._job = job
        self._run = run
        self.place = f"{quote(job, safe='')}/{'write' if batch is None else f'batch-{batch:010}'}"
        # Done means all of it: there is nothing more to be read.
        self._done = _read_done(folder.get(f"{self.place}/{DONE}"))

    def part(self, partition: int) -> Part:
        if self._done is not None:
            return self._done.get(partition, Part(end=0))
        return _read_part(self._folder, self._folder.names(self._parts(partition)))

    def recorder(self, partition: int, attempt: str) -> "Recorder":
        name = f"{self._parts(partition)}/{self._run}-{attempt}.jsonl"
        return Recorder(self._folder, name, self._job, self.part(partition), lambda: self._elsewhere(partition))

    def everything(self) -> dict[int, Part]:
        """What is on record of all partitions."""
        if self._done is not None:
            return self._done
        by_partition: dict[int, list[str]] = {}
        for name in self._folder.names(f"{self.place}/parts"):
            by_partition.setdefault(int(name.split("/")[-2]), []).append(name)
        return {partition: _read_part(self._folder, names) for partition, names in sorted(by_partition.items())}

    def complete(self, partitions: int) -> dict[int, Part]:
        """Note that all tasks have ended well, and forget how each of them got there."""
        parts = self.everything()
        beyond = [partition for partition, part in parts.items() if partition >= partitions and part.chunks]
        if beyond:
            raise changed(self._job, f"there were {max(beyond) + 1} partitions, and now there are {partitions}")
        if self._done is None:
            self._folder.put(f"{self.place}/{DONE}", _render_done(self._job, parts))
        self._folder.remove(f"{self.place}/parts")
        return parts

    def abort(self) -> dict[int, Part]:
        """Leave a record of what a failed write had sent."""
        parts = self.everything()
        told = {
            "version": VERSION,
            "job": self._job,
            "sent_messages": sum(part.sent_messages for part in parts.values()),
            "unsure_messages": sum(part.unsure_messages for part in parts.values()),
            "at_ms": time.time_ns() // 1_000_000,
        }
        self._folder.put(f"{self.place}/aborted-{self._run}.json", json.dumps(told) + "\n")
        return parts

    def _parts(self, partition: int) -> str:
        return f"{self.place}/parts/{partition:05}"

    def _elsewhere(self, partition: int) -> frozenset[str]:
        """The digests of what other partitions sent in earlier runs."""
        if self._done is not None:
            return frozenset()
        names = self._folder.names(f"{self.place}/parts")
        earlier = [
            name
            for name in names
            if int(name.split("/")[-2]) != partition and not name.split("/")[-1].startswith(f"{self._run}-")
        ]
        by_part: dict[str, list[str]] = {}
        for name in earlier:
            by_part.setdefault(name.split("/")[-2], []).append(name)
        parts = [_read_part(self._folder, names) for names in by_part.values()]
        return frozenset(entry.digest for part in parts for entry in part.chunks.values())


class Recorder:
    """What a task asks and tells about its chunks.

    The answer to a chunk is written together with the intent of the next one: a chunk whose answer was not
    written is one in doubt, which law 2 covers, and a task waits for the disk once for each chunk.
    """

    def __init__(self, folder: Folder, name: str, job: str, part: Part, elsewhere: Callable[[], Iterable[str]]) -> None:
        self._folder = folder
        self._name = name
        self._job = job
        self.part = part
        self._read_elsewhere = elsewhere
        self._pending: list[dict[str, Any]] = []

    @cached_property
    def _elsewhere(self) -> frozenset[str]:
        return frozenset(self._read_elsewhere())

    def must_send(self, chunk: Chunk, *, now_ms: int, in_doubt: str) -> bool:
        """Whether a chunk is still to be sent; raises if it must not be."""
        entry = self.part.chunks.get(chunk.index)
        if entry is None:
            if self.part.end is not None:
                raise changed(self._job, f"a partition had {self.part.end} chunks, and now it has more")
            if chunk.digest in self._elsewhere:
                raise changed(self._job, f"chunk {chunk.index} is one that another partition had in an earlier run")
            return True
        if entry.digest != chunk.digest:
            raise changed(self._job, f"chunk {chunk.index} is {chunk.digest}, and was {entry.digest}")
        if entry.is_sent:
            return False
        if now_ms - entry.at_ms < REMEMBERED_MS or in_doubt == "send":
            return True
        if in_doubt == "skip":
            self.note_sent(chunk, Answered("", ""))
            return False
        raise SendInDoubt(
            f"chunk {chunk.index} of job {self._job!r} ({entry.rows} messages to {entry.queue}) was tried more than "
            f"{REMEMBERED_MS // 86_400_000} days ago and never answered; no server remembers whether it arrived. "
            "Look into the queue or its history, then say inDoubt=send or inDoubt=skip"
        )

    def note_intent(self, chunk: Chunk, *, now_ms: int) -> None:
        self._note(
            {
                "fact": "intent",
                "chunk": chunk.index,
                "digest": chunk.digest,
                "rows": chunk.rows,
                "queue": chunk.queue,
                "at_ms": now_ms,
            }
        )
        self.flush()

    def note_sent(self, chunk: Chunk, answered: Answered) -> None:
        self._note({"fact": "sent", "chunk": chunk.index, "first": answered.first, "last": answered.last})

    def note_refused(self, chunk: Chunk) -> None:
        self._note({"fact": "refused", "chunk": chunk.index})
        self.flush()

    def note_end(self, *, chunks: int, rows: int) -> None:
        known = max(self.part.chunks, default=-1) + 1 if self.part.end is None else self.part.end
        if known > chunks:
            raise changed(self._job, f"a partition had {known} chunks, and now it has {chunks}")
        if self.part.end is None:
            self._note({"fact": "end", "chunks": chunks, "rows": rows})
        self.flush()

    def flush(self) -> None:
        if self._pending:
            self._folder.append(self._name, "".join(json.dumps(fact) + "\n" for fact in self._pending))
            self._pending.clear()

    def _note(self, fact: dict[str, Any]) -> None:
        self._pending.append(fact)
        self.part.add(fact)


def changed(job: str, how: str) -> InputChanged:
    return InputChanged(
        f"the input of job {job!r} changed or is not in a fixed order: sort it, checkpoint it, or name another job "
        f"({how})"
    )


def _read_part(folder: Folder, names: list[str]) -> Part:
    """Facts of several attempts are read together: intents first, since an answer may be in another file."""
    facts = [fact for name in names for fact in _facts(name, folder.texts(name))]
    part = Part()
    for fact in sorted(facts, key=lambda fact: _ORDER.get(fact["fact"], 0)):
        part.add(fact)
    return part


_ORDER = {"intent": 0, "sent": 1, "refused": 2, "end": 3}


def _facts(name: str, text: str) -> list[dict[str, Any]]:
    *lines, torn = text.split("\n")
    found = []
    for place, line in enumerate(lines):
        try:
            fact = json.loads(line)
        except ValueError:
            if place == len(lines) - 1 and not torn:
                # The disk may have kept the end of a line and not its middle.
                break
            raise ManifestDamaged(f"{name}: line {place + 1} is no fact: {line[:80]!r}") from None
        if not isinstance(fact, dict) or "fact" not in fact:
            raise ManifestDamaged(f"{name}: line {place + 1} is no fact: {line[:80]!r}")
        found.append(fact)
    return _settled(found)


def _settled(facts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A refusal takes back the intent before it, of this attempt alone: another may have been answered otherwise."""
    kept: list[dict[str, Any]] = []
    for fact in facts:
        if fact["fact"] == "refused":
            kept = [other for other in kept if (other["fact"], other.get("chunk")) != ("intent", fact["chunk"])]
        else:
            kept.append(fact)
    return kept


def _render_done(job: str, parts: dict[int, Part]) -> str:
    told = {
        "version": VERSION,
        "job": job,
        "messages": sum(part.sent_messages for part in parts.values()),
        "chunks": sum(part.sent_chunks for part in parts.values()),
        "at_ms": time.time_ns() // 1_000_000,
        "partitions": {
            str(partition): [entry.as_row() for _, entry in sorted(part.chunks.items())]
            for partition, part in parts.items()
        },
    }
    return json.dumps(told) + "\n"


def _read_done(text: str | None) -> dict[int, Part] | None:
    try:
        told = None if text is None else json.loads(text)
    except ValueError:
        # Not written whole, so the parts are still there.
        return None
    if told is None:
        return None
    if told.get("version") != VERSION:
        raise ManifestDamaged(f"a manifest of version {told.get('version')}; this code knows {VERSION}")
    return {
        int(partition): Part({index: Entry(*row) for index, row in enumerate(rows)}, end=len(rows))
        for partition, rows in told["partitions"].items()
    }
