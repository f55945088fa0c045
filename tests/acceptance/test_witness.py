"""The witness is not blind: it notices what it is there to notice."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.log.disk_log import DiskLog
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness, visit

pytestmark = pytest.mark.real_time


@pytest.fixture
def told(tmp_path: Path) -> Iterator[Witness]:
    """A witness of a log of one segment that was killed."""
    witness = Witness()
    with Writer(tmp_path / "log", witness, "--segment-bytes-max", "1000000") as writer:
        writer.listen(until_acknowledged=100)
        writer.kill()
    yield witness
    shutil.rmtree(tmp_path / "log")


async def test_the_witness_notices_that_the_last_records_are_gone(tmp_path: Path, told: Witness) -> None:
    # Records that are acknowledged and were never written.
    told.hear(f"ack {max(told.acknowledged) + 1_000} 1-1 0")
    with pytest.raises(AssertionError, match="was acknowledged; the log ends at"):
        await told.check(tmp_path / "log")


async def test_the_witness_notices_that_the_first_records_are_gone(tmp_path: Path, told: Witness) -> None:
    # Rolls, so that there is something to drop.
    with Writer(tmp_path / "log", told, "--batches", "60") as writer:
        assert writer.finish() == 0, writer.errors

    async def drop(log: DiskLog) -> None:
        await log.drop_before(log.end_offset)

    await visit(tmp_path / "log", drop)
    with pytest.raises(AssertionError, match="more was dropped than was asked for"):
        await told.check(tmp_path / "log")


async def test_the_witness_notices_that_two_records_have_changed_places(tmp_path: Path, told: Witness) -> None:
    told.acknowledged[3], told.acknowledged[4] = told.acknowledged[4], told.acknowledged[3]
    with pytest.raises(AssertionError, match="not the one that was acknowledged"):
        await told.check(tmp_path / "log")


async def test_the_witness_notices_records_that_were_never_on_their_way(tmp_path: Path, told: Witness) -> None:
    told.acknowledged = {offset: name for offset, name in told.acknowledged.items() if offset < 50}
    with pytest.raises(AssertionError, match="more records than were ever on their way"):
        await told.check(tmp_path / "log")


async def test_the_witness_is_content_with_a_log_that_has_all(tmp_path: Path, told: Witness) -> None:
    await told.check(tmp_path / "log")
    assert told.checked_records >= 100
