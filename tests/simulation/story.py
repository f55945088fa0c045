"""A small cluster's busy hour, told line by line: equal seeds must tell it alike.

Three machines count votes for each other over a bad network and write each vote to
their disks, while one after another is killed or loses power.
"""

import asyncio
import hashlib
import random
from typing import cast

from penstock.runtime.interface import Runtime
from tests.simulation.loop import simulate
from tests.simulation.network import SimNetwork, Unreachable
from tests.simulation.world import Died, Machine
from tests.waiting import elapse

NODES = (1, 2, 3)


def tell(seed: int) -> str:
    """Return every line of the story, and a digest of each disk at its end."""
    return simulate(_Story(seed).run(), seed=seed)


class _Story:
    def __init__(self, seed: int) -> None:
        self.lines: list[str] = []
        self.dice = random.Random(f"story/{seed}")
        self.network = SimNetwork(seed)
        self.network.loss = self.network.duplication = 0.1
        self.machines = {node: Machine(seed * 10 + node) for node in NODES}

    async def run(self) -> str:
        async with asyncio.TaskGroup() as group:
            lives = [group.create_task(self._live(node)) for node in NODES]
            await self._trouble()
            for life in lives:
                life.cancel()
        disks = [hashlib.sha256(self.machines[node].disk.read_bytes("votes")).hexdigest() for node in NODES]
        return "\n".join([*self.lines, *disks])

    async def _trouble(self) -> None:
        for _ in range(20):
            await elapse(self.dice.random())
            node = self.dice.choice(NODES)
            machine = self.machines[node]
            self._say(f"{node} is struck")
            self.dice.choice([machine.kill, machine.power_cut])()
            self.network.cut(self.dice.choice(NODES), self.dice.choice(NODES))
            if self.dice.random() < 0.3:
                self.network.heal()

    async def _live(self, node: int) -> None:
        machine = self.machines[node]
        machine.on_death.append(lambda: self.network.leave(node))
        while True:
            try:
                await machine.run(self._vote(node, machine.start()))
            except Died as death:
                self._say(f"{node} died: {death}")
            await elapse(0.1)

    async def _vote(self, node: int, runtime: Runtime) -> None:
        file = runtime.disk.open("votes")
        runtime.disk.sync_folder("")
        self._say(f"{node} starts with {file.size()} bytes")

        async def answer(sender: int, request: object) -> object:
            synced = asyncio.Event()
            file.write(bytes([sender, cast("int", request) % 256]), file.size())
            runtime.workers.submit(file.sync, synced.set)
            await synced.wait()
            return file.size()

        self.network.join(node, answer)
        while True:
            await elapse(runtime.dice.roll() / 10)
            other = node % 3 + 1
            try:
                size = await self.network.call(node, other, runtime.dice.token(), timeout_ms=50)
                self._say(f"{node} heard from {other}: {size}")
            except (TimeoutError, Unreachable) as error:
                self._say(f"{node} heard nothing: {error!r}")

    def _say(self, line: str) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time():.6f} {line}")
