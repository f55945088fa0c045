"""`penstock pipeline archive`: settled messages become a Delta table."""

import signal
import threading
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated

import typer

from penstock.cli.output import refuse
from penstock.cli.pipeline.options import Queues, SparkJob, asks_spark, exit_code_of, run_job

if TYPE_CHECKING:
    from types import FrameType

ROWS_PER_BATCH = 2_000_000

Source = Annotated[
    str,
    typer.Argument(
        help="A server, as http://127.0.0.1:8080, the data folder of one, or its database, as postgresql://… "
        "(with ?schema=… if it is not in penstock).",
        metavar="SOURCE",
    ),
]
Root = Annotated[
    str, typer.Argument(help="The archive: a folder, or a URI such as s3://bucket/archive.", metavar="ARCHIVE")
]
Trim = Annotated[
    bool,
    typer.Option(
        "--trim", help="Let the server drop the history that the archive has, and only that; not with --queue."
    ),
]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="Go on until Ctrl-C or SIGTERM.")]
Every = Annotated[float, typer.Option("--every", help="Seconds between two batches of --follow.", min=0.1)]
RowsPerBatch = Annotated[
    int, typer.Option("--rows-per-batch", help="About how many rows are committed at once.", min=1)
]
AllowGaps = Annotated[
    bool, typer.Option("--allow-gaps", help="Go on although rows were dropped before they were archived.")
]
Moved = Annotated[bool, typer.Option("--moved", help="The source is the one of the archive, under another address.")]


@asks_spark
def archive(
    job: SparkJob,
    source: Source,
    root: Root,
    *,
    queue: Queues = None,
    trim: Trim = False,
    follow: Follow = False,
    every: Every = 60.0,
    rows_per_batch: RowsPerBatch = ROWS_PER_BATCH,
    allow_gaps: AllowGaps = False,
    moved: Moved = False,
) -> None:
    """Archive settled messages in a Delta table, each exactly once.

    The table is ARCHIVE/messages, for Spark, DuckDB, Polars and all that read Delta. Run it again to
    add what was settled since; where a run was killed, the next one goes on. With --trim the
    key needs the role admin.

    [bold]Examples:[/]

    penstock pipeline archive http://127.0.0.1:8080 ./archive
    penstock pipeline archive http://127.0.0.1:8080 ./archive --follow --trim
    penstock pipeline archive ./penstock-data ./archive --queue orders
    penstock pipeline archive http://queue:8080 s3://bucket/archive --master spark://host:7077
    """
    from penstock.pipeline.archive.job import ArchiveOptions, run
    from penstock.pipeline.locations import HistoryLocation

    place = HistoryLocation(where=source, key=job.key, queues=tuple(queue or ()))
    if place.is_server:
        _check_arrow(source, job.key)
    options = ArchiveOptions(
        source=place,
        root=root,
        every_s=every,
        rows_per_batch=rows_per_batch,
        is_trimming=trim,
        is_following=follow,
        may_have_gaps=allow_gaps,
        is_moved=moved,
    )
    run_job(
        job,
        "archive",
        lambda session, options, progress: run(session, options, progress, told_to_stop()),
        options,
        where="" if follow else source,
    )


def _check_arrow(url: str, key: str) -> None:
    """Refuse a server that has no Arrow before Spark is started, and before there is a folder for the archive."""
    from penstock.pipeline.http import TRIES_BY_HAND, ServerClient, ServerRefused, ServerUnreachable

    try:
        with ServerClient(url, key, tries_max=TRIES_BY_HAND) as client:
            client.arrow("/api/history", shard=0, offset=0, limit=1)
    except ServerRefused as error:
        if error.status == HTTPStatus.NOT_ACCEPTABLE:
            refuse(str(error), exit_code_of(error))
    except (ServerUnreachable, ValueError):
        # The job says more about it.
        return


def told_to_stop() -> threading.Event:
    """Return what is set by Ctrl-C and SIGTERM; a second one ends the process where it is, which does no harm."""
    stopping = threading.Event()

    def stop(number: int, _frame: "FrameType | None") -> None:
        stopping.set()
        signal.signal(number, signal.SIG_DFL)

    # After Spark has started: it takes Ctrl-C for itself.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, stop)
    return stopping
