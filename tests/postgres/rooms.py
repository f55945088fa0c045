"""Whether what is kept as a number, the room of a queue and what groups hold, is what counting the messages finds."""

import psycopg

from penstock.store.postgres.database import PostgresSettings

_WRONG = """
SELECT name, size, sum(free)::bigint, penstock.live(queue, 1000000)
FROM penstock.room JOIN penstock.queue ON queue.number = room.queue
GROUP BY name, queue, size HAVING sum(free) + penstock.live(queue, 1000000) <> size
"""


async def wrong_rooms(settings: PostgresSettings) -> list[tuple[object, ...]]:
    """Queues whose room and messages do not make up their size: name, size, room and messages."""
    async with await psycopg.AsyncConnection.connect(settings.url) as connection:
        return await (await connection.execute(_WRONG)).fetchall()


_WRONG_HELD = """
SELECT grp, sum(kept)::bigint, sum(counted)::bigint FROM (
    SELECT queue, grp, held AS kept, 0 AS counted FROM penstock.tenant_held
    UNION ALL
    SELECT queue, grp, 0, 1 FROM penstock.leased WHERE turn IS NOT NULL
) AS each GROUP BY queue, grp HAVING sum(kept) <> sum(counted)
"""


async def wrong_held(settings: PostgresSettings) -> list[tuple[object, ...]]:
    """Groups that hold another number of messages than is kept of them: group, kept and counted."""
    async with await psycopg.AsyncConnection.connect(settings.url) as connection:
        return await (await connection.execute(_WRONG_HELD)).fetchall()
