"""`penstock migrate`: makes the schema of a store in PostgreSQL, or brings it up to date."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Annotated, Any

import typer

from penstock.cli.config import Config, Json, LocalSession, loaded, with_options
from penstock.cli.output import ExitCode, counted, print_json, refuse, say
from penstock.core.routes import is_map
from penstock.settings import ServerSettings, without_password

Store = Annotated[
    str | None,
    typer.Option(help="The database, postgresql://…, or a map of several; by default that of the settings."),
]
Schema = Annotated[str | None, typer.Option(help="The schema that everything is in.")]


@contextmanager
def asking_database(
    *, store: Store = None, postgres_schema: Schema = None, config: Config = None, as_json: Json = False
) -> Iterator[LocalSession]:
    """Yield settings that name a database, or end the command."""
    settings = loaded(ServerSettings, {"store": store, "postgres_schema": postgres_schema}, config).settings
    if not settings.is_on_postgres:
        refuse("Say which database: --store postgresql://…, or store in penstock.toml.", ExitCode.BAD_SETTINGS)
    yield LocalSession(settings, as_json)


asks_database = with_options(asking_database)


@asks_database
def migrate_command(
    session: LocalSession,
    *,
    plan: Annotated[bool, typer.Option("--plan", help="Print the SQL that is left to run, and run nothing.")] = False,
) -> None:
    """Bring the schema of a store in PostgreSQL up to date.

    A server does this when it starts, unless it has --no-migrate. Run it yourself
    where the role of the servers may not change tables. Servers may run meanwhile,
    of this version and of the one before; of several who migrate at once, one does.

    [bold]Examples:[/]

    penstock migrate --store postgresql://admin@db.example.com/shop
    penstock migrate --store postgresql://admin@db.example.com/shop --plan > migration.sql
    penstock migrate --store 'orders.*=postgresql://admin@a/shop,*=postgresql://admin@b/shop'
    """
    settings = session.settings
    each = databases(settings)
    done = {
        patterns: run_on(one, _planned(one) if plan else _migrated(one), doing=f"{patterns}: " if len(each) > 1 else "")
        for patterns, one in each.items()
    }
    if session.is_json:
        rows = [
            {"version_before": before, "version": after, **({"sql": text} if plan else {})}
            for before, after, text in done.values()
        ]
        several = [{"database": patterns, **row} for patterns, row in zip(done, rows, strict=True)]
        print_json({"databases": several} if is_map(settings.store) else rows[0])
        return
    for patterns, (before, after, text) in done.items():
        where = f" in the database of {patterns}" if is_map(settings.store) else ""
        if plan:
            say(f"-- The database of {patterns}\n\n{text}" if where else text)
            continue
        became = "was up to date" if before == after else f"came from version {before}"
        say(f"Schema {settings.postgres_schema}{where} has version {after}; it {became}.")


def databases(settings: ServerSettings) -> dict[str, ServerSettings]:
    """Return settings for each database alone, by the patterns of its queues."""
    patterns: dict[str, list[str]] = {}
    for pattern, url in settings.routes:
        patterns.setdefault(url, []).append(pattern)
    return {",".join(names): replace(settings, store=url) for url, names in patterns.items()}


def run_on(settings: ServerSettings, work: Any, *, doing: str = "") -> Any:
    """Run something that speaks to the database, or say why that did not work and end the command."""
    try:
        import psycopg

        from penstock.store.errors import StoreForbids, StoreUnfit, StoreUnreachable
        from penstock.store.postgres.connection import unanswered
        from penstock.store.postgres.errors import refusal
    except ImportError:
        work.close()
        refuse("The driver of PostgreSQL is not installed: pip install 'penstock[postgres]'", ExitCode.BAD_SETTINGS)
    try:
        return asyncio.run(work)
    except psycopg.errors.ConnectionTimeout:
        refuse(f"{doing}{unanswered(settings.store)}.", ExitCode.UNREACHABLE)
    except StoreUnfit as error:
        refuse(f"{doing}{error}", ExitCode.BAD_SETTINGS)
    except (StoreUnreachable, StoreForbids, psycopg.Error) as error:
        # The user of this command looks after the database, so its own error is for them, too.
        said, found = str(error).strip(), refusal(error) if isinstance(error, psycopg.Error) else None
        advice = "" if found is None else f"\n{found}"
        ending = ExitCode.NOT_ALLOWED if isinstance(found or error, StoreForbids) else ExitCode.UNREACHABLE
        refuse(f"{doing}{without_password(settings.store)}: {said}{advice}", ending)


async def _planned(settings: ServerSettings) -> tuple[int, int, str]:
    from psycopg import AsyncConnection

    from penstock.store.postgres.connection import bounded
    from penstock.store.postgres.migrate import look, plan
    from penstock.store.postgres.statements import migrations

    async with await AsyncConnection.connect(bounded(settings.store), autocommit=True) as connection:
        found = await look(connection, settings.postgres_schema)
    left = [number for number, _ in migrations() if number not in found.applied]
    text = plan(settings.postgres_schema, found) or "-- Nothing is left to run."
    said = f"-- {counted(len(left), 'migration')} above version {found.version}\n\n{text}"
    return found.version, max([found.version, *left]), said


async def _migrated(settings: ServerSettings) -> tuple[int, int, str]:
    from psycopg import AsyncConnection

    from penstock.store.postgres.connection import bounded
    from penstock.store.postgres.migrate import look, migrate

    # Nothing is prepared, since the way may lead through a pooler.
    async with await AsyncConnection.connect(
        bounded(settings.store), autocommit=True, prepare_threshold=None
    ) as connection:
        before = await look(connection, settings.postgres_schema)
        return before.version, await migrate(connection, settings.postgres_schema), ""
