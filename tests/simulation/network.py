"""Requests and answers between nodes: late, lost, doubled, out of order, cut off.

    call ──latency──▶ the receiver answers ──latency──▶ call returns
         ╲ lost, cut                       ╲ lost, cut
          ╲▶ TimeoutError                   ╲▶ TimeoutError, and yet it was done

Laws of this file
-----------------
1. Nodes share nothing: requests, answers and errors are copied on the way.
2. A way that is cut says nothing. A node that is not there says so: `Unreachable`.
3. Whatever was under way to or from a node when it left is gone, also if it comes
   back. What it was answering at that moment is cancelled.
4. An exception that leaves an answerer reaches the caller. An `AssertionError` is a
   mistake and fails the run.
"""

import asyncio
import contextvars
import copy
import copyreg
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.loop import SimLoop, running_loop

Answerer = Callable[[int, object], Awaitable[object]]


class Unreachable(ConnectionError):
    """No server is at this address."""


@dataclass(slots=True)
class _Node:
    answer: Answerer
    # Where `join` was called: what a machine's node does for a request dies with the machine.
    context: contextvars.Context
    answering: dict[asyncio.Task[None], None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _Call:
    sender: int
    receiver: int
    # How often either had left when the call was made.
    departures: tuple[int, int]
    answer: asyncio.Future[object]


class SimNetwork:
    """The chances may be changed at any time, by a test that has calm and stormy hours."""

    def __init__(self, seed: int = 0, *, latency_ms_max: float = 10.0) -> None:
        self.latency_ms_max = latency_ms_max
        self.loss = 0.0
        self.duplication = 0.0
        self._dice = random.Random(f"network/{seed}")
        self._nodes: dict[int, _Node] = {}
        self._departures: Counter[int] = Counter()
        self._cuts: set[tuple[int, int]] = set()

    def join(self, node: int, answer: Answerer) -> None:
        assert node not in self._nodes, f"node {node} is there already"
        self._nodes[node] = _Node(answer, contextvars.copy_context())

    def leave(self, node: int) -> None:
        """Take a node away, as its crash does; one that is not there stays away."""
        self._departures[node] += 1
        left = self._nodes.pop(node, None)
        for task in left.answering if left else ():
            task.cancel()

    def cut(self, sender: int, receiver: int) -> None:
        """Lose everything from one node to another, what is under way included."""
        self._cuts.add((sender, receiver))

    def partition(self, one_side: Iterable[int], other_side: Iterable[int]) -> None:
        others = list(other_side)
        for a in one_side:
            for b in others:
                self.cut(a, b)
                self.cut(b, a)

    def heal(self) -> None:
        self._cuts.clear()

    async def call(self, sender: int, receiver: int, request: object, timeout_ms: float) -> object:
        """Return the answer; raise `TimeoutError`, `Unreachable`, or what the answerer raised.

        After a `TimeoutError` the request may have been served, or may still be, and
        more than once.
        """
        call = _Call(sender, receiver, self._departed(sender, receiver), _loop().create_future())
        request = copy.deepcopy(request)
        for _ in range(2 if self._happens(self.duplication) else 1):
            self._carry(call, (sender, receiver), lambda: self._deliver(call, request))
        async with asyncio.timeout(timeout_ms / 1_000):
            return await call.answer

    def _carry(self, call: _Call, way: tuple[int, int], arrive: Callable[[], None]) -> None:
        """Bring something over after a while, unless it is lost."""

        def arrive_if_possible() -> None:
            is_gone = call.departures != self._departed(call.sender, call.receiver)
            if not is_gone and way not in self._cuts:
                arrive()

        if self._happens(self.loss) or way in self._cuts:
            return
        _loop().call_later(self._dice.random() * self.latency_ms_max / 1_000, arrive_if_possible)

    def _deliver(self, call: _Call, request: object) -> None:
        node = self._nodes.get(call.receiver)
        if node is None:
            _settle(call.answer, Unreachable(f"node {call.receiver} is not there"))
            return
        task = _loop().spawn(self._answer(node, call, copy.deepcopy(request)), node.context.copy())
        node.answering[task] = None
        task.add_done_callback(node.answering.pop)

    async def _answer(self, node: _Node, call: _Call, request: object) -> None:
        try:
            answer = await node.answer(call.sender, request)
        except AssertionError:
            raise
        except Exception as error:
            answer = error
        answer = copy.deepcopy(answer)
        self._carry(call, (call.receiver, call.sender), lambda: _settle(call.answer, answer))

    def _departed(self, sender: int, receiver: int) -> tuple[int, int]:
        return self._departures[sender], self._departures[receiver]

    def _happens(self, chance: float) -> bool:
        return self._dice.random() < chance


def _settle(future: asyncio.Future[object], answer: object) -> None:
    """The first answer counts, and none after the caller has gone."""
    if future.done():
        return
    if isinstance(answer, Exception):
        future.set_exception(answer)
    else:
        future.set_result(answer)


def _loop() -> SimLoop:
    loop = running_loop()
    assert loop is not None, "the network runs in a SimLoop"
    return loop


def _reduce_view(view: memoryview) -> Any:
    return bytes, (bytes(view),)


# A view has no copy of its own; on a real wire it would arrive as bytes.
copyreg.pickle(memoryview, _reduce_view)
