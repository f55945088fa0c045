"""The manifest: what of a job was sent, so that nothing is sent twice, also by a run of much later.

    <manifest>/<job>/topic.json             of a topic: what its tasks agree on (`topic_chunks.py`)
    <manifest>/<job>/<write | batch-0000000012>/
        parts/00003/<run>-<attempt>.jsonl    what one task did, in order; one line for each fact
        resuming/<run>/                      what tasks of a run that resumes another tell each other
        done.json                            all of it, once all tasks have ended well; the parts are gone then
        aborted-<run>.json                   what a write that failed had sent

The facts of a part, each durable before the task goes on:

    {"fact": "intent", "chunk": 7, "digest": …, "rows": …, "queue": …, "at_ms": …}   before it is sent
    {"fact": "sent", "chunk": 7, "first": …, "last": …}                              after the answer
    {"fact": "refused", "chunk": 7}                                                  the server did nothing
    {"fact": "forgotten", "generation": 0}                                           it forgot the sender
    {"fact": "end", "chunks": 8, "rows": …}                                          the partition has no more

Laws of the file
----------------
1. A chunk that was sent is never sent again.
2. A chunk with an intent and no answer may have been sent. It is sent again, under the same
   sender and sequence, as long as the server surely remembers those; after that the user has
   to decide (option `inDoubt`).
3. A chunk whose digest is not the one on record is not sent: the rows are not those of the
   last time.
4. A run that resumes another one sends nothing, and adds no fact, before each partition on
   record has shown its chunks again: the rows may be spread in another way.
5. A partition without rows has no facts.
6. Every attempt of a task writes a file of its own, so a line cut short by a kill is the last
   of its file, and is no fact.

A run that goes on where another ended may send only when it is known that its rows are spread as before. A task sees
the rows of its own partition. If they were in another one before, it cannot know that they were sent. So in a run that
resumes another one all partitions on record show their chunks first:

    <manifest>/<job>/<write | batch-…>/resuming/<run>/
        seen-00003                      partition 3 has shown all that is on record of it, unchanged
        rows-00003-<attempt>.arrow      what a task may not send yet (`partition.HeldRows`)

7. Once all partitions on record are seen, everything that was ever sent is at its place in this run, too. So what is
   not on record was never sent, wherever it is. Before that nothing is sent.
8. No task waits for a mark. Tasks take turns, and one that waits may keep the one that is waited for from beginning.
   A task holds its rows instead, and may leave them to the driver (decision 29).
9. It is the rows of this run that were compared, so the next run looks for marks of its own.
"""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol
from urllib.parse import quote

from penstock.contract.limits import SENDER_MS
from penstock.pipeline.sink.send import Answered
from penstock.pipeline.storage import Folder

RESUMING = "resuming"
_SEEN = "seen-"


class NotYet(Exception):
    """A partition on record was not seen yet, so nothing may be sent."""


@dataclass
class ResumeBarrier:
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


VERSION = 1
DONE = "done.json"
_WRITE, _BATCH = "write", "batch-"
# A day before the server may forget: clocks differ, and a send takes its time.
REMEMBERED_MS = SENDER_MS - 24 * 60 * 60 * 1_000
_HOUR_MS = 60 * 60 * 1_000
# Of a file, and how much of a longer one is kept for those who look for it.
_NAME_CHARACTERS_MAX = 255
_NAME_KEPT = 200


class InputChanged(Exception):
    """The rows are not those that the job had before; this chunk was not sent."""


class SendInDoubt(Exception):
    """It is not known any more whether a chunk was sent; the message says what to do."""


class ManifestDamaged(Exception):
    """A file of the manifest is not what was written."""


class ManifestElsewhere(Exception):
    """Tasks and driver do not see the same folder, so nothing holds beyond what a server remembers."""


class Sendable(Protocol):
    """A chunk of messages or of records, as far as it is on record."""

    @property
    def index(self) -> int: ...
    @property
    def queue(self) -> str: ...
    @property
    def rows(self) -> int: ...
    @property
    def digest(self) -> str: ...


@dataclass(frozen=True, slots=True)
class Memory:
    """Under which name chunks are sent now, and how long a server surely knows one that was sent under it."""

    # Of a topic: which range of producer ids. A queue has one name for ever.
    generation: int = 0
    remembered_ms: int = REMEMBERED_MS
    noun: str = "queue"


OF_A_QUEUE = Memory()


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
    generation: int = 0

    def as_row(self) -> list[Any]:
        row = [self.digest, self.rows, self.queue, self.at_ms, self.first, self.last, self.is_sent]
        return [*row, self.generation] if self.generation else row


@dataclass(slots=True)
class Part:
    """What is on record of one partition."""

    chunks: dict[int, Entry] = field(default_factory=dict)
    # How many chunks there are in all, once that is known.
    end: int | None = None
    # Generations that a server does not know any more.
    forgotten: set[int] = field(default_factory=set)

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
            # The first intent counts: it may have been sent at that time. Under a new name it is another try.
            known, generation = self.chunks.get(index), fact.get("generation", 0)
            if known is None or generation > known.generation:
                made = Entry(fact["digest"], fact["rows"], fact["queue"], fact["at_ms"], generation=generation)
                self.chunks[index] = made
        elif kind == "sent":
            entry = self.chunks[index]
            entry.first, entry.last, entry.is_sent = fact["first"], fact["last"], True
        elif kind == "refused":
            if index in self.chunks and not self.chunks[index].is_sent:
                del self.chunks[index]
        elif kind == "forgotten":
            self.forgotten.add(fact["generation"])
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
        self.place = f"{job_place(job)}/{_WRITE if batch is None else f'{_BATCH}{batch:010}'}"
        # Done means all of it: there is nothing more to be read.
        self._done = _read_done(folder.get(f"{self.place}/{DONE}"))

    @property
    def is_done(self) -> bool:
        return self._done is not None

    def recorder(
        self, partition: int, attempt: str, memory: Memory = OF_A_QUEUE, *, is_clear: bool = False
    ) -> "Recorder":
        """Return what a task asks and tells; ``is_clear`` if it is known that each partition on record was seen."""
        names = [] if self.is_done else self._folder.names(self._parts(partition))
        part = _read_part(self._folder, names) if self._done is None else self._done.get(partition, Part(end=0))
        resumption = ResumeBarrier(
            self._folder,
            f"{self.place}/{RESUMING}/{self._run}",
            partition,
            is_on_record=bool(self._earlier(names)),
            list_on_record=lambda: self._earlier(self._folder.names(f"{self.place}/parts")),
            is_clear=is_clear or self.is_done,
        )
        name = f"{self._parts(partition)}/{self._run}-{attempt}.jsonl"
        return Recorder(self._folder, name, self._job, part, resumption, memory=memory)

    def everything(self) -> dict[int, Part]:
        """What is on record of all partitions."""
        if self._done is not None:
            return self._done
        by_partition: dict[int, list[str]] = {}
        for name in self._folder.names(f"{self.place}/parts"):
            by_partition.setdefault(int(name.split("/")[-2]), []).append(name)
        return {partition: _read_part(self._folder, names) for partition, names in sorted(by_partition.items())}

    def check_partitions(self, count: int) -> None:
        """Raise `InputChanged` if there were more partitions before: what is on record of those was not seen."""
        beyond = [partition for partition, part in self.everything().items() if partition >= count and part.chunks]
        if beyond:
            raise changed(self._job, f"there were {max(beyond) + 1} partitions, and now there are {count}")

    def complete(self, ended: Mapping[int, int]) -> dict[int, Part]:
        """Note that all tasks have ended well, and forget how each of them got there.

        ``ended`` is how many chunks each task says its partition has.
        """
        parts = self.everything()
        unknown = [
            partition for partition, chunks in ended.items() if (parts.get(partition, Part()).end or 0) != chunks
        ]
        if unknown:
            raise self.elsewhere(unknown[0])
        if self._done is None:
            self._folder.put(f"{self.place}/{DONE}", _render_done(self._job, parts))
        self._folder.remove(f"{self.place}/parts")
        self._folder.remove(f"{self.place}/{RESUMING}")
        return parts

    def elsewhere(self, partition: int) -> ManifestElsewhere:
        return ManifestElsewhere(
            f"the driver does not find in the manifest of job {self._job!r} what the task of partition {partition} has "
            "left there: driver and executors must reach the same folder under the name that option manifest says"
        )

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
        self._folder.remove(f"{self.place}/{RESUMING}")
        return parts

    def _parts(self, partition: int) -> str:
        return f"{self.place}/parts/{partition:05}"

    def _earlier(self, names: list[str]) -> set[int]:
        """The partitions of those files that are not of this run."""
        return {int(name.split("/")[-2]) for name in names if not name.split("/")[-1].startswith(f"{self._run}-")}


class Recorder:
    """What a task asks and tells about its chunks.

    The answer to a chunk is written together with the intent of the next one: a chunk whose answer was not
    written is one in doubt, which law 2 covers, and a task waits for the disk once for each chunk.
    """

    def __init__(
        self,
        folder: Folder,
        name: str,
        job: str,
        part: Part,
        resumption: ResumeBarrier,
        *,
        memory: Memory = OF_A_QUEUE,
    ) -> None:
        self._memory = memory
        self._folder = folder
        self._name = name
        self._job = job
        self.part = part
        self.resumption = resumption
        # Of the chunks on record, when this attempt began.
        self._last = max(part.chunks, default=-1)
        self._pending: list[dict[str, Any]] = []

    def is_in_doubt(self, chunk: Sendable) -> bool:
        """Whether a chunk was tried, and its result is not known."""
        entry = self.part.chunks.get(chunk.index)
        return entry is not None and not entry.is_sent

    def is_of_now(self, chunk: Sendable) -> bool:
        """Whether a chunk is sent, or was, under the name that is used now."""
        entry = self.part.chunks.get(chunk.index)
        return entry is None or entry.generation == self._memory.generation

    def must_send(self, chunk: Sendable, *, now_ms: int, in_doubt: str) -> bool:
        """Whether a chunk is still to be sent; raises if it must not be, and `NotYet` if it must wait."""
        entry = self.part.chunks.get(chunk.index)
        if entry is None and self.part.end is not None:
            raise changed(self._job, f"a partition had {self.part.end} chunks, and now it has more")
        if entry is not None and entry.digest != chunk.digest:
            raise changed(self._job, f"chunk {chunk.index} is {chunk.digest}, and was {entry.digest}")
        if chunk.index >= self._last and self.part.end is None:
            self.resumption.note_seen()
        if entry is not None and entry.is_sent:
            return False
        self.resumption.check()
        return entry is None or self._must_send_again(chunk, entry, now_ms=now_ms, in_doubt=in_doubt)

    def _must_send_again(self, chunk: Sendable, entry: Entry, *, now_ms: int, in_doubt: str) -> bool:
        memory = self._memory
        is_remembered = entry.generation == memory.generation and now_ms - entry.at_ms < memory.remembered_ms
        if is_remembered or in_doubt == "send":
            return True
        if in_doubt == "skip":
            self.note_sent(chunk, Answered("", ""))
            return False
        raise SendInDoubt(
            f"chunk {chunk.index} of job {self._job!r} ({entry.rows} messages to {entry.queue}) was tried "
            f"{(now_ms - entry.at_ms) / _HOUR_MS:.1f} hours ago and never answered; no server surely remembers whether "
            f"it arrived. Look into the {memory.noun}, then say inDoubt=send or inDoubt=skip"
        )

    def note_intent(self, chunk: Sendable, *, now_ms: int) -> None:
        self._note(
            {
                "fact": "intent",
                "chunk": chunk.index,
                "digest": chunk.digest,
                "rows": chunk.rows,
                "queue": chunk.queue,
                "at_ms": now_ms,
                **({"generation": self._memory.generation} if self._memory.generation else {}),
            }
        )
        self.flush()

    def note_forgotten(self) -> None:
        self._note({"fact": "forgotten", "generation": self._memory.generation})
        self.flush()

    def note_sent(self, chunk: Sendable, answered: Answered) -> None:
        self._note({"fact": "sent", "chunk": chunk.index, "first": answered.first, "last": answered.last})

    def note_refused(self, chunk: Sendable) -> None:
        self._note({"fact": "refused", "chunk": chunk.index})
        self.flush()

    def note_end(self, *, chunks: int, rows: int) -> None:
        known = max(self.part.chunks, default=-1) + 1 if self.part.end is None else self.part.end
        if known > chunks:
            raise changed(self._job, f"a partition had {known} chunks, and now it has {chunks}")
        self.resumption.note_seen()
        if self.part.end is None and chunks:
            self.resumption.check()
            self._note({"fact": "end", "chunks": chunks, "rows": rows})
        self.flush()

    def flush(self) -> None:
        if self._pending:
            self._folder.append(self._name, "".join(json.dumps(fact) + "\n" for fact in self._pending))
            self._pending.clear()

    def _note(self, fact: dict[str, Any]) -> None:
        self._pending.append(fact)
        self.part.add(fact)


def batch_of(name: str) -> int | None:
    """Return which batch of a stream has a folder of this name; None if it is none.

    >>> [batch_of(name) for name in ("batch-0000000012", "write")]
    [12, None]
    """
    number = name.removeprefix(_BATCH)
    return int(number) if number != name and number.isdigit() else None


def job_place(job: str) -> str:
    """Return the folder of a job: one, of its own, whatever the job is called.

    >>> [job_place(job) for job in ("nightly", "a/b", "..")]
    ['nightly', 'a%2Fb', '%2E%2E']
    """
    place = quote(job, safe="")
    if not place.strip("."):
        # No folder is called so: it is this one, or the one above.
        return place.replace(".", "%2E")
    if len(place) > _NAME_CHARACTERS_MAX:
        return f"{place[:_NAME_KEPT]}-{blake2b(job.encode(), digest_size=16).hexdigest()}"
    return place


def changed(job: str, how: str) -> InputChanged:
    return InputChanged(
        f"the input of job {job!r} changed or is not in a fixed order: spread and sort it by a column, with "
        f"repartition(n, column).sortWithinPartitions(column), or name another job for other rows ({how})"
    )


def _read_part(folder: Folder, names: list[str]) -> Part:
    """Facts of several attempts are read together: intents first, since an answer may be in another file."""
    facts = [fact for name in names for fact in _facts(name, folder.texts(name))]
    part = Part()
    for fact in sorted(facts, key=lambda fact: _ORDER.get(fact["fact"], 0)):
        part.add(fact)
    return part


_ORDER = {"intent": 0, "sent": 1, "refused": 2, "forgotten": 2, "end": 3}


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
