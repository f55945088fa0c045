"""What can be asked of a queue: counts, one message, who holds what. Nothing here writes."""

from collections.abc import Callable, Sequence

from penstock.contract.messages import TIERS
from penstock.core.queue.message import Receipt
from penstock.store.ids import parse, queue_id
from penstock.store.interface import Bound, Counts, Description, Message
from penstock.store.postgres import counting
from penstock.store.postgres.burying import Burying
from penstock.store.postgres.columns import SENT_AS
from penstock.store.postgres.counting import Counting, Seen
from penstock.store.postgres.database import Database
from penstock.store.postgres.explaining import Looked
from penstock.store.postgres.known import KnownQueue, QueueRow
from penstock.store.postgres.messages import Row, identities, message, pair
from penstock.store.postgres.registry import Registry


class QueueNames:
    """Names of queues by their numbers, None if deleted: for the past of moved messages."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._names: dict[int, str | None] = {}

    def of(self, queue: int) -> str | None:
        return self._names.get(queue)

    async def learn(self, queues: set[int]) -> None:
        """Read names anew: a queue may have been deleted meanwhile."""
        if queues:
            numbers = SENT_AS["integer[]"](sorted(queues))
            for number, name, is_deleted in await self._database.ask("queue_names", numbers):
                self._names[number] = None if is_deleted else name

    async def learn_homes(self, known: KnownQueue) -> None:
        """Read the names of all queues that messages in a queue came from."""
        await self.learn({home for (home,) in await self._database.ask("homes", queue=known.number)})


class Summaries:
    def __init__(self, database: Database, registry: Registry, burying: Burying, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._registry = registry
        self._burying = burying
        self._now_ms = now_ms
        self.counting = Counting(database, now_ms)

    async def of(self, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]:
        """Describe queues as they are now, with one statement, and with one more for those where something was due."""
        found = await self._look(queues)
        now_ms = self._now_ms()
        due = [name for name, (known, _, seen) in found.items() if _is_due(known, seen, now_ms)]
        for name in due:
            await self._burying.advance_a_turn(found[name][0])
        if due:
            found |= await self._look(due)
        return [await self._summary(*found[name]) if name in found else None for name in queues]

    async def _look(self, queues: Sequence[str]) -> dict[str, tuple[KnownQueue, str | None, Seen]]:
        names = await self._registry.settled(queues)
        rows = await self._database.ask(
            "summaries",
            names=SENT_AS["text[]"]([name for name, _ in names]),
            versions=SENT_AS["bigint[]"]([version for _, version in names]),
            looked=SENT_AS["bigint[]"]([self._registry.looked_until_ms(name) for name, _ in names]),
            most=counting.COUNTED_MOST,
            now=self._now_ms(),
        )
        found = {}
        for row in rows:
            queue, grave = QueueRow(*row[:6]), row[6]
            # Without settings it is as it was known.
            known = await self._registry.find(queue.name) if queue.settings is None else self._registry.note(queue)
            if known is not None:
                found[queue.name] = (known, None if grave is None else queue_id(grave), Seen(*row[7:]))
        return found

    async def _summary(self, known: KnownQueue, grave: str | None, seen: Seen) -> tuple[Description, Counts]:
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


def _is_due(known: KnownQueue, seen: Seen, now_ms: int) -> bool:
    # What others hold is not asked for all the while.
    is_left = known.is_held and now_ms < known.due_ms
    return not is_left and (seen.is_due or seen.has_aged(known, now_ms))


async def find(database: Database, known: KnownQueue, message_id: str, now_ms: int) -> Looked | None:
    """Return a message as it stands in the database, None if it is not in the queue."""
    identity = parse(message_id)
    sought = None if identity is None else pair(identity)
    if sought is None:
        return None
    home, key = sought
    rows = await database.ask("look", queue=known.number, home=home, key=key, now=now_ms, aging_ms=known.aging_column)
    return Looked(*rows[0]) if rows else None


async def look(
    database: Database, known: KnownQueue, message_id: str, names: QueueNames, now_ms: int
) -> Message | None:
    looked = await find(database, known, message_id, now_ms)
    if looked is None:
        return None
    if looked.home is not None:
        await names.learn({looked.home})
    return message(known.number, Row(*looked[:13], looked.body, looked.attributes), names.of)


async def receipts(
    database: Database, known: KnownQueue, ids: Sequence[str], *, outlives: bool, now_ms: int
) -> list[Receipt | None]:
    pairs = [each or (0, 0) for each in identities(ids)]
    homes, keys = SENT_AS["integer[]"]([home for home, _ in pairs]), SENT_AS["bigint[]"]([key for _, key in pairs])
    found = await database.ask("receipts", queue=known.number, homes=homes, keys=keys, now=now_ms, outlives=outlives)
    given = {nth - 1: Receipt(*receipt) for nth, *receipt in found}
    return [given.get(nth) for nth in range(len(ids))]
