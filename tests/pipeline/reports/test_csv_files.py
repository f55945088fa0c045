"""CSV that a spreadsheet opens: whatever a tenant is called, no cell is a formula."""

import csv
from pathlib import Path
from typing import Any

import pyarrow  # type: ignore[import-untyped]
import pytest

from penstock.pipeline.reports.folder import write_rows, write_table

FORMULAS = ["=cmd|' /C calc'!A0", "+1", "-1+2", "@SUM(A1)", "\t=1", "\r=1", "\n=1"]
SOURCES = Path(__file__).parents[3] / "src" / "penstock" / "pipeline"


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("tenant", FORMULAS)
def test_a_tenant_that_is_called_like_a_formula_is_text_in_every_csv(tmp_path: Path, tenant: str) -> None:
    rows: list[dict[str, Any]] = [
        {"tenant": tenant, "count": -3},
        {"tenant": "plain", "count": 4},
        {"tenant": None, "count": None},
    ]
    write_rows(tmp_path / "rows.csv", rows[0], rows)
    write_table(tmp_path / "table.csv", pyarrow.Table.from_pylist(rows))
    coded = pyarrow.table(
        {"tenant": pyarrow.array([tenant, "plain", None]).dictionary_encode(), "count": [-3, 4, None]}
    )
    write_table(tmp_path / "coded.csv", coded)
    for name in ("rows", "table", "coded"):
        found = read(tmp_path / f"{name}.csv")
        assert [row["tenant"] for row in found] == [f"'{tenant}", "plain", ""], name
        assert [row["count"] for row in found] == ["-3", "4", ""], name


def test_every_csv_of_the_pipeline_is_written_by_the_one_that_guards() -> None:
    for path in SOURCES.rglob("*.py"):
        text = path.read_text()
        if path != SOURCES / "reports" / "folder.py":
            assert not any(word in text for word in ("csv.writer(", "DictWriter(", "write_csv(")), path
