"""Counts requests by operation and status, and how long they took, without a label being looked up on the way.

A cell for each operation and status is found by one look into a dict; the buckets of a
histogram are a list. What Prometheus wants is made of it when it asks.
"""

from bisect import bisect_left
from collections.abc import Callable, Mapping
from typing import Any

BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)

Scope = Mapping[str, Any]


class Cell:
    __slots__ = ("buckets", "seconds")

    def __init__(self) -> None:
        # One more than there are bounds: what took longer than the last.
        self.buckets = [0] * (len(BOUNDS_S) + 1)
        self.seconds = 0.0

    @property
    def count(self) -> int:
        return sum(self.buckets)

    def add(self, other: "Cell") -> None:
        self.buckets = [mine + others for mine, others in zip(self.buckets, other.buckets, strict=True)]
        self.seconds += other.seconds


class Requests:
    """``name_of`` says which operation a request was for. There are few, so there are few cells."""

    def __init__(self, name_of: Callable[[Scope], str]) -> None:
        self._name_of = name_of
        self.cells: dict[tuple[str, int], Cell] = {}

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        key = self._name_of(scope), status
        cell = self.cells.get(key)
        if cell is None:
            cell = self.cells[key] = Cell()
        cell.buckets[bisect_left(BOUNDS_S, seconds)] += 1
        cell.seconds += seconds

    def by_operation(self) -> dict[str, Cell]:
        found: dict[str, Cell] = {}
        for (operation, _), cell in self.cells.items():
            found.setdefault(operation, Cell()).add(cell)
        return found
