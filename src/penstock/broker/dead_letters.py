"""Rights on dead letters: what a caller needs on the queues that messages go to, not only on those it names.

A message moves to the dead letters of its queue and back by itself. The right is checked
when a caller decides where it goes:

    name a dead-letter queue     the right to send to it; to create it, if it is not there
    release, reject, time out    nothing more: the settings of the queue have decided
    requeue, redrive             the right to send to the queue that each message came from, or to `target_queue`
    delete with dead letters     the right to delete both

A queue's own `<name>.dead` belongs to the queue: no right on it is needed for messages to be buried there.
"""

from penstock.broker.access import Caller, NotAllowed, Role
from penstock.contract.names import dead_letters_of, fits
from penstock.contract.queue_settings import QueueSettings
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Description, Message
from penstock.store.placement import Placement


async def check_dead_letters(placement: Placement, caller: Caller, queue: str, settings: QueueSettings) -> None:
    """Raise `NotAllowed` unless the caller may let a queue with these settings bury where they say."""
    name = settings.dead_letters
    if name in {"", dead_letters_of(queue)} or caller.has(Role.ADMIN, name):
        return
    caller.check(Role.SEND, name)
    try:
        await placement.of(name).describe(name)
    except QueueNotFound:
        # It would be made with the first dead letter.
        caller.check(Role.ADMIN, name)


def check_takes_dead_letters(caller: Caller, description: Description) -> None:
    """Raise `NotAllowed` unless the caller may delete the dead letters of a queue with it."""
    if description.dead_letters is not None and not caller.has(Role.ADMIN, description.dead_letters):
        raise NotAllowed(
            f"the key {caller.name!r} does not have the role admin on the dead letters of {description.queue}"
        )


def check_goes_back(caller: Caller, message: Message) -> None:
    """Raise `NotAllowed` unless the caller may send a dead letter back to where it came from."""
    origin = None if message.past is None else message.past.queue
    if origin is not None and not caller.has(Role.SEND, origin):
        raise NotAllowed(
            f"the key {caller.name!r} does not have the role send on the queue that {message.id!r} came from; "
            "`target_queue` can name another"
        )


def goes_back(message: Message, patterns: tuple[str, ...]) -> bool:
    """Whether a dead letter came from a queue that fits one of some patterns; one whose queue is gone stays anyway."""
    origin = None if message.past is None else message.past.queue
    return origin is None or any(fits(pattern, origin) for pattern in patterns)
