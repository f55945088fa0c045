"""What all tasks of a write to a topic must agree on, whenever they run: its partitions, and who its producers are.

    <manifest>/<job>/topic.json   written by the driver, before a task of the job has sent anything

A key goes to another partition when the topic has more of them, so a job keeps to the number
it began with; a stream takes up a new one with the first batch after it was started again.
Where a chunk ends depends on what a batch may have, so a job keeps to that, too.

Producers are a range of ids that the server gave to this job alone. A task has one of them:

    id = first of the range + (batch // 32768) · 65536 + partition of Spark
    epoch = batch % 32768

So every attempt of a task is the same producer, and what two of them send at once is there once;
a task of an earlier batch that is still alive is fenced off. A stream needs no more producers than
it has tasks. A server forgets a silent producer after a day (`PRODUCER_MS`). Then nobody of that
time is alive any more, and what was not yet tried goes on under new ids: the next generation.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

from penstock.contract.limits import PRODUCER_MS
from penstock.pipeline.http import Asking, ServerRefused, ServerUnreachable
from penstock.pipeline.sink.chunks import WINDOW_BYTES_MAX
from penstock.pipeline.sink.folders import Folder, open_folder
from penstock.pipeline.sink.manifest import Manifest, ManifestDamaged, Memory, batch_of, job_place
from penstock.pipeline.sink.options import BadOption, WriteOptions
from penstock.pipeline.sink.topic_columns import Bounds

VERSION = 1
NAME = "topic.json"
# Half of what a server promises: clocks differ, and a send takes its time.
REMEMBERED_MS = PRODUCER_MS // 2
TASKS_MAX = 1 << 16
_EPOCHS = 1 << 15
_IDS = 1 << 32


class TopicChanged(Exception):
    """The topic is not the one that the job has written to; nothing was sent."""


class Producer(NamedTuple):
    id: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicPlan:
    """What the driver tells its tasks."""

    batch_bytes_max: int
    chunk_bytes_max: int
    # From which batch on there are how many partitions.
    partitions: tuple[tuple[int, int], ...]
    # The first id of each generation; none if the write may send twice.
    producers: tuple[int, ...]

    @property
    def memory(self) -> Memory:
        return Memory(len(self.producers) - 1, REMEMBERED_MS, "topic")

    def bounds(self, batch: int | None) -> Bounds:
        fitting = [count for first, count in self.partitions if first <= (batch or 0)]
        return Bounds(fitting[-1], self.batch_bytes_max, self.chunk_bytes_max)

    def producer(self, partition: int, batch: int | None) -> Producer | None:
        if not self.producers:
            return None
        if partition >= TASKS_MAX:
            raise BadOption(f"a write to a topic has at most {TASKS_MAX} partitions of Spark: coalesce it")
        turn, epoch = divmod(batch or 0, _EPOCHS)
        return Producer(self.producers[-1] + turn * TASKS_MAX + partition, epoch)


def plan_write(options: WriteOptions, *, is_stream: bool) -> TopicPlan:
    """Return what was planned for the job, or plan it. Raises `BadOption` or `TopicChanged`."""
    if not options.manifest:
        found = _ask(options, 1)
        return TopicPlan(found["max_message_bytes"], _chunk_bytes(found), ((0, found["partition_count"]),), ())
    folder = open_folder(options.manifest)
    place = f"{job_place(options.job)}/{NAME}"
    kept = _kept(folder.get(place))
    needs_ids = kept is None or _is_forgotten(folder, options.job, len(kept["producers"]) - 1)
    found = _ask(options, _IDS if needs_ids else 1)
    told = kept or {
        "version": VERSION,
        "topic": options.topic,
        "topic_id": found["topic_id"],
        "chunk_bytes_max": _chunk_bytes(found),
    }
    _check_same(options, told, found)
    told = {
        **told,
        "partitions": _partitions(folder, options.job, told, found["partition_count"], is_stream=is_stream),
        "producers": [*told.get("producers", ()), *([found["producer_id"]] if needs_ids else ())],
    }
    if told != kept:
        folder.put(place, json.dumps(told) + "\n")
    partitions = tuple((int(first), int(count)) for first, count in told["partitions"])
    return TopicPlan(found["max_message_bytes"], told["chunk_bytes_max"], partitions, tuple(told["producers"]))


def _chunk_bytes(found: Mapping[str, Any]) -> int:
    """All rows of a chunk may be of one partition, and then they are one batch."""
    return min(int(found["max_message_bytes"]), WINDOW_BYTES_MAX)


def _ask(options: WriteOptions, count: int) -> dict[str, Any]:
    try:
        with Asking(options.url, options.key) as asking:
            path = f"/api/topics/{quote(options.topic, safe='')}/producers"
            found: dict[str, Any] = asking.post(path, {"count": count})
    except (ServerRefused, ServerUnreachable) as error:
        raise BadOption(f"option topic is {options.topic!r}: {error}") from None
    return found


def _kept(text: str | None) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        told: dict[str, Any] = json.loads(text)
    except ValueError:
        raise ManifestDamaged(f"{NAME} is not what was written") from None
    if told.get("version") != VERSION:
        raise ManifestDamaged(f"{NAME} of version {told.get('version')}; this code knows {VERSION}")
    return told


def _check_same(options: WriteOptions, told: Mapping[str, Any], found: Mapping[str, Any]) -> None:
    advice = "name another job, or delete its manifest if all of it shall be sent again"
    if told["topic"] != options.topic:
        raise TopicChanged(f"job {options.job!r} has written to topic {told['topic']}, not {options.topic}: {advice}")
    if told["topic_id"] != found["topic_id"]:
        raise TopicChanged(
            f"topic {options.topic} was deleted and made again since job {options.job!r} wrote to it: {advice}"
        )


def _partitions(
    folder: Folder, job: str, told: Mapping[str, Any], count: int, *, is_stream: bool
) -> list[tuple[int, int]]:
    """A stream may take up new partitions, from the first batch on that nothing is on record of."""
    known = [(int(first), int(most)) for first, most in told.get("partitions", ())]
    if not known:
        return [(0, count)]
    if not is_stream or count == known[-1][1]:
        return known
    last = _last_batch(folder, job)
    return [*known, (0 if last is None else last + 1, count)]


def _is_forgotten(folder: Folder, job: str, generation: int) -> bool:
    """Whether a server may not know the producers any more of what is half sent: a write, or the last batch."""
    now_ms = time.time_ns() // 1_000_000
    for batch in {None, _last_batch(folder, job)}:
        manifest = Manifest(folder, job, batch, "look")
        if manifest.is_done:
            continue
        parts = manifest.everything().values()
        if any(generation in part.forgotten for part in parts):
            return True
        tried = [entry.at_ms for part in parts for entry in part.chunks.values() if entry.generation == generation]
        if tried and now_ms - max(tried) > REMEMBERED_MS:
            return True
    return False


def _last_batch(folder: Folder, job: str) -> int | None:
    """The last batch on record. Those before it are done, and may be a hundred thousand: nobody looks into them."""
    return max(
        (batch for name in folder.folders(job_place(job)) if (batch := batch_of(name)) is not None), default=None
    )
