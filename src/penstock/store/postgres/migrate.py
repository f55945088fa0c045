"""Brings a schema to what this code needs, under a lock: of many servers that start at once, one does it.

Migrations are numbered files that run once each, in order. Functions are created again
when any of them has changed; so that old and new servers work side by side, a function
whose arguments or answer change gets a new name, and its old one stays for a release.
A schema that is newer than the code is left alone: migrations only add what old
code can do without. So a release that changes functions has a migration, if only an
empty one: else an old server that starts again would put back what it knows.

What is left to do is a list of statements, which is either run or printed. If there is
nothing left, nothing is run, and no right to change the schema is needed.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from psycopg import AsyncConnection, errors

from penstock.runtime.interface import LogEventWriter
from penstock.store.errors import StoreUnfit
from penstock.store.postgres.errors import BRIEF_WAITS, BriefWaits, quiet, without_long_waits
from penstock.store.postgres.statements import definitions, migrations, read

_VERSION_TABLE = (
    "CREATE TABLE penstock.version ("
    "number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now(), functions text NOT NULL DEFAULT '')"
)
# One migrates at a time. Before there is a table to lock, making the schema fails for all but one.
_ALONE = "LOCK TABLE penstock.version IN SHARE ROW EXCLUSIVE MODE"
_MADE_BY_OTHERS = (errors.DuplicateSchema, errors.DuplicateTable, errors.UniqueViolation)
# PostgreSQL lets everybody execute a new function, and default privileges of a schema cannot say otherwise.
_NOTHING_FOR_PUBLIC = tuple(
    f"REVOKE ALL ON {what}SCHEMA {{schema}} FROM PUBLIC"
    for what in ("", "ALL TABLES IN ", "ALL SEQUENCES IN ", "ALL ROUTINES IN ")
)


@dataclass(frozen=True, slots=True)
class SchemaState:
    """What there is of a schema before."""

    has_schema: bool = False
    has_table: bool = False
    applied: frozenset[int] = frozenset()
    # A digest of the functions that were made last.
    functions: str = ""

    @property
    def version(self) -> int:
        return max(self.applied, default=0)


class SchemaMissing(StoreUnfit):
    """The schema is missing, or older than the code, and the settings do not allow to change it."""


def steps(schema: str, found: SchemaState) -> Sequence[str]:
    """Return the statements that are left to run, in order; none if everything is there."""
    parts: list[str] = []
    if not found.has_schema:
        parts.append(f"CREATE SCHEMA {schema}")
    if not found.has_table:
        parts.append(_here(_VERSION_TABLE, schema))
    left = [(number, path) for number, path in migrations() if number not in found.applied]
    for number, path in left:
        parts += [read(path, schema), f"INSERT INTO {schema}.version (number) VALUES ({number})"]
    newest, digest = migrations()[-1][0], _digest()
    if found.version <= newest and (left or found.functions != digest):
        parts += [read(path, schema) for path in definitions()]
        parts += [text.format(schema=schema) for text in _NOTHING_FOR_PUBLIC]
        parts.append(f"UPDATE {schema}.version SET functions = '{digest}' WHERE number = {newest}")
    return [part.rstrip().removesuffix(";") for part in parts]


def plan(schema: str = "penstock", found: SchemaState | None = None) -> str:
    """Return what a migration runs, as a text for `psql`; "" if there is nothing to run."""
    left = steps(schema, found or SchemaState())
    if not left:
        return ""
    alone = [_here(_ALONE, schema)] if found is not None and found.has_table else []
    return "\n\n".join(f"{part};" for part in ("BEGIN", BRIEF_WAITS.limit, *alone, *left, "COMMIT"))


async def migrate(
    connection: AsyncConnection, schema: str, log_event: LogEventWriter = quiet, *, waits: BriefWaits = BRIEF_WAITS
) -> int:
    """Do what is left to do, and return the version the schema has then."""
    # Read without the lock first: a role without rights to change the schema may still start.
    if steps(schema, await look(connection, schema)):
        await without_long_waits(
            connection, schema, lambda: _run_steps(connection, schema, waits), log_event, pause_s=waits.pause_s
        )
    return (await look(connection, schema)).version


async def _run_steps(connection: AsyncConnection, schema: str, waits: BriefWaits) -> None:
    before = await look(connection, schema)
    try:
        async with connection.transaction():
            await connection.execute(waits.limit.encode())
            if before.has_table:
                await connection.execute(_here(_ALONE, schema).encode())
            for step in steps(schema, await look(connection, schema)):
                await connection.execute(step.encode())
    except _MADE_BY_OTHERS as error:
        if await look(connection, schema) == before:
            raise _taken(schema) from error
        # Another server has made it at the same moment.
        await _run_steps(connection, schema, waits)


async def check(connection: AsyncConnection, schema: str) -> None:
    """Raise `SchemaMissing` unless the schema has all that this code needs."""
    found, newest = await look(connection, schema), migrations()[-1][0]
    if not found.applied >= {number for number, _ in migrations()}:
        raise SchemaMissing(
            f"schema {schema!r} has version {found.version}, and {newest} is needed: run `penstock migrate`"
        )


async def look(connection: AsyncConnection, schema: str) -> SchemaState:
    """Return what there is of a schema."""
    # By the table, not by `to_regnamespace`: a session that has found no schema remembers that until it opens a table,
    # so that after waiting for the lock it would make what another has made meanwhile.
    there = await connection.execute(
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = %s), to_regclass(%s) IS NOT NULL",
        (schema, f"{schema}.version"),
    )
    row = await there.fetchone()
    assert row is not None
    has_schema, has_table = row
    if not has_table:
        return SchemaState(has_schema)
    try:
        found = await connection.execute(f"SELECT number, functions FROM {schema}.version ORDER BY number".encode())
    except errors.UndefinedColumn as error:
        raise _taken(schema) from error
    rows = await found.fetchall()
    return SchemaState(has_schema, has_table, frozenset(number for number, _ in rows), rows[-1][1] if rows else "")


def _taken(schema: str) -> SchemaMissing:
    return SchemaMissing(f"schema {schema!r} has tables that are not ours: let postgres_schema name another")


def _digest() -> str:
    digest = blake2b(digest_size=16)
    for text in (*(read(path, "penstock") for path in definitions()), *_NOTHING_FOR_PUBLIC):
        digest.update(text.encode())
    return digest.hexdigest()


def _here(text: str, schema: str) -> str:
    return text.replace("penstock.", f"{schema}.")
