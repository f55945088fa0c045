"""A cluster of simulated machines that keep one replicated log, and what can befall them.

    clients ──▶ network ──▶ Node ──▶ WatchedLog ──▶ SimDisk      one machine
                   ▲          │          └── tells the witness
                   └──────────┴──▶ metadata store

A node is killed, loses power, loses its disk, or is paused: then none of its tasks
takes a step, as after SIGSTOP, while time and the others go on.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from penstock.cluster.membership import Membership
from penstock.cluster.node import Node
from penstock.cluster.settings import ClusterSettings
from penstock.cluster.transport import Fetch
from penstock.core.replica import PartitionRecord
from penstock.log.interface import LogBusy, LogClosed, LogFull, OffsetOutOfRange
from penstock.log.record import encode
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Runtime
from tests.simulation.disk import SimDisk
from tests.simulation.invariants import WatchedLog, Witness
from tests.simulation.loop import OWNER, Leaked, SimLoop, describe
from tests.simulation.meta import SimMeta
from tests.simulation.network import SimNetwork
from tests.simulation.workers import SimWorkers
from tests.simulation.world import Died, Machine

FOLDER = "log"

# Small and fast, so that a few virtual seconds hold many elections, rolls and fetches.
SETTINGS = ClusterSettings(
    lease_ms=600,
    announce_every_ms=150,
    read_every_ms=60,
    lag_ms_max=300,
    isr_every_ms=50,
    fetch_wait_ms=100,
    fetch_bytes_max=700,
    call_timeout_ms=250,
    retry_ms=20,
)
LOG_SETTINGS = LogSettings(segment_bytes_max=4_000, allocate_bytes=1_000, spare_bytes=0, index_every_bytes=200)


@dataclass(frozen=True, slots=True)
class Produce:
    values: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Produced:
    offset: int


@dataclass(frozen=True, slots=True)
class Refused:
    """Nothing was written, and nothing will be."""


@dataclass(frozen=True, slots=True)
class Unsure:
    """It was written here, and may survive or not."""


@dataclass(frozen=True, slots=True)
class Consume:
    offset: int


@dataclass(frozen=True, slots=True)
class Consumed:
    batches: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class OutOfRange:
    """There is nothing at this offset."""


class Cluster:
    """Up to three machines; use as `async with`, inside a `WatchedLoop`."""

    def __init__(self, seed: int = 0, *, replicas: int = 3, min_isr: int = 2) -> None:
        names = tuple(range(1, replicas + 1))
        everyone = frozenset(names)
        record = PartitionRecord(
            replicas=names, leader=None, leader_epoch=0, isr=everyone, elr=frozenset(), min_isr=min_isr
        )
        self.seed = seed
        self.meta = SimMeta(record, lease_ms=SETTINGS.lease_ms, seed=seed)
        self.network = SimNetwork(seed)
        self.witness = Witness(self.meta)
        self.machines = {name: Machine(seed * 10 + name) for name in names}
        self.nodes: dict[int, Node] = {}
        self.disks: dict[int, WatchedLog] = {}
        # Hears what happens, for those who replay a seed.
        self.tell: Callable[[str], None] = lambda _line: None
        self._owners: dict[int, object] = {}
        self._disk_ms_max: dict[int, float] = {}
        self._disks_lost = 0
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        for name, machine in self.machines.items():
            machine.on_death.append(lambda name=name: self._died(name))  # type: ignore[misc]
            self.start(name)
        loop().on_turn = self.witness.look
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        loop().on_turn = lambda: None
        for name in self.machines:
            self.kill(name)
        await self._tasks.__aexit__(kind, error, trace)

    # What befalls a machine.

    def is_up(self, name: int) -> bool:
        return self.machines[name].is_running

    def start(self, name: int) -> None:
        runtime = self.machines[name].start()
        self.slow_down(name, self._disk_ms_max.get(name, 2.0))
        self._tasks.create_task(self._live(name, runtime))

    def slow_down(self, name: int, disk_ms_max: float) -> None:
        """Let everything that a node asks of its disk take so long, also after a restart."""
        self._disk_ms_max[name] = disk_ms_max
        runtime = self.machines[name].runtime
        if runtime is not None:
            assert isinstance(runtime.workers, SimWorkers)
            runtime.workers._delay_s_max = disk_ms_max / 1_000

    def kill(self, name: int) -> None:
        self.machines[name].kill()

    def power_cut(self, name: int) -> None:
        self.machines[name].power_cut()

    def lose_disk(self, name: int) -> None:
        """Kill a node and put an empty disk into its machine."""
        self.kill(name)
        self._disks_lost += 1
        self.machines[name].disk = SimDisk(self.seed * 1_000 + self._disks_lost)
        self.witness.disk_lost(name)

    def pause(self, name: int) -> None:
        if name in self._owners and self._owners[name] not in loop().paused:
            loop().paused.append(self._owners[name])

    def resume(self, name: int) -> None:
        if self._owners.get(name) in loop().paused:
            loop().resume(self._owners[name])

    def heal(self) -> None:
        """Let everything be heard and everyone run."""
        self.network.heal()
        self.meta.heal()
        for name in self.machines:
            self.resume(name)

    # Asking.

    def leader(self) -> int | None:
        """Return who leads, by the record and in its own opinion."""
        record = self.meta.record
        node = None if record.leader is None else self.nodes.get(record.leader)
        has_begun = node is not None and node.log is not None and node.log.epoch == record.leader_epoch
        return record.leader if has_begun else None

    async def until(self, is_so: Callable[[], bool], *, within_ms: int = 20_000) -> None:
        """Return when ``is_so``; looked at in every few milliseconds of virtual time."""
        async with asyncio.timeout(within_ms / 1_000):
            while not is_so():  # noqa: ASYNC110 -- Nobody tells: a test looks into other processes.
                await asyncio.sleep(0.005)

    async def calm(self) -> None:
        """Return when somebody leads and knows that everyone is in sync."""

        def is_calm() -> bool:
            leader = self.leader()
            log = None if leader is None else self.nodes[leader].log
            return log is not None and log._leadership.isr == self.meta.record.isr == set(self.machines)

        await self.until(is_calm)

    async def call(self, client: int, node: int, request: object, timeout_ms: int = 400) -> object:
        """Ask a node as a client would; None if there is no answer."""
        try:
            return await self.network.call(client, node, request, timeout_ms)
        except (TimeoutError, ConnectionError):
            return None

    # The life of a node.

    async def _live(self, name: int, runtime: Runtime) -> None:
        try:
            await self.machines[name].run(self._serve(name, runtime))
        except Died:
            pass

    async def _serve(self, name: int, runtime: Runtime) -> None:
        self._owners[name] = OWNER.get()
        try:
            disk = await WatchedLog.open(runtime, FOLDER, LOG_SETTINGS)
        except OSError as error:
            runtime.halt(f"{FOLDER}: {error}")
        assert isinstance(disk, WatchedLog)
        disk.witness, disk.node = self.witness, name
        self.witness.opened(name, disk)
        membership = Membership(
            name,
            log_id=disk.log_id,
            meta=self.meta.door(name),
            clock=runtime.clock,
            dice=runtime.dice,
            settings=SETTINGS,
        )
        node = Node(disk, membership, Wire(self, name))
        self.disks[name] = disk
        self.nodes[name] = self.witness.nodes[name] = node
        self.network.join(name, lambda _, request: self._answer(name, node, request))
        await node.run()

    def _died(self, name: int) -> None:
        # A dead process must come to its end, also one that died in its sleep.
        self.resume(name)
        self.network.leave(name)
        self.witness.died(name)
        self.nodes.pop(name, None)
        self.disks.pop(name, None)
        self._owners.pop(name, None)

    async def _answer(self, name: int, node: Node, request: object) -> object:
        match request:
            case Fetch():
                answer = await node.answer(request)
                self.witness.answers(name, request, answer)
                return answer
            case Produce():
                return await self._produce(node, request.values)
            case Consume():
                return await self._consume(node, request.offset)
        raise AssertionError(f"nobody sends {request}")

    async def _produce(self, node: Node, values: tuple[bytes, ...]) -> object:
        log = node.log
        batch = encode([(None, value) for value in values], at_ms=0)
        try:
            if log is None:
                return Refused()
            with log.reserve(len(batch)) as space:
                offset = log.append(batch, space)
        except (LogClosed, LogBusy, LogFull):
            return Refused()
        try:
            await log.wait_durable(offset + len(values))
        except LogClosed:
            return Unsure()
        return Produced(offset)

    async def _consume(self, node: Node, offset: int) -> object:
        if node.log is None:
            return Refused()
        try:
            batches = await node.log.read(offset, bytes_max=1_000)
        except LogClosed:
            return Refused()
        except OffsetOutOfRange:
            return OutOfRange()
        return Consumed(tuple(map(bytes, batches)))


@dataclass(frozen=True, slots=True)
class Wire:
    """Satisfies `cluster.transport.Transport`, for one node."""

    cluster: Cluster
    sender: int

    async def call(self, receiver: int, request: object, timeout_ms: int) -> object:
        if isinstance(request, Fetch):
            self.cluster.witness.fetches(request)
        return await self.cluster.network.call(self.sender, receiver, request, timeout_ms)


class WatchedLoop(SimLoop):
    """A loop that shows every turn to a witness, and can hold back all tasks of a process."""

    def __init__(self, seed: int) -> None:
        self.paused: list[object] = []
        self.on_turn: Callable[[], None] = lambda: None
        self._held: deque[asyncio.Handle] = deque()
        super().__init__(seed)

    def resume(self, owner: object) -> None:
        self.paused.remove(owner)
        # Those still paused are held back again in the next turn.
        self._ready.extend(self._held)
        self._held.clear()

    def _turn(self, timeout: float | None) -> None:
        if self.paused:
            ready = list(self._ready)
            self._ready.clear()
            for handle in ready:
                (self._held if self._is_paused(handle) else self._ready).append(handle)
        super()._turn(timeout)
        try:
            self.on_turn()
        except BaseException:
            # One violation is enough; what follows is only the end of the run.
            self.on_turn = lambda: None
            raise

    def _is_paused(self, handle: asyncio.Handle) -> bool:
        task = getattr(handle._callback, "__self__", None)  # type: ignore[attr-defined]
        return isinstance(task, asyncio.Task) and self.owner(task) in self.paused


def loop() -> WatchedLoop:
    running = asyncio.get_running_loop()
    assert isinstance(running, WatchedLoop)
    return running


def watch(main: Callable[[], Coroutine[Any, Any, None]], *, seed: int = 0) -> None:
    """Run a coroutine to its end, as `simulate` does, in a `WatchedLoop`."""
    watched = WatchedLoop(seed)
    try:
        watched.run_until_complete(main())
        left = [describe(task) for task in watched.unfinished() if not watched.is_spawned(task)]
        watched.wind_up()
        watched.raise_failures()
        if left:
            raise Leaked("These tasks were left behind:\n" + "\n".join(left))
    finally:
        watched.close()
