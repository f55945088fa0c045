"""`penstock archive`: shows what of the history of a store in PostgreSQL can go, and lets it go."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.configuration import Config, Json
from penstock.cli.migrate import Schema, Store, database_settings, run_on
from penstock.cli.printing import console, counted, print_json, say, table
from penstock.settings import ServerSettings

if TYPE_CHECKING:
    from penstock.store.postgres.periods import Period


def archive_command(
    *,
    before: Annotated[
        datetime | None, typer.Option(help="Periods whose messages were all settled before this day, UTC.")
    ] = None,
    drop: Annotated[bool, typer.Option("--drop", help="Drop them. What they hold is gone.")] = False,
    store: Store = None,
    postgres_schema: Schema = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Show the periods of the history in PostgreSQL, and drop old ones.

    Every settled message has a row in the history. History is kept in periods, a
    table for each, and goes in whole periods: nothing is deleted row by row. Whoever
    wants to keep it elsewhere exports it first (penstock pipeline archive).

    [bold]Examples:[/]

    penstock archive --store postgresql://penstock@db.example.com/shop
    penstock archive --store postgresql://penstock@db.example.com/shop --before 2026-01-01 --drop
    """
    settings = database_settings(store, postgres_schema, config)
    before_ms = int((before or datetime.now(UTC)).replace(tzinfo=UTC).timestamp() * 1_000)
    found, chosen = run_on(settings, _found(settings, before_ms, is_dropped=drop))
    if as_json:
        print_json({"periods": [_row(period, period in chosen) for period in found], "dropped": drop})
        return
    rows = table("period", "rows", "MB", "from", "to", "can go")
    for period in found:
        row = _row(period, period in chosen)
        size = f"{period.size_bytes / 1e6:,.1f}"
        may_go = "is written" if period.is_written else "yes" if row["can_go"] else ""
        rows.add_row(row["table"], f"{row['rows']:,}", size, row["from"] or "", row["to"] or "", may_go)
    console.print(rows)
    verb = "Dropped" if drop else "Can go:"
    size_mb = sum(period.size_bytes for period in chosen) / 1e6
    say(f"{verb} {counted(len(chosen), 'period')}, {size_mb:,.1f} MB")


def _row(period: "Period", can_go: bool) -> dict[str, Any]:
    return {
        "table": period.table,
        "rows": period.rows,
        "size_bytes": period.size_bytes,
        "from": _instant(period.first_at_ms),
        "to": _instant(period.last_at_ms),
        "is_written": period.is_written,
        "can_go": can_go,
    }


def _instant(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")


async def _found(
    settings: ServerSettings, before_ms: int, *, is_dropped: bool
) -> tuple[list["Period"], list["Period"]]:
    from psycopg import AsyncConnection

    from penstock.server import open_application
    from penstock.store.postgres.periods import droppable, periods

    async with await AsyncConnection.connect(settings.store, autocommit=True) as connection:
        found = await periods(connection, settings.postgres_schema)
    chosen = droppable(found, before_ms=before_ms)
    offsets = [period.last_offset for period in chosen if period.last_offset is not None]
    if is_dropped and offsets:
        async with open_application(settings) as application:
            await application.store.trim_history(0, before=max(offsets) + 1)
    return found, chosen
