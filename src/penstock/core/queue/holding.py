"""Messages whose lease has lapsed are held again by it, as long as they were not leased since.

A late message waits like any other: on a shelf, or as a row. What became a row only when
its lease lapsed takes the place of its number in the lease.
"""

from penstock.core.queue.rows import LEASED, WAITING
from penstock.core.queue.state import State


def late(state: State, lease: int, token: int, mask: int) -> int:
    """Which messages of a lease have lapsed and wait: the others are about to be buried, or on their way elsewhere."""
    leases = state.leases
    slot = leases.find(lease)
    if slot < 0 or leases.token[slot] != token:
        return 0
    found = 0
    for bit, (lane, number, row) in leases.each(slot, mask & leases.late.get(slot, 0)):
        at = row or state.slot_of(lane, number)
        if not at or state.rows.state[at] == WAITING:
            found |= 1 << bit
    return found


def hold_again(state: State, slot: int, mask: int) -> None:
    """Late messages, which wait, are held again by the lease they came from."""
    leases = state.leases
    if not leases.held[slot]:
        leases.live += 1
    # First: a lease that neither holds anything nor is late with anything is forgotten.
    leases.held[slot] |= mask
    state.leased += mask.bit_count()
    for _, (lane, number, row) in list(leases.each(slot, mask)):
        at = row or state.slot_of(lane, number)
        if at:
            if not row:
                leases.loosen(slot, lane, number, at)
            _hold_row(state, at)
        else:
            state.take_run(state.lanes[lane], state.shelf_tier(state.lanes[lane], number), number, number + 1)


def _hold_row(state: State, slot: int) -> None:
    rows = state.rows
    lease, bit = rows.lease[slot], rows.bit[slot]
    if rows.group[slot]:
        state.groups.hold(slot)
    state.leave(slot)
    rows.state[slot], rows.lease[slot], rows.bit[slot] = LEASED, lease, bit
