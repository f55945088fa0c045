"""The dead letters that are in queues now, with their bodies: one file, replaced as a whole.

Readers see the old file or the new one, never both and never a part. One file is written
by one task; dead letters are few, or something is wrong that no archive mends.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from penstock.pipeline.archive.layout import STAGING
from penstock.pipeline.locations import DEAD_LETTERS, Place, read_live
from penstock.pipeline.storage import Files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PATH = f"{DEAD_LETTERS}/{DEAD_LETTERS}.parquet"


def dead_letter_queues(queues: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return the names of queues that dead letters go to, of those that there are."""
    named = {each["settings"].get("dead_letter_queue") for each in queues.values()}
    return sorted(name for name in queues if name.endswith(".dead") or name in named)


def snapshot(spark: "SparkSession", files: Files, place: Place, *, names: list[str], run: str) -> int:
    """Write what is in these queues now in the place of what was written last; return how many messages it is."""
    if not names:
        files.remove(DEAD_LETTERS)
        return 0
    staging = f"{STAGING}/{DEAD_LETTERS}-{run}"
    rows = read_live(spark, replace(place, queues=names)).coalesce(1).sortWithinPartitions("queue", "key")
    rows.write.option("compression", "zstd").mode("overwrite").parquet(files.where(staging))
    (written,) = (name for name in files.names(staging) if name.endswith(".parquet") and not name.startswith("."))
    source = f"{staging}/{written}"
    files.sync([source])
    count = spark.read.parquet(files.where(source)).count()
    files.put(source=source, target=PATH)
    files.sync([PATH])
    files.remove(staging)
    return count
