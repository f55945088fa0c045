"""Read-only questions about queues: counts, single messages, receipts, explanations.

Any number of queues is described by one statement, which takes as long for a million messages as for thousands:

    little    counted at each look
    much      counted in the background while callers keep asking; the last count is the answer

Each kind of messages (of a tier, leased, delayed and so on) is counted by itself, and is little up to `COUNTED_MOST`.
A store without background tasks counts large kinds during the question, unless a recent count exists.

The words of an explanation are the core's (`core/queue/explain.py`); the positions are counted in the database.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple

import psycopg

from penstock.contract.messages import TIERS, WaitReason
from penstock.core.queue.explain import Explanation, ahead_at_most, expected_leases
from penstock.core.queue.message import Origin, Receipt
from penstock.core.queue.queries import MessageView
from penstock.core.queue.rows import LEASED, RESTING, SPENT, STATES
from penstock.store.errors import StoreForbids, StoreUnreachable
from penstock.store.ids import Identity, message_id, parse, queue_id
from penstock.store.interface import Bound, Counts, Description, Explained, Message, Past
from penstock.store.postgres.array_codec import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.maintenance import Maintenance
from penstock.store.postgres.queue_cache import CachedQueue, KeptCounts, QueueCache, QueueRow

_RESTING = STATES.index("resting")

# From the number of a queue to its name, None if it is deleted.
NameOf = Callable[[int], str | None]


class MessageRow(NamedTuple):
    """One live message, as the statements that look at messages return it first of all."""

    key: int
    place: int
    tier: int
    sent_at_ms: int
    deliveries: int
    visible_at_ms: int
    group: bytes | None
    error: str | None
    home: int | None
    home_key: int | None
    home_sent_at_ms: int | None
    home_deliveries: int | None
    is_escalated: bool
    # None if a text is sought that is not in it.
    body: bytes | None
    attributes: bytes | None


def message(queue: int, row: MessageRow, name_of: NameOf) -> Message:
    past = None
    if row.home is not None:
        assert row.home_sent_at_ms is not None
        assert row.home_deliveries is not None
        past = Past(name_of(row.home), queue_id(row.home), row.home_sent_at_ms, row.home_deliveries)
    return Message(
        id=id_of(queue, row),
        body=memoryview(row.body or b""),
        attributes=memoryview(row.attributes or b""),
        place=STATES[row.place],
        tier=row.tier,
        sent_tier=row.key & 7,
        sent_at_ms=row.sent_at_ms,
        deliveries=row.deliveries,
        visible_at_ms=row.visible_at_ms if row.place == _RESTING else None,
        group=row.group or b"",
        error=row.error or "",
        past=past,
        is_escalated=row.is_escalated,
    )


def id_of(queue: int, row: MessageRow) -> str:
    if row.home is None:
        return message_id(queue, row.key)
    assert row.home_key is not None
    return message_id(row.home, row.home_key)


def identities(ids: Sequence[str]) -> list[tuple[int, int] | None]:
    """Return the number of the first queue and the key there for each id, None for a text that is none."""
    return [None if found is None else pair(found) for found in map(parse, ids)]


def pair(identity: Identity) -> tuple[int, int] | None:
    key = identity.number << 3 | identity.lane
    return (identity.queue, key) if identity.queue < 2**31 and key < 2**63 else None


# So many of a kind are counted at each look.
COUNTED_MOST = 2_000
# Up to so many in all are counted each time without a background task; a million takes a tenth of a second, and
# a larger count is kept for about ten times as long as it took.
COUNTED_EACH_TIME = 100_000
COUNTED_PER_MS = 1_000
# A count that is kept is made again as long as it has been asked for within the minute.
ASKED_MS = 60_000
# After each count a pause that is so many times as long: a twentieth of a connection at most goes into it.
_PAUSES = 19
_TROUBLE = (StoreUnreachable, StoreForbids, psycopg.Error)


class QueueSummary(NamedTuple):
    """What `summaries.sql` says of a queue, behind its row; counts are up to `COUNTED_MOST`."""

    plain: Sequence[int]
    marked: Sequence[int]
    plain_sent_ms: Sequence[int | None]
    marked_sent_ms: Sequence[int | None]
    marked_since_ms: Sequence[int | None]
    leases: int
    leased: int
    delayed: int
    stuck: int
    stuck_since_ms: int | None
    is_due: bool
    noisy_groups: int
    noisy_ready: int
    noisy_leased: int
    leased_sent_at_ms: int | None

    def has_aged(self, known: CachedQueue, now_ms: int) -> bool:
        """Whether some have to move up to the next tier."""
        for tier, aging_ms in enumerate(known.aging_ms):
            firsts = (self.plain_sent_ms[tier], self.marked_since_ms[tier])
            if tier and aging_ms and any(first is not None and first + aging_ms <= now_ms for first in firsts):
                return True
        return False

    @property
    def is_much(self) -> bool:
        kinds = (*self.plain, *self.marked, self.leases, self.delayed, self.stuck, self.noisy_ready)
        return max(kinds) >= COUNTED_MOST

    def counts(self, kept: KeptCounts) -> Counts:
        """What was counted just now where that is little, and what is kept where it is much."""
        ready = tuple(
            max(kept.ready[tier], self.plain[tier] + self.marked[tier])
            if max(self.plain[tier], self.marked[tier]) >= COUNTED_MOST
            else self.plain[tier] + self.marked[tier]
            for tier in range(TIERS)
        )
        return Counts(
            ready,
            self.leased if self.leases < COUNTED_MOST else max(kept.leased, self.leased),
            self.delayed if self.delayed < COUNTED_MOST else max(kept.delayed, self.delayed),
            tuple(map(_earlier, self.plain_sent_ms, self.marked_sent_ms)),
            self.stuck if self.stuck < COUNTED_MOST else max(kept.stuck, self.stuck),
            self.stuck_since_ms,
            self.noisy_groups,
            self.noisy_ready if self.noisy_ready < COUNTED_MOST else max(kept.noisy_ready, self.noisy_ready),
            self.noisy_leased,
            self.leased_sent_at_ms,
        )


def _earlier(one_ms: int | None, other_ms: int | None) -> int | None:
    return min((at_ms for at_ms in (one_ms, other_ms) if at_ms is not None), default=None)


def _until_ms(kept: KeptCounts) -> int:
    """How long a count is valid without a background task."""
    count = sum(kept.ready)
    return kept.at_ms + (count // COUNTED_PER_MS if count > COUNTED_EACH_TIME else 0)


_NOTHING = KeptCounts(0, (0,) * TIERS, 0, 0, 0, 0)


class QueueCounter:
    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms
        # Large queues that were asked about, and when.
        self._asked_ms: dict[CachedQueue, int] = {}
        self._has_asked = asyncio.Event()
        self._is_running = False

    async def counts(self, known: CachedQueue, seen: QueueSummary) -> Counts:
        if not seen.is_much:
            return seen.counts(_NOTHING)
        now_ms, kept = self._now_ms(), known.kept
        if kept is None or now_ms - kept.at_ms > ASKED_MS or (not self._is_running and now_ms >= _until_ms(kept)):
            kept = await self._count(known)
        self._asked_ms[known] = now_ms
        self._has_asked.set()
        return seen.counts(kept)

    async def _count(self, known: CachedQueue) -> KeptCounts:
        now_ms = self._now_ms()
        ((ready, *others),) = await self._database.ask("counts", queue=known.number, now=now_ms)
        known.kept = KeptCounts(now_ms, tuple(ready), *others)
        return known.kept

    async def run(self) -> None:
        """Count in the background."""
        self._is_running = True
        while True:
            await self._has_asked.wait()
            self._has_asked.clear()
            while self._asked_ms:
                await self._count_all()
                await asyncio.sleep(self._database.settings.timing.recount_s)

    async def _count_all(self) -> None:
        loop = asyncio.get_running_loop()
        for known, asked_ms in list(self._asked_ms.items()):
            if self._now_ms() - asked_ms > ASKED_MS:
                del self._asked_ms[known]
                continue
            began = loop.time()
            with suppress(*_TROUBLE):
                await self._count(known)
            await asyncio.sleep(_PAUSES * (loop.time() - began))


_BUSY = {RESTING, SPENT}
# `ahead.sql` counts so many groups.
_GROUPS_MOST = 1_000


class FoundMessage(NamedTuple):
    """What `look.sql` returns."""

    key: int
    place: int
    tier: int
    sent_at_ms: int
    deliveries: int
    visible_at_ms: int
    group: bytes | None
    error: str | None
    home: int | None
    home_key: int | None
    home_sent_at_ms: int | None
    home_deliveries: int | None
    is_escalated: bool
    since_ms: int
    turn: int | None
    ordinal: int | None
    lease: int | None
    token: int | None
    row: int | None
    until_ms: int | None
    body: bytes
    attributes: bytes | None


class ExplainRequest(NamedTuple):
    """Of which message, how many wait in each tier, and when."""

    message_id: str
    waiting: Sequence[int]
    now_ms: int


async def explain(database: Database, known: CachedQueue, looked: FoundMessage, asked: ExplainRequest) -> Explained:
    seen, message_id = _seen(looked), asked.message_id
    gained = seen.sent_tier - seen.tier
    if looked.place == LEASED:
        waits, until_ms = WaitReason.IN_FLIGHT, looked.until_ms
        return _explained(
            message_id, Explanation(message=seen, wait_reason=waits, promotions=gained, until_ms=until_ms)
        )
    if looked.place == SPENT:
        return _explained(
            message_id, Explanation(message=seen, wait_reason=WaitReason.AWAITING_BURIAL, promotions=gained)
        )
    if looked.place == RESTING:
        at_ms = looked.visible_at_ms
        resting = Explanation(
            message=seen, wait_reason=WaitReason.DELAYED, promotions=gained, until_ms=at_ms, start_estimate_ms=at_ms
        )
        return _explained(message_id, resting)
    return await _waiting(database, known, looked, asked)


def _explained(message_id: str, explanation: Explanation, bound: Bound | None = None) -> Explained:
    return Explained(message_id, explanation, bound)


async def _waiting(database: Database, known: CachedQueue, looked: FoundMessage, asked: ExplainRequest) -> Explained:
    message_id, waiting, now_ms = asked
    seen = _seen(looked)
    gained = seen.sent_tier - seen.tier
    is_ordered = known.settings.is_fifo and looked.group is not None
    if is_ordered:
        waits, ahead = await _in_line(database, known, looked)
    else:
        ahead = await _in_turn(database, known, looked, waiting[looked.tier], now_ms)
        waits = WaitReason.BEHIND_OTHERS if ahead else WaitReason.NONE
    if known.settings.is_paused:
        paused = Explanation(message=seen, wait_reason=WaitReason.PAUSED, promotions=gained, messages_ahead=ahead)
        return _explained(message_id, paused)
    leases = estimate_ms = bound = None
    if not is_ordered:
        shares = known.shares or known.begin_shares(())
        leases = shares.bound(looked.tier, ahead)
        wait_ms = known.started.ms_for(expected_leases(shares, waiting, looked.tier, ahead), now_ms)
        estimate_ms = None if wait_ms is None else now_ms + wait_ms
        bound = Bound(leases, known.started.ms_for(leases, now_ms))
    explanation = Explanation(
        message=seen,
        wait_reason=waits,
        promotions=gained,
        messages_ahead=ahead,
        leases_bound=leases,
        start_estimate_ms=estimate_ms,
    )
    return _explained(message_id, explanation, bound)


async def _in_turn(database: Database, known: CachedQueue, looked: FoundMessage, ready: int, now_ms: int) -> int:
    """Return how many go before it at most, of those that wait in its tier."""
    ((mine, turns, noisy_turns, is_noisy, noisy_waiting),) = await database.ask(
        "ahead", queue=known.number, tier=looked.tier, since=looked.since_ms, key=looked.key, grp=looked.group,
        turn=looked.turn, now=now_ms,
    )  # fmt: skip
    # What waits may have been counted a moment ago.
    ready = max(ready, mine + 1)
    # All that is quiet goes before it if its group is noisy, and it takes turns with the other noisy groups.
    turns, quiet = (noisy_turns, ready - noisy_waiting) if is_noisy else (turns, 0)
    if turns >= _GROUPS_MOST:
        return ready - 1
    return ahead_at_most(mine=mine, turns=turns, quiet=max(0, quiet), ready=ready)


async def _in_line(database: Database, known: CachedQueue, looked: FoundMessage) -> tuple[WaitReason, int]:
    ((ahead, head, held),) = await database.ask(
        "ahead_in_line", queue=known.number, group=looked.group, ordinal=looked.ordinal
    )
    if held:
        return WaitReason.GROUP_BUSY, ahead + held
    if head in _BUSY:
        return WaitReason.GROUP_BLOCKED, ahead
    return (WaitReason.BEHIND_OTHERS if ahead else WaitReason.NONE), ahead


def _seen(looked: FoundMessage) -> MessageView:
    origin = None
    if looked.home is not None:
        assert looked.home_key is not None
        assert looked.home_sent_at_ms is not None
        assert looked.home_deliveries is not None
        lane, number = looked.home_key & 7, looked.home_key >> 3
        origin = Origin(looked.home, lane, number, looked.home_sent_at_ms, looked.home_deliveries)
    return MessageView(
        message=looked.key,
        place=STATES[looked.place],
        tier=looked.tier,
        sent_tier=looked.key & 7,
        sent_at_ms=looked.sent_at_ms,
        since_ms=looked.since_ms,
        deliveries=looked.deliveries,
        visible_at_ms=looked.visible_at_ms if looked.place == RESTING else 0,
        group=looked.group or b"",
        lease=looked.lease or 0,
        error=looked.error or "",
        origin=origin,
        is_escalated=looked.is_escalated,
    )


class QueueNames:
    """Names of queues by their numbers, None if deleted: for the past of moved messages."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names: dict[int, str | None] = {}

    def of(self, queue: int) -> str | None:
        return self._names.get(queue)

    async def learn(self, queues: set[int]) -> None:
        """Read names again: a queue may have been deleted meanwhile."""
        if queues:
            numbers = SENT_AS["integer[]"](sorted(queues))
            for number, name, is_deleted in await self._database.ask("queue_names", numbers):
                self._names[number] = None if is_deleted else name

    async def learn_homes(self, known: CachedQueue) -> None:
        """Read the names of all queues that messages in a queue came from."""
        await self.learn({home for (home,) in await self._database.ask("homes", queue=known.number)})


class Summaries:
    def __init__(
        self, database: Database, cache: QueueCache, maintenance: Maintenance, now_ms: Callable[[], int]
    ) -> None:
        self._database = database
        self._cache = cache
        self._maintenance = maintenance
        self._now_ms = now_ms
        self.counting = QueueCounter(database, now_ms)

    async def of(self, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]:
        """Describe queues as they are now, with one statement, and with one more for those where something was due."""
        found = await self._look(queues)
        now_ms = self._now_ms()
        due = [name for name, (known, _, seen) in found.items() if _is_due(known, seen, now_ms)]
        for name in due:
            await self._maintenance.advance_a_turn(found[name][0])
        if due:
            found |= await self._look(due)
        return [await self._summary(*found[name]) if name in found else None for name in queues]

    async def _look(self, queues: Sequence[str]) -> dict[str, tuple[CachedQueue, str | None, QueueSummary]]:
        names = await self._cache.settled(queues)
        rows = await self._database.ask(
            "summaries",
            names=SENT_AS["text[]"]([name for name, _ in names]),
            versions=SENT_AS["bigint[]"]([version for _, version in names]),
            looked=SENT_AS["bigint[]"]([self._cache.looked_until_ms(name) for name, _ in names]),
            most=COUNTED_MOST,
            now=self._now_ms(),
        )
        found = {}
        for row in rows:
            queue, grave = QueueRow(*row[:6]), row[6]
            # Without settings it is as it was known.
            known = await self._cache.find(queue.name) if queue.settings is None else self._cache.note(queue)
            if known is not None:
                found[queue.name] = (known, None if grave is None else queue_id(grave), QueueSummary(*row[7:]))
        return found

    async def _summary(self, known: CachedQueue, grave: str | None, seen: QueueSummary) -> tuple[Description, Counts]:
        now_ms, found = self._now_ms(), await self.counting.counts(known, seen)
        shares = known.shares or known.begin_shares(())
        leases = [shares.bound(tier, found.ready[tier]) for tier in range(TIERS)]
        description = Description(
            queue=known.name,
            id=queue_id(known.number),
            settings=known.settings,
            created_at_ms=known.created_at_ms,
            dead_letters=None if grave is None else known.grave,
            dead_letters_id=grave,
            bounds=tuple(Bound(each, known.started.ms_for(each, now_ms)) for each in leases),
        )
        return description, found


def _is_due(known: CachedQueue, seen: QueueSummary, now_ms: int) -> bool:
    # What is locked by others is not polled at every question.
    is_left = known.is_held and now_ms < known.due_ms
    return not is_left and (seen.is_due or seen.has_aged(known, now_ms))


async def find(database: Database, known: CachedQueue, message_id: str, now_ms: int) -> FoundMessage | None:
    """Return a message as it stands in the database, None if it is not in the queue."""
    identity = parse(message_id)
    sought = None if identity is None else pair(identity)
    if sought is None:
        return None
    home, key = sought
    rows = await database.ask("look", queue=known.number, home=home, key=key, now=now_ms, aging_ms=known.aging_column)
    return FoundMessage(*rows[0]) if rows else None


async def look(
    database: Database, known: CachedQueue, message_id: str, names: QueueNames, now_ms: int
) -> Message | None:
    looked = await find(database, known, message_id, now_ms)
    if looked is None:
        return None
    if looked.home is not None:
        await names.learn({looked.home})
    return message(known.number, MessageRow(*looked[:13], looked.body, looked.attributes), names.of)


async def receipts(
    database: Database, known: CachedQueue, ids: Sequence[str], *, outlives: bool, now_ms: int
) -> list[Receipt | None]:
    pairs = [each or (0, 0) for each in identities(ids)]
    homes, keys = SENT_AS["integer[]"]([home for home, _ in pairs]), SENT_AS["bigint[]"]([key for _, key in pairs])
    found = await database.ask("receipts", queue=known.number, homes=homes, keys=keys, now=now_ms, outlives=outlives)
    given = {nth - 1: Receipt(*receipt) for nth, *receipt in found}
    return [given.get(nth) for nth in range(len(ids))]
