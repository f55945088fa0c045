"""A disk that refuses to write or to sync ends the process, once and for all (decision 0004)."""

import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from penstock.log.settings import SyncPolicy
from penstock.runtime.interface import EXIT_STORAGE_FAILED
from penstock.telemetry import LOG_TAIL_CUT
from tests.acceptance.processes import Writer
from tests.acceptance.witness import Witness

SHIM = Path(__file__).with_name("failing_calls.c")
COMPILER = shutil.which("cc") or shutil.which("gcc")

needs_a_compiler = pytest.mark.skipif(COMPILER is None, reason="calls are made to fail by a C library: needs cc or gcc")


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert COMPILER is not None
    library = tmp_path_factory.mktemp("shim") / "failing_calls.so"
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-Wall", "-o", library, SHIM, "-ldl"], check=True)
    return library


def failing(call: str, *, shim: Path, trigger: Path) -> Mapping[str, str]:
    return {"LD_PRELOAD": str(shim), "FAILING_CALL": call, "FAILING_TRIGGER": str(trigger)}


@needs_a_compiler
@pytest.mark.real_time
@pytest.mark.parametrize(
    ("call", "sync"),
    [
        ("fdatasync", "batch"),
        ("fdatasync", "interval"),
        ("fdatasync", "os"),
        ("pwrite", "batch"),
        ("pwrite", "os"),
        ("torn_pwrite", "batch"),
        ("fsync", "batch"),
    ],
)
async def test_a_failed_call_to_the_disk_ends_the_process_with_nothing_acknowledged_after_it(
    tmp_path: Path, shim: Path, call: str, sync: SyncPolicy
) -> None:
    witness, trigger = Witness(), tmp_path / "trigger"
    environment = failing(call, shim=shim, trigger=trigger)
    with Writer(tmp_path / "log", witness, "--sync", sync, environment=environment) as writer:
        writer.listen(until_acknowledged=300)
        trigger.touch()
        assert writer.finish() == EXIT_STORAGE_FAILED
        assert "stopped, because the disk failed: log: [Errno 5] Input/output error" in writer.errors
    assert writer.lines.count("failed") == 1, "a failed call was tried again"
    assert writer.lines[-1] == "failed"
    await witness.check(tmp_path / "log")


@needs_a_compiler
@pytest.mark.real_time
async def test_a_log_whose_close_fails_was_not_closed(tmp_path: Path, shim: Path) -> None:
    witness, trigger = Witness(), tmp_path / "trigger"
    # Under `os` a log of one segment is first synced when it is closed. What it says until then is more than a pipe
    # holds, so it cannot get there before the trigger is set.
    options = ("--sync", "os", "--segment-bytes-max", "100000000", "--batches", "800")
    with Writer(
        tmp_path / "log", witness, *options, environment=failing("fdatasync", shim=shim, trigger=trigger)
    ) as writer:
        writer.listen(until_acknowledged=1)
        trigger.touch()
        assert writer.finish() == EXIT_STORAGE_FAILED
    assert writer.lines[-1] == "failed"
    opened = await witness.check(tmp_path / "log")
    assert not opened.was_clean


@needs_a_compiler
@pytest.mark.real_time
async def test_a_log_does_not_open_on_a_disk_that_fails_its_syncs(tmp_path: Path, shim: Path) -> None:
    witness, trigger = Witness(), tmp_path / "trigger"
    with Writer(tmp_path / "log", witness) as writer:
        writer.listen(until_acknowledged=100)
        writer.kill()
    trigger.touch()
    environment = failing("fdatasync", shim=shim, trigger=trigger)
    with Writer(tmp_path / "log", witness, environment=environment) as writer:
        assert writer.finish() != 0
        assert writer.lines == ["failed"]
        assert "Input/output error" in writer.errors
    await witness.check(tmp_path / "log")


@pytest.mark.real_time
async def test_a_write_cut_short_by_a_limit_ends_the_process_and_is_cut_off(tmp_path: Path) -> None:
    witness = Witness()
    # Larger than the manifest, so that a batch is what meets it. Allocating beyond the end of a file does not.
    limit = 200_001
    options = ("--segment-bytes-max", "1000000", "--file-bytes-max", str(limit))
    with Writer(tmp_path / "log", witness, *options) as writer:
        assert writer.finish() == EXIT_STORAGE_FAILED
        assert "stopped, because the disk failed: log: [Errno 27] File too large" in writer.errors
    assert (tmp_path / "log" / "00000000000000000000.log").stat().st_size == limit
    opened = await witness.check(tmp_path / "log")
    assert LOG_TAIL_CUT in opened.log_events
