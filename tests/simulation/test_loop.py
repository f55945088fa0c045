"""The simulated loop: time jumps, and nothing goes wrong in silence."""

import asyncio
import os
import socket
import subprocess
import sys
import time

import pytest

from tests.simulation.clock import EPOCH_MS, SimClock, SimDice
from tests.simulation.loop import Deadlock, Leaked, NotSimulated, Runaway, SimLoop, Unhandled, simulate
from tests.waiting import elapse, let_others_run


async def test_a_day_of_virtual_time_passes_at_once() -> None:
    loop, clock = asyncio.get_running_loop(), SimClock()
    began_s = time.monotonic()
    await elapse(24 * 3600)
    assert loop.time() == 24 * 3600
    assert clock.now_ms() == EPOCH_MS + 24 * 3600 * 1_000
    assert time.monotonic() - began_s < 600


async def test_a_sleep_takes_exactly_as_long_as_asked() -> None:
    clock = SimClock()
    for count in range(1, 1_000):
        await elapse(0.007)
        assert clock.now_ms() == EPOCH_MS + 7 * count


async def test_timers_come_due_in_the_order_of_their_times() -> None:
    seen: list[int] = []
    for delay in (3, 1, 2):
        asyncio.get_running_loop().call_later(delay, seen.append, delay)
    await elapse(4)
    assert seen == [1, 2, 3]


def test_a_clock_goes_on_from_one_loop_to_the_next_and_never_back() -> None:
    clock = SimClock()

    async def pass_a_second() -> int:
        await elapse(1)
        return clock.now_ms()

    assert simulate(pass_a_second) == EPOCH_MS + 1_000
    clock.advance_ms(5)
    assert clock.now_ms() == EPOCH_MS + 1_005
    assert simulate(pass_a_second()) == EPOCH_MS + 2_005


def test_a_deadlock_is_seen_at_once_and_names_who_is_stuck() -> None:
    async def wait_for_nobody() -> None:
        await asyncio.Event().wait()

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(wait_for_nobody(), name="the patient one")

    with pytest.raises(Deadlock, match=r"the patient one in .*wait"):
        simulate(main)


def test_an_error_in_a_callback_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await elapse(1)

    with pytest.raises(Unhandled, match="ZeroDivisionError"):
        simulate(main)


def test_an_error_in_a_task_that_is_not_awaited_fails_the_run() -> None:
    async def fail() -> None:
        raise ValueError("unheard")

    async def main() -> None:
        task = asyncio.get_running_loop().create_task(fail())
        # A cycle keeps the task alive, so that its end is not noticed by itself.
        task.add_done_callback(lambda _: task)
        await elapse(1)

    with pytest.raises(Unhandled, match="unheard"):
        simulate(main)


def test_a_task_left_behind_fails_the_run() -> None:
    async def main() -> None:
        asyncio.get_running_loop().create_task(elapse(3_600), name="the forgotten one")

    with pytest.raises(Leaked, match="the forgotten one"):
        simulate(main)


def test_a_run_that_never_ends_is_stopped() -> None:
    async def repeat(delay_s: float) -> None:
        for _ in range(1_000_000):
            await elapse(delay_s)

    for loop, delay_s in ((SimLoop(turns_max=1_000), 0), (SimLoop(time_s_max=86_400), 3_600)):
        with pytest.raises(Runaway):
            loop.run_until_complete(repeat(delay_s))
        loop.close()


async def test_work_for_an_executor_runs_inline() -> None:
    assert await asyncio.to_thread(lambda: 6 * 7) == 42
    with pytest.raises(ZeroDivisionError):
        await asyncio.to_thread(lambda: 1 // 0)


async def test_the_real_world_is_out_of_reach() -> None:
    loop = asyncio.get_running_loop()
    with pytest.raises(NotSimulated):
        await asyncio.open_connection("localhost", 1)
    with pytest.raises(NotSimulated):
        await asyncio.create_subprocess_exec("true")
    with socket.socket() as real, pytest.raises(NotSimulated):
        loop.add_reader(real, print)


@pytest.mark.real_time
async def test_a_test_marked_real_time_runs_on_the_loop_of_the_machine() -> None:
    assert not isinstance(asyncio.get_running_loop(), SimLoop)


def _order_of_ten_tasks(seed: int) -> list[int]:
    async def main() -> list[int]:
        seen: list[int] = []

        async def see(number: int) -> None:
            await let_others_run()
            seen.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(10):
                group.create_task(see(number))
        return seen

    return simulate(main, seed=seed)


def test_a_seed_shuffles_tasks_and_the_same_seed_in_the_same_way() -> None:
    assert _order_of_ten_tasks(0) == list(range(10))
    assert _order_of_ten_tasks(1) == _order_of_ten_tasks(1)
    assert len({tuple(_order_of_ten_tasks(seed)) for seed in range(20)}) > 10


@pytest.mark.parametrize("seed", [0, 1, 2])
async def test_plain_callbacks_run_in_the_order_they_were_asked_for(seed: int) -> None:
    seen: list[int] = []
    for number in range(20):
        asyncio.get_running_loop().call_soon(seen.append, number)
        asyncio.get_running_loop().call_soon_threadsafe(seen.append, number)
    await let_others_run()
    assert seen == sorted(seen)
    assert len(seen) == 40


def test_dice_of_one_seed_always_fall_alike() -> None:
    def throw(seed: int) -> list[float]:
        dice = SimDice(seed)
        return [dice.roll(), dice.token(), dice.roll()]

    assert throw(1) == throw(1) != throw(2)
    assert 0 <= throw(3)[0] < 1


def test_the_same_seed_gives_the_same_story_whatever_the_hash_seed() -> None:
    stories = {_story(seed=7, hash_seed=hash_seed) for hash_seed in ("0", "1", "random")}
    assert len(stories) == 1
    assert stories != {_story(seed=8, hash_seed="0")}


def _story(*, seed: int, hash_seed: str) -> str:
    script = "import sys; from tests.simulation.story import tell; print(tell(int(sys.argv[1])))"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [sys.executable, "-c", script, str(seed)]
    return subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
