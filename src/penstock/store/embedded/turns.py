"""Work that grows with what there is, a turn at a time: between two turns everybody else is served."""

import asyncio
from collections import deque
from collections.abc import Iterator


class Turns:
    """Pieces of work, each of which says after every turn for how many seconds it has nothing to do."""

    def __init__(self) -> None:
        self._waiting: deque[Iterator[float]] = deque()
        self._has_some = asyncio.Event()

    def add(self, work: Iterator[float]) -> None:
        self._waiting.append(work)
        self._has_some.set()

    async def run(self) -> None:
        """Give each piece of work one turn after the other, for as long as there is any."""
        while True:
            await self._has_some.wait()
            rest_s = 0.0
            for _ in range(len(self._waiting)):
                work = self._waiting.popleft()
                turn_s = next(work, None)
                if turn_s is not None:
                    rest_s = max(rest_s, turn_s)
                    self._waiting.append(work)
                await asyncio.sleep(0)
            if not self._waiting:
                self._has_some.clear()
            await asyncio.sleep(rest_s)
