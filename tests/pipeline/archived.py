"""A small archive, laid out as the archive job leaves it: for the jobs that read one, quickly."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as f


def archive(rows: DataFrame, root: Path, queues: Mapping[str, Any] | None = None) -> str:
    """Write an archive of these rows, and what its server said of the queues."""
    day = f.date_format("settled_at", "yyyy-MM-dd")
    rows.withColumn("day", day).coalesce(1).write.partitionBy("queue", "day").parquet(f"{root}/messages")
    (root / "manifest").mkdir()
    if queues is not None:
        (root / "queues.json").write_text(json.dumps(queues))
    return str(root)
