"""A write or a sync that fails is followed by no acknowledgement and by the end of the process."""

import asyncio
from dataclasses import replace

import pytest

from penstock.log.disk_log import DiskLog
from penstock.log.recovery import LogCorrupted
from penstock.log.settings import SyncPolicy
from tests.log.small import FIRST, ROLLING, SETTINGS, append, contents, on, written
from tests.simulation.world import Died, Machine


def acknowledged_before_failure(machine: Machine, *, sync: SyncPolicy = "batch") -> list[bytes]:
    """Append until the disk fails, and go on trying; return what was acknowledged."""
    acknowledged: list[bytes] = []

    async def insist(log: DiskLog) -> None:
        async with asyncio.TaskGroup() as tasks:
            for start in range(0, 40, 10):
                tasks.create_task(append_ten(log, start))

    async def append_ten(log: DiskLog, start: int) -> None:
        for number in range(start, start + 10):
            body = str(number).encode()
            await append(log, body)
            acknowledged.append(body)

    with pytest.raises(Died):
        on(machine, insist, replace(ROLLING, sync=sync))
    return acknowledged


@pytest.mark.parametrize("syncs", range(0, 24, 3))
def test_a_failed_sync_ends_the_process_and_acknowledges_nothing(syncs: int) -> None:
    machine = written(2, settings=ROLLING)
    machine.disk.fail_sync_after = syncs
    acknowledged = acknowledged_before_failure(machine)
    # The pages of the failed sync are gone for good, though the kernel would now call the file clean.
    machine.power_cut(lambda path, page: False)
    found = contents(machine, ROLLING)
    assert found[:2] == [b"0", b"1"]
    assert set(acknowledged) <= set(found[2:])


@pytest.mark.parametrize("writes", range(0, 16, 3))
def test_a_failed_write_ends_the_process_and_acknowledges_nothing(writes: int) -> None:
    machine = written(2, settings=ROLLING)
    machine.disk.fail_write_after = writes
    acknowledged = acknowledged_before_failure(machine)
    machine.kill()
    assert set(acknowledged) <= set(contents(machine, ROLLING)[2:])


@pytest.mark.parametrize("syncs", range(0, 24, 3))
def test_a_restart_after_a_failed_sync_does_not_trust_the_kernels_memory(syncs: int) -> None:
    """A supervisor starts us again on the same machine: memory still shows what the failed sync has lost."""
    machine = written(2, settings=ROLLING)
    machine.disk.fail_sync_after = syncs
    acknowledged = acknowledged_before_failure(machine)
    machine.kill()

    async def send(log: DiskLog) -> None:
        await append(log, b"after")

    on(machine, send, ROLLING)
    machine.power_cut(lambda path, page: False)
    found = contents(machine, ROLLING)
    assert found[-1] == b"after"
    assert set(acknowledged) <= set(found[2:-1])


def test_a_failed_sync_is_noted_with_its_reason() -> None:
    machine = written(1)

    async def fail(log: DiskLog) -> None:
        machine.disk.fail_sync_after = 0
        await append(log, b"x")

    with pytest.raises(Died):
        on(machine, fail)
    event, fields = machine.log_events.events[-1]
    assert event.name == "log.failed"
    assert "Input/output error" in str(fields["error"])


def test_a_failed_sync_is_not_tried_again() -> None:
    machine = written(1)

    async def fail(log: DiskLog) -> None:
        machine.disk.fail_sync_after = 0
        async with asyncio.TaskGroup() as tasks:
            for number in range(5):
                tasks.create_task(append(log, str(number).encode()))

    with pytest.raises(Died):
        on(machine, fail)
    # Everything in the failed commit is lost, and nothing came after it.
    machine.power_cut(lambda path, page: False)
    assert contents(machine) == [b"0"]


def test_a_failed_sync_on_the_way_out_leaves_no_clean_mark() -> None:
    machine = written(1)

    async def close(log: DiskLog) -> None:
        machine.disk.fail_sync_after = 0
        await log.close()

    async def was_clean(log: DiskLog) -> bool:
        return log.was_clean

    with pytest.raises(Died):
        on(machine, close)
    machine.kill()
    assert not on(machine, was_clean)


def test_a_segment_that_shrank_under_a_reader_is_an_error_that_names_it() -> None:
    machine = written(3)

    async def read(log: DiskLog) -> None:
        machine.disk.open(FIRST).truncate(10)
        with pytest.raises(LogCorrupted, match=f"{FIRST} is damaged"):
            await log.read(0, bytes_max=1)

    on(machine, read, SETTINGS)
