"""How queues are set: as the server says now, or as the archive last saw it.

The history does not say by which settings it came about. A queue that nobody describes has the defaults.
"""

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from penstock.contract.queue_settings import QueueSettings
from penstock.pipeline.archive.queues import Server
from penstock.pipeline.job import JobFailed
from penstock.pipeline.locations import QUEUES, Place, is_archive
from penstock.pipeline.storage import has_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def present_settings(spark: "SparkSession", place: Place) -> dict[str, QueueSettings]:
    """Return the settings of the queues that are described, by name."""
    if place.is_server:
        return settings_of(Server(place.where, place.key).queues())
    where = f"{place.where}/{QUEUES}"
    if not is_archive(spark, place.where) or not has_path(spark, where):
        return {}
    row = spark.read.text(where, wholetext=True).first()
    try:
        return settings_of(json.loads(row["value"] if row else "{}"))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise JobFailed(
            f"{where} does not describe queues ({error}): archive once more, and it is written anew"
        ) from None


def settings_of(described: Mapping[str, Mapping[str, Any]]) -> dict[str, QueueSettings]:
    return {name: QueueSettings(**from_said(queue["settings"])) for name, queue in described.items()}
