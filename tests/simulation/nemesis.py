"""What makes a cluster's life hard: crashes, pauses, partitions, slow disks, bad weather.

Each seed has a temper of its own: only some of the faults, at a pace of their own
(«swarm testing»). A fault that is rare among many is then the only one for a while
in some lives, and meets states it never would in a mixture. A test that waits for
something rare may also choose the faults itself.
"""

import asyncio
import random
from collections.abc import Callable, Sequence

from tests.simulation.cluster import Cluster


class Nemesis:
    def __init__(self, cluster: Cluster, seed: int, faults: Sequence[str] = ()) -> None:
        self._cluster = cluster
        self._dice = random.Random(f"nemesis/{seed}")
        self._tasks = asyncio.TaskGroup()
        self._starting: list[int] = []
        self._pace_ms = self._dice.choice((100, 300, 1_000))
        self._faults = [fault for fault in FAULTS if self._dice.random() < 0.5] or [Nemesis.crash]
        if faults:
            self._faults = [fault for fault in FAULTS if fault.__name__ in faults]
            assert len(self._faults) == len(faults), f"one of these is no fault: {faults}"

    async def rage(self, duration_ms: int) -> None:
        async with self._tasks:
            end = asyncio.get_running_loop().time() + duration_ms / 1_000
            while asyncio.get_running_loop().time() < end:
                await self._pause(2 * self._pace_ms)
                self._dice.choice(self._faults)(self)
            self.calm()
        for name in self._names():
            if not self._cluster.is_up(name):
                self._cluster.start(name)

    def calm(self) -> None:
        """End the bad weather, and let everyone be heard again."""
        cluster = self._cluster
        cluster.heal()
        cluster.network.loss = cluster.network.duplication = 0.0
        cluster.network.latency_ms_max = 10.0
        cluster.meta.loss = cluster.meta.lateness = 0.0
        cluster.meta.delay_ms_max = 5.0
        for name in self._names():
            cluster.slow_down(name, 2.0)

    # One machine.

    def crash(self) -> None:
        if (name := self._someone_up()) is not None:
            self._cluster.tell(f"kill {name}")
            self._cluster.kill(name)
            self._restart(name)

    def power_cut(self) -> None:
        if (name := self._someone_up()) is not None:
            self._cluster.tell(f"power cut of {name}")
            self._cluster.power_cut(name)
            self._restart(name)

    def crash_leader(self) -> None:
        if (name := self._cluster.leader()) is not None:
            self._cluster.tell(f"kill the leader {name}")
            self._cluster.kill(name)
            self._restart(name)

    def lose_disk(self) -> None:
        name = self._someone_up()
        if name is not None and self._cluster.witness.may_lose(name):
            self._cluster.tell(f"{name} loses its disk")
            self._cluster.lose_disk(name)
            self._restart(name)

    def fail_sync(self) -> None:
        if (name := self._someone_up()) is not None:
            self._cluster.tell(f"the disk of {name} is about to fail")
            self._cluster.machines[name].disk.fail_sync_after = self._dice.randint(0, 5)
            self._tasks.create_task(self._reboot_when_halted(name))

    async def _reboot_when_halted(self, name: int) -> None:
        for _ in range(50):
            await asyncio.sleep(0.01)
            if not self._cluster.is_up(name):
                # What the kernel still holds of a failed sync is a lie, so the machine is not merely started again.
                self._cluster.power_cut(name)
                self._restart(name)
                return
        self._cluster.machines[name].disk.fail_sync_after = None

    def slow_disk(self) -> None:
        name = self._dice.choice(self._names())
        self._cluster.tell(f"the disk of {name} is slow")
        self._cluster.slow_down(name, self._dice.choice((20.0, 60.0)))

    def pause(self) -> None:
        if (name := self._someone_up()) is not None:
            self._cluster.tell(f"pause {name}")
            self._cluster.pause(name)
            self._tasks.create_task(self._later(2_000, lambda: self._cluster.resume(name)))

    def pause_leader(self) -> None:
        if (name := self._cluster.leader()) is not None:
            self._cluster.tell(f"pause the leader {name}")
            self._cluster.pause(name)
            self._tasks.create_task(self._later(2_000, lambda: self._cluster.resume(name)))

    # All machines.

    def power_cut_of_all(self) -> None:
        self._cluster.tell("power cut of all")
        for name in self._names():
            if self._cluster.is_up(name):
                self._cluster.power_cut(name)
                self._restart(name)

    # The network.

    def cut_off(self) -> None:
        """Separate one node from the others, in both directions."""
        name = self._dice.choice(self._names())
        self._cluster.tell(f"cut off {name}")
        self._cluster.network.partition([name], [other for other in self._names() if other != name])
        self._heal_later()

    def strand_leader(self) -> None:
        """Leave the leader alone with the clients: neither followers nor metadata reach it."""
        if (name := self._cluster.leader()) is not None:
            self._cluster.tell(f"strand the leader {name}")
            self._cluster.network.partition([name], [other for other in self._names() if other != name])
            self._cluster.meta.cut(name)
            # Long enough for another to be elected, and to be trusted with new records.
            self._heal_later(5_000)

    def cut_one_way(self) -> None:
        one, other = self._dice.sample(self._names(), 2)
        self._cluster.tell(f"cut {one} to {other}")
        self._cluster.network.cut(one, other)
        self._heal_later()

    def cut_from_meta(self) -> None:
        name = self._dice.choice(self._names())
        self._cluster.tell(f"cut {name} from the metadata")
        self._cluster.meta.cut(name)
        self._heal_later()

    def slow_meta(self) -> None:
        self._cluster.tell("slow metadata")
        self._cluster.meta.delay_ms_max = self._dice.choice((50.0, 150.0, 300.0))
        self._cluster.meta.lateness = self._dice.choice((0.0, 0.5, 0.9))
        self._cluster.meta.loss = self._dice.choice((0.0, 0.2))

    def bad_weather(self) -> None:
        network = self._cluster.network
        self._cluster.tell("bad weather")
        network.latency_ms_max = self._dice.choice((10.0, 50.0, 150.0))
        network.loss = self._dice.choice((0.0, 0.1))
        network.duplication = self._dice.choice((0.0, 0.0, 0.1))

    def good_weather(self) -> None:
        self._cluster.tell("good weather")
        self.calm()

    def _heal_later(self, within_ms: int = 2_500) -> None:
        def heal() -> None:
            self._cluster.network.heal()
            self._cluster.meta.heal()

        self._tasks.create_task(self._later(within_ms, heal))

    # The usual.

    def _names(self) -> tuple[int, ...]:
        return self._cluster.meta.record.replicas

    def _someone_up(self) -> int | None:
        up = [name for name in self._names() if self._cluster.is_up(name)]
        return self._dice.choice(up) if up else None

    def _restart(self, name: int) -> None:
        def start() -> None:
            self._cluster.tell(f"start {name}")
            self._starting.remove(name)
            self._cluster.start(name)

        if name not in self._starting:
            self._starting.append(name)
            self._tasks.create_task(self._later(self._dice.choice((30, 300, 1_500)), start))

    async def _later(self, within_ms: int, act: Callable[[], None]) -> None:
        await self._pause(within_ms)
        act()

    async def _pause(self, within_ms: int) -> None:
        await asyncio.sleep(self._dice.random() * within_ms / 1_000)


FAULTS = (
    Nemesis.crash,
    Nemesis.power_cut,
    Nemesis.crash_leader,
    Nemesis.lose_disk,
    Nemesis.fail_sync,
    Nemesis.slow_disk,
    Nemesis.pause,
    Nemesis.pause_leader,
    Nemesis.power_cut_of_all,
    Nemesis.cut_off,
    Nemesis.strand_leader,
    Nemesis.cut_one_way,
    Nemesis.cut_from_meta,
    Nemesis.slow_meta,
    Nemesis.bad_weather,
    Nemesis.good_weather,
)
