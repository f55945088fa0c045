"""Sending twice is sending once: the ids a queue remembers, and for how long.

In the scope `live` an id is free again when its message is settled. In the
scopes `window` and `content` it is free a fixed time after the first send,
whatever became of the message: that is what a sender that lost an answer needs.
"""

from collections import deque
from collections.abc import Sequence

from penstock.core.queue.timer_wheel import NEVER


class Dedup:
    """Ids and the message each one stands for, as the key of its lane and number."""

    __slots__ = ("live", "window", "order")

    def __init__(self) -> None:
        self.live: dict[bytes, int] = {}
        self.window: dict[bytes, tuple[int, int]] = {}
        # In the order of forgetting, as long as the window is not changed.
        self.order: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self.live) + len(self.window)

    def taken(self, names: Sequence[bytes], now_ms: int) -> dict[int, int]:
        """The rows whose ids are taken, each with the message it repeats, or with -1 - row of an earlier row."""
        live, window = self.live, self.window
        taken: dict[int, int] = {}
        here: dict[bytes, int] = {}
        for row, name in enumerate(names):
            if not name:
                continue
            if name in live:
                taken[row] = live[name]
            elif name in window and window[name][1] > now_ms:
                taken[row] = window[name][0]
            elif name in here:
                taken[row] = -1 - here[name]
            else:
                here[name] = row
        return taken

    def remember(self, name: bytes, message: int, until_ms: int) -> None:
        """Take an id for a while."""
        self.window[name] = (message, until_ms)
        self.order.append((until_ms, name))

    def forget(self, now_ms: int) -> None:
        """Free the ids whose time has come."""
        order = self.order
        while order and order[0][0] <= now_ms:
            until_ms, name = order.popleft()
            remembered = self.window.get(name)
            # An id may have been taken again since.
            if remembered is not None and remembered[1] <= until_ms:
                del self.window[name]

    def next_ms(self) -> int:
        return self.order[0][0] if self.order else NEVER
