"""Whenever a crash comes, each row of what the journal kept is in the history once."""

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from penstock.contract.messages import MessageOutcome
from penstock.core.queue.settlements import Settlement
from penstock.runtime.interface import Runtime
from tests.simulation.loop import simulate
from tests.simulation.world import Died, Machine
from tests.store.settled import FULL, Books, settlement

STEPS_MAX = 200


async def purge(runtime: Runtime) -> None:
    """Live shortly: something small, then an event of many frames, then something small."""
    books = await Books.open(runtime)
    await books.settle(settlement(0, 5))
    await books.settle(*_purged())
    await books.history.flush()
    await books.settle(settlement(500, 5))
    await books.history.flush()
    await books.close()


def _purged() -> list[Settlement]:
    """Return runs of three lanes, not in the order in which they are written."""
    return [
        settlement(5, 60, ending=MessageOutcome.PURGED),
        settlement(0, 45, lane=1, ending=MessageOutcome.PURGED),
        settlement(0, 20, queue=FULL, lane=0, ending=MessageOutcome.PURGED),
        settlement(65, 10, ending=MessageOutcome.PURGED),
    ]


async def check(runtime: Runtime) -> None:
    books = await Books.open(runtime)
    await books.history.flush()
    assert await books.rows() == await books.expected()
    assert books.history.covered == books.journal.durable_offset
    await books.close()


@pytest.mark.parametrize("end", ["power cut", "power cut that keeps nothing", "kill"])
def test_a_crash_at_any_step_of_a_purge_neither_loses_nor_doubles_a_row(end: str) -> None:
    for step in range(STEPS_MAX):
        machine = Machine(seed=step)
        machine.disk.crash_after = step
        has_died = _died(machine, purge)
        _end(machine, end)
        machine.disk.crash_after = None
        assert not _died(machine, check)
        if not has_died:
            assert step > 20
            return
    raise AssertionError("the short life takes more steps than were tried")


@pytest.mark.parametrize("seed", range(20))
def test_random_lives_with_crashes_lose_and_double_no_row(seed: int) -> None:
    chance = random.Random(seed)
    machine = Machine(seed)
    for _ in range(8):
        machine.disk.crash_after = machine.disk.operations + chance.randrange(5, 60)
        _died(machine, lambda runtime: _some_events(runtime, chance))
        _end(machine, chance.choice(["power cut", "power cut that keeps nothing", "kill"]))
        machine.disk.crash_after = None
    assert not _died(machine, check)


async def _some_events(runtime: Runtime, chance: random.Random) -> None:
    books = await Books.open(runtime)
    for _ in range(10):
        event = [
            settlement(chance.randrange(1_000), chance.randrange(1, 40), queue=chance.choice([1, 2, FULL]), lane=lane)
            for lane in range(chance.randrange(4))
        ]
        books.append(*event)
        match chance.randrange(3):
            case 0:
                await books.journal.wait_durable(books.journal.end_offset)
            case 1:
                await books.history.run_once(5_000)
            case _:
                await books.history.flush()


def _died(machine: Machine, life: Callable[[Runtime], Coroutine[Any, Any, None]]) -> bool:
    async def main() -> bool:
        try:
            await machine.run(life(machine.start()))
        except Died:
            return True
        return False

    return simulate(main)


def _end(machine: Machine, end: str) -> None:
    if end == "kill":
        machine.kill()
    elif end == "power cut":
        machine.power_cut()
    else:
        machine.power_cut(lambda _path, _page: False)
