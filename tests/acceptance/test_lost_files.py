"""A server whose files were cut short or taken away while it was down says so, and does not begin with nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.log import manifest as manifests
from penstock.log.recovery import LogCorrupted
from penstock.runtime.disk import SystemDisk
from penstock.server import open_application
from penstock.settings import ServerSettings
from penstock.store.embedded.shard_set import TooFewShards
from tests.acceptance.processes import ROOT
from tests.acceptance.server_process import ServerProcess

pytestmark = pytest.mark.real_time

SEGMENT = "00000000000000000000.log"
LOGS = ("journal", "history", "streams/catalog", "streams/partitions/1-0")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a server that was killed with something in every log."""
    data = tmp_path_factory.mktemp("killed") / "data"
    with ServerProcess(data, "--kafka", "--kafka-port", "0") as server, server.client() as client:
        assert client.ask("POST", "/api/queues", {"queue_name": "jobs"}).status == 201
        assert client.ask("POST", "/api/queues/jobs/messages", {"data": "kept"}).status == 201
        assert server.drain("jobs") == ["kept"]
        assert client.ask("POST", "/api/queues/jobs/messages", {"data": "kept"}).status == 201
        assert client.ask("POST", "/api/topics", {"topic_name": "events", "partitions": 1}).status == 201
        assert client.ask("POST", "/api/topics/events/records", {"records": [{"value": "x"}]}).status in {200, 201}
        disk = SystemDisk(data)
        while not all((found := manifests.read(disk, log)) and found.floor_offset for log in LOGS):
            assert server.process.poll() is None
        server.tell(signal.SIGKILL)
        server.finish()
    return data


def files(data: Path) -> set[Path]:
    """Return the segments and manifests that are there."""
    return {*data.rglob("*.log"), *data.rglob("manifest")}


async def opened(data: Path) -> None:
    try:
        async with open_application(ServerSettings(data=data, kafka=True)):
            pass
    except BaseExceptionGroup as group:
        # The tasks that stood between are of no interest.
        raise group.exceptions[0] from None


def cut(log: str) -> Callable[[Path], None]:
    return lambda data: os.truncate(data / log / SEGMENT, 0)


def without(*names: str) -> Callable[[Path], None]:
    def remove(data: Path) -> None:
        for name in names:
            shutil.rmtree(data / name) if (data / name).is_dir() else (data / name).unlink()

    return remove


@pytest.mark.parametrize(
    ("harm", "words"),
    [
        *((cut(log), f"{log}/{SEGMENT} is damaged at byte 0 (offset 0): the log was durable up to") for log in LOGS),
        (without("journal"), "data/journal is missing"),
        (without("history"), "data/history is missing"),
        (without("streams"), "data/streams/catalog is missing"),
        (without("streams/groups"), "streams/groups is missing"),
        (without("streams/catalog"), "streams/catalog is missing"),
        (without("streams/partitions/1-0"), "partitions/1-0/manifest is damaged"),
        (without(f"journal/{SEGMENT}"), "the file is missing"),
        (without("journal/manifest"), "data/journal is missing or incomplete"),
        (
            without("logs", "journal"),
            "data/journal is missing or incomplete, though data/history and data/streams came after",
        ),
        (without("logs", "journal", "history"), "data/journal is missing or incomplete, though data/streams came"),
        (without("logs", "streams/logs", "streams/catalog"), "streams/catalog is missing or incomplete, though"),
        (without("audit"), "data/audit is missing"),
    ],
)
async def test_what_was_lost_is_named_and_nothing_is_begun_in_its_place(
    tmp_path: Path, killed: Path, harm: Callable[[Path], None], words: str
) -> None:
    data = tmp_path / "data"
    shutil.copytree(killed, data)
    harm(data)
    before = files(data)
    with pytest.raises(LogCorrupted, match=re.escape(words)):
        await opened(data)
    assert files(data) == before


async def test_a_store_begins_without_its_journal_when_all_that_came_of_it_is_moved_away(
    tmp_path: Path, killed: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(killed, data)
    without("journal")(data)
    with pytest.raises(LogCorrupted, match="move data/history elsewhere and take what is not there out of the list"):
        await opened(data)
    without("history")(data)
    (data / "logs").write_text('{"format": 1, "logs": ["audit", "streams/catalog"]}')
    await opened(data)
    assert json.loads((data / "logs").read_text())["logs"] == ["audit", "history", "journal", "streams/catalog"]


async def test_a_shard_is_not_left_out_when_its_journal_and_the_list_are_gone(tmp_path: Path) -> None:
    data = tmp_path / "data"
    async with open_application(ServerSettings(data=data, kafka=False, shards=2)):
        pass
    without("logs", "journal-1")(data)
    with pytest.raises(TooFewShards, match="has 2 shards"):
        await opened(data)


def test_a_segment_that_is_a_link_is_neither_opened_nor_copied_nor_repaired(tmp_path: Path, killed: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(killed, data)
    segment, target = data / "journal" / SEGMENT, tmp_path / "elsewhere"
    segment.rename(target)
    segment.symlink_to(target)
    before = target.read_bytes()
    for arguments in (
        ["serve", "--port", "0", "--data", data],
        ["backup", data, tmp_path / "copy"],
        ["repair", data / "journal"],
    ):
        command = [sys.executable, "-m", "penstock", *map(str, arguments)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode not in {0, 70}, done.stdout
        assert f"{SEGMENT} is a symbolic link" in " ".join(done.stderr.split()).replace(" /", "/"), done.stderr
    assert target.read_bytes() == before
    assert not (tmp_path / "copy" / "journal" / SEGMENT).exists()


def test_a_server_that_finds_damage_says_a_command_that_can_be_pasted(tmp_path: Path, killed: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(killed, data)
    os.truncate(data / "journal" / SEGMENT, 0)
    command = [sys.executable, "-m", "penstock"]
    serving = [*command, "serve", "--port", "0", "--no-kafka", "--data", str(data)]
    refused = subprocess.run(serving, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    _, _, advice = " ".join(refused.stderr.split()).partition("run: penstock ")
    assert advice.startswith("repair "), refused.stderr
    repairing = [*command, "repair", "".join(advice.removeprefix("repair ").split())]
    looked = subprocess.run(repairing, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert looked.returncode == 1, looked.stderr
