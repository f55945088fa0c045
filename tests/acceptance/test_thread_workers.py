"""The threads that call the disk, and what they do about a mistake of ours."""

import asyncio
import subprocess
import sys
import threading

import pytest

from penstock.runtime.interface import EXIT_STORAGE_FAILED
from penstock.runtime.system import ThreadWorkers, halt
from tests.acceptance.processes import ROOT, SECONDS_MAX


@pytest.mark.real_time
async def test_one_thread_does_work_in_order_and_reports_on_the_loop() -> None:
    worked: list[int] = []
    reported: list[int] = []
    threads: set[int] = set()
    finished = asyncio.Event()

    def work(number: int) -> None:
        threads.add(threading.get_ident())
        worked.append(number)

    def done(number: int) -> None:
        assert threading.current_thread() is threading.main_thread()
        reported.append(number)
        if number == 999:
            finished.set()

    async with ThreadWorkers(1, halt) as workers:
        for number in range(1_000):
            workers.submit(lambda number=number: work(number), lambda number=number: done(number))  # type: ignore[misc]
        await finished.wait()
    assert worked == reported == list(range(1_000))
    assert len(threads) == 1
    assert threading.get_ident() not in threads


@pytest.mark.real_time
async def test_several_threads_take_work_up_in_order() -> None:
    taken_up: list[int] = []
    first_is_held, finished = threading.Event(), asyncio.Event()

    def hold() -> None:
        taken_up.append(0)
        assert first_is_held.wait(SECONDS_MAX)

    async with ThreadWorkers(2, halt) as workers:
        workers.submit(hold, finished.set)
        for number in range(1, 100):
            workers.submit(lambda number=number: taken_up.append(number), lambda: None)  # type: ignore[misc]
        # While one thread is held up by the disk, the other one goes on.
        workers.submit(first_is_held.set, lambda: None)
        await finished.wait()
    assert sorted(taken_up) == list(range(100))
    assert [number for number in taken_up if number] == list(range(1, 100))


@pytest.mark.real_time
async def test_closing_waits_for_what_was_submitted() -> None:
    worked: list[int] = []
    async with ThreadWorkers(2, halt) as workers:
        for number in range(500):
            workers.submit(lambda number=number: worked.append(number), lambda: None)  # type: ignore[misc]
    assert sorted(worked) == list(range(500))


UNFORESEEN = """
import asyncio
from penstock.runtime.system import halt
from penstock.runtime.system import ThreadWorkers

async def main():
    async with ThreadWorkers(1, halt) as workers:
        workers.submit(lambda: [][1], lambda: print("reported"))
        workers.submit(lambda: print("went on"), lambda: None)
        await asyncio.Event().wait()

asyncio.run(main())
"""


def test_an_unforeseen_error_stops_the_process_before_more_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", UNFORESEEN], cwd=ROOT, capture_output=True, text=True, check=False, timeout=SECONDS_MAX
    )
    assert done.returncode == EXIT_STORAGE_FAILED
    assert done.stdout == ""
    assert "IndexError: list index out of range" in done.stderr
