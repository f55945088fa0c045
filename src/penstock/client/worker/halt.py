"""When to stop: shared by the consumers of one worker.

`begun` is the wish to stop in good order, and hurrying the wish not to wait for work that runs. With ``is_until_idle``
it begins by itself, once every queue was found empty after the last thing that happened in any of them.
"""

import asyncio
from collections.abc import Callable


class Halt:
    def __init__(self, *, drain_s: float, is_until_idle: bool = False) -> None:
        self.drain_s = drain_s
        self.is_until_idle = is_until_idle
        self.begun = asyncio.Event()
        self.is_hurried = False
        # Counts what happens to messages.
        self.happened = 0
        # For each consumer, what had happened before it last found nothing.
        self._empty: dict[str, int] = {}
        self._on_hurry: list[Callable[[], None]] = []

    def join(self, consumer: str, on_hurry: Callable[[], None]) -> None:
        self._empty[consumer] = -1
        self._on_hurry.append(on_hurry)

    def found_nothing(self, consumer: str, since: int) -> None:
        """A queue was empty, asked after ``since`` things had happened, with nothing in hand."""
        self._empty[consumer] = since
        if self.is_until_idle and all(each == self.happened for each in self._empty.values()):
            self.begun.set()

    def stop(self) -> None:
        """Stop; the second time, hurry."""
        if self.begun.is_set():
            self.hurry()
        self.begun.set()

    def hurry(self) -> None:
        self.begun.set()
        self.is_hurried = True
        for call in self._on_hurry:
            call()
