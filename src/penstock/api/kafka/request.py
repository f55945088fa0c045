"""What every request is answered with: the broker's parts, who asks, and from where.

A caller's rights are Kafka's numbers of operations (KIP-430), each a bit. Which
of them a role amounts to is the table in the reference, "Who may do what".
"""

import asyncio
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from enum import IntEnum
from types import SimpleNamespace
from typing import Any, TypeVar

from penstock.api.kafka.errors import GroupNotAllowed, TopicNotAllowed
from penstock.broker.access import Access, Caller, Role, spoken
from penstock.broker.activity import Activity
from penstock.broker.consumer_groups import Groups
from penstock.broker.topics import StoreUnreachable, Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.runtime.system import SystemClock
from penstock.streams.interface import Broker, Brokers, Topic, TopicNotFound

K = TypeVar("K")
T = TypeVar("T")
U = TypeVar("U")

# The slowest, a topic with all its settings, takes a third of a millisecond.
_TURN_ITEMS = 10

NODE_ID = 0
CLUSTER_ID = "penstock"


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    topics: Topics
    groups: Groups
    access: Access
    # The address given to clients; None for the one they used.
    advertised: tuple[str, int] | None = None
    # Whether a requested topic that is not there is made.
    has_auto_create: bool = True
    # What a topic is like if its maker does not say.
    topic_defaults: TopicSettings = field(default_factory=TopicSettings)
    # Within this topics are made; it says which ones a caller may not have, and why.
    making_topics: Callable[[Caller, Sequence[str]], AbstractAsyncContextManager[dict[str, Exception]]]
    # The other servers, where there may be some.
    brokers: Brokers | None = None
    activity: Activity = field(default_factory=lambda: Activity.in_memory(SystemClock().now_ms))


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read."""

    service: Service
    caller: Caller
    version: int
    client_id: str
    client_host: str
    # Where the client has found us.
    here: tuple[str, int]
    body: SimpleNamespace

    @property
    def address(self) -> tuple[str, int]:
        """The address given to clients."""
        return self.service.advertised or self.here

    @property
    def node_id(self) -> int:
        brokers = self.service.brokers
        return NODE_ID if brokers is None else brokers.own_number

    async def brokers(self) -> list[Broker]:
        """Return the servers there are, this one first, by the address that the client knows it by."""
        here = Broker(self.node_id, *self.address)
        if self.service.brokers is None:
            return [here]
        try:
            return [here, *await self.service.brokers.others()]
        except StoreUnreachable:
            return [here]

    async def create_topics(self, wanted: Sequence[tuple[str, TopicSettings]]) -> list[Topic | Exception]:
        """Make topics, durably, but none beyond what the caller may have; return each, or why there is none."""
        async with self.service.making_topics(self.caller, [name for name, _ in wanted]) as refused:
            made = iter(
                await self.service.topics.streams.create_all([each for each in wanted if each[0] not in refused])
            )
        return [refused[name] if name in refused else next(made) for name, _ in wanted]

    async def did(self, action: str, *targets: str, detail: str = "") -> None:
        """Write down what was done, before it is answered."""
        label = self.client_id
        await self.service.activity.record(self.caller, action, *targets, via="kafka", label=label, detail=detail)

    def check_topic(self, role: Role, topic: str) -> None:
        check_topic(self.caller, role, topic)

    def find_by_id(self, role: Role, topic_id: bytes) -> Topic:
        return find_by_id(self.service.topics, self.caller, role, topic_id)

    def check_group(self, role: Role, group: str) -> None:
        if not self.caller.has(role, group):
            raise GroupNotAllowed(f"the key {self.caller.name!r} does not have the {spoken(role)} on {group}")


Values = Mapping[str, Any]
Answer = Callable[[Request], Awaitable[Values]]


def find_by_id(topics: Topics, caller: Caller, role: Role, topic_id: bytes) -> Topic:
    """Return a topic; to a caller who may not see it, an id that is there looks like one that is not."""
    topic = topics.streams.find_by_id(topic_id)
    if not caller.may_list(topic.name):
        raise TopicNotFound("there is no topic of this id")
    check_topic(caller, role, topic.name)
    return topic


def check_topic(caller: Caller, role: Role, topic: str) -> None:
    if not caller.has(role, topic):
        raise TopicNotAllowed(f"the key {caller.name!r} does not have the {spoken(role)} on {topic}")


async def read_in_turns(reading: Generator[None, None, T]) -> T:
    """Return what is read, with a turn for others where the reader yields."""
    while True:
        try:
            next(reading)
        except StopIteration as end:
            found: T = end.value
            return found
        await asyncio.sleep(0)


async def in_turns(items: Iterable[T], act: Callable[[T], U]) -> list[U]:
    """Return what comes of each item; there may be thousands, and others have their turn between."""
    found: list[U] = []
    for item in items:
        found.append(act(item))
        if len(found) % _TURN_ITEMS == 0:
            await asyncio.sleep(0)
    return found


def once_each(rows: Iterable[SimpleNamespace], key: Callable[[SimpleNamespace], K]) -> dict[K, SimpleNamespace | None]:
    """Return rows by their keys; None for those that are there more than once, of which nothing is done."""
    found: dict[K, SimpleNamespace | None] = {}
    for row in rows:
        found[key(row)] = None if key(row) in found else row
    return found


class Operation(IntEnum):
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


_OF_TOPICS = {
    Role.SEE: (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS),
    Role.FETCH: (Operation.READ,),
    Role.SEND: (Operation.WRITE,),
    Role.ADMIN: (Operation.CREATE, Operation.DELETE, Operation.ALTER, Operation.ALTER_CONFIGS),
}
_OF_GROUPS = {
    Role.READ: (Operation.DESCRIBE,),
    Role.RECEIVE: (Operation.READ,),
    Role.ADMIN: (Operation.DELETE,),
}


def on_topic(caller: Caller, topic: str) -> int:
    return _bits(*(each for role, found in _OF_TOPICS.items() if caller.has(role, topic) for each in found))


def on_group(caller: Caller, group: str) -> int:
    return _bits(*(each for role, found in _OF_GROUPS.items() if caller.has(role, group) for each in found))


def on_cluster(caller: Caller) -> int:
    """Return what a caller may on the cluster: everything only with the role of an admin on every name."""
    found = [Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.IDEMPOTENT_WRITE]
    administered = caller.patterns(Role.ADMIN)
    if administered != ():
        found.append(Operation.CREATE)
    if administered is None:
        found += [Operation.ALTER, Operation.ALTER_CONFIGS, Operation.CLUSTER_ACTION]
    return _bits(*found)


def _bits(*operations: Operation) -> int:
    return sum(1 << operation for operation in operations)
