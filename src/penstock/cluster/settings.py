"""How fast a cluster notices, and how much it moves at once."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    # A node that was not heard of for so long counts as dead, and may be replaced as a leader.
    lease_ms: int = 6_000
    announce_every_ms: int = 2_000
    read_every_ms: int = 500
    # A follower that was not level with its leader for so long leaves the ISR.
    lag_ms_max: int = 10_000
    isr_every_ms: int = 1_000
    # How long a leader keeps a fetch for which it has nothing yet.
    fetch_wait_ms: int = 500
    fetch_bytes_max: int = 1024 * 1024
    call_timeout_ms: int = 2_000
    # How long to leave alone what did not answer.
    retry_ms: int = 100

    def __post_init__(self) -> None:
        assert self.announce_every_ms * 2 < self.lease_ms, "one lost announcement must not cost a leader its place"
        assert self.fetch_wait_ms < self.call_timeout_ms, "a fetch that waits in vain must still be answered in time"
        assert self.fetch_wait_ms < self.lag_ms_max, "an idle follower must not look like one that lags"
