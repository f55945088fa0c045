"""Drives the consumer groups: gives them time and chance, holds the waiting calls, writes what they keep.

    join, sync ──▶ core.group ──▶ answers ──▶ the futures of those who wait ──▶ durable ──▶ returned
    a timer   ──▶ tick ───────────┘
    has news  ──▶ the generation is written

Laws of this file
-----------------
1. From a group's decision to what it writes there is no await, so there are no locks.
2. Room for a generation is reserved before its leader's assignment is taken: it is
   refused while nothing has happened, or it is kept.
3. No call is answered before what was decided is durable.
4. A group has one timer, set to what the group says. It may be early, never late.
5. A caller that stops waiting takes its ticket back.
6. Offsets expire, except those of topics that members read:

| the group                         | an offset is kept for the retention after          |
|-----------------------------------|----------------------------------------------------|
| has no members, and had some      | the last one left, or the commit if that was later |
| never had any                     | the commit                                         |
| is stable, and reads the topic    | nothing: it stays                                  |
| is stable, and does not read it   | the commit                                         |
| is between two generations        | nothing: it stays, until they know what they read  |

A commit that says itself how long it is to be kept is taken at its word.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from penstock.contract.limits import GROUP_BYTES_MAX, GROUP_NAME_BYTES_MAX, GROUPS_BYTES_MAX, GROUPS_MAX, OFFSETS_MAX
from penstock.core.consumer_group.group import Answer, Group, GroupRecord
from penstock.core.consumer_group.members import GroupSettings
from penstock.core.consumer_group.requests import (
    NO_GENERATION,
    BadGroupName,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupRefusal,
    GroupsStopping,
    GroupState,
    IllegalGeneration,
    Joined,
    JoinRequest,
    Leaver,
    MemberTooLarge,
    NotCoordinator,
    Synced,
    SyncRequest,
    TooManyGroups,
    TooManyOffsets,
    UnknownMember,
    check_group_name,
)
from penstock.log.interface import LogBusy, LogFull, Reservation
from penstock.runtime.interface import Runtime
from penstock.streams.group_records import CommittedOffset, OffsetStore, Place, StoredGroup, record_bytes_max, size_of

# Timers of the loop are exact to this; a ring that is too early costs another one.
_TIMER_MS = 1
# How often a call waits for a disk that is behind before it is refused.
_BUSY_MAX = 20

Asking = Callable[[int, int], list[Answer]]
DEFAULT_GROUP = GroupSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorSettings:
    group: GroupSettings = DEFAULT_GROUP
    groups_max: int = GROUPS_MAX
    bytes_max: int = GROUPS_BYTES_MAX
    offsets_max: int = OFFSETS_MAX
    # How long offsets are kept of a group that has no members, or of a topic that they do not read.
    retention_ms: int = 7 * 24 * 60 * 60 * 1_000
    # How long a group is remembered that has neither members nor offsets.
    empty_ms: int = 10 * 60 * 1_000


@dataclass(slots=True)
class _Timer:
    handle: asyncio.TimerHandle
    at_ms: int


class Coordinator:
    def __init__(self, runtime: Runtime, offsets: OffsetStore, settings: CoordinatorSettings) -> None:
        self._runtime = runtime
        self._settings = settings
        self._offsets = offsets
        self._groups: dict[str, Group] = {}
        # By ticket: of which group, and who waits.
        self._waiting: dict[int, tuple[str, asyncio.Future[Joined | Synced]]] = {}
        self._last_ticket = 0
        self._timers: dict[str, _Timer] = {}
        # What the members of each group say and are assigned, and all of them together.
        self._sizes: dict[str, int] = {}
        self._size_bytes = 0
        self._is_stopping = False
        for name in offsets.groups():
            self._restore(name)
        offsets.when_lost(self._let_go)

    def _restore(self, name: str) -> None:
        self._groups[name] = self._restored(name, self._offsets.generation(name))
        self._measure(self._groups[name])
        self._set_timer(self._groups[name])

    def _let_go(self, name: str) -> None:
        """Send the members of a group away: another server has taken it over."""
        group = self._groups.pop(name, None)
        if group is None:
            return
        for of, future in self._waiting.values():
            if of == name and not future.done():
                future.set_exception(NotCoordinator(f"another server coordinates the group {name!r}"))
        self._size_bytes -= self._sizes.pop(name, 0)
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.handle.cancel()

    async def hold(self, name: str, *, takes_over: bool = False) -> None:
        """Coordinate a group, as all that is asked about one of its members needs; raises `NotCoordinator`."""
        if name in self._groups:
            return
        check_group_name(name)
        if self._is_stopping:
            raise GroupsStopping("the server is stopping")
        if await self._offsets.hold(name, takes_over=takes_over):
            self._restore(name)

    async def elsewhere(self) -> list[tuple[Group, StoredGroup]]:
        """Return the groups that other servers coordinate, or none, as they were kept last."""
        return [(self._restored(each.name, each.record), each) for each in await self._offsets.elsewhere()]

    async def seen(self, name: str) -> tuple[Group, Mapping[Place, CommittedOffset]]:
        """Return a group and its offsets, whichever server coordinates it. Raises `GroupNotFound`."""
        if name not in self._groups:
            found = await self._offsets.peek(name)
            if found is not None:
                record, offsets = found
                return self._restored(name, record), offsets
        return self.find(name), await self._offsets.read(name)

    def _restored(self, name: str, record: GroupRecord | None) -> Group:
        if record is None:
            return Group(name, self._settings.group)
        return Group.restore(name, self._settings.group, record, now_ms=self._now_ms())

    def stop(self) -> None:
        """Refuse the waiting calls, and all later ones."""
        self._is_stopping = True
        for _, future in self._waiting.values():
            if not future.done():
                future.set_exception(GroupsStopping("the server is stopping"))
        for timer in self._timers.values():
            timer.handle.cancel()
        self._timers.clear()

    def names(self) -> list[str]:
        return sorted(self._groups)

    def find(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            raise GroupNotFound(f"there is no group {name[:GROUP_NAME_BYTES_MAX]!r}")
        return group

    async def join(self, name: str, request: JoinRequest) -> Joined:
        """Be a member of the next generation; returns when all others have joined it, or had their time."""
        await self.hold(name)
        for _ in range(_BUSY_MAX):
            try:
                said = await self._wait(self._group(name), lambda *at: self._join(name, request, *at))
                assert isinstance(said, Joined)
                return said
            except LogBusy:
                await self._offsets.durable(name)
        raise LogBusy("the disk is behind")

    async def sync(self, name: str, request: SyncRequest) -> Synced:
        """Learn what is assigned; returns when the leader has brought it and it is durable."""
        await self._hold_if_named(name)
        if name not in self._groups:
            raise UnknownMember(f"there is no group {name[:GROUP_NAME_BYTES_MAX]!r}")
        for _ in range(_BUSY_MAX):
            try:
                said = await self._wait(self._group(name), lambda *at: self._sync(name, request, *at))
                assert isinstance(said, Synced)
                return said
            except LogBusy:
                await self._offsets.durable(name)
        raise LogBusy("the disk is behind")

    async def _hold_if_named(self, name: str) -> None:
        """A name that no group can have is that of a group there is not."""
        with suppress(BadGroupName):
            await self.hold(name)

    async def heartbeat(self, name: str, member_id: str, instance_id: str | None, generation: int) -> None:
        await self._hold_if_named(name)
        group = self._groups.get(name)
        if group is None:
            raise UnknownMember(f"there is no group {name[:GROUP_NAME_BYTES_MAX]!r}")
        group.heartbeat(member_id, instance_id, generation, now_ms=self._now_ms())

    async def leave(self, name: str, leavers: Sequence[Leaver]) -> list[GroupRefusal | None]:
        """Let members go; one answer for each."""
        await self._hold_if_named(name)
        group = self._groups.get(name)
        if group is None:
            return [UnknownMember(f"there is no group {name[:GROUP_NAME_BYTES_MAX]!r}") for _ in leavers]
        refusals, answers = group.leave(leavers, now_ms=self._now_ms())
        self._after(group, answers)
        await self._offsets.durable(name)
        return refusals

    def check_commit(self, name: str, member_id: str, instance_id: str | None, generation: int) -> None:
        """Raise if this caller may not commit for the group."""
        check_group_name(name)
        group = self._groups.get(name)
        if group is not None:
            group.check_commit(member_id, instance_id, generation, now_ms=self._now_ms())
        elif generation > NO_GENERATION:
            raise IllegalGeneration("the group is not known here any more")

    async def commit(
        self,
        name: str,
        rows: Mapping[Place, CommittedOffset],
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
    ) -> None:
        """Keep offsets; durable on return. Raises `TooManyOffsets` if they would be too many."""
        for _ in range(_BUSY_MAX):
            self.check_commit(name, member_id, instance_id, generation)
            known = self._offsets.of(name)
            added = sum(place not in known for place in rows)
            if added and self._offsets.count + added > self._settings.offsets_max:
                raise TooManyOffsets(f"{self._settings.offsets_max} offsets are kept, and there may not be more")
            self._group(name)
            try:
                self._offsets.commit(name, rows)
                break
            except LogBusy:
                await self._offsets.durable(name)
        else:
            raise LogBusy("the disk is behind")
        await self._offsets.durable(name)

    async def committed(self, name: str) -> Mapping[Place, CommittedOffset]:
        return await self._offsets.read(name)

    async def forget_offsets(self, name: str, places: Iterable[Place]) -> None:
        known = self._offsets.of(name)
        self._offsets.forget(name, [place for place in places if place in known])
        await self._offsets.durable(name)

    async def delete(self, name: str) -> None:
        """Forget a group and its offsets. Raises `GroupNotFound` or `GroupNotEmpty`; durable on return."""
        if name not in self._groups:
            group, _ = await self.seen(name)
            await self.hold(name, takes_over=group.state is GroupState.EMPTY)
        group = self.find(name)
        if group.state is not GroupState.EMPTY:
            raise GroupNotEmpty(f"the group {name!r} has members")
        self._drop(group)
        await self._offsets.durable(name)

    async def tidy(self) -> None:
        """Write what could not be written, and keep the log short."""
        for group in list(self._groups.values()):
            self._keep_news(group)
        await self._offsets.watch()
        await self._offsets.compact_if_due()

    async def forget_old(self) -> None:
        """Forget offsets and groups that have had their time."""
        for group in list(self._groups.values()):
            if self._groups.get(group.name) is group:
                self._forget_old(group)
            await asyncio.sleep(0)

    def _group(self, name: str) -> Group:
        """Return a group, made if need be."""
        group = self._groups.get(name)
        if group is None:
            check_group_name(name)
            if len(self._groups) >= self._settings.groups_max:
                raise TooManyGroups(f"there are {self._settings.groups_max} groups, and there may not be more")
            group = self._groups[name] = Group(name, self._settings.group, empty_since_ms=self._now_ms())
        return group

    def _join(self, name: str, request: JoinRequest, ticket: int, now_ms: int) -> list[Answer]:
        group, token = self._groups[name], self._runtime.dice.token()
        if self._size_bytes + size_of(request) > self._settings.bytes_max:
            raise GroupFull(f"the members of all groups say more than {self._settings.bytes_max} bytes of themselves")
        is_back = request.instance_id in group.roster.instances and not request.member_id
        if not is_back:
            return group.join(request, ticket=ticket, now_ms=now_ms, token=token)
        # A static member that is back takes its place in the generation, which is then kept.
        size_bytes = record_bytes_max(group.record(now_ms)) + size_of(request)
        with self._offsets.reserve(size_bytes) as space:
            answers = group.join(request, ticket=ticket, now_ms=now_ms, token=token)
            self._keep_in(space, group, now_ms)
        return answers

    def _sync(self, name: str, request: SyncRequest, ticket: int, now_ms: int) -> list[Answer]:
        group = self._groups[name]
        if group.state is not GroupState.COMPLETING or request.member_id != group.roster.leader:
            return group.sync(request, ticket=ticket, now_ms=now_ms)
        assigned_bytes = sum(len(request.assignments.get(each, b"")) for each in group.roster.members)
        if assigned_bytes > GROUP_BYTES_MAX:
            raise MemberTooLarge(f"an assignment larger than GROUP_BYTES_MAX ({GROUP_BYTES_MAX}) allows")
        with self._offsets.reserve(record_bytes_max(group.record(now_ms), assigned_bytes)) as space:
            answers = group.sync(request, ticket=ticket, now_ms=now_ms)
            self._keep_in(space, group, now_ms)
        return answers

    def _keep_in(self, space: Reservation, group: Group, now_ms: int) -> None:
        if group.has_news:
            self._offsets.keep(group.name, group.record(now_ms), space)
            group.has_news = False

    async def _wait(self, group: Group, ask: Asking) -> Joined | Synced:
        """Ask with a new ticket, and return what it is answered, once that is durable."""
        if self._is_stopping:
            raise GroupsStopping("the server is stopping")
        self._last_ticket = ticket = self._last_ticket + 1
        future: asyncio.Future[Joined | Synced] = asyncio.get_running_loop().create_future()
        self._waiting[ticket] = group.name, future
        try:
            self._after(group, ask(ticket, self._now_ms()))
            said = await future
        except GroupRefusal:
            # It may have given out an id, which has its time; or it was all that the group was made for.
            self._set_timer(group)
            self._drop_if_unused(group)
            raise
        except asyncio.CancelledError:
            self._after(group, group.abandon(ticket, now_ms=self._now_ms()))
            raise
        finally:
            del self._waiting[ticket]
        await self._offsets.durable(group.name)
        return said

    def _after(self, group: Group, answers: list[Answer]) -> None:
        """Do what follows from a decision."""
        for ticket, said in answers:
            _, future = self._waiting.get(ticket, ("", None))
            if future is None or future.done():
                continue
            if isinstance(said, GroupRefusal):
                future.set_exception(said)
            else:
                future.set_result(said)
        self._keep_news(group)
        self._measure(group)
        self._set_timer(group)

    def _measure(self, group: Group) -> None:
        if self._groups.get(group.name) is group:
            size_bytes = group.size_bytes()
            self._size_bytes += size_bytes - self._sizes.get(group.name, 0)
            self._sizes[group.name] = size_bytes

    def _keep_news(self, group: Group) -> None:
        """Keep that a group is empty now, or later, if there is no room: its members would come to know anyway."""
        if not group.has_news or self._groups.get(group.name) is not group:
            return
        generation = group.record(self._now_ms())
        try:
            with self._offsets.reserve(record_bytes_max(generation)) as space:
                self._offsets.keep(group.name, generation, space)
        except (LogBusy, LogFull):
            return
        group.has_news = False

    def _set_timer(self, group: Group) -> None:
        at_ms = group.next_ms()
        timer = self._timers.get(group.name)
        if at_ms is None or self._is_stopping or (timer is not None and timer.at_ms <= at_ms):
            return
        if timer is not None:
            timer.handle.cancel()
        delay_ms = max(0, at_ms - self._now_ms()) + _TIMER_MS
        handle = asyncio.get_running_loop().call_later(delay_ms / 1_000, self._ring, group.name)
        self._timers[group.name] = _Timer(handle, at_ms)

    def _ring(self, name: str) -> None:
        self._timers.pop(name, None)
        group = self._groups.get(name)
        if group is not None:
            self._after(group, group.tick(self._now_ms()))
            self._drop_if_unused(group)

    def _forget_old(self, group: Group) -> None:
        now_ms, settings = self._now_ms(), self._settings
        kept = self._offsets.of(group.name)
        try:
            old = list(expired(group, kept, now_ms=now_ms, retention_ms=settings.retention_ms))
            self._offsets.forget(group.name, old)
            is_idle = group.state is GroupState.EMPTY and not group.roster.pending
            if is_idle and not self._offsets.of(group.name) and now_ms >= group.empty_since_ms + settings.empty_ms:
                self._drop(group)
        except (LogBusy, LogFull):
            # What is due stays due.
            pass

    def _drop_if_unused(self, group: Group) -> None:
        """Drop a group that never had a member: nothing of it was written."""
        is_unused = group.state is GroupState.EMPTY and not group.generation and not group.roster.pending
        if is_unused and not self._offsets.of(group.name) and self._groups.get(group.name) is group:
            self._drop(group)

    def _drop(self, group: Group) -> None:
        self._offsets.drop(group.name)
        del self._groups[group.name]
        self._size_bytes -= self._sizes.pop(group.name, 0)
        timer = self._timers.pop(group.name, None)
        if timer is not None:
            timer.handle.cancel()

    def _now_ms(self) -> int:
        return self._runtime.clock.now_ms()


def expired(
    group: Group, offsets: Mapping[Place, CommittedOffset], *, now_ms: int, retention_ms: int
) -> Iterator[Place]:
    """Yield the offsets that have had their time."""
    if group.state not in {GroupState.EMPTY, GroupState.STABLE}:
        return
    is_left = group.state is GroupState.EMPTY and bool(group.protocol_type)
    since_ms = group.empty_since_ms if is_left else 0
    read: dict[str, bool] = {}
    for place, kept in offsets.items():
        until_ms = kept.expires_at_ms
        if until_ms is None:
            until_ms = max(since_ms, kept.committed_at_ms) + retention_ms
        if until_ms > now_ms:
            continue
        topic, _ = place
        if topic not in read:
            read[topic] = group.reads(topic)
        if not read[topic]:
            yield place
