"""How much a store keeps beside what is live in it: a choice between memory and disk, time and safety."""

from dataclasses import dataclass

from penstock.contract.limits import GIB, MIB
from penstock.contract.queue_settings import DAY_MS, MINUTE_MS
from penstock.log.settings import LogSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionLimits:
    # Bodies of the last sends, in memory.
    hot_bytes: int = 64 * MIB
    # Two, so that a damaged one is an annoyance: the journal goes back to the older. One where nothing is ever damaged.
    snapshots: int = 2
    # A snapshot may take one part of the time of a processor to so many parts without.
    rest_factor: int = 9
    # How long, and how much of it, history is kept: whole segments go when either is exceeded.
    history_ms: int = 7 * DAY_MS
    history_bytes: int = 10 * GIB
    # Believe a clock that is far ahead of the journals, and let messages expire by it (`shard_set.py`).
    trusts_clock: bool = False


ON_DISK = RetentionLimits()

# Where the disk is memory, what is dead must go soon, and reading back costs next to nothing.
IN_MEMORY = RetentionLimits(hot_bytes=MIB, snapshots=1, rest_factor=1, history_ms=10 * MINUTE_MS, history_bytes=8 * MIB)
IN_MEMORY_JOURNAL = LogSettings(sync="os", segment_bytes_max=4 * MIB, spare_bytes=0)
IN_MEMORY_UPKEEP_MS = 100
