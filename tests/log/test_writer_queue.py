"""Where a commit is written: in the event loop while the disk is quick and the commit small, else in a worker."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.log.disk_log import DiskLog
from penstock.log.writer_queue import QUICK_US, REST_FACTOR, Pace
from tests.log.small import SETTINGS, append, contents, on
from tests.simulation.loop import running_loop
from tests.simulation.world import Died, Machine

IN_LOOP = replace(SETTINGS, allocate_bytes=1 << 20, commit_in_loop_bytes_max=1_000)


class Watched(Machine):
    """A machine that notes which syncs the event loop waited for, and how long these take."""

    def __init__(self) -> None:
        super().__init__()
        self.syncs_us = 100
        self.is_in_loop: list[bool] = []

    def watch(self) -> None:
        assert self.runtime is not None
        run_here = self.runtime.workers.run_here
        self.disk.syncing = lambda: self.is_in_loop.append(False)

        def watched(work: Callable[[], None], done: Callable[[], None]) -> None:
            waiting, self.disk.syncing = self.disk.syncing, self._wait
            run_here(work, done)
            self.disk.syncing = waiting

        self.runtime.workers.run_here = watched  # type: ignore[method-assign]

    def _wait(self) -> None:
        self.is_in_loop.append(True)
        loop = running_loop()
        assert loop is not None
        loop.now_us += self.syncs_us


def commits(machine: Watched, *steps: Callable[[DiskLog], object]) -> list[bool]:
    """Do something with a log, one append after the other, and say of each sync whether the loop waited for it."""

    async def use(log: DiskLog) -> None:
        machine.watch()
        for step in steps:
            done = step(log)
            if asyncio.iscoroutine(done):
                await done

    on(machine, use, IN_LOOP)
    return machine.is_in_loop


def one(log: DiskLog) -> object:
    return append(log, b"small")


def large(log: DiskLog) -> object:
    return append(log, bytes(2_000))


def test_small_commits_of_a_quick_disk_are_written_in_the_loop_once_it_is_known_to_be_quick() -> None:
    assert commits(Watched(), one, one, one) == [False, True, True]


def test_a_large_commit_is_written_by_a_worker_and_says_nothing_about_the_next() -> None:
    assert commits(Watched(), one, one, large, one) == [False, True, False, True]


def test_after_a_slow_sync_commits_go_to_a_worker_for_fifty_times_as_long() -> None:
    machine = Watched()

    def slowly(log: DiskLog) -> object:
        machine.syncs_us = 4_000
        return append(log, b"slow")

    def rested(_: DiskLog) -> None:
        loop = running_loop()
        assert loop is not None
        loop.now_us += 4_000 * REST_FACTOR

    # Then the loop waits again, and notices that the disk is as slow as it was.
    assert commits(machine, one, slowly, one, one, rested, one, one) == [False, True, False, False, True, False]


def test_after_a_rest_in_which_nothing_was_written_a_worker_shows_that_the_disk_is_quick_again() -> None:
    pace = Pace()
    pace.note(4_000, 0)
    assert not pace.is_quick(1_000_000)
    pace.note(100, 1_000_100)
    assert pace.is_quick(1_000_200)


def test_a_disk_that_is_always_slow_never_holds_the_loop_up() -> None:
    pace = Pace()
    now_us = 0
    for _ in range(100):
        now_us += 1_000_000
        pace.note(8_000, now_us)
        assert not pace.is_quick(now_us + 8_000 * REST_FACTOR)


def test_a_disk_is_as_quick_as_its_last_small_commit() -> None:
    pace = Pace()
    assert not pace.is_quick(0)
    pace.note(QUICK_US, 5)
    assert pace.is_quick(5)


@pytest.mark.parametrize("syncs", range(1, 5))
def test_a_failed_sync_in_the_loop_ends_the_process_and_acknowledges_nothing(syncs: int) -> None:
    machine = Watched()
    acknowledged: list[bytes] = []

    async def insist(log: DiskLog) -> None:
        machine.disk.fail_sync_after = syncs
        machine.watch()
        for number in range(20):
            await append(log, b"%d" % number)
            acknowledged.append(b"%d" % number)

    with pytest.raises(Died):
        on(machine, insist, IN_LOOP)
    assert machine.is_in_loop[-1]
    assert len(acknowledged) == syncs
    machine.power_cut(lambda path, page: False)
    assert contents(machine, IN_LOOP) == acknowledged
