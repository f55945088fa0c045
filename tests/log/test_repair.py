"""A damaged log is surveyed without a change, and mended by the way its owner chooses."""

import itertools

import pytest

from penstock.log import manifest as manifests
from penstock.log.disk_log import DiskLog
from penstock.log.record import UnknownVersion
from penstock.log.recovery import LogCorrupted
from penstock.log.repair import DAMAGED, Way, repair
from penstock.log.segment import base_offsets, segment_name
from penstock.log.survey import NothingToRead, survey
from tests.log.small import FIRST, FOLDER, ROLLING, append, contents, encode, on, written
from tests.log.test_rewriting import write_hole
from tests.simulation.disk import SimDisk
from tests.simulation.world import Machine

COMMIT_BYTES = len(encode(b"0")) + 61


def numbers(count: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(count)]


def files(disk: SimDisk) -> dict[str, bytes]:
    return {name: disk.read_bytes(f"{FOLDER}/{name}") for name in disk.names(FOLDER)}


def mended(machine: Machine, way: Way) -> list[bytes | None]:
    """Repair, then open: what is in the log now."""
    repair(machine.disk, survey(machine.disk, FOLDER), way)
    found = contents(machine, ROLLING)
    assert survey(machine.disk, FOLDER).is_sound
    return found


def test_a_sound_log_is_sound_and_repairing_it_changes_nothing() -> None:
    for end in ("kill", "close"):
        machine = written(12, end=end, settings=ROLLING)
        before = files(machine.disk)
        found = survey(machine.disk, FOLDER)
        assert found.is_sound
        assert found.damages == []
        repair(machine.disk, found, "cut")
        assert files(machine.disk) == before


def test_a_survey_names_file_position_and_the_offsets_that_are_lost() -> None:
    machine = written(5)
    machine.disk.flip_bit(FIRST, (2 * COMMIT_BYTES + 65) * 8)
    before = files(machine.disk)
    (damage,) = survey(machine.disk, FOLDER).damages
    assert (damage.file, damage.position) == (FIRST, 2 * COMMIT_BYTES)
    assert (damage.first_offset, damage.next_offset, damage.lost_offsets) == (2, 3, 1)
    assert "CRC" in damage.reason
    assert files(machine.disk) == before


def test_skipping_loses_only_what_is_damaged() -> None:
    machine = written(5)
    machine.disk.flip_bit(FIRST, (2 * COMMIT_BYTES + 65) * 8)
    assert mended(machine, "skip") == [b"0", b"1", None, b"3", b"4"]


def test_cutting_ends_the_log_before_the_damage() -> None:
    machine = written(5)
    machine.disk.flip_bit(FIRST, (2 * COMMIT_BYTES + 65) * 8)
    assert mended(machine, "cut") == [b"0", b"1"]


def test_what_was_replaced_is_kept_aside() -> None:
    machine = written(5)
    machine.disk.flip_bit(FIRST, (2 * COMMIT_BYTES + 65) * 8)
    before = machine.disk.read_bytes(FIRST)
    mended(machine, "skip")
    assert machine.disk.read_bytes(FIRST + DAMAGED) == before


def test_a_mended_log_goes_on_where_it_ended() -> None:
    machine = written(5)
    machine.disk.flip_bit(FIRST, 65 * 8)
    mended(machine, "skip")

    async def send(log: DiskLog) -> int:
        return await append(log, b"new")

    assert on(machine, send) == 5
    assert contents(machine) == [None, b"1", b"2", b"3", b"4", b"new"]


@pytest.mark.slow
def test_any_flipped_bit_can_be_mended_and_costs_one_record_at_most() -> None:
    whole = written(4, end="close")
    for bit, way in itertools.product(range(0, 4 * COMMIT_BYTES * 8, 3), ("skip", "cut")):
        machine = Machine(disk=whole.disk.copy())
        machine.disk.flip_bit(FIRST, bit)
        with pytest.raises((LogCorrupted, UnknownVersion)):
            contents(machine)
        found = mended(machine, way)  # type: ignore[arg-type]
        assert all(body in (None, expected) for body, expected in zip(found, numbers(4), strict=False)), bit
        kept = [body for body in found if body is not None]
        hit = bit // 8 // COMMIT_BYTES
        assert len(kept) >= (3 if way == "skip" else hit), (bit, way)


def test_a_missing_segment_becomes_a_hole() -> None:
    machine = written(12, settings=ROLLING)
    bases = base_offsets(machine.disk.names(FOLDER))
    machine.disk.remove(f"{FOLDER}/{segment_name(bases[1])}")
    found = mended(machine, "skip")
    assert found == [None if bases[1] <= number < bases[2] else body for number, body in enumerate(numbers(12))]


def test_a_missing_last_segment_becomes_an_empty_one() -> None:
    machine = written(12, settings=ROLLING)
    last = base_offsets(machine.disk.names(FOLDER))[-1]
    machine.disk.remove(f"{FOLDER}/{segment_name(last)}")
    assert mended(machine, "skip") == numbers(last)


def test_a_missing_segment_can_be_the_end_of_the_log() -> None:
    machine = written(12, settings=ROLLING)
    bases = base_offsets(machine.disk.names(FOLDER))
    machine.disk.remove(f"{FOLDER}/{segment_name(bases[1])}")
    assert mended(machine, "cut") == numbers(bases[1])


def test_a_lost_manifest_is_put_together_from_the_segments() -> None:
    machine = written(12, settings=ROLLING)
    machine.disk.remove(f"{FOLDER}/{manifests.NAME}")
    assert not survey(machine.disk, FOLDER).is_sound
    assert mended(machine, "skip") == numbers(12)


def test_a_segment_of_another_log_is_set_aside() -> None:
    machine, other = written(12, settings=ROLLING, seed=1), written(12, settings=ROLLING, seed=2)
    bases = base_offsets(machine.disk.names(FOLDER))
    name = f"{FOLDER}/{segment_name(bases[1])}"
    machine.disk.write_bytes(name, other.disk.read_bytes(name))
    found = mended(machine, "skip")
    assert found == [None if bases[1] <= number < bases[2] else body for number, body in enumerate(numbers(12))]


def test_a_torn_tail_needs_no_repair() -> None:
    machine = written(3)
    machine.disk.write_bytes(FIRST, machine.disk.read_bytes(FIRST) + b"torn")
    found = survey(machine.disk, FOLDER)
    assert found.is_sound
    assert [damage.is_torn for damage in found.damages] == [True]
    assert contents(machine) == numbers(3)


def test_a_log_closed_in_good_order_that_lost_its_end_gets_a_hole_there() -> None:
    machine = written(5, end="close")
    machine.disk.write_bytes(FIRST, machine.disk.read_bytes(FIRST)[: 3 * COMMIT_BYTES])
    assert mended(machine, "skip") == [*numbers(3), None, None]


def test_a_folder_without_a_log_is_said_to_be_one() -> None:
    with pytest.raises(NothingToRead, match="there is no log in nowhere"):
        survey(SimDisk(), "nowhere")


def test_a_repair_cut_short_at_any_step_can_be_begun_again() -> None:
    from tests.simulation.disk import PowerCut

    whole = written(12, settings=ROLLING)
    whole.disk.flip_bit(FIRST, 65 * 8)
    step = 0
    while True:
        machine = Machine(seed=step, disk=whole.disk.copy())
        machine.disk.crash_after = machine.disk.operations + step
        try:
            repair(machine.disk, survey(machine.disk, FOLDER), "skip")
            break
        except PowerCut:
            machine.power_cut()
        found = mended(machine, "skip")
        assert found[1:] == numbers(12)[1:], step
        step += 1
    assert step > 5


@pytest.mark.parametrize("left", [(1, 2), (1,), (2,)])
def test_segments_that_a_crash_left_in_the_middle_of_a_replacement_are_no_damage(left: tuple[int, ...]) -> None:
    machine = written(20, settings=ROLLING)
    bases = base_offsets(machine.disk.names(FOLDER))
    first, end = bases[1], bases[4]
    state = manifests.read(machine.disk, FOLDER)
    assert state is not None
    write_hole(machine, state.manifest.log_id, first, end)
    machine.disk.rename(f"{FOLDER}/new", f"{FOLDER}/{segment_name(first)}")
    for place in {1, 2} - set(left):
        machine.disk.remove(f"{FOLDER}/{segment_name(bases[1 + place])}")
    found = survey(machine.disk, FOLDER)
    assert found.is_sound
    assert not found.damages
    assert [segment.base_offset for segment in found.segments] == [bases[0], first, *bases[4:]]
    assert contents(machine, ROLLING) == [None if first <= at < end else b"%d" % at for at in range(20)]
