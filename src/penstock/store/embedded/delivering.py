"""From a lease to what a worker is given: numbers become ids and bodies.

A delivery of plain runs costs nothing for each message here beside its id and its
body; what only rows have is looked for only where there are rows.
"""

from penstock.core.queue import queries
from penstock.core.queue.events import Leased
from penstock.core.queue.state import State
from penstock.store.embedded.naming import NameOf, ids_of, past_of
from penstock.store.embedded.shard import Shard
from penstock.store.interface import Delivery, Past


class Handed:
    """What was leased by an event that was just applied, as it is at this moment; its bodies are still to be read."""

    __slots__ = ("_shard", "_event", "_contents", "_ids", "_errors", "_pasts", "_spans")

    def __init__(self, shard: Shard, state: State, event: Leased, name_of: NameOf) -> None:
        self._shard = shard
        self._event = event
        self._contents = queries.contents(state, event)
        self._ids = ids_of(state, self._contents.messages)
        self._errors, self._pasts = _told(state, event, name_of)
        self._spans = shard.memory.places[event.queue].spans(event.runs)

    async def delivery(self) -> Delivery:
        event, contents = self._event, self._contents
        bodies, attributes = await self._shard.bodies(self._spans)
        return Delivery(
            event.lease,
            event.token,
            self._ids,
            bodies,
            attributes,
            contents.tiers,
            contents.deliveries,
            contents.sent_at_ms,
            contents.groups,
            event.at_ms + event.lease_ms,
            self._errors,
            self._pasts,
            contents.first_leased_at_ms,
        )


def _told(state: State, event: Leased, name_of: NameOf) -> tuple[list[str] | None, list[Past | None] | None]:
    """Return errors and pasts of what was leased, in its order."""
    rows = state.rows
    if not rows.errors and not rows.origins:
        return None, None
    errors: list[str] = []
    pasts: list[Past | None] = []
    for lane, first, length in event.runs:
        # A run is rows throughout or not at all.
        if first << 3 | lane not in rows.index:
            errors += [""] * length
            pasts += [None] * length
            continue
        for number in range(first, first + length):
            slot = rows.index[number << 3 | lane]
            errors.append(rows.errors.get(slot, ""))
            pasts.append(past_of(rows.origins.get(slot), name_of))
    return errors if any(errors) else None, pasts if any(pasts) else None
