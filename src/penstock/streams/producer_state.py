"""What one partition knows of its idempotent producers: who sent which batch last.

A producer numbers its records; what it sends again, because no answer came, is known
by its numbers and written only once. Kafka's rules:

    epoch lower than the known one          refused: another has taken over the id
    epoch higher                            starts again, at sequence 0
    the numbers of one of the last five     a duplicate: answered as the first time
    the number after the last               taken
    any other                               refused: something between was lost
    a producer not known (any more)         taken, whatever its number

The last rule is Kafka's too: a producer that was silent for long, or whose records
are gone, could not go on otherwise. A producer that would rather stop than double
asks for `check_known` first.

Laws of this file
-----------------
1. What is known is a function of the batches in the log, and of the time they came.
2. A snapshot holds what follows from everything below its offset, and only that.
3. A snapshot is derived: one that is missing, damaged or ahead of the log is made again
   from the whole log. It is written whenever a segment is closed, and when the log is.

    producers      crc u32 · MessagePack (format, offset, producers)
    producers.new  the next one, until it is durable
"""

import asyncio
from collections import deque
from typing import NamedTuple

import msgspec
from crc32c import crc32c

from penstock.contract.limits import PRODUCER_BATCHES_MAX, PRODUCER_MS, PRODUCERS_MAX
from penstock.log.disk_log import DiskLog
from penstock.log.record import Header
from penstock.log.record import header as read_header
from penstock.log.writer_queue import off_loop
from penstock.runtime.interface import NO_SPACE, Disk, Runtime
from penstock.streams.produce_checks import APPEND_TIME_ATTRIBUTE

NAME = "producers"
SEQUENCES = 2**31

_FORMAT = 1
_READ_BYTES = 4 << 20


class OutOfOrderSequence(Exception):
    """A producer's batch does not follow its last one: something between was lost."""


class ProducerFenced(Exception):
    """Another producer has taken over this id, with a higher epoch."""


class ProducerUnknown(Exception):
    """This producer is not known any more: whether its batch is here already cannot be told."""


class SnapshotDamaged(Exception):
    """These bytes are no snapshot of producers."""


class Sent(NamedTuple):
    """A batch of a producer that is in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    next_offset: int
    appended_at_ms: int


class ProducerState:
    __slots__ = ("epoch", "last_at_ms", "sent")

    def __init__(self, epoch: int, last_at_ms: int) -> None:
        self.epoch = epoch
        self.last_at_ms = last_at_ms
        self.sent: deque[Sent] = deque(maxlen=PRODUCER_BATCHES_MAX)


class Producers:
    def __init__(self) -> None:
        # In the order in which they were last heard of.
        self._known: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._known)

    def judge(self, header: Header) -> Sent | None:
        """Return the batch that this one repeats, or None if it may be appended. Raises if it may not."""
        known = self._known.get(header.producer_id)
        if known is None:
            return None
        epoch, first = header.producer_epoch, header.base_sequence
        if epoch < known.epoch:
            raise ProducerFenced(f"producer {header.producer_id} has epoch {known.epoch}; this one has {epoch}")
        if epoch > known.epoch:
            if first != 0:
                raise OutOfOrderSequence(f"sequence {first} in the new epoch {epoch}, which begins with 0")
            return None
        last = last_sequence(header)
        for sent in known.sent:
            if sent.first_sequence == first and sent.last_sequence == last:
                return sent
        expected = (known.sent[-1].last_sequence + 1) % SEQUENCES
        if first != expected:
            raise OutOfOrderSequence(f"sequence {first} of producer {header.producer_id}, where {expected} belongs")
        return None

    def check_known(self, header: Header, *, is_repeat: bool) -> None:
        """Raise `ProducerUnknown` if a batch may be one of a producer that was forgotten.

        A first batch of a producer that is not known was never here, unless it ``is_repeat``: then its producer may
        have been evicted. One that was heard of within `PRODUCER_MS` is evicted only for as many later ones as
        there may be, and those are all still known.
        """
        if header.producer_id in self._known:
            return
        if header.base_sequence != 0 or (is_repeat and len(self._known) >= PRODUCERS_MAX):
            raise ProducerUnknown(
                f"producer {header.producer_id} is not known, or not any more; its batch begins with sequence "
                f"{header.base_sequence}"
            )

    def add(self, header: Header, base_offset: int, *, appended_at_ms: int, now_ms: int) -> None:
        """Take note of a batch that has been appended."""
        producer, epoch = header.producer_id, header.producer_epoch
        known = self._known.pop(producer, None)
        if known is None or known.epoch != epoch:
            known = ProducerState(epoch, now_ms)
        # Popped and put back, it is the last of all.
        self._known[producer] = known
        known.last_at_ms = max(known.last_at_ms, now_ms)
        next_offset = base_offset + header.last_offset_delta + 1
        known.sent.append(
            Sent(header.base_sequence, last_sequence(header), base_offset, next_offset, appended_at_ms),
        )
        if len(self._known) > PRODUCERS_MAX:
            del self._known[next(iter(self._known))]

    def forget_silent(self, now_ms: int) -> None:
        """Forget those who were not heard of for long."""
        while self._known:
            producer, known = next(iter(self._known.items()))
            if known.last_at_ms > now_ms - PRODUCER_MS:
                return
            del self._known[producer]

    def to_bytes(self, offset: int) -> bytes:
        """Return a snapshot of what follows from everything below ``offset``."""
        rows = [
            (producer, known.epoch, known.last_at_ms, list(map(tuple, known.sent)))
            for producer, known in self._known.items()
        ]
        body = msgspec.msgpack.encode((_FORMAT, offset, rows))
        return crc32c(body).to_bytes(4, "big") + body

    @classmethod
    def from_bytes(cls, data: bytes) -> "tuple[int, Producers]":
        """Return the offset of a snapshot, and what was known there."""
        body = data[4:]
        if len(data) < 5 or crc32c(body) != int.from_bytes(data[:4], "big"):
            raise SnapshotDamaged("the CRC-32C does not match")
        form, offset, rows = msgspec.msgpack.decode(body)
        if form != _FORMAT:
            raise SnapshotDamaged(f"a snapshot of format {form}")
        producers = cls()
        for producer, epoch, last_at_ms, sent in rows:
            known = producers._known[producer] = ProducerState(epoch, last_at_ms)
            known.sent.extend(Sent(*each) for each in sent)
        return offset, producers


def last_sequence(header: Header) -> int:
    return (header.base_sequence + header.last_offset_delta) % SEQUENCES


async def recall(runtime: Runtime, folder: str, log: DiskLog) -> tuple[Producers, int]:
    """Return what is known of the producers of a log, and the offset of the snapshot it was made from, or -1."""
    data = await off_loop(runtime.workers, lambda: _load(runtime.disk, folder))
    remembered = -1
    producers = Producers()
    if data is not None:
        try:
            remembered, producers = Producers.from_bytes(data)
        except SnapshotDamaged:
            pass
        if not log.start_offset <= remembered <= log.end_offset:
            # From before the records that are left, or ahead of what a sync policy has lost.
            remembered, producers = -1, Producers() if remembered > log.end_offset else producers
    now_ms = runtime.clock.now_ms()
    await _follow(producers, log, max(remembered, log.start_offset), now_ms)
    producers.forget_silent(now_ms)
    return producers, remembered


async def _follow(producers: Producers, log: DiskLog, offset: int, now_ms: int) -> None:
    """Learn from every batch from an offset on.

    When it came is not known: its time may be its producer's, and long past. So all of them were heard of just now.
    """
    while offset < log.end_offset:
        for batch in await log.read(offset, bytes_max=_READ_BYTES):
            header = read_header(batch)
            offset = header.next_offset
            if header.producer_id >= 0 and not header.is_hole:
                appended_at_ms = header.max_timestamp_ms if header.attributes & APPEND_TIME_ATTRIBUTE else -1
                producers.add(header, header.base_offset, appended_at_ms=appended_at_ms, now_ms=now_ms)
        await asyncio.sleep(0)


async def remember(runtime: Runtime, folder: str, snapshot: bytes) -> bool:
    """Replace the snapshot, and say whether there was room for it."""

    def work() -> bool:
        try:
            _save(runtime.disk, folder, snapshot)
        except OSError as error:
            if error.errno not in NO_SPACE:
                runtime.halt(f"{folder}/{NAME}: {error}")
            return False
        return True

    return await off_loop(runtime.workers, work)


def _load(disk: Disk, folder: str) -> bytes | None:
    if not disk.exists(f"{folder}/{NAME}"):
        return None
    file = disk.open(f"{folder}/{NAME}")
    try:
        return file.read(0, file.size())
    finally:
        file.close()


def _save(disk: Disk, folder: str, snapshot: bytes) -> None:
    file = disk.open(f"{folder}/{NAME}.new")
    try:
        file.truncate(0)
        file.write(snapshot, 0)
        file.sync()
    finally:
        file.close()
    disk.rename(f"{folder}/{NAME}.new", f"{folder}/{NAME}")
    disk.sync_folder(folder)
