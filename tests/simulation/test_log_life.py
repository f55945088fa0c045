"""The log on a machine that crashes: at every step of a short life, and in long random ones."""

import asyncio

import pytest

from penstock.log.disk_log import DiskLog
from penstock.log.group_commit import QUIET_MS
from tests.log.small import ROLLING, append, bodies, on
from tests.simulation import log_crashes, log_life
from tests.simulation.world import Died, Machine
from tests.waiting import elapse


async def short_life(log: DiskLog, acknowledged: list[bytes]) -> None:
    """Everything a log does, once: append together, roll, rest, close."""

    async def send(body: bytes) -> None:
        await append(log, body)
        acknowledged.append(body)

    async with asyncio.TaskGroup() as tasks:
        for number in range(4):
            tasks.create_task(send(b"together %d" % number))
    for number in range(4):
        await send(b"alone %d" % number)
    await elapse(3 * QUIET_MS / 1000)
    for number in range(3):
        await send(b"later %d" % number)
    await log.close()


def operations_of_a_short_life() -> int:
    machine = Machine()
    on(machine, lambda log: short_life(log, []), ROLLING)
    return machine.disk.operations


@pytest.mark.parametrize("seed", range(4))
def test_power_lost_at_any_step_loses_nothing_acknowledged(seed: int) -> None:
    steps = operations_of_a_short_life()
    assert steps > 50
    for step in range(steps):
        for way in ("kill", "power cut"):
            machine = Machine(seed * 1_000 + step)
            machine.disk.crash_after = step
            acknowledged: list[bytes] = []
            try:
                on(machine, lambda log, seen=acknowledged: short_life(log, seen), ROLLING)  # type: ignore[misc]
            except Died:
                pass
            machine.kill() if way == "kill" else machine.power_cut()
            found = on(machine, bodies, ROLLING)
            assert set(acknowledged) <= set(found), (step, way)
            assert len(found) == len(set(found)), (step, way)


# Every step is one of `make chaos`.
@pytest.mark.parametrize("part", range(2))
def test_a_second_crash_at_some_step_of_recovery_loses_nothing_either(part: int) -> None:
    for step in range(part, log_crashes.steps(), 7):
        log_crashes.run(step)


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_random_lives_of_a_log_lose_nothing_and_make_nothing_up(first: int) -> None:
    for seed in range(first, first + 50):
        log_life.run(seed)
