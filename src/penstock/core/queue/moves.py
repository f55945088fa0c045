"""Decisions about messages that go to another queue: to the dead letters, and back.

Within a shard both queues apply one event (`Buried`, `Redriven`). Between shards it
takes three (`cross_shard_moves.py`). Which messages go, and what is said of them, is the same.
"""

from collections.abc import Collection, Sequence
from itertools import islice
from typing import NamedTuple

from penstock.contract.limits import EVENT_RUNS_MAX
from penstock.core.queue.message import Origin, Run
from penstock.core.queue.rows import RESTING, WAITING
from penstock.core.queue.state import State


class Columns(NamedTuple):
    """What a move says of its messages, with a row for each."""

    runs: tuple[Run, ...]
    tiers: bytes
    origins: tuple[Origin, ...]
    groups: tuple[bytes, ...]
    errors: tuple[str, ...]


def spent(state: State, most: int) -> list[int]:
    """The rows that have waited longest to be buried."""
    return list(islice(state.spent, min(most, EVENT_RUNS_MAX)))


def dead_letters(state: State, most: int, origin: int | None, only: Collection[int] | None) -> list[int]:
    """The rows that may be redriven now: those from one queue, or of some keys, if that is asked for."""
    rows, origins = state.rows, state.rows.origins
    # Those of some keys are not searched for among all.
    meant = origins if only is None else (slot for each in only if (slot := rows.index.get(each, 0)) in origins)
    free = (slot for slot in meant if rows.state[slot] in {WAITING, RESTING} and origin in {None, origins[slot].queue})
    return list(islice(free, min(most, EVENT_RUNS_MAX)))


def runs_of(state: State, slots: Sequence[int]) -> tuple[Run, ...]:
    rows = state.rows
    return tuple(Run(rows.lane[slot], rows.number[slot], 1) for slot in slots)


def columns(state: State, slots: Sequence[int]) -> Columns:
    rows, names = state.rows, state.groups.names
    return Columns(
        runs_of(state, slots),
        bytes([rows.lane[slot] for slot in slots]),
        tuple(_origin(state, slot) for slot in slots),
        tuple(names[rows.group[slot]] for slot in slots),
        tuple(rows.errors.get(slot, "") for slot in slots),
    )


def _origin(state: State, slot: int) -> Origin:
    rows = state.rows
    before = rows.origins.get(slot)
    if before is not None:
        return before._replace(deliveries=before.deliveries + rows.deliveries[slot])
    return Origin(state.queue, rows.lane[slot], rows.number[slot], rows.sent_at_ms[slot], rows.deliveries[slot])
