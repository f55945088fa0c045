"""Ids, as the world sees them.

    message   <number of its first queue>-<number << 3 | lane>      1f-28a2
    queue     q_<number>                                            q_1f

in hexadecimal, lower case, without leading zeros: a message has one id and no
other text is one. A queue's number is never used again, so an id of a deleted
queue stays unknown for ever. Moved messages keep their ids.
"""

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple, overload

from penstock.contract.messages import TIERS
from penstock.contract.names import ID_PREFIX

_QUEUE = r"([1-9a-f][0-9a-f]{0,7})"
_MESSAGE = re.compile(_QUEUE + r"-(0|[1-9a-f][0-9a-f]{0,15})")
_QUEUE_ID = re.compile(ID_PREFIX + _QUEUE)


class Identity(NamedTuple):
    """What the id of a message is made of: the first queue it was in, and its lane and number there."""

    queue: int
    lane: int
    number: int


def message_id(queue: int, message: int) -> str:
    """Return the id of a message by the number of its first queue and its key there.

    >>> message_id(31, 5 << 3 | 2)
    '1f-2a'
    """
    return f"{queue:x}-{message:x}"


class MessageIds(Sequence[str]):
    """The ids of messages that are in their first queue; each is made only when it is looked at."""

    __slots__ = ("queue", "messages", "_form")

    def __init__(self, queue: int, messages: Sequence[int]) -> None:
        self.queue = queue
        self._form = f"{queue:x}-%x"
        self.messages = messages

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return [self._form % message for message in self.messages[row]]
        return self._form % self.messages[row]

    def __iter__(self) -> Iterator[str]:
        return map(self._form.__mod__, self.messages)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(list(self))


class ColumnIds(Sequence[str]):
    """The ids of messages by columns of what they are made of; each is made only when it is looked at."""

    __slots__ = ("_queues", "_lanes", "_numbers")

    def __init__(self, queues: Sequence[int], lanes: Sequence[int], numbers: Sequence[int]) -> None:
        self._queues = queues
        self._lanes = lanes
        self._numbers = numbers

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, row: int) -> str: ...

    @overload
    def __getitem__(self, row: slice) -> list[str]: ...

    def __getitem__(self, row: int | slice) -> str | list[str]:
        if isinstance(row, slice):
            return list(ColumnIds(self._queues[row], self._lanes[row], self._numbers[row]))
        return message_id(self._queues[row], self._numbers[row] << 3 | self._lanes[row])

    def __iter__(self) -> Iterator[str]:
        columns = zip(self._queues, self._lanes, self._numbers, strict=True)
        return (f"{queue:x}-{number << 3 | lane:x}" for queue, lane, number in columns)


def parse(text: str) -> Identity | None:
    """Return what an id names, or None if no message can have it.

    >>> parse("1f-2a")
    Identity(queue=31, lane=2, number=5)
    >>> [parse(text) for text in ("1F-2a", "1f-02a", "1f", "1f-2f", "1f-2a ")]
    [None, None, None, None, None]
    """
    found = _MESSAGE.fullmatch(text)
    if found is None:
        return None
    message = int(found[2], 16)
    return Identity(int(found[1], 16), message & 7, message >> 3) if message & 7 < TIERS else None


def queue_id(queue: int) -> str:
    return f"{ID_PREFIX}{queue:x}"


def parse_queue(text: str) -> int | None:
    """Return the number of the queue with this id, or None if no queue can have it.

    >>> parse_queue("q_1f"), parse_queue("orders")
    (31, None)
    """
    found = _QUEUE_ID.fullmatch(text)
    return None if found is None else int(found[1], 16)
