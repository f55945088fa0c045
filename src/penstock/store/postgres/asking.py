"""What can be asked of a queue: counts, one message, who holds what. Nothing here writes."""

from collections.abc import Sequence

from penstock.contract.queue_settings import TIERS
from penstock.core.message import Receipt
from penstock.store.ids import parse, queue_id
from penstock.store.interface import Bound, Counts, Description, Message
from penstock.store.postgres.columns import SENT_AS
from penstock.store.postgres.database import Database
from penstock.store.postgres.explaining import Looked
from penstock.store.postgres.known import KnownQueue
from penstock.store.postgres.messages import Row, identities, message, pair

# To count a million messages takes a tenth of a second, and whoever asks, a console say, asks often and twice. So up to
# so many are counted each time, and a larger count is kept for about ten times as long as it took.
COUNTED_EACH_TIME = 100_000
COUNTED_PER_MS = 1_000


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


async def counts(database: Database, known: KnownQueue, now_ms: int) -> Counts:
    is_counted = now_ms >= known.counted_until_ms
    ((ready, leased, delayed, oldest, stuck, stuck_since_ms, *noisy),) = await database.ask(
        "counts", queue=known.number, now=now_ms, is_counted=is_counted
    )
    if is_counted:
        waiting = sum(ready)
        known.counted = ready
        known.counted_until_ms = now_ms + waiting // COUNTED_PER_MS if waiting > COUNTED_EACH_TIME else 0
    else:
        ready = known.counted
    return Counts(tuple(ready), leased, delayed, tuple(oldest), stuck, stuck_since_ms, *noisy)


async def describe(database: Database, known: KnownQueue, grave: KnownQueue | None, now_ms: int) -> Description:
    found = await counts(database, known, now_ms)
    shares = known.shares or known.begin_shares(())
    leases = [shares.bound(tier, found.ready[tier]) for tier in range(TIERS)]
    return Description(
        queue=known.name,
        id=queue_id(known.number),
        settings=known.settings,
        created_at_ms=known.created_at_ms,
        dead_letters=None if grave is None else grave.name,
        bounds=tuple(Bound(each, known.started.ms_for(each, now_ms)) for each in leases),
    )


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
