"""Each sync policy on the real disk: what goes in comes out, now and after a restart."""

from pathlib import Path

import pytest

from penstock.log.settings import MAY_LOSE, SyncPolicy
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness

pytestmark = [pytest.mark.real_time, pytest.mark.parametrize("sync", list(MAY_LOSE))]


async def test_a_log_of_any_policy_has_after_a_close_what_was_acknowledged(tmp_path: Path, sync: SyncPolicy) -> None:
    witness = Witness()
    for _ in range(2):
        with Writer(tmp_path / "log", witness, "--sync", sync, "--batches", "60") as writer:
            assert writer.finish() == 0, writer.errors
        opened = await witness.check(tmp_path / "log")
        assert opened.was_clean
        assert opened.end_offset == len(witness.acknowledged)
    assert len(list((tmp_path / "log").glob("*.log"))) > 2


async def test_a_log_of_any_policy_loses_nothing_when_only_the_process_dies(tmp_path: Path, sync: SyncPolicy) -> None:
    witness = Witness()
    for count in (0, 37, 400):
        with Writer(tmp_path / "log", witness, "--sync", sync, "--drops", "0.02") as writer:
            writer.listen(until_acknowledged=count)
            writer.kill()
        await witness.check(tmp_path / "log")
    assert witness.lost_records == 0
