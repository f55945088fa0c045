"""A log that is quiet says of its last commit that it is durable, once."""

from dataclasses import replace

import pytest

from penstock.log.disk_log import DiskLog
from penstock.log.group_commit import QUIET_MS
from penstock.log.record import UnknownVersion, check
from penstock.log.recovery import LogCorrupted
from tests.log.small import FIRST, SETTINGS, append, bodies, contents, encode, on, written
from tests.simulation.disk import PAGE
from tests.simulation.world import Machine
from tests.waiting import elapse

MARKER_BYTES = 61
COMMIT_BYTES = len(encode(b"0")) + MARKER_BYTES
LONG_S = 10 * QUIET_MS / 1000


def confirmed(machine: Machine) -> int:
    """Return up to which byte the last marker of the log says that it is durable."""
    return check(machine.disk.read_bytes(FIRST)[-MARKER_BYTES:]).base_timestamp_ms


async def rest(log: DiskLog) -> None:
    await elapse(LONG_S)


async def rest_and_close(log: DiskLog) -> None:
    await rest(log)
    await log.close()


def test_a_log_that_is_quiet_says_that_its_last_commit_is_durable() -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        await append(log, b"0")
        assert confirmed(machine) == 0
        await rest(log)

    on(machine, send)
    assert confirmed(machine) == COMMIT_BYTES
    assert contents(machine) == [b"0"]


def test_a_quiet_log_is_written_to_once_and_its_manifest_once() -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        await append(log, b"0")
        before = machine.disk.operations
        await elapse(3_600)
        # A lone marker, which is not synced, and a floor, which is.
        assert machine.disk.operations == before + 1 + 2

    on(machine, send)


def test_commits_that_follow_each_other_are_confirmed_by_one_another() -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        for number in range(20):
            await append(log, str(number % 10).encode())
            await elapse(QUIET_MS * 0.9 / 1000)

    on(machine, send)
    assert len(machine.disk.read_bytes(FIRST)) == 20 * COMMIT_BYTES
    assert confirmed(machine) == 19 * COMMIT_BYTES


def test_a_log_goes_on_behind_a_lone_marker() -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        for number in range(3):
            await append(log, str(number).encode())
            await rest(log)
        assert await bodies(log) == [b"0", b"1", b"2"]
        await append(log, b"again")

    on(machine, send)
    assert contents(machine) == [b"0", b"1", b"2", b"again"]


@pytest.mark.parametrize("end", ["kill", "close"])
def test_what_the_last_process_did_not_confirm_the_next_one_does_once(end: str) -> None:
    machine = written(3, end=end)
    assert confirmed(machine) == 2 * COMMIT_BYTES
    for use in (rest, rest, rest_and_close, rest_and_close, rest):
        on(machine, use)
        assert confirmed(machine) == 3 * COMMIT_BYTES
        assert len(machine.disk.read_bytes(FIRST)) == 3 * COMMIT_BYTES + MARKER_BYTES
    assert contents(machine) == [b"0", b"1", b"2"]


def test_an_empty_log_has_nothing_to_confirm() -> None:
    machine = Machine()
    on(machine, rest)
    assert machine.disk.read_bytes(FIRST) == b""


def test_a_lone_marker_that_a_power_cut_takes_takes_nothing_else() -> None:
    machine = written(3)
    on(machine, rest)
    machine.power_cut(lambda path, page: False)
    assert machine.disk.read_bytes(FIRST)[-MARKER_BYTES:] == written(3).disk.read_bytes(FIRST)[-MARKER_BYTES:]
    assert contents(machine) == [b"0", b"1", b"2"]


def test_a_bit_flipped_in_the_last_commit_of_a_quiet_log_is_damage_and_no_torn_tail() -> None:
    whole = written(3)
    on(whole, rest)
    for bit in range(2 * COMMIT_BYTES * 8, 3 * COMMIT_BYTES * 8):
        machine = Machine(disk=whole.disk.copy())
        machine.disk.flip_bit(FIRST, bit)
        with pytest.raises((LogCorrupted, UnknownVersion), match=FIRST):
            contents(machine)


def test_a_reservation_that_is_held_puts_the_lone_marker_off() -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        await append(log, b"0")
        with log.reserve(1_000):
            await rest(log)
            assert len(machine.disk.read_bytes(FIRST)) == COMMIT_BYTES
        await rest(log)

    on(machine, send)
    assert confirmed(machine) == COMMIT_BYTES


def test_a_disk_without_room_leaves_the_last_commit_unconfirmed_and_the_log_in_use() -> None:
    size = 2 * PAGE - len(encode(bytes(PAGE))) - MARKER_BYTES
    machine = Machine()

    async def fill(log: DiskLog) -> None:
        await append(log, b"x" * size)
        await log.close()

    on(machine, fill)
    assert len(machine.disk.read_bytes(FIRST)) == PAGE
    machine.disk.capacity_bytes = machine.disk.used_bytes()
    on(machine, rest)
    assert confirmed(machine) == 0
    machine.disk.capacity_bytes = None
    assert contents(machine) == [b"x" * size]


def test_a_policy_that_does_not_sync_confirms_nothing() -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        await append(log, b"0")
        await rest(log)

    on(machine, send, replace(SETTINGS, sync="os"))
    assert confirmed(machine) == 0


@pytest.mark.parametrize("sync_interval_ms", [QUIET_MS // 10, QUIET_MS * 3])
def test_a_policy_that_syncs_later_confirms_what_it_has_synced(sync_interval_ms: int) -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        await append(log, b"0")
        await rest(log)

    on(machine, send, replace(SETTINGS, sync="interval", sync_interval_ms=sync_interval_ms))
    assert confirmed(machine) == COMMIT_BYTES


def test_a_log_that_was_closed_writes_no_more() -> None:
    machine = Machine()

    async def send(log: DiskLog) -> None:
        await append(log, b"0")
        await log.close()
        before = machine.disk.operations
        await rest(log)
        assert machine.disk.operations == before

    on(machine, send)
    assert contents(machine) == [b"0"]
