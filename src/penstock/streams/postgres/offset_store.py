"""What consumer groups keep, in tables: written by the one server that coordinates the group, and by no other.

    hold     claim the group: the epoch rises with each claim, and every write names it
    commit   into memory and onto what is to be written ──▶ durable: one transaction for all of a group ──▶ answer

Laws of this file
-----------------
1. Every write has the epoch of the claim in its condition. A server that was taken for dead, and is not, changes
   nothing: its write is refused, and it lets the group go.
2. What is read for a member is read from the table, after a look at the epoch: an offset never goes back.
3. What could not be written stays to be written, below what has come since.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import psycopg

from penstock.contract.limits import GROUPS_MAX
from penstock.core.consumer_group.group import GroupRecord
from penstock.core.consumer_group.requests import BadGroupName, NotCoordinator, TooManyGroups
from penstock.log.interface import Reservation
from penstock.store.errors import StoreForbids, StoreUnreachable
from penstock.store.postgres.database import Database
from penstock.store.postgres.shared_tables import LOST_MS, Identity
from penstock.streams.group_records import CommittedOffset, Place, StoredGroup, read_group, write_group
from penstock.streams.interface import TopicNotFound, TopicStore

_NOTHING: Mapping[Place, CommittedOffset] = {}
_FORGOTTEN = b""
# What is tried again a second later.
_TROUBLE = (StoreUnreachable, StoreForbids, psycopg.Error)


@dataclass(slots=True)
class _Unwritten:
    """What is to be written of a group. A generation of b"" forgets all of it; None leaves it."""

    rows: dict[Place, CommittedOffset | None] = field(default_factory=dict)
    generation: bytes | None = None

    @property
    def is_something(self) -> bool:
        return bool(self.rows) or self.generation is not None


@dataclass(slots=True)
class _Held:
    """A group that this server coordinates."""

    epoch: int
    offsets: dict[Place, CommittedOffset]
    generation: bytes | None
    unwritten: _Unwritten = field(default_factory=_Unwritten)
    # One transaction of a group at a time.
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)


class _NoRoom:
    """Room where none need be set aside."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class PostgresOffsets:
    """Satisfies `streams.group_records.OffsetStore`."""

    def __init__(self, database: Database, topics: TopicStore, identity: Identity) -> None:
        self._database = database
        self._topics = topics
        self._identity = identity
        self._held: dict[str, _Held] = {}
        self._claiming = asyncio.Lock()
        self._let_go: Callable[[str], None] = lambda _name: None

    @property
    def count(self) -> int:
        return sum(len(held.offsets) for held in self._held.values())

    def when_lost(self, let_go: Callable[[str], None]) -> None:
        self._let_go = let_go

    def groups(self) -> Iterable[str]:
        return list(self._held)

    def of(self, group: str) -> Mapping[Place, CommittedOffset]:
        held = self._held.get(group)
        return _NOTHING if held is None else held.offsets

    def generation(self, group: str) -> GroupRecord | None:
        held = self._held.get(group)
        return None if held is None or not held.generation else read_group(held.generation)

    # Who coordinates.

    async def hold(self, group: str, *, takes_over: bool = False) -> bool:
        if group in self._held:
            held = self._held[group]
            if held.unwritten.generation != _FORGOTTEN:
                return False
            await self.durable(group)
        if "\0" in group:
            raise BadGroupName("a group name has no NUL where groups are kept in PostgreSQL")
        async with self._claiming:
            if group in self._held:
                return False
            me = self._identity
            epoch, node, generation = await self._database.call(
                "claim_group", group, me.name, me.incarnation, LOST_MS, takes_over, GROUPS_MAX
            )
            if node is None:
                raise TooManyGroups(f"there are {GROUPS_MAX} groups, and there may not be more")
            if epoch is None:
                raise NotCoordinator(f"the server {node} coordinates the group {group!r}", node)
            written = None if generation is None else bytes(generation)
            self._held[group] = _Held(epoch, await self._offsets(group), written)
            return True

    async def _offsets(self, group: str) -> dict[Place, CommittedOffset]:
        rows = await self._database.ask("group_offsets", group=group)
        return {
            (topic, partition): CommittedOffset(offset, leader_epoch, bytes(metadata).decode(), *times)
            for topic, partition, offset, leader_epoch, metadata, *times in rows
        }

    def _lose(self, group: str) -> None:
        if self._held.pop(group, None) is not None:
            self._let_go(group)

    async def watch(self) -> None:
        """Let go of groups that others coordinate by now, and write what has no waiter."""
        me = self._identity
        with suppress(*_TROUBLE):
            held = {name: each.epoch for name, each in self._held.items()}
            if held:
                rows = dict(await self._database.ask("groups_of", node=me.name, incarnation=me.incarnation))
                for name, epoch in held.items():
                    if rows.get(name) != epoch and self._epoch(name) == epoch:
                        self._lose(name)
            for name, each in list(self._held.items()):
                if each.unwritten.is_something:
                    with suppress(NotCoordinator):
                        await self.durable(name)

    def _epoch(self, group: str) -> int | None:
        held = self._held.get(group)
        return None if held is None else held.epoch

    async def compact_if_due(self) -> bool:
        return False

    async def close(self) -> None:
        """Write what waits."""
        await self.watch()

    # What is kept.

    async def durable(self, group: str) -> None:
        held = self._held.get(group)
        if held is None:
            raise NotCoordinator(f"another server coordinates the group {group!r}")
        async with held.writing:
            if held.unwritten.is_something:
                await self._write(group, held)
        if self._held.get(group) is not held and held.generation != _FORGOTTEN:
            raise NotCoordinator(f"another server coordinates the group {group!r}")

    async def _write(self, group: str, held: _Held) -> None:
        unwritten, held.unwritten = held.unwritten, _Unwritten()
        rows = list(self._numbered(unwritten.rows))
        try:
            (is_mine,) = await self._database.call(
                "write_group", group, held.epoch, unwritten.generation,
                [topic for topic, _, _ in rows], [partition for _, partition, _ in rows],
                [-1 if kept is None else kept.offset for *_, kept in rows],
                [-1 if kept is None else kept.leader_epoch for *_, kept in rows],
                [b"" if kept is None else kept.metadata.encode() for *_, kept in rows],
                [0 if kept is None else kept.committed_at_ms for *_, kept in rows],
                [-1 if kept is None or kept.expires_at_ms is None else kept.expires_at_ms for *_, kept in rows],
            )  # fmt: skip
        except BaseException:
            # Written or not, writing it again comes to the same.
            held.unwritten.rows = unwritten.rows | held.unwritten.rows
            if held.unwritten.generation is None:
                held.unwritten.generation = unwritten.generation
            raise
        if not is_mine:
            self._lose(group)
        elif unwritten.generation == _FORGOTTEN:
            held.generation = _FORGOTTEN
            self._held.pop(group, None)

    def _numbered(
        self, rows: Mapping[Place, CommittedOffset | None]
    ) -> Iterator[tuple[int, int, CommittedOffset | None]]:
        """Yield rows by the numbers of their topics; those of topics that are gone are not kept."""
        for (topic, partition), kept in rows.items():
            with suppress(TopicNotFound):
                yield self._topics.find(topic).number, partition, kept

    async def read(self, group: str) -> Mapping[Place, CommittedOffset]:
        await self.durable(group)
        rows = await self._database.ask("group_epoch", group=group)
        offsets = await self._offsets(group)
        if not rows or rows[0][0] != self._epoch(group):
            self._lose(group)
            raise NotCoordinator(f"another server coordinates the group {group!r}")
        return offsets

    def reserve(self, size_bytes: int) -> Reservation:  # noqa: ARG002 - a database has no room to be set aside.
        return _NoRoom()

    def commit(self, group: str, rows: Mapping[Place, CommittedOffset]) -> None:
        held = self._held[group]
        held.offsets.update(rows)
        held.unwritten.rows.update(rows)

    def forget(self, group: str, places: Iterable[Place]) -> None:
        held = self._held.get(group)
        if held is None:
            return
        for place in list(places):
            held.offsets.pop(place, None)
            held.unwritten.rows[place] = None

    def keep(self, group: str, generation: GroupRecord, space: Reservation) -> None:  # noqa: ARG002 - see `reserve`.
        held = self._held.get(group)
        if held is not None:
            held.generation = held.unwritten.generation = write_group(group, generation)[1]

    def drop(self, group: str) -> None:
        held = self._held.get(group)
        if held is not None:
            held.offsets.clear()
            held.unwritten = _Unwritten(generation=_FORGOTTEN)

    # Groups of other servers.

    async def elsewhere(self) -> list[StoredGroup]:
        rows = await self._database.ask("all_groups", lost_ms=LOST_MS)
        return [
            StoredGroup(name, read_group(bytes(generation)) if generation else None, is_coordinated)
            for name, generation, is_coordinated in rows
            if name not in self._held
        ]

    async def peek(self, group: str) -> tuple[GroupRecord | None, Mapping[Place, CommittedOffset]] | None:
        rows = [] if "\0" in group else await self._database.ask("group_epoch", group=group)
        if not rows:
            return None
        ((_, generation),) = rows
        return read_group(bytes(generation)) if generation else None, await self._offsets(group)
