"""Moves to queues of other shards, which no single event can do.

    source   Moving ──────────────────────────────▶ Moved     settles them, or puts them back
                │                                     ▲
    target      └──▶ Arrived, once for each sequence ─┘

Each step is in the journal of its own shard. A queue has one move on its way at a
time and counts its moves; the target remembers the highest count of each source, so
whoever does not know whether a move arrived asks again, as often as needed.
"""

from typing import NamedTuple

from penstock.core.queue.message import Run


class Move(NamedTuple):
    """Messages on their way to another queue."""

    into: int
    # Counts the moves of the source, from 1.
    sequence: int
    # Dead letters that go back, or spent messages to be buried.
    is_redrive: bool
    # One run of length 1 for each message.
    runs: tuple[Run, ...]


class Moves:
    __slots__ = ("pending", "started", "arrived")

    def __init__(self) -> None:
        self.pending: Move | None = None
        # How many moves have begun here.
        self.started = 0
        # By source, the highest sequence that came here. There are no more of them than queues.
        self.arrived: dict[int, int] = {}

    @property
    def count(self) -> int:
        """How many messages are on their way."""
        return 0 if self.pending is None else len(self.pending.runs)
