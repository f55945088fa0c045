"""Makes the next chunk while the server is still at the one before.

A task has one request under way at most, so chunks arrive in their order and the manifest has one
of them in doubt at most. What it does not do is wait idly: rows are fetched from Spark, cut and
encoded between a request and its answer.
"""

from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Ahead(Generic[Item]):
    """What an iterator gives, of which one item may be made before it is asked for.

    >>> items = Ahead(iter("ab"))
    >>> items.make()
    >>> list(items)
    ['a', 'b']
    """

    def __init__(self, items: Iterator[Item]) -> None:
        self._items = items
        # One at most.
        self._made: list[Item] = []
        self._failure: Exception | None = None

    def make(self) -> None:
        """Make the next item, unless it is there. What goes wrong is raised when that item is asked for."""
        if self._made or self._failure is not None:
            return
        try:
            self._made.append(next(self._items))
        except StopIteration:
            pass
        except Exception as failure:
            self._failure = failure

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        self.make()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        if not self._made:
            raise StopIteration
        return self._made.pop()
