"""Lets whoever drops bodies wait for those who are about to read them.

A verb that hands out messages looks up where their bodies are, waits for the
journal, and only then reads. In between, the bodies may have been copied to
another place and the old one be about to go.
"""

import asyncio
from types import TracebackType


class _Round:
    __slots__ = ("count", "empty")

    def __init__(self) -> None:
        self.count = 0
        self.empty: asyncio.Future[None] | None = None


class Readers:
    """Those who read now, by rounds: `last` waits for all who had begun when it was called."""

    __slots__ = ("_round",)

    def __init__(self) -> None:
        self._round = _Round()

    def begin(self) -> "Reading":
        return Reading(self._round)

    async def last(self) -> None:
        done, self._round = self._round, _Round()
        if done.count:
            done.empty = asyncio.get_running_loop().create_future()
            await done.empty


class Reading:
    """A context manager around looking up a place and reading what is there."""

    __slots__ = ("_round",)

    def __init__(self, current: _Round) -> None:
        self._round = current

    def __enter__(self) -> None:
        self._round.count += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._round.count -= 1
        if not self._round.count and self._round.empty is not None and not self._round.empty.done():
            self._round.empty.set_result(None)
