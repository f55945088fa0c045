"""An archive that grows, and a way to make sure that what was read of it is not read again."""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock.pipeline.locations import MANIFEST, MESSAGES
from tests.pipeline.rows import history


def grow(spark: SparkSession, root: Path, rows: Sequence[Mapping[str, Any]]) -> str:
    """Add rows to an archive, or begin one, as the archive job adds files."""
    (root / MANIFEST).mkdir(parents=True, exist_ok=True)
    dated = history(spark, rows).withColumn("day", f.date_format("settled_at", "yyyy-MM-dd")).coalesce(1)
    dated.write.mode("append").partitionBy("queue", "day").parquet(f"{root}/{MESSAGES}")
    return str(root)


def files_of(root: Path) -> list[Path]:
    return sorted((root / MESSAGES).rglob("*.parquet"))


@contextmanager
def blinded(paths: Sequence[Path]) -> Iterator[None]:
    """Make files unreadable for a while that look as they did: opening one fails."""
    kept = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in paths}
    for path, (content, changed_ns) in kept.items():
        _put(path, bytes(len(content)), changed_ns)
    yield
    for path, (content, changed_ns) in kept.items():
        _put(path, content, changed_ns)


def _put(path: Path, content: bytes, changed_ns: int) -> None:
    path.write_bytes(content)
    os.utime(path, ns=(changed_ns, changed_ns))


def contents(out: Path) -> dict[str, bytes]:
    """Return all results of a run, without what it remembers."""
    return {
        str(path.relative_to(out)): path.read_bytes()
        for path in sorted(out.rglob("*"))
        if path.is_file() and path.relative_to(out).parts[0] != "state"
    }
