"""Noisy tenants: which groups of a standard queue are served only when nothing quiet waits.

A group is *noisy* while it holds more than its share of what is leased, and at least so
many messages; or while it has taken more than its share of the time for which messages
of groups were held lately. Thresholds are AWS's, and settings of the queue.

    held     a message is leased ──▶ +1        acked, released, lapsed ──▶ -1
    time     acked, released, lapsed ──▶ + how long it was held; halved each minute

Shares are of a whole, so with a threshold of ten percent fewer than ten groups are noisy
by each measure: whoever looks for a quiet group passes that many at most, and no list of
noisy groups is kept. Nobody is noisy for ever: a group that gets nothing holds less and
less, and its time is halved while that of the others grows.

Messages without a group are tenants of their own, each of them, so they are never noisy
and nothing of this is counted for them: a queue without groups pays nothing.

The time of a group is halved only when somebody looks at it or adds to it, by as many
minutes as have passed; so it is a pure function of what was added and when.
"""

from array import array
from collections.abc import Sequence

from penstock.contract.queue_settings import QueueSettings

RECENT_MS = 60_000


class Tenants:
    __slots__ = ("percent", "leased_min", "time_percent", "held", "time_ms", "minute", "total_ms", "total_minute")

    def __init__(self, settings: QueueSettings) -> None:
        self.follow(settings)
        # By group: messages leased now. It is kept for FIFO groups as well, which are closed by it.
        self.held = array("I", [0])
        # By group: for how long its messages were held lately, and the minute up to which that is halved.
        self.time_ms = array("Q", [0])
        self.minute = array("I", [0])
        self.total_ms = 0
        self.total_minute = 0

    def follow(self, settings: QueueSettings) -> None:
        """Judge by these settings from now on."""
        self.percent = settings.noisy_percent
        self.leased_min = settings.noisy_leased_min
        self.time_percent = settings.noisy_time_percent

    def grow(self) -> None:
        """There is one more group."""
        self.held.append(0)
        self.time_ms.append(0)
        self.minute.append(0)

    def forget(self, group: int) -> None:
        """A group has no messages any more: whoever has its number next begins anew."""
        self.time_ms[group] = 0

    def let_go(self, slots: Sequence[int], group_of: "array[int]", leased_ms: "array[int]", now_ms: int) -> None:
        """Rows are held no longer, of these groups, and leased then: what they took is counted."""
        held, time_ms, minutes, minute = self.held, self.time_ms, self.minute, now_ms // RECENT_MS
        total_ms = 0
        for slot in slots:
            group = group_of[slot]
            if not group:
                continue
            held[group] -= 1
            lasted_ms = now_ms - leased_ms[slot]
            if lasted_ms:
                if minutes[group] != minute:
                    time_ms[group] >>= minute - minutes[group]
                    minutes[group] = minute
                time_ms[group] += lasted_ms
                total_ms += lasted_ms
        if total_ms:
            self.total_ms = (self.total_ms >> (minute - self.total_minute)) + total_ms
            self.total_minute = minute

    def bounds(self, leased: int, now_ms: int) -> tuple[int, int]:
        """What no quiet group exceeds, when so many messages are leased: messages held, and recent time."""
        total_ms = self.total_ms >> (now_ms // RECENT_MS - self.total_minute)
        return max(self.leased_min - 1, self.percent * leased // 100), self.time_percent * total_ms // 100

    def exceeds_time(self, group: int, time_ms_most: int, now_ms: int) -> bool:
        return self.time_ms[group] >> (now_ms // RECENT_MS - self.minute[group]) > time_ms_most

    def is_noisy(self, group: int, leased: int, now_ms: int) -> bool:
        held_most, time_ms_most = self.bounds(leased, now_ms)
        return self.held[group] > held_most or self.exceeds_time(group, time_ms_most, now_ms)
