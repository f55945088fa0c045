"""How the offset of a row in the history is made of two numbers, in each store in one way."""

import re
from pathlib import Path

import pytest

import penstock.store.postgres
from penstock.contract.history_columns import FIELDS, FRAME_ROW_BITS, OFFSETS, TRANSACTION_ROW_BITS
from penstock.contract.limits import HISTORY_ROWS_MAX

SQL = Path(penstock.store.postgres.__file__).parent / "sql"
SHIFTED = {
    path.name: found for path in SQL.glob("*.sql") if (found := re.findall(r"(?:<<|>>) (2\d)", path.read_text()))
}


def test_a_frame_has_no_more_rows_than_its_part_of_an_offset_can_name() -> None:
    assert HISTORY_ROWS_MAX <= 1 << FRAME_ROW_BITS


@pytest.mark.parametrize("name", SHIFTED)
def test_statements_take_offsets_apart_as_python_does(name: str) -> None:
    assert set(SHIFTED[name]) == {str(TRANSACTION_ROW_BITS)}


def test_a_page_of_a_database_has_every_field_of_the_table() -> None:
    statement = (SQL / "history_page.sql").read_text()
    selected = statement.partition("SELECT\n")[2].partition("CASE")[0].split(",")
    assert {name.strip() for name in selected} - {""} == {field.sql for field in (*FIELDS, OFFSETS)}
