"""Settling everything a queue holds, at once.

Columns are not emptied, new ones are put in their place: that takes as long for a
million rows as for one, and leaves the old ones to those who tell of them
(`settling.Everything`).

What is on its way to another queue stays: only whoever moves it knows where it is.
"""

from penstock.contract.messages import TIERS
from penstock.core.queue.leases import Leases
from penstock.core.queue.message_groups import Groups
from penstock.core.queue.rows import LEASED, MOVING, Rows
from penstock.core.queue.state import State
from penstock.core.queue.timer_wheel import Wheel


def purge(state: State) -> None:
    if state.moves.pending is None:
        _forget_rows(state)
    else:
        _settle_rows(state)
    rows = state.rows
    for lane in state.lanes:
        lane.clear()
        lane.live = sum(rows.lane[slot] == lane.tier for slot in rows.index.values())
    # Slots begin anew, and ids of leases with them: what tells a receipt of before from one of now is its token.
    state.leases = Leases()
    state.ready[:] = [0] * TIERS
    state.plain[:] = [0] * TIERS
    state.leased = 0
    state.find_due()


def _forget_rows(state: State) -> None:
    state.rows = Rows()
    state.groups = Groups(state.rows, state.plain, state.settings)
    state.resting = 0
    state.delays, state.aging, state.reverts = Wheel(), Wheel(), Wheel()
    state.spent = {}
    state.dedup.live = {}


def _settle_rows(state: State) -> None:
    """Settle the rows one by one, except those that move."""
    rows = state.rows
    for slot in [slot for slot in rows.index.values() if rows.state[slot] != MOVING]:
        if rows.state[slot] == LEASED:
            state.settle_rows([slot], was_leased=True)
        else:
            state.leave(slot)
            state.settle_rows([slot])
