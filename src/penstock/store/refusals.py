"""Why a store that is there does not do what it was asked for. Each message says what helps, and may be shown.

One that has nothing of its own, such as a folder of this machine, refuses in its own words: these are of one that
somebody else looks after.
"""

from penstock.store.interface import StoreUnreachable


class StoreRefuses(StoreUnreachable):
    """It did not do it, for want of room or time, say: asking again may help."""


class StoreTurnsAway(StoreUnreachable):
    """It does not let us in, for a wrong name or password, say. Until that is mended, asking again is of no use."""


class StoreForbids(Exception):
    """It may not do this, for want of a right."""


class StoreUnfit(Exception):
    """It cannot be used as a store, and asking again does not help."""
