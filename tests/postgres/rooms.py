"""Whether the room that is kept of each queue is what counting its messages finds."""

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
