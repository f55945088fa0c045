"""Brings a schema to what this code needs, under a lock: of many servers that start at once, one does it.

Migrations are numbered files that run once each, in order. Functions are made anew
when any of them has changed; so that old and new servers work side by side, a function
whose arguments or answer change gets a new name, and its old one stays for a release.
A schema that is newer than the code is left alone: migrations only add what old
code can do without.
"""

from hashlib import blake2b

from psycopg import AsyncConnection

from penstock.store.postgres.statements import definitions, migrations, read

_VERSION_TABLE = (
    "CREATE TABLE IF NOT EXISTS penstock.version ("
    "number integer PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now(), functions text NOT NULL DEFAULT '')"
)
_WHO_MAY = "SELECT pg_advisory_xact_lock(hashtext('penstock.migrate'), 0)"


class SchemaMissing(Exception):
    """The schema is not there, or older than the code, and nobody has said that it may be changed."""


def plan(schema: str = "penstock", *, above: int = 0) -> str:
    """Return the statements that a migration from a version on runs, as a text."""
    parts = [f"CREATE SCHEMA IF NOT EXISTS {schema};", f"{_here(_VERSION_TABLE, schema)};"]
    parts += [read(path, schema) for number, path in migrations() if number > above]
    parts += [f"{read(path, schema)};" for path in definitions()]
    return "\n\n".join(parts)


async def migrate(connection: AsyncConnection, schema: str) -> int:
    """Do what is left to do, and return the version the schema has then."""
    async with connection.transaction():
        await connection.execute(_here(_WHO_MAY, schema).encode())
        await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}".encode())
        await connection.execute(_here(_VERSION_TABLE, schema).encode())
        version, functions = await _version(connection, schema)
        for number, path in migrations():
            if number > version:
                await connection.execute(read(path, schema).encode())
                await connection.execute(f"INSERT INTO {schema}.version (number) VALUES (%s)".encode(), (number,))
        newest = migrations()[-1][0]
        digest = _digest()
        if version <= newest and functions != digest:
            for path in definitions():
                await connection.execute(read(path, schema).encode())
            changed = f"UPDATE {schema}.version SET functions = %s WHERE number = %s"
            await connection.execute(changed.encode(), (digest, newest))
        return max(version, newest)


async def check(connection: AsyncConnection, schema: str) -> None:
    """Raise `SchemaMissing` unless the schema has all that this code needs."""
    found = await connection.execute("SELECT to_regclass(%s) IS NOT NULL", (f"{schema}.version",))
    row = await found.fetchone()
    version = (await _version(connection, schema))[0] if row is not None and row[0] else 0
    if version < migrations()[-1][0]:
        raise SchemaMissing(
            f"schema {schema!r} has version {version}, and {migrations()[-1][0]} is needed: run `penstock migrate`"
        )


async def _version(connection: AsyncConnection, schema: str) -> tuple[int, str]:
    found = await connection.execute(
        f"SELECT number, functions FROM {schema}.version ORDER BY number DESC LIMIT 1".encode()
    )
    row = await found.fetchone()
    return (0, "") if row is None else (row[0], row[1])


def _digest() -> str:
    digest = blake2b(digest_size=16)
    for path in definitions():
        digest.update(read(path, "penstock").encode())
    return digest.hexdigest()


def _here(text: str, schema: str) -> str:
    return text.replace("penstock.", f"{schema}.")
