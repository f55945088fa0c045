"""What queues and topics may be called.

    stem     1 to 80 of A-Z a-z 0-9 _ - . and not a dot first, nor "q_"
    name     a stem, or a stem and ".dead"

That is what SQS allows, and dots: a name is one segment of an address, needs no
escape there, and cannot be taken for a step up. "q_" begins the id of a queue, so
that one word can be either. An ending of ".dead" is not counted: whatever a queue
is called, its dead letters can be named after it.
"""

import re

from penstock.contract.limits import QUEUE_NAME_CHARACTERS_MAX

DEAD = ".dead"
ID_PREFIX = "q_"

# The longest name of a queue, and what it, an id of one, and a topic may look like.
NAME_CHARACTERS_MAX = QUEUE_NAME_CHARACTERS_MAX + len(DEAD)
NAME_PATTERN = rf"^(?!{ID_PREFIX})[A-Za-z0-9_-][A-Za-z0-9_.-]{{0,{QUEUE_NAME_CHARACTERS_MAX - 1}}}(\{DEAD})?$"
NAME_OR_ID_PATTERN = r"^[A-Za-z0-9_-][A-Za-z0-9_.-]*$"
TOPIC_NAME_PATTERN = r"^(?!\.{1,2}$)[A-Za-z0-9._-]+$"

_STEM = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class BadName(ValueError):
    """This is not what a queue may be called; the message says why."""


def check_name(name: str, *, field: str = "queue") -> None:
    """Raise `BadName`, which names ``field``, if no queue may be called so."""
    stem = name.removesuffix(DEAD)
    if not 1 <= len(stem) <= QUEUE_NAME_CHARACTERS_MAX:
        bounds = f"it has 1 to QUEUE_NAME_CHARACTERS_MAX ({QUEUE_NAME_CHARACTERS_MAX}), a last {DEAD!r} not counted"
        raise BadName(f"{field} is a name of {len(stem)} characters; {bounds}")
    if not _STEM.fullmatch(stem):
        raise BadName(f"{field} is {name!r}; a name has A-Z a-z 0-9 _ - and dots, and no dot first")
    if stem.startswith(ID_PREFIX):
        raise BadName(f"{field} is {name!r}; names that begin with {ID_PREFIX!r} are those of ids")


def is_name(name: str) -> bool:
    """Whether a queue may be called so."""
    try:
        check_name(name)
    except BadName:
        return False
    return True


def dead_letters_of(queue: str) -> str:
    """What the dead letters of a queue are called, if its settings do not say."""
    return queue + DEAD


def is_dead_letters(name: str) -> bool:
    """Whether a queue is for dead letters by its name alone."""
    return name.endswith(DEAD)
