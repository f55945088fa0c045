"""Calls that change something and are rare: made in one transaction, together with a note of what they answered.

If the connection breaks, the note is looked for. The note is the first thing in the transaction: whoever makes the same
call again waits at it for the first one, and learns from it what that one answered. What is done all the time notes its
answer by itself (`Database.call_once`); this takes some round trips more, and works with any function.
"""

import json
from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection, errors

from penstock.store.postgres.database import Database
from penstock.store.postgres.statements import function

Call = tuple[str, Sequence[Any]]

_RETRIES_MAX = 20
_NOTE = "INSERT INTO {schema}.operation (id, at_ms, answer) VALUES (%s, %s, '')"
_ANSWER = "UPDATE {schema}.operation SET answer = %s WHERE id = %s"


async def call_noted(database: Database, *calls: Call, operation: int, now_ms: int) -> list[list[Any]]:
    """Call functions in one transaction, all of them or none, and return the row that each answers with.

    Raises `Lost` only if the database cannot be reached, or not again.
    """
    note = await database.make_once(lambda: _call(database, calls, operation, now_ms), operation)
    return list(json.loads(bytes(note)))


async def _call(database: Database, calls: Sequence[Call], operation: int, now_ms: int) -> bytes:
    for _ in range(_RETRIES_MAX):
        try:
            async with database.transaction() as connection:
                return await _call_within(connection, database.settings.schema, calls, operation, now_ms)
        except (errors.SerializationFailure, errors.DeadlockDetected) as error:
            again = error
    raise again


async def _call_within(
    connection: AsyncConnection, schema: str, calls: Sequence[Call], operation: int, now_ms: int
) -> bytes:
    await connection.execute(_NOTE.format(schema=schema).encode(), (operation, now_ms))
    answers: list[list[Any]] = []
    for name, values in calls:
        made = function(name, schema)
        found = await connection.execute(made.text, made.arguments(values))
        answers.append(list(await found.fetchone() or ()))
    note = json.dumps(answers).encode()
    await connection.execute(_ANSWER.format(schema=schema).encode(), (note, operation))
    return note
