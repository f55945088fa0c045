"""What is true after a crash: torn tails, damage, missing and foreign files."""

import itertools
from dataclasses import replace

import pytest

from penstock.log import manifest as manifests
from penstock.log.disk_log import DiskLog
from penstock.log.manifest import UnknownFormat
from penstock.log.record import CRC_FROM, UnknownVersion, header
from penstock.log.recovery import LogCorrupted
from penstock.log.segment import base_offsets, segment_name
from tests.log.small import FIRST, FOLDER, ROLLING, SETTINGS, append, bodies, contents, encode, on, written
from tests.simulation.disk import PAGE
from tests.simulation.world import Machine

# One commit in these tests: a batch of one record of one byte, and its marker.
COMMIT_BYTES = len(encode(b"0")) + 61


def numbers(count: int) -> list[bytes | None]:
    return [str(number).encode() for number in range(count)]


def test_what_was_acknowledged_is_there_after_kill_9() -> None:
    assert contents(written(10)) == numbers(10)


def test_what_was_acknowledged_is_there_after_a_power_cut() -> None:
    machine = written(10)
    machine.power_cut(lambda path, page: False)
    assert contents(machine) == numbers(10)


def test_a_tail_torn_at_any_byte_is_cut_and_everything_before_it_stays() -> None:
    whole = written(4)
    data = whole.disk.read_bytes(FIRST)
    for size in range(3 * COMMIT_BYTES, len(data)):
        machine = Machine(disk=whole.disk.copy())
        machine.disk.write_bytes(FIRST, data[:size])
        found = contents(machine)
        # The record itself may be whole though its marker is torn: then it may stay.
        assert found in (numbers(3), numbers(4)), size
        assert (found == numbers(4)) == (size >= len(data) - 61), size
        assert contents(machine) == found


def test_a_tail_garbled_from_any_byte_on_is_cut_and_everything_before_it_stays() -> None:
    whole = written(4)
    data = whole.disk.read_bytes(FIRST)
    for size, garbage in itertools.product(range(3 * COMMIT_BYTES, len(data)), (b"\0", b"\xff", b"\x5a\x00\x00\x31")):
        machine = Machine(disk=whole.disk.copy())
        tail = (garbage * len(data))[: len(data) - size]
        if tail == data[size:]:
            continue
        machine.disk.write_bytes(FIRST, data[:size] + tail)
        assert contents(machine)[:3] == numbers(3), size


def test_garbage_behind_the_last_commit_is_cut_and_reported() -> None:
    machine = written(3)
    machine.disk.write_bytes(FIRST, machine.disk.read_bytes(FIRST) + bytes(100))
    assert contents(machine) == numbers(3)
    assert machine.log_events.names().count("log.tail_cut") == 1
    assert machine.disk.read_bytes(FIRST) == written(3).disk.read_bytes(FIRST)


@pytest.mark.slow
def test_any_subset_of_the_pages_of_an_unsynced_commit_may_be_lost() -> None:
    before = written(2)
    big = bytes(range(256)) * 90  # Six pages and a bit.
    machine = Machine(disk=before.disk.copy())

    async def send(log: DiskLog) -> None:
        await append(log, big)

    on(machine, send, replace(SETTINGS, sync="os"))
    pages = range(len(big) // PAGE + 2)
    for lost in itertools.chain.from_iterable(itertools.combinations(pages, count) for count in range(len(pages) + 1)):
        after = Machine(disk=machine.disk.copy())
        after.power_cut(lambda path, page, lost=lost: page not in lost)  # type: ignore[misc]
        found = contents(after)
        assert found[:2] == numbers(2)
        assert found[2:] in ([], [big])


def test_a_bit_flipped_anywhere_before_the_last_commit_is_refused_with_file_and_position() -> None:
    whole = written(3)
    for bit in range(2 * COMMIT_BYTES * 8):
        machine = Machine(disk=whole.disk.copy())
        machine.disk.flip_bit(FIRST, bit)
        before = machine.disk.read_bytes(FIRST)
        with pytest.raises((LogCorrupted, UnknownVersion), match=FIRST) as caught:
            contents(machine)
        if isinstance(caught.value, LogCorrupted):
            assert caught.value.file == FIRST
            assert caught.value.position <= bit // 8 < caught.value.position + COMMIT_BYTES
            assert "penstock repair small" in str(caught.value)
        assert machine.disk.read_bytes(FIRST) == before, "a refusal changes nothing"


def test_after_a_clean_stop_a_bit_flipped_anywhere_is_refused() -> None:
    whole = written(3, end="close")
    for bit in range(3 * COMMIT_BYTES * 8):
        machine = Machine(disk=whole.disk.copy())
        machine.disk.flip_bit(FIRST, bit)
        with pytest.raises((LogCorrupted, UnknownVersion)):
            contents(machine)


def test_after_a_clean_stop_a_shorter_file_is_refused() -> None:
    whole = written(3, end="close")
    data = whole.disk.read_bytes(FIRST)
    for size in range(len(data) - 61):
        machine = Machine(disk=whole.disk.copy())
        machine.disk.write_bytes(FIRST, data[:size])
        with pytest.raises(LogCorrupted):
            contents(machine)


def test_a_message_body_that_looks_like_a_commit_marker_is_a_message() -> None:
    """The id in a marker is random, so no body can hold a marker of this very log."""
    forged = written(2, seed=1).disk.read_bytes(FIRST)[-61:]
    machine = written(2, seed=2)

    async def send(log: DiskLog) -> None:
        await append(log, forged * 3)

    on(machine, send)
    data = bytearray(machine.disk.read_bytes(FIRST))
    # The first byte of the record in the last commit: torn, while the forged markers behind it are whole.
    data[2 * COMMIT_BYTES + 61] ^= 0xFF
    machine.disk.write_bytes(FIRST, bytes(data))
    assert contents(machine) == numbers(2)


def test_an_unknown_record_version_refuses_to_start() -> None:
    machine = written(3)
    data = bytearray(machine.disk.read_bytes(FIRST))
    data[2 * COMMIT_BYTES + 16] = 3
    machine.disk.write_bytes(FIRST, bytes(data))
    assert header(data, 2 * COMMIT_BYTES).version == 3
    with pytest.raises(UnknownVersion, match="version 3"):
        contents(machine)
    assert machine.disk.read_bytes(FIRST) == bytes(data)


def test_a_log_of_another_format_refuses_to_start() -> None:
    machine = written(1)
    name = f"{FOLDER}/{manifests.NAME}"
    slot = manifests._encode(manifests.Manifest(log_id=1)).replace(b'"format":1', b'"format":9')
    text = slot[8:]
    from crc32c import crc32c

    slot = crc32c(text).to_bytes(4, "big") + slot[4:8] + text
    machine.disk.write_bytes(name, slot.ljust(manifests.SLOT_BYTES, b"\0") * 2)
    with pytest.raises(UnknownFormat, match="format 9"):
        contents(machine)


def test_a_missing_segment_is_damage_and_not_an_empty_log() -> None:
    whole = written(12, settings=ROLLING)
    bases = base_offsets(whole.disk.names(FOLDER))
    assert len(bases) >= 3
    for base in bases:
        machine = Machine(disk=whole.disk.copy())
        machine.disk.remove(f"{FOLDER}/{segment_name(base)}")
        with pytest.raises(LogCorrupted):
            contents(machine, ROLLING)


def test_an_emptied_closed_segment_is_damage() -> None:
    whole = written(12, settings=ROLLING)
    for base in base_offsets(whole.disk.names(FOLDER))[:-1]:
        machine = Machine(disk=whole.disk.copy())
        machine.disk.write_bytes(f"{FOLDER}/{segment_name(base)}", b"")
        with pytest.raises(LogCorrupted):
            contents(machine, ROLLING)


def test_swapped_segments_are_damage() -> None:
    whole = written(12, settings=ROLLING)
    first, second = [f"{FOLDER}/{segment_name(base)}" for base in base_offsets(whole.disk.names(FOLDER))[:2]]
    one, two = whole.disk.read_bytes(first), whole.disk.read_bytes(second)
    whole.disk.write_bytes(first, two)
    whole.disk.write_bytes(second, one)
    with pytest.raises(LogCorrupted):
        contents(whole, ROLLING)


def test_a_segment_of_another_log_is_recognised() -> None:
    machine, other = written(3, seed=1), written(3, seed=2)
    machine.disk.write_bytes(FIRST, other.disk.read_bytes(FIRST))
    with pytest.raises(LogCorrupted, match="another log"):
        contents(machine)


def test_a_lost_manifest_with_segments_beside_it_is_damage() -> None:
    machine = written(3)
    machine.disk.remove(f"{FOLDER}/{manifests.NAME}")
    with pytest.raises(LogCorrupted, match="manifest"):
        contents(machine)


def test_one_damaged_slot_of_the_manifest_loses_nothing_or_is_refused() -> None:
    whole = written(12, settings=ROLLING)
    name = f"{FOLDER}/{manifests.NAME}"
    refused = 0
    for slot in range(2):
        machine = Machine(disk=whole.disk.copy())
        machine.disk.flip_bit(name, (slot * manifests.SLOT_BYTES + 20) * 8)
        try:
            assert contents(machine, ROLLING) == numbers(12)
        except LogCorrupted:
            refused += 1
    # The older slot may go unnoticed; the newer one knows of segments that the older does not.
    assert refused == 1


def test_indexes_that_are_missing_or_wrong_are_made_again() -> None:
    whole = written(12, settings=ROLLING)
    names = [name for name in whole.disk.names(FOLDER) if name.endswith("index")]
    assert names
    for name, harm in itertools.product(names, ("remove", "empty", "zeros", "garbage")):
        machine = Machine(disk=whole.disk.copy())
        path = f"{FOLDER}/{name}"
        size = len(machine.disk.read_bytes(path))
        if harm == "remove":
            machine.disk.remove(path)
        else:
            machine.disk.write_bytes(path, {"empty": b"", "zeros": bytes(size), "garbage": b"\xa5" * size}[harm])

        async def read_each(log: DiskLog) -> list[bytes | None]:
            return [(await bodies(log, start))[0] for start in range(12)]

        assert on(machine, read_each, ROLLING) == numbers(12), (name, harm)


def test_a_segment_that_a_crash_left_unannounced_is_removed() -> None:
    machine = written(3)
    machine.disk.write_bytes(f"{FOLDER}/{segment_name(3)}", b"")
    assert contents(machine) == numbers(3)
    assert base_offsets(machine.disk.names(FOLDER)) == [0]


def test_a_damaged_closed_segment_is_refused_when_it_is_read() -> None:
    machine = written(12, settings=ROLLING)
    machine.disk.flip_bit(FIRST, (CRC_FROM + 20) * 8)
    with pytest.raises(LogCorrupted, match=FIRST):
        contents(machine, ROLLING)


def test_settings_are_no_part_of_the_log() -> None:
    machine = written(12, settings=ROLLING)
    assert contents(machine, SETTINGS) == numbers(12)
    assert contents(machine, ROLLING) == numbers(12)
