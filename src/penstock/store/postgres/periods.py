"""The periods of the history, as tables of the database: how large each is, and of when.

History goes in whole periods, by dropping a table; nothing is deleted row by row. The period that is written to stays.
"""

from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.store.postgres.statements import statement


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    table: str
    size_bytes: int
    # As the statistics of PostgreSQL have it.
    rows: int
    # Whether messages that are settled now go into it.
    is_written: bool
    # When its first and its last message were settled, and the offset of the last; None if it has none.
    first_at_ms: int | None
    last_at_ms: int | None
    last_offset: int | None


async def periods(connection: psycopg.AsyncConnection[Any], schema: str) -> list[Period]:
    """Every period there is, the oldest first."""
    rows = await (await connection.execute(statement("periods", schema))).fetchall()
    return [await _period(connection, *row) for row in rows]


async def _period(
    connection: psycopg.AsyncConnection[Any], table: str, size_bytes: int, rows: int, is_written: bool
) -> Period:
    # The name is one that PostgreSQL itself has quoted. Both ends are found by the index.
    ends = f"""
        (SELECT at_offset, settled_at_ms FROM {table} ORDER BY at_offset LIMIT 1)
         UNION ALL
        (SELECT at_offset, settled_at_ms FROM {table} ORDER BY at_offset DESC LIMIT 1)
    """
    found = await (await connection.execute(ends.encode())).fetchall()
    return Period(
        table=table,
        size_bytes=size_bytes,
        rows=rows,
        is_written=is_written,
        first_at_ms=found[0][1] if found else None,
        last_at_ms=found[1][1] if found else None,
        last_offset=found[1][0] if found else None,
    )


def droppable(found: list[Period], *, before_ms: int) -> list[Period]:
    """The periods that are over, and whose messages were all settled before an instant; they are the oldest ones."""
    chosen: list[Period] = []
    for period in found:
        if period.is_written or (period.last_at_ms is not None and period.last_at_ms >= before_ms):
            break
        chosen.append(period)
    return chosen
