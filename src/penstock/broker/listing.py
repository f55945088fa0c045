"""The names of queues that a caller may see, page by page: others are neither shown nor hinted at."""

from collections.abc import Iterable

from penstock.broker.access import Caller, Role
from penstock.contract.limits import PAGE_MAX
from penstock.store.interface import QueueStore


async def visible_queues(
    store: QueueStore, caller: Caller, *, prefix: str = "", after: str = "", most: int = PAGE_MAX
) -> list[str]:
    """Return names as `QueueStore.queues` does, of queues that the caller may see.

    A page is short only where the names end, so where to go on is always a name that was shown.
    """
    patterns = caller.patterns(Role.SEE)
    if patterns is None:
        return await store.queues(prefix=prefix, after=after, most=most)
    found: list[str] = []
    for each in _prefixes(patterns, prefix):
        last = after
        while len(found) < most:
            names = await store.queues(prefix=each, after=last, most=PAGE_MAX)
            found += filter(caller.may_list, names)
            if len(names) < PAGE_MAX:
                break
            last = names[-1]
    return found[:most]


def _prefixes(patterns: Iterable[str], prefix: str) -> list[str]:
    """Return what all names begin with that fit a pattern and have the prefix, sorted, none within another.

    >>> _prefixes(["orders*", "orders.eu*", "mail", "*"], "")
    ['']
    >>> _prefixes(["orders*", "orders.eu*", "mail"], "")
    ['mail', 'orders']
    >>> _prefixes(["orders*", "mail"], "orders.e")
    ['orders.e']
    """
    fixed = {pattern.partition("*")[0] for pattern in patterns}
    wanted = sorted(
        {max(each, prefix, key=len) for each in fixed if each.startswith(prefix) or prefix.startswith(each)}
    )
    found: list[str] = []
    for each in wanted:
        if not found or not each.startswith(found[-1]):
            found.append(each)
    return found
