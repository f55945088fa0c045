"""When messages of a queue may become leasable: by which events, and when by the clock alone.

For whoever waits for messages. Both answers may be too generous and never too
mean: to look in vain costs little, to sleep through a message is a promise broken.

    event                               who may have something to lease
    ──────────────────────────────────  ──────────────────────────────────────────────
    sent, released, arrived, moved      its queue
    buried, redriven                    the queue they went to; a FIFO queue they left
    acked, expired                      a FIFO queue: the next of the group
    extended                            nobody; but if it ends sooner now, sooner
    queue made, changed, deleted        its queue: resumed, or gone
    caught up                           its queue: something has woken or lapsed

A lease wakes nobody, though it will lapse: whoever leased knows until when.
"""

from collections.abc import Callable
from typing import Any

from penstock.core.queue.events import (
    Acked,
    Arrived,
    Buried,
    CaughtUp,
    Event,
    Expired,
    Extended,
    Moved,
    QueueChanged,
    QueueCreated,
    QueueDeleted,
    Redriven,
    Released,
    Returned,
    Sent,
)
from penstock.core.queue.state import State
from penstock.core.queue.timer_wheel import NEVER


def wakes_at_ms(state: State) -> int | None:
    """When a lease lapses or a resting message wakes, whichever is first; None if neither ever does.

    The caller has moved the queue to the present. Timers that hold no more are
    passed over, a few at a time: then the answer is too early.
    """
    if state.settings.is_paused or state.is_behind:
        return None
    lapses_ms = state.leases.wheel.next_held_ms(state.leases.held_timers) if state.leases.live else NEVER
    wakes_ms = state.delays.next_held_ms(state.held_delays) if state.resting else NEVER
    first_ms = min(lapses_ms, wakes_ms)
    return None if first_ms == NEVER else first_ms


def _always(_state: State, _event: Event) -> bool:
    return True


def _if_fifo(state: State, _event: Event) -> bool:
    """Whoever settles the head of a group opens it for the next."""
    return state.settings.is_fifo


def _if_sooner(state: State, event: Extended) -> bool:
    slot = event.lease & 0xFFFF_FFFF
    return event.at_ms + event.lease_ms < state.leases.until_ms[slot] or slot in state.leases.deadlines


# Whether an event wakes the queue that it is of, which is asked before the event is applied. Of those that move
# messages to another queue, the other queue always wakes.
WAKING: dict[type[Event], Callable[[State, Any], bool]] = {
    Sent: _always,
    Released: _always,
    Returned: _always,
    Arrived: _always,
    Moved: _always,
    QueueCreated: _always,
    QueueChanged: _always,
    QueueDeleted: _always,
    CaughtUp: _always,
    Buried: _if_fifo,
    Redriven: _if_fifo,
    Acked: _if_fifo,
    Expired: _if_fifo,
    Extended: _if_sooner,
}
