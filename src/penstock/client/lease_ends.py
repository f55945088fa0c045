"""When a lease ends, as far as it can be known on this side.

The server's clock decides, and ours may be minutes away from it. Where the length of the lease is known, its end lies
between the moment we asked and the moment we were answered, plus that length: by a clock that only counts, so nobody's
time of day matters. Otherwise the server's time of day is all there is, and it is believed if it lies ahead.
"""

import time
from typing import NamedTuple


class LeaseEnd(NamedTuple):
    """Two instants of `time.monotonic`: the lease does not end before the first, nor after the second."""

    earliest_s: float
    latest_s: float


UNKNOWN = LeaseEnd(float("-inf"), float("inf"))


def end_of(lease_s: float, asked_at_s: float) -> LeaseEnd:
    """The end of a lease of known length that was asked for then and is answered now."""
    return LeaseEnd(asked_at_s + lease_s, time.monotonic() + lease_s)


def end_by_time_of_day(until_ms: int) -> LeaseEnd:
    left_s = until_ms / 1_000 - time.time()
    end_s = time.monotonic() + left_s
    return LeaseEnd(end_s, end_s) if left_s > 0 else UNKNOWN
