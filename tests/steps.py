"""How long the steps of an event loop are, in lines of Python: the same on every machine.

    with counted() as steps:
        await store.purge("orders")
    assert steps.longest < LINES_MAX, steps.culprit

A step is what runs from one turn of the loop to the next `await` that waits. Loops inside C (a sort, a
slice) count for nothing; they are some fifty times as fast as those that are counted.
"""

import sys
from asyncio.events import Handle
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

# About 10 ms on a slow machine.
LINES_MAX = 100_000


class Steps:
    def __init__(self) -> None:
        self.longest = 0
        self.total = 0
        # Where the lines of the longest step were.
        self.culprit: list[tuple[str, int]] = []
        self._lines: Counter[str] = Counter()

    def end(self) -> None:
        lines = self._lines.total()
        self.total += lines
        if lines > self.longest:
            self.longest, self.culprit = lines, self._lines.most_common(5)
        self._lines = Counter()

    def count(self, frame: FrameType) -> None:
        self._lines[frame.f_code.co_qualname] += 1


@contextmanager
def counted() -> Iterator[Steps]:
    steps = Steps()

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            steps.count(frame)
        return line

    def call(frame: FrameType, _event: str, _: Any) -> Any:
        if frame.f_code is Handle._run.__code__:
            steps.end()
        return line

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield steps
    finally:
        sys.settrace(before)
        steps.end()
