"""The share of one key in what all share, so that one key cannot use up a limit and leave nothing to the others.

    long polls, waiting fetches, running redrives     counted while they last, by the name of the key
    consumer groups, partitions                       counted by name: those that the key may use, made by any key

A key with the role `admin` on all queues may have all: it can delete what others have anyway. So may
the one caller of a server without keys.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.broker.access import Caller
from penstock.contract.limits import KEY_SHARE_PERCENT


class Share:
    """So many percent of a limit for each key."""

    __slots__ = ("percent",)

    def __init__(self, percent: int = KEY_SHARE_PERCENT) -> None:
        self.percent = percent

    def most(self, caller: Caller, limit: int) -> int:
        """Return how many a caller may have where all may have ``limit``: at least one.

        >>> from penstock.broker.access import ANONYMOUS_ADMIN
        >>> Share(25).most(ANONYMOUS_ADMIN, 100), Share(25).most(Caller("shop", ()), 100)
        (100, 25)
        """
        return limit if caller.is_owner else max(1, limit * self.percent // 100)


class Holds:
    """What each key holds at this moment of something that all may have ``limit`` of."""

    def __init__(self, limit: int, share: Share, refusal: Callable[[int], Exception]) -> None:
        self._limit = limit
        self._share = share
        self._refusal = refusal
        self._held: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: Caller) -> Iterator[None]:
        """Hold one more within this. Raises the refusal if the key holds its share already."""
        most = self._share.most(caller, self._limit)
        name = caller.name
        if not caller.is_owner and self._held[name] >= most:
            raise self._refusal(most)
        self._held[name] += 1
        try:
            yield
        finally:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
