"""Processes that are killed in the middle of their work."""

import random
import signal
from pathlib import Path

import pytest

from penstock.runtime.interface import FolderTaken
from penstock.telemetry import LOG_TAIL_CUT
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness, visit

ROUNDS = 10


@pytest.mark.slow
@pytest.mark.real_time
async def test_kill_nine_at_any_moment_loses_nothing_acknowledged(tmp_path: Path) -> None:
    dice, witness = random.Random("kill"), Witness()
    for _ in range(ROUNDS):
        with Writer(tmp_path / "log", witness, "--drops", "0.01") as writer:
            writer.listen(until_acknowledged=dice.randint(0, 600))
            assert writer.kill() == -signal.SIGKILL, writer.errors
        # Otherwise the next writer is the one that recovers, and may be killed right after.
        if dice.random() < 0.5:
            await witness.check(tmp_path / "log")
    await witness.check(tmp_path / "log")
    assert witness.dropped_before > 0
    assert len(witness.acknowledged) > 1_000


@pytest.mark.real_time
async def test_a_log_that_was_closed_says_so_and_has_no_tail_to_cut(tmp_path: Path) -> None:
    witness = Witness()
    with Writer(tmp_path / "log", witness, "--batches", "20") as writer:
        assert writer.finish() == 0, writer.errors
    opened = await witness.check(tmp_path / "log")
    assert writer.lines[-1] == f"closed {opened.end_offset}"
    assert opened.was_clean
    assert LOG_TAIL_CUT not in opened.log_events
    assert len(witness.acknowledged) == opened.end_offset


@pytest.mark.real_time
async def test_a_log_that_was_killed_does_not_claim_a_clean_stop(tmp_path: Path) -> None:
    witness = Witness()
    with Writer(tmp_path / "log", witness) as writer:
        writer.listen(until_acknowledged=20)
        writer.kill()
    assert not (await witness.check(tmp_path / "log")).was_clean
    assert (await witness.check(tmp_path / "log")).was_clean


@pytest.mark.real_time
async def test_two_processes_cannot_open_one_folder(tmp_path: Path) -> None:
    witness = Witness()
    with Writer(tmp_path / "log", witness) as first:
        first.listen(until_acknowledged=1)
        with pytest.raises(FolderTaken, match=r"log is in use by another process\. Stop that one first\.$"):
            await witness.check(tmp_path / "log")
        with Writer(tmp_path / "log", witness) as second:
            assert second.finish() == 1
            assert second.lines == []
            assert "FolderTaken" in second.errors
        # The refusal has not hurt the one that was there first.
        first.listen(until_acknowledged=first.acknowledged + 200)
        assert first.kill() == -signal.SIGKILL, first.errors
    await witness.check(tmp_path / "log")


@pytest.mark.real_time
async def test_one_process_cannot_open_one_folder_twice(tmp_path: Path) -> None:
    async def open_again(_: object) -> None:
        with pytest.raises(FolderTaken):
            await visit(tmp_path / "log", open_again)

    await visit(tmp_path / "log", open_again)
