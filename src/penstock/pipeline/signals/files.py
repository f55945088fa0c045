"""The files of the job `signals`: each table as Parquet and as CSV, the page, and what it is about.

Nothing in them tells when they were written: the same history gives the same bytes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pyarrow.compute  # type: ignore[import-untyped]
import pyarrow.parquet  # type: ignore[import-untyped]

from penstock.pipeline.reports.csv_files import write_table
from penstock.pipeline.signals.report import QUEUES_MAX, signals_page

# One row of figures for the head of the page, and no table of its own.
_RANGE = "range"
_BY_QUEUE = ("queue_windows", "tier_windows", "tenant_windows")


def write(folder: Path, tables: "Mapping[str, pyarrow.Table]", about: Mapping[str, Any]) -> None:
    for name, table in tables.items():
        if name != _RANGE:
            pyarrow.parquet.write_table(table, folder / f"{name}.parquet", compression="zstd")
            write_table(folder / f"{name}.csv", table)
    (folder / "about.json").write_text(json.dumps(about, indent=2) + "\n")
    (folder / "report.html").write_text(signals_page(_shown(tables), about))


def _shown(tables: "Mapping[str, pyarrow.Table]") -> dict[str, list[dict[str, Any]]]:
    """What the page shows: of windows only those of the busiest queues, for a page of a thousand is read by nobody."""
    busiest = tables["queues"].sort_by([("settled", "descending"), ("queue", "ascending")]).column("queue")
    chosen = busiest.slice(0, QUEUES_MAX).combine_chunks()
    shown = {}
    for name, table in tables.items():
        rows = table.filter(pyarrow.compute.is_in(table.column("queue"), chosen)) if name in _BY_QUEUE else table
        shown[name] = rows.to_pylist()
    return shown
