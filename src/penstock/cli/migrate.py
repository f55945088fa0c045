"""`penstock migrate`: makes the schema of a store in PostgreSQL, or brings it up to date."""

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.configuration import Config, Json, loaded
from penstock.cli.exits import Ending, refuse
from penstock.cli.printing import counted, print_json, say
from penstock.settings import ServerSettings, without_password

if TYPE_CHECKING:
    from psycopg import AsyncConnection

Store = Annotated[str | None, typer.Option(help="The database, postgresql://…; by default that of the settings.")]
Schema = Annotated[str | None, typer.Option(help="The schema that everything is in.")]


def migrate_command(
    *,
    store: Store = None,
    postgres_schema: Schema = None,
    plan: Annotated[bool, typer.Option("--plan", help="Print the SQL that is left to run, and run nothing.")] = False,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Bring the schema of a store in PostgreSQL up to date.

    A server does this when it starts, unless it is told --no-migrate. Say it yourself
    where servers have a role that may not change tables. Servers may run meanwhile,
    of this version and of the one before; of several who migrate at once, one does.

    [bold]Examples:[/]

    penstock migrate --store postgresql://admin@db.example.com/shop
    penstock migrate --store postgresql://admin@db.example.com/shop --plan > migration.sql
    """
    settings = database_settings(store, postgres_schema, config)
    before, after, text = run_on(settings, _planned(settings) if plan else _migrated(settings))
    if plan and not as_json:
        say(text)
    elif as_json:
        print_json({"version_before": before, "version": after, **({"sql": text} if plan else {})})
    else:
        done = "was up to date" if before == after else f"came from version {before}"
        say(f"Schema {settings.postgres_schema} has version {after}; it {done}.")


def database_settings(store: str | None, schema: str | None, config: Any) -> ServerSettings:
    """Return settings that name a database, or end the command."""
    settings = loaded(ServerSettings, {"store": store, "postgres_schema": schema}, config).settings
    if not settings.is_on_postgres:
        refuse("Say which database: --store postgresql://…, or store in penstock.toml.", Ending.BAD_SETTINGS)
    return settings


def run_on(settings: ServerSettings, work: Any) -> Any:
    """Run something that speaks to the database, or say why that did not work and end the command."""
    try:
        import psycopg
    except ImportError:
        work.close()
        refuse("The driver of PostgreSQL is not installed: pip install 'penstock[postgres]'", Ending.BAD_SETTINGS)
    try:
        return asyncio.run(work)
    except psycopg.Error as error:
        refuse(f"{without_password(settings.store)}: {str(error).strip()}", Ending.UNREACHABLE)


async def version_of(connection: "AsyncConnection[Any]", schema: str) -> int:
    """The number of the last migration that was run; 0 for a schema that is not there."""
    known = await (await connection.execute("SELECT to_regclass(%s)", (f"{schema}.version",))).fetchone()
    if known is None or known[0] is None:
        return 0
    newest = f"SELECT coalesce(max(number), 0) FROM {schema}.version".encode()
    row = await (await connection.execute(newest)).fetchone()
    return int(row[0]) if row is not None else 0


async def _planned(settings: ServerSettings) -> tuple[int, int, str]:
    from psycopg import AsyncConnection

    from penstock.store.postgres.migrate import plan
    from penstock.store.postgres.statements import migrations

    async with await AsyncConnection.connect(settings.store, autocommit=True) as connection:
        version = await version_of(connection, settings.postgres_schema)
    left = [number for number, _ in migrations() if number > version]
    text = plan(settings.postgres_schema, above=version)
    return version, max([version, *left]), f"-- {counted(len(left), 'migration')} above version {version}\n\n{text}"


async def _migrated(settings: ServerSettings) -> tuple[int, int, str]:
    from psycopg import AsyncConnection

    from penstock.store.postgres.migrate import migrate

    async with await AsyncConnection.connect(settings.store, autocommit=True) as connection:
        before = await version_of(connection, settings.postgres_schema)
        return before, await migrate(connection, settings.postgres_schema), ""
