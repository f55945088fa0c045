"""A small archive, laid out as the archive job leaves it: for the jobs that read one, quickly.

For ten rows most of the time goes into compiling and replanning; `plain_plans` does without both.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f


def archive(rows: DataFrame, root: Path, queues: Mapping[str, Any] | None = None) -> str:
    """Write an archive of these rows, and what its server said of the queues."""
    day = f.date_format("settled_at", "yyyy-MM-dd")
    rows.withColumn("day", day).coalesce(1).write.partitionBy("queue", "day").parquet(f"{root}/messages")
    (root / "manifest").mkdir()
    if queues is not None:
        (root / "queues.json").write_text(json.dumps(queues))
    return str(root)


@contextmanager
def plain_plans(spark: SparkSession) -> Iterator[None]:
    """Let Spark run plans as they are: nothing is compiled to Java, nothing is planned again on the way."""
    names = ("spark.sql.codegen.wholeStage", "spark.sql.adaptive.enabled")
    before = {name: str(spark.conf.get(name)) for name in names}
    for name in names:
        spark.conf.set(name, "false")
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
