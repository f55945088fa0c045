"""What a store raises, beside what the core and the log raise."""


class QueueNotFound(Exception):
    """There is no queue of this name, or of this id."""


class QueueExists(Exception):
    """There is a queue of this name, with other settings."""


class StoreUnreachable(Exception):
    """The store is elsewhere, and does not answer: what it was asked for may be done or not. Asking again may help."""


class OutcomeUnknown(StoreUnreachable):
    """It is done where it was asked for, and may be lost from there: what would confirm it did not answer in time."""


class DeadLettersShared(Exception):
    """Other queues bury in the same queue, so it does not go with one of them."""


class NotWrittenYet(ValueError):
    """The history has not come to this offset: no reader can have read what is below it."""


class ShardNotFound(Exception):
    """The store has no shard of this number."""


# Why a store that is there does not do what it was asked for. Each message says what helps, and may be shown. A folder
# of this machine refuses in its own words; these are for a store that another party runs, such as a database.


class StoreRefuses(StoreUnreachable):
    """It did not do it, for want of room or time, say: asking again may help."""


class NotConfirmed(StoreRefuses):
    """It did nothing, because nothing would confirm it: a synchronous standby is missing, say."""


class StoreTurnsAway(StoreUnreachable):
    """It does not let us in, for a wrong name or password, say. Until that is mended, asking again is of no use."""


class StoreForbids(Exception):
    """It may not do this, for want of a right."""


class StoreUnfit(Exception):
    """It cannot be used as a store, and asking again does not help."""
