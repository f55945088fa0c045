"""Where history is read from: a server, the store of one, or an archive; all give the same columns.

    http://…             a server, over HTTP
    postgresql://…       the database of a store, read directly
    folder with journal  the data folder of a store, read directly
    folder with manifest an archive that the archive job has written

`read_history` adds `id`, the text that REST, the SDK and the CLI name a message by.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from penstock.pipeline.databases import is_database, without_password
from penstock.pipeline.files import has_path
from penstock.pipeline.outcome import JobFailed
from penstock.pipeline.schemas import HISTORY, ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

# Of an archive: the rows, what says which files of them count, and the dead letters of the last run.
MESSAGES = "messages"
MANIFEST = "manifest"
DEAD_LETTERS = "dead_letters"


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What to read, and where; a server may want a key."""

    where: str
    key: str = ""
    # Empty for all.
    queues: Sequence[str] = ()
    # By the time a message was settled, as RFC 3339: from this one on, and before that one.
    since: str = ""
    until: str = ""

    @property
    def is_server(self) -> bool:
        return self.where.startswith(("http://", "https://"))

    @property
    def shown(self) -> str:
        """Where it is, as people and reports are told: without a password."""
        return without_password(self.where)


def read_history(spark: "SparkSession", place: Place) -> "DataFrame":
    """Return settled messages with the columns of `schemas.HISTORY` and `id`."""
    return _archived(spark, place) if is_archive(spark, place.where) else _told(spark, place)


def read_live(spark: "SparkSession", place: Place) -> "DataFrame":
    """Return the messages that are in queues now, with the columns of `schemas.LIVE` and `id`; a server knows them."""
    if not place.is_server:
        raise JobFailed(
            f"{place.shown} does not know what is in the queues now: name a server, as in http://127.0.0.1:8080"
        )
    return with_id(_reader(spark, place).option("read", "live").load())


def is_archive(spark: "SparkSession", where: str) -> bool:
    # A log has a manifest too, but no messages beside it.
    return (
        not is_database(where)
        and not where.startswith(("http://", "https://"))
        and all(has_path(spark, f"{where}/{each}") for each in (MANIFEST, MESSAGES))
    )


def with_id(rows: "DataFrame") -> "DataFrame":
    """Add the text that names a message: `<first queue>-<number · 8 + tier it was sent at>`, in hexadecimal."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    key = f.col("number") * 8 + f.col("sent_tier")
    return rows.withColumn("id", f.concat_ws("-", f.lower(f.hex("first_queue")), f.lower(f.hex(key))))


def _archived(spark: "SparkSession", place: Place) -> "DataFrame":
    from pyspark.sql import functions as f  # noqa: PLC0415

    # The schema is said and not found out: an archive without rows has one too.
    rows = spark.read.schema(f"{ddl(HISTORY)}, `id` STRING, `day` STRING").parquet(f"{place.where}/{MESSAGES}")
    if place.queues:
        rows = rows.where(f.col("queue").isin(list(place.queues)))
    # The day is the folder: whole days are never opened.
    if place.since:
        at = f.lit(place.since).cast("timestamp")
        rows = rows.where((f.col("day") >= f.date_format(at, "yyyy-MM-dd")) & (f.col("settled_at") >= at))
    if place.until:
        at = f.lit(place.until).cast("timestamp")
        rows = rows.where((f.col("day") <= f.date_format(at, "yyyy-MM-dd")) & (f.col("settled_at") < at))
    return rows.select(*(column.name for column in HISTORY), "id")


def _told(spark: "SparkSession", place: Place) -> "DataFrame":
    return with_id(_reader(spark, place).load())


def _reader(spark: "SparkSession", place: Place) -> "DataFrameReader":
    return spark.read.format("penstock").options(**source_options(place))


def source_options(place: Place) -> dict[str, str]:
    """Return a server, a database or a data folder as options of `format("penstock")`."""
    said = {
        "url" if place.is_server or is_database(place.where) else "path": place.where,
        "key": place.key,
        "queue": ",".join(place.queues),
        "startingTime": place.since,
        "endingTime": place.until,
    }
    return {name: value for name, value in said.items() if value}
