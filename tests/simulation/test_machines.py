"""Simulated machines: nothing of a dead process goes on, and the next one finds its disk."""

import asyncio

import pytest

from penstock.runtime.interface import Runtime
from penstock.telemetry import LOG_OPENED
from tests.simulation.clock import SimDice
from tests.simulation.disk import SimDisk
from tests.simulation.loop import Unhandled, simulate
from tests.simulation.workers import SimWorkers
from tests.simulation.world import Died, Halted, Machine, PowerCut, sim_runtime
from tests.waiting import elapse


async def _append(runtime: Runtime, data: bytes) -> int:
    """Write and wait for the sync, as a log does."""
    file = runtime.disk.open("file")
    synced = asyncio.Event()
    file.write(data, file.size())
    runtime.workers.submit(file.sync, synced.set)
    await synced.wait()
    size = file.size()
    file.close()
    return size


@pytest.mark.parametrize("seed", range(5))
async def test_work_runs_in_the_order_it_was_submitted_and_takes_time(seed: int) -> None:
    workers, seen, loop = SimWorkers(SimDice(seed)), list[str](), asyncio.get_running_loop()
    for number in range(10):
        workers.submit(lambda i=number: seen.append(f"work {i}"), lambda i=number: seen.append(f"done {i}"))  # type: ignore[misc]
    assert not seen
    await elapse(1)
    for kind in ("work", "done"):
        assert [line for line in seen if line.startswith(kind)] == [f"{kind} {number}" for number in range(10)]
    assert all(seen.index(f"work {number}") < seen.index(f"done {number}") for number in range(10))
    assert loop.time() == 1


@pytest.mark.parametrize("error", [PowerCut("now"), Halted("now")])
async def test_workers_whose_job_ends_the_machine_run_nothing_more(error: BaseException) -> None:
    deaths: list[BaseException] = []
    workers, seen = SimWorkers(on_dead=deaths.append), list[str]()

    def die() -> None:
        raise error

    workers.submit(die, lambda: seen.append("done"))
    workers.submit(lambda: seen.append("work"), lambda: seen.append("done"))
    await elapse(1)
    workers.submit(lambda: seen.append("work"), lambda: seen.append("done"))
    await elapse(1)
    assert deaths == [error]
    assert not seen


def test_a_mistake_in_a_job_fails_the_run() -> None:
    async def main(machine: Machine) -> None:
        machine.start().workers.submit(lambda: dict[int, None]()[0], lambda: None)
        await elapse(1)

    with pytest.raises(Unhandled, match="KeyError"):
        simulate(main(Machine()))


async def test_a_machine_starts_again_on_the_disk_it_left(machine: Machine) -> None:
    assert await machine.run(_append(machine.start(), b"one")) == 3
    machine.kill()
    runtime = machine.start()
    assert await machine.run(_append(runtime, b"two")) == 6
    runtime.disk.sync_folder("")
    machine.power_cut()
    assert machine.start().disk.open("file").read(0, 10) == b"onetwo"


async def test_a_machine_that_loses_power_loses_its_tasks_and_their_children(machine: Machine) -> None:
    seen: list[str] = []

    async def resist() -> None:
        try:
            await elapse(3_600)
        finally:
            # The cleanup of a dead process waits for what never comes.
            await asyncio.Event().wait()
            seen.append("cleaned up")

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(resist())
            await resist()

    machine.start()
    asyncio.get_running_loop().call_later(1, machine.power_cut)
    with pytest.raises(Died, match="power"):
        await machine.run(main())
    assert not seen
    assert not machine.is_running
    machine.start()


async def test_a_machine_dies_of_a_crash_in_any_operation(machine: Machine) -> None:
    for count in range(4):
        runtime = machine.start()
        machine.disk.crash_after = machine.disk.operations + count

        async def append_often(runtime: Runtime = runtime) -> None:
            for _ in range(4):
                await _append(runtime, b"some")

        with pytest.raises(Died, match="operation"):
            await machine.run(append_often())
        machine.power_cut()


async def test_a_machine_that_halts_itself_is_dead(machine: Machine) -> None:
    async def fail(runtime: Runtime) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(elapse(3_600))
            runtime.halt("the disk is broken")

    deaths: list[int] = []
    machine.on_death.append(lambda: deaths.append(machine.clock.now_ms()))
    with pytest.raises(Died, match="the disk is broken"):
        await machine.run(fail(machine.start()))
    machine.kill()
    assert len(deaths) == 1


async def test_an_ordinary_error_reaches_the_test_that_runs_the_machine(machine: Machine) -> None:
    async def fail() -> None:
        raise LookupError("ordinary")

    machine.start()
    with pytest.raises(LookupError, match="ordinary"):
        await machine.run(fail())
    assert machine.is_running


def test_notes_are_kept_with_their_fields(machine: Machine) -> None:
    machine.start().log_event(LOG_OPENED, file="a")
    assert machine.log_events.events == [(LOG_OPENED, {"file": "a"})]
    assert machine.log_events.names() == ["log.opened"]


async def test_a_runtime_can_be_had_without_a_machine() -> None:
    assert await _append(sim_runtime(SimDisk()), b"four") == 4
