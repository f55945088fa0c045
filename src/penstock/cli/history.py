"""`penstock history`: lists, exports and drops the periods of the history of a store in PostgreSQL."""

import gzip
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from penstock.cli.config import LocalSession, Yes
from penstock.cli.migrate import asks_database, databases, run_on
from penstock.cli.output import confirm, console, counted, print_json, say, table
from penstock.core.routes import is_map
from penstock.settings import ServerSettings

if TYPE_CHECKING:
    from psycopg import AsyncConnection

    from penstock.store.postgres.history import Period


app = typer.Typer(no_args_is_help=True, help="List, export and drop the history of a store in PostgreSQL.")

Before = Annotated[
    datetime | None, typer.Option(help="Only periods whose messages were all settled before this day, UTC.")
]
Folder = Annotated[
    Path,
    typer.Argument(
        help="A folder for the files, a CSV file for each period; with several databases, a folder in it for each.",
        file_okay=False,
    ),
]
FolderBeforeDrop = Annotated[
    Path | None, typer.Option("--export", help="Write them to files in this folder first.", file_okay=False)
]


@app.command("list")
@asks_database
def list_periods(session: LocalSession, *, before: Before = None) -> None:
    """List the periods of the history, and whether each can be dropped.

    Every settled message has a row in the history. The history is kept in periods, a
    table for each, and is dropped in whole periods. The last two periods stay, since
    they are written to. A server drops old periods by itself if
    postgres_history_retention_s is set; those that it detached are shown, too.

    [bold]Examples:[/]

    penstock history list --store postgresql://penstock@db.example.com/shop
    penstock history list --store postgresql://penstock@db.example.com/shop --before 2026-01-01
    """
    _run(session, before)


@app.command("export")
@asks_database
def export_periods(session: LocalSession, folder: Folder, *, before: Before = None) -> None:
    """Write the periods that can be dropped to CSV files.

    `COPY … FROM` reads them. For Parquet, see penstock pipeline archive.

    [bold]Example:[/]

    penstock history export ./old --store postgresql://penstock@db.example.com/shop --before 2026-01-01
    """
    _run(session, before, folder=folder)


@app.command("drop")
@asks_database
def drop_periods(
    session: LocalSession,
    *,
    before: Before = None,
    export: FolderBeforeDrop = None,
    yes: Yes = False,
) -> None:
    """Drop old periods of the history, with all rows in them. It asks first.

    [bold]Examples:[/]

    penstock history drop --store postgresql://penstock@db.example.com/shop --before 2026-01-01
    penstock history drop --store postgresql://penstock@db.example.com/shop --before 2026-01-01 --export ./old --yes
    """
    limit = "that can be dropped" if before is None else f"settled before {before:%Y-%m-%d}"
    if not yes:
        confirm(f"Drop the history {limit} for good?")
    _run(session, before, folder=export, is_dropped=True)


def _run(
    session: LocalSession, before: datetime | None, *, folder: Path | None = None, is_dropped: bool = False
) -> None:
    settings = session.settings
    before_ms = int((before or datetime.now(UTC)).replace(tzinfo=UTC).timestamp() * 1_000)
    found = {
        patterns: run_on(one, _found(one, before_ms, _folder(folder, place, settings), is_dropped=is_dropped))
        for place, (patterns, one) in enumerate(databases(settings).items(), 1)
    }
    if session.is_json:
        rows = [
            _row(period, period in chosen, patterns if is_map(settings.store) else None)
            for patterns, (periods, chosen) in found.items()
            for period in periods
        ]
        retention_s = settings.postgres_history_retention_s
        print_json({"periods": rows, "dropped": is_dropped, "retention_s": retention_s})
        return
    for patterns, (periods, chosen) in found.items():
        if is_map(settings.store):
            say(f"The database of {patterns}:")
        _show(periods, chosen, is_dropped=is_dropped)
    if settings.postgres_history_retention_s:
        # What a server with these settings does by itself.
        days = settings.postgres_history_retention_s / 86_400
        verb = "drops" if settings.postgres_history_drops else "detaches"
        say(f"A server with these settings {verb} periods whose messages were all settled more than {days:g} days ago")


def _show(periods: list["Period"], chosen: list["Period"], *, is_dropped: bool) -> None:
    rows = []
    for period in periods:
        state = "detached" if period.is_detached else "is written" if period.is_written else ""
        may_go = state or ("yes" if period in chosen else "")
        first, last = _instant(period.first_at_ms) or "", _instant(period.last_at_ms) or ""
        rows.append((period.table, period.rows, f"{period.size_bytes / 1e6:,.1f}", first, last, may_go))
    console.print(table("period", "rows", "MB", "from", "to", "can go", rows=rows))
    verb = "Dropped" if is_dropped else "Can go:"
    size_mb = sum(period.size_bytes for period in chosen) / 1e6
    say(f"{verb} {counted(len(chosen), 'period')}, {size_mb:,.1f} MB")


def _row(period: "Period", can_go: bool, database: str | None = None) -> dict[str, Any]:
    return {
        **({} if database is None else {"database": database}),
        "table": period.table,
        "rows": period.rows,
        "size_bytes": period.size_bytes,
        "from": _instant(period.first_at_ms),
        "to": _instant(period.last_at_ms),
        "is_written": period.is_written,
        "is_detached": period.is_detached,
        "can_go": can_go,
    }


def _folder(export: Path | None, place: int, settings: ServerSettings) -> Path | None:
    """Return the folder to export one of the databases to, which is there then: periods have the same names in all."""
    if export is None:
        return None
    folder = export / f"database-{place}" if is_map(settings.store) else export
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _instant(at_ms: int | None) -> str | None:
    return None if at_ms is None else datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="seconds")


async def _found(
    settings: ServerSettings, before_ms: int, folder: Path | None, *, is_dropped: bool
) -> tuple[list["Period"], list["Period"]]:
    """Return all periods, and those that can go; or, if they are dropped, those that went."""
    from psycopg import AsyncConnection

    from penstock.server import open_application
    from penstock.store.postgres.connection import bounded
    from penstock.store.postgres.history import droppable, periods

    async with await AsyncConnection.connect(
        bounded(settings.store), autocommit=True, prepare_threshold=None
    ) as connection:
        found = await periods(connection, settings.postgres_schema)
        chosen = droppable(found, before_ms=before_ms)
        if folder is not None:
            for period in chosen:
                await _export(connection, period, settings.postgres_schema, folder)
        offsets = [period.last_offset for period in chosen if period.last_offset is not None]
        if not is_dropped or not offsets:
            return found, [] if is_dropped else chosen
        async with open_application(settings) as application:
            (span,) = await application.placement.history_shards()
            # A period that an open transaction reads stays for now.
            await application.placement.of_shard(span.shard).trim_history(
                span.shard, before=min(max(offsets) + 1, span.end_offset)
            )
        left = {period.table for period in await periods(connection, settings.postgres_schema)}
    return found, [period for period in chosen if period.table not in left]


async def _export(connection: "AsyncConnection[Any]", period: "Period", schema: str, folder: Path) -> None:
    """Write a period to a file, whole and synced, a line for each message, as `COPY … FROM` reads it."""
    from penstock.store.postgres.statements import statement

    path = folder / f"{period.table.rpartition('.')[2]}.csv.gz"
    number = period.table.rpartition("_")[2].encode()
    copy = b"COPY (" + statement("period_rows", schema) + number + b") TO STDOUT (FORMAT csv, HEADER)"
    unfinished = path.with_suffix(".part")
    with unfinished.open("wb") as file:
        with gzip.GzipFile(fileobj=file, mode="wb", mtime=0) as packed:
            async with connection.cursor().copy(copy) as rows:
                async for data in rows:
                    packed.write(data)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
    _sync(folder)


def _sync(folder: Path) -> None:
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
