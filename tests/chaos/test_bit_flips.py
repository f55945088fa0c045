"""Single bits that flip on the disk: each is refused or harmless, and never believed.

A log is written by a process, then copied for each trial. In the copy one bit is
flipped, and then the log is opened and read, in order and from places all over
it. Everything that comes out must be what went in, to the last byte.
"""

import random
import shutil
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import pytest

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.manifest import UnknownFormat
from penstock.log.record import CRC_FROM, UnknownVersion, decode_marker
from penstock.log.recovery import LogCorrupted
from penstock.log.segment import BadAt, walk
from penstock.runtime.disk import SystemDisk
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness, visit

pytestmark = pytest.mark.real_time

FLIPS = 300
EPOCH_AT = 12
REFUSALS = (LogCorrupted, UnknownVersion, UnknownFormat)
Outcome = Literal["refused at open", "refused on read", "harmless"]


@dataclass
class Truth:
    """A log as it was before any bit flipped."""

    folder: Path
    active_name: str
    # Up to here a later commit vouches for the active segment.
    active_bytes: int
    # Position and base offset of the batches and markers of each segment.
    heads: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    # All batches, by the offset they begin with.
    batches: dict[int, bytes] = field(default_factory=dict)

    def has(self, offset: int, batch: bytes) -> bool:
        """Whether this very batch was written at this offset."""
        return self.batches.get(offset) == batch


@dataclass(frozen=True)
class Flip:
    name: str
    position: int
    bit: int

    def apply(self, folder: Path) -> None:
        data = bytearray((folder / self.name).read_bytes())
        data[self.position] ^= 1 << self.bit
        (folder / self.name).write_bytes(data)


@pytest.mark.parametrize("stop", ["closed", "killed"])
async def test_a_flipped_bit_is_refused_or_harmless_and_never_believed(tmp_path: Path, seed: int, stop: str) -> None:
    dice = random.Random(f"flips/{stop}/{seed}")
    truth = await written(tmp_path, stop)
    outcomes = Counter[tuple[str, Outcome]]()
    for _ in range(FLIPS):
        flip = chosen(truth, dice)
        shutil.copytree(truth.folder, tmp_path / "trial")
        flip.apply(tmp_path / "trial")
        outcome = await outcome_of(tmp_path / "trial", truth, dice, flip)
        outcomes[kind(flip, truth), outcome] += 1
        shutil.rmtree(tmp_path / "trial")
    assert set(outcomes) <= {
        ("active segment", "refused at open"),
        ("closed segment", "refused at open"),
        ("closed segment", "refused on read"),
        # A marker there is not needed any more.
        ("closed segment", "harmless"),
        ("index", "harmless"),
        ("manifest", "refused at open"),
        # A flip in the older slot, or in the unused part of one.
        ("manifest", "harmless"),
    }, outcomes
    assert outcomes["closed segment", "refused on read"] > 0


async def test_a_flipped_epoch_in_a_closed_segment_is_refused(tmp_path: Path) -> None:
    truth = await written(tmp_path, "closed")
    Flip(min(truth.heads), EPOCH_AT, 0).apply(truth.folder)
    found: dict[int, bytes] = {}
    with pytest.raises(LogCorrupted):
        await visit(truth.folder, lambda log: read_all(log, found))


async def written(tmp_path: Path, stop: str) -> Truth:
    """Write a log of several segments, one run closed, the next one closed or killed."""
    folder, witness = tmp_path / "log", Witness()
    with Writer(folder, witness, "--batches", "40") as writer:
        assert writer.finish() == 0, writer.errors
    with Writer(folder, witness) if stop == "killed" else Writer(folder, witness, "--batches", "40") as writer:
        writer.listen(until_acknowledged=300)
        if stop == "killed":
            writer.kill()
        else:
            assert writer.finish() == 0, writer.errors
    truth = surveyed(folder, is_clean=stop == "closed")
    shutil.copytree(folder, tmp_path / "whole")
    await visit(tmp_path / "whole", lambda log: read_all(log, truth.batches))
    assert list(truth.batches) == sorted(truth.batches)
    assert len(truth.heads) > 4
    return truth


def surveyed(folder: Path, *, is_clean: bool) -> Truth:
    """Find the heads of all segments, and how far the last one is vouched for."""
    heads: dict[str, list[tuple[int, int]]] = {}
    vouched = 0
    for path in sorted(folder.glob("*.log")):
        heads[path.name] = []
        file = SystemDisk(folder).open(path.name)
        try:
            for position, header, _ in walk(file, 0, file.size()):
                heads[path.name].append((position, header.base_offset))
                if header.is_marker:
                    vouched = decode_marker(header).durable_bytes
        except BadAt:
            assert not is_clean
        finally:
            file.close()
    active = max(heads)
    return Truth(folder, active, (folder / active).stat().st_size if is_clean else vouched, heads)


def chosen(truth: Truth, dice: random.Random) -> Flip:
    """Choose any bit of a segment half of the time; else one of a head, the manifest or an index."""
    place = dice.choice(["segment", "segment", "head", "file"])
    others = [path.name for path in truth.folder.iterdir() if path.suffix in {".index", ".timeindex", ""}]
    name = dice.choice(sorted(others)) if place == "file" else dice.choice(sorted(truth.heads))
    size = truth.active_bytes if name == truth.active_name else (truth.folder / name).stat().st_size
    if name == truth.active_name and not size:
        return chosen(truth, dice)
    position = dice.randrange(size)
    if place == "head":
        # The last byte of an offset is the one that can lead to a neighbour.
        part = dice.choice([7, dice.randrange(CRC_FROM)])
        position = dice.choice([at for at, _ in truth.heads[name] if at < size]) + part
    elif name == "manifest" and dice.random() < 0.5:
        # Most of a slot is unused.
        position = dice.choice([0, size // 2]) + dice.randrange(200)
    return Flip(name, position, dice.randrange(8))


def kind(flip: Flip, truth: Truth) -> str:
    if flip.name == truth.active_name:
        return "active segment"
    if flip.name in truth.heads:
        return "closed segment"
    return "manifest" if flip.name == "manifest" else "index"


async def outcome_of(folder: Path, truth: Truth, dice: random.Random, flip: Flip) -> Outcome:
    """Open and read a log with a flipped bit; raises if anything but the truth comes out."""
    refused = False

    async def look(log: DiskLog) -> None:
        nonlocal refused
        found: dict[int, bytes] = {}
        try:
            await read_all(log, found)
        except REFUSALS:
            refused = True
        else:
            assert found.keys() == truth.batches.keys(), f"{flip}: records are missing"
        believed = [offset for offset, batch in found.items() if not truth.has(offset, batch)]
        assert not believed, f"{flip}: batches at {believed} are not what was written"
        for offset in doubtful_offsets(log, truth, dice, flip):
            refused |= await is_refused_at(log, offset, truth, flip)

    try:
        await visit(folder, look)
    except REFUSALS:
        return "refused at open"
    return "refused on read" if refused else "harmless"


def doubtful_offsets(log: DiskLog, truth: Truth, dice: random.Random, flip: Flip) -> list[int]:
    """Return the offsets around the flipped bit, and some from all over the log."""
    heads = [offset for at, offset in truth.heads.get(flip.name, []) if at <= flip.position]
    around = range(heads[-1] - 4, heads[-1] + 8) if heads else range(0)
    anywhere = [dice.randrange(log.start_offset, log.end_offset) for _ in range(10)]
    return [offset for offset in [*around, *anywhere] if log.start_offset <= offset < log.end_offset]


async def is_refused_at(log: DiskLog, offset: int, truth: Truth, flip: Flip) -> bool:
    """Read from the middle of a log; what comes must be true and begin with the batch that holds the offset."""
    try:
        batches = await log.read(offset, bytes_max=1)
    except REFUSALS:
        return True
    first = record.header(batches[0])
    assert first.base_offset <= offset < first.next_offset, f"{flip}: asked for {offset}"
    assert truth.has(first.base_offset, bytes(batches[0])), f"{flip}: a false batch at {offset}"
    return False


async def read_all(log: DiskLog, found: dict[int, bytes]) -> None:
    """Read a log in order into ``found``, by the offset each batch begins with."""
    offset = log.start_offset
    while offset < log.durable_offset:
        for batch in await log.read(offset, bytes_max=4_096):
            header = record.header(batch)
            found[header.base_offset] = bytes(batch)
            offset = header.next_offset
