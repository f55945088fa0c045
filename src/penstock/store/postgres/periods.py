"""The periods of the history, as tables of the database: how large each is, and of when.

History goes in whole periods, by dropping a table; nothing is deleted row by row. The period that is written to stays,
and so does the one before it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import psycopg

from penstock.store.postgres.statements import statement

_COUNTED_MAX = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    table: str
    size_bytes: int
    # How many messages. A million rows are counted; of more there are as many as the statistics of PostgreSQL say, with
    # as many messages in each as in those that were counted.
    rows: int
    # Whether messages that are settled now go into it.
    is_written: bool
    # Whether it is past its retention and was taken out of the history, and not dropped.
    is_detached: bool
    # When its first and its last message were settled, and the offset of the last; None if it has none.
    first_at_ms: int | None
    last_at_ms: int | None
    last_offset: int | None


async def periods(connection: psycopg.AsyncConnection[Any], schema: str) -> list[Period]:
    """Every period there is, the oldest first."""
    rows = await (await connection.execute(statement("periods", schema))).fetchall()
    return [await _period(connection, *row) for row in rows]


async def _period(  # noqa: PLR0913, PLR0917 - a row.
    connection: psycopg.AsyncConnection[Any],
    table: str,
    size_bytes: int,
    estimate: int,
    is_written: bool,
    has_packs: bool,
    is_detached: bool,
) -> Period:
    # The name is one that PostgreSQL itself has quoted. Both ends are found by the index.
    messages = "coalesce(packed, 1)" if has_packs else "1"
    ends = f"""
        (SELECT at_offset, settled_at_ms FROM {table} ORDER BY at_offset LIMIT 1)
         UNION ALL
        (SELECT at_offset + {messages} - 1, settled_at_ms FROM {table} ORDER BY at_offset DESC LIMIT 1)
    """
    found = await (await connection.execute(ends.encode())).fetchall()
    counting = f"""
        SELECT count(*), coalesce(sum(messages), 0)::bigint
        FROM (SELECT {messages} AS messages FROM {table} LIMIT {_COUNTED_MAX}) AS row
    """
    counted = await (await connection.execute(counting.encode())).fetchone()
    assert counted is not None
    rows, count = counted
    return Period(
        table=table,
        size_bytes=size_bytes,
        rows=count if rows < _COUNTED_MAX else max(estimate, rows) * count // rows,
        is_written=is_written,
        is_detached=is_detached,
        first_at_ms=found[0][1] if found else None,
        last_at_ms=found[1][1] if found else None,
        last_offset=found[1][0] if found else None,
    )


def droppable(found: Sequence[Period], *, before_ms: int) -> list[Period]:
    """The periods that are over, and whose messages were all settled before an instant; they are the oldest ones."""
    chosen: list[Period] = []
    for period in found:
        if period.is_detached:
            continue
        if period.is_written or (period.last_at_ms is not None and period.last_at_ms >= before_ms):
            break
        chosen.append(period)
    return chosen
