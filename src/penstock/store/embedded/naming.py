"""What the world calls things, and what they are here: ids, keys, queues of long ago."""

from collections.abc import Callable, Sequence

from penstock.core.queue import queries
from penstock.core.queue.message import Origin
from penstock.core.queue.state import State
from penstock.store.ids import MessageIds, message_id, parse, queue_id
from penstock.store.interface import Past

# From the number of a queue to its name, None if it is deleted.
NameOf = Callable[[int], str | None]


def id_of(state: State, message: int) -> str:
    """Return the id of a message: number and lane in the queue it was first sent to."""
    queue, lane, number = queries.identity(state, message)
    return message_id(queue, number << 3 | lane)


def ids_of(state: State, messages: Sequence[int]) -> Sequence[str]:
    if not state.rows.origins:
        return MessageIds(state.queue, messages)
    return [id_of(state, message) for message in messages]


def key_of(state: State, text: str) -> int | None:
    """Return the key of the message with this id, None if it cannot be in this queue. It may be settled."""
    identity = parse(text)
    if identity is None:
        return None
    message = queries.find(state, *identity)
    # A message that came from elsewhere has a number here, but that is no part of its id.
    return message if message is not None and queries.identity(state, message) == identity else None


def past_of(origin: Origin | None, name_of: NameOf) -> Past | None:
    if origin is None:
        return None
    return Past(name_of(origin.queue), queue_id(origin.queue), origin.sent_at_ms, origin.deliveries)
