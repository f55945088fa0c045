"""Where an archive ends and a server begins: whether anything was between. No Spark runs here."""

import pytest

from penstock.contract.history_columns import FRAME_ROW_BITS, TRANSACTION_ROW_BITS
from penstock.pipeline.audit.inputs import has_gap


@pytest.mark.parametrize(("is_database", "bits"), [(False, FRAME_ROW_BITS), (True, TRANSACTION_ROW_BITS)])
def test_an_archive_that_ends_where_a_trimmed_history_begins_has_no_gap(is_database: bool, bits: int) -> None:
    # What `trim_history` keeps begins with the frame, or transaction, behind the last one that is gone.
    gone = 812
    for row in (0, 5, (1 << bits) - 1):
        assert not has_gap(gone << bits | row, (gone + 1) << bits, is_database=is_database)
        assert not has_gap((gone + 9) << bits | row, (gone + 1) << bits, is_database=is_database)
        assert has_gap((gone - 1) << bits | row, (gone + 1) << bits, is_database=is_database)
    assert not has_gap(5, 0, is_database=is_database)
