"""Every implementation of `store.interface.QueueStore`, on a stage where a test turns the clock and pulls the plug.

    @every_store
    async def test_a_sentence_of_the_manual(stage: Stage) -> None:
        await stage.store.send("orders", Drafts(bodies=[b"a"]))

The stage has one queue, `orders`, with default settings. A story uses nothing but
the interface and the stage, so that a store yet to come can be told it as well.

Time passes only by `advance`; a simulated disk takes its few milliseconds besides.
"""

import asyncio
import copy
import dataclasses
import shutil
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol, TypeVar

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from penstock.runtime.memory import InThread, MemoryDisk, MemoryLock, memory_runtime
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Outcome, QueueStore
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.schemas import empty_schema, until_alone
from tests.simulation.clock import SimClock, SimDice
from tests.simulation.loop import simulate
from tests.simulation.world import Machine
from tests.waiting import elapse, let_others_run

T = TypeVar("T")

DONE, STALE = Outcome.DONE, Outcome.STALE

# Small segments, so that a journal has several.
SMALL = LogSettings(segment_bytes_max=256 * 1024, allocate_bytes=64 * 1024, spare_bytes=0)
FOLDER = "queues"


class Stage(Protocol):
    @property
    def store(self) -> QueueStore:
        """The store as it is now; another one after `reopen` and `crash`."""
        ...

    def now_ms(self) -> int: ...

    async def advance(self, count_ms: int) -> None: ...

    async def reopen(self) -> None:
        """Stop in good order and start again."""
        ...

    async def crash(self) -> None:
        """Stop without a word, as hard as this implementation can be stopped, and start again."""
        ...


Story = Callable[[Stage], Coroutine[Any, Any, None]]
Run = Callable[[Story, Path], None]


class SimulatedDisk:
    def __init__(self, shards: int = 1) -> None:
        self._machine = Machine()
        self._shards = shards

    async def open(self) -> None:
        # Run by the machine, so that what the store looks after itself with ends when the machine does.
        opening = EmbeddedStore.open(self._machine.start(), FOLDER, SMALL, shards=self._shards)
        self.store = await self._machine.run(opening)

    def now_ms(self) -> int:
        return self._machine.clock.now_ms()

    async def advance(self, count_ms: int) -> None:
        await elapse(count_ms / 1_000)

    async def reopen(self) -> None:
        await self.store.close()
        self._machine.kill()
        await self.open()

    async def crash(self) -> None:
        self._machine.power_cut()
        await self.open()


class RealDisk:
    def __init__(self, root: Path, workers: ThreadWorkers) -> None:
        self._root = root
        self._workers = workers
        self._clock = SimClock()
        self._lives = 0

    async def open(self) -> None:
        self.store = await EmbeddedStore.open(self._runtime(), self._folder(), SMALL)

    def _runtime(self) -> Runtime:
        return dataclasses.replace(system_runtime(self._root, self._workers), clock=self._clock)

    def _folder(self) -> str:
        return f"{FOLDER}-{self._lives}"

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def advance(self, count_ms: int) -> None:
        self._clock.advance_ms(count_ms)
        await let_others_run()

    async def reopen(self) -> None:
        await self.store.close()
        await self.open()

    async def crash(self) -> None:
        """Go on with a copy of what is on the disk now: that is all a killed process leaves."""
        before, killed = self._root / self._folder(), self.store
        self._lives += 1
        _copy_folder(before, self._root / self._folder())
        await self.open()
        await killed.close()


def _copy_folder(source: Path, target: Path) -> None:
    """Copy a folder that is in use. Where a file goes meanwhile, as an unfinished snapshot does, copy it all again."""
    while True:
        try:
            shutil.copytree(source, target)
        except shutil.Error as error:
            if any(Path(missed).exists() for missed, *_ in error.args[0]):
                raise
            shutil.rmtree(target)
        else:
            return


class InMemory:
    def __init__(self) -> None:
        self._clock = SimClock()
        self._runtime = memory_runtime(self._clock)

    async def open(self) -> None:
        self.store = await EmbeddedStore.in_memory(self._runtime)

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def advance(self, count_ms: int) -> None:
        self._clock.advance_ms(count_ms)
        await let_others_run()

    async def reopen(self) -> None:
        await self.store.close()
        await self.open()

    async def crash(self) -> None:
        """Go on with a copy of what is on the disk now, which is all there is."""
        killed = self.store
        disk = copy.deepcopy(self._runtime.disk)
        assert isinstance(disk, MemoryDisk)
        for folder in ("journal", "history"):
            MemoryLock(disk._taken, f"memory/{folder}").release()
        self._runtime = dataclasses.replace(memory_runtime(self._clock), disk=disk, aside=InThread(disk))
        await self.open()
        await killed.close()


class InPostgres:
    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._clock = SimClock()
        self._dice = SimDice()

    async def open(self) -> None:
        self.store = await PostgresStore.open(
            self._settings, clock=self._clock, dice=self._dice, may_migrate=False, has_upkeep=False
        )

    def now_ms(self) -> int:
        return self._clock.now_ms()

    async def advance(self, count_ms: int) -> None:
        self._clock.advance_ms(count_ms)
        await let_others_run()

    async def reopen(self) -> None:
        await self.store.close()
        await until_alone(self._settings)
        await self.open()

    async def crash(self) -> None:
        """Go on without a word to the database; what was asked for and not answered yet is still answered."""
        killed = self.store
        await killed.simulate_crash()
        await until_alone(self._settings)
        await self.open()
        await killed.close()


async def play(story: Story, stage: SimulatedDisk | RealDisk | InMemory | InPostgres) -> None:
    await stage.open()
    try:
        await stage.store.create("orders", QueueSettings())
        await story(stage)
    finally:
        await stage.store.close()


def _on_simulated_disk(seed: int, shards: int = 1) -> Run:
    return lambda story, _folder: simulate(lambda: play(story, SimulatedDisk(shards)), seed=seed)


def _on_real_disk(story: Story, folder: Path) -> None:
    async def main() -> None:
        async with ThreadWorkers(2, halt) as workers:
            await play(story, RealDisk(folder, workers))

    asyncio.run(main())


def _in_memory(story: Story, _folder: Path) -> None:
    async def main() -> None:
        await play(story, InMemory())

    asyncio.run(main())


def _in_postgres(story: Story, _folder: Path) -> None:
    settings = empty_schema()

    async def main() -> None:
        await play(story, InPostgres(settings))

    asyncio.run(main())


IMPLEMENTATIONS: dict[str, Run] = {
    "embedded, simulated disk": _on_simulated_disk(seed=0),
    "embedded, simulated disk, shuffled tasks": _on_simulated_disk(seed=1),
    "embedded, three shards": _on_simulated_disk(seed=2, shards=3),
    "embedded, real disk": _on_real_disk,
    "embedded, in memory": _in_memory,
    "postgres": _in_postgres,
}


# Every story that was made a test of, for the next store to tell them.
STORIES: list[Story] = []


def every_store(story: Story) -> Callable[[Run, Path], None]:
    """Make a test of a story, for each implementation."""

    @pytest.mark.parametrize("run", list(IMPLEMENTATIONS.values()), ids=list(IMPLEMENTATIONS))
    def test(run: Run, tmp_path: Path) -> None:
        run(story, tmp_path)

    # Not functools.wraps: pytest would ask for the story's arguments.
    test.__name__, test.__qualname__, test.__doc__ = story.__name__, story.__qualname__, story.__doc__
    STORIES.append(story)
    return test


async def send(stage: Stage, *bodies: bytes, queue: str = "orders") -> list[str]:
    return list(await stage.store.send(queue, Drafts(bodies=bodies)))


async def lease(stage: Stage, want: int = 10, *, queue: str = "orders", lease_ms: int | None = None) -> Delivery:
    """Lease what must be there."""
    delivery = await stage.store.lease(queue, want=want, lease_ms=lease_ms)
    assert delivery is not None, "nothing is visible"
    return delivery


async def is_empty_handed(stage: Stage, *, queue: str = "orders") -> bool:
    """Whether a worker that asks now gets nothing."""
    return await stage.store.lease(queue, want=1) is None


def bodies(delivery: Delivery) -> list[bytes]:
    return [bytes(body) for body in delivery.bodies]


async def drain(stage: Stage, *, queue: str = "orders", want: int = 100) -> list[bytes]:
    """Lease and ack until nothing is visible, and return the bodies in the order of delivery."""
    found: list[bytes] = []
    while (delivery := await stage.store.lease(queue, want=want)) is not None:
        found += bodies(delivery)
        assert await stage.store.ack(queue, delivery.receipts()) == [DONE] * len(delivery)
    return found


async def begin(tasks: asyncio.TaskGroup, verb: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Begin a verb and return while it waits for its disk."""
    task = tasks.create_task(verb)
    # The first turn may be taken before the task's, where tasks are shuffled.
    await let_others_run(2)
    return task


async def until(stage: Stage, at_ms: int) -> None:
    """Advance to an instant that has not passed yet."""
    left_ms = at_ms - stage.now_ms()
    assert left_ms >= 0, "the story took longer than it meant to"
    await stage.advance(left_ms)
