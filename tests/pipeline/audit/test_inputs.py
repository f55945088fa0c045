"""Where an archive ends and a server begins: whether anything was between. No Spark runs here."""

import pytest

from penstock.pipeline.audit.inputs import DATABASE_ROW_BITS, ROW_BITS, has_gap
from penstock.pipeline.source import database, history_arrow


def test_offsets_are_taken_apart_as_their_sources_make_them() -> None:
    assert (ROW_BITS, DATABASE_ROW_BITS) == (history_arrow.ROW_BITS, database.ROW_BITS)


@pytest.mark.parametrize(("is_database", "bits"), [(False, ROW_BITS), (True, DATABASE_ROW_BITS)])
def test_an_archive_that_ends_where_a_trimmed_history_begins_has_no_gap(is_database: bool, bits: int) -> None:
    # What `trim_history` keeps begins with the frame, or transaction, behind the last one that is gone.
    gone = 812
    for row in (0, 5, (1 << bits) - 1):
        assert not has_gap(gone << bits | row, (gone + 1) << bits, is_database=is_database)
        assert not has_gap((gone + 9) << bits | row, (gone + 1) << bits, is_database=is_database)
        assert has_gap((gone - 1) << bits | row, (gone + 1) << bits, is_database=is_database)
    assert not has_gap(5, 0, is_database=is_database)
