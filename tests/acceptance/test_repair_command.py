"""`penstock repair`, on a damaged log."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.log import record
from penstock.log.disk_log import DiskLog
from penstock.log.recovery import LogCorrupted
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from tests.streams.small import open_topics

SEGMENT = "00000000000000000000.log"


def penstock(*arguments: object, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *map(str, arguments)]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120, check=False)


async def write_and_close(root: Path) -> None:
    async with ThreadWorkers(1, halt) as workers:
        runtime = system_runtime(root, workers)
        log = await DiskLog.open(runtime, "orders")
        for number in range(5):
            batch = record.encode([(None, b"order %d" % number)], at_ms=runtime.clock.now_ms())
            with log.reserve(len(batch)) as space:
                log.append(batch, space)
            await log.wait_durable(log.end_offset)
        await log.close()


async def read_all(root: Path) -> list[bytes | None]:
    async with ThreadWorkers(1, halt) as workers:
        log = await DiskLog.open(system_runtime(root, workers), "orders")
        found: list[bytes | None] = []
        for batch in await log.read(0, bytes_max=1 << 20):
            header = record.header(batch)
            lost = [None] * (header.next_offset - header.base_offset) if header.is_hole else []
            found += [*lost, *(bytes(entry.value or b"") for entry in record.records(batch))]
        await log.close()
        return found


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A log of five orders of which the third is damaged."""
    asyncio.run(write_and_close(tmp_path))
    path = tmp_path / "orders" / SEGMENT
    data = bytearray(path.read_bytes())
    data[data.index(b"order 2")] ^= 1
    path.write_bytes(data)
    with pytest.raises(LogCorrupted, match="penstock repair orders"):
        asyncio.run(read_all(tmp_path))
    return tmp_path


def test_a_sound_log_is_said_to_be_sound(tmp_path: Path) -> None:
    asyncio.run(write_and_close(tmp_path))
    done = penstock("repair", tmp_path / "orders")
    assert done.returncode == 0
    assert "Sound." in done.stdout
    assert "offsets 0 to 4" in done.stdout


def test_damage_is_shown_with_what_each_way_out_would_cost_and_nothing_is_changed(damaged: Path) -> None:
    before = (damaged / "orders" / SEGMENT).read_bytes()
    done = penstock("repair", damaged / "orders")
    assert done.returncode == 1
    assert "CRC-32C" in done.stdout
    assert "--apply skip   1 record is lost" in done.stdout
    assert "--apply cut    the log ends at offset 1: 3 records are lost" in done.stdout
    assert (damaged / "orders" / SEGMENT).read_bytes() == before


def test_programs_get_the_damage_as_json(damaged: Path) -> None:
    done = penstock("repair", damaged / "orders", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 1
    assert not found["is_sound"]
    assert [damage["first_offset"] for damage in found["damages"]] == [2]


def test_skipping_keeps_everything_else(damaged: Path) -> None:
    assert penstock("repair", damaged / "orders", "--apply", "skip", "--yes").returncode == 0
    assert asyncio.run(read_all(damaged)) == [b"order 0", b"order 1", None, b"order 3", b"order 4"]
    assert (damaged / "orders" / f"{SEGMENT}.damaged").exists()


def test_cutting_ends_the_log_there(damaged: Path) -> None:
    assert penstock("repair", damaged / "orders", "--apply", "cut", "--yes").returncode == 0
    assert asyncio.run(read_all(damaged)) == [b"order 0", b"order 1"]


def test_nothing_is_changed_without_a_yes(damaged: Path) -> None:
    before = (damaged / "orders" / SEGMENT).read_bytes()
    done = penstock("repair", damaged / "orders", "--apply", "cut", stdin="n\n")
    assert done.returncode == 1
    assert (damaged / "orders" / SEGMENT).read_bytes() == before


def test_a_folder_without_a_log_is_left_as_it_was(tmp_path: Path) -> None:
    done = penstock("repair", tmp_path)
    assert done.returncode == 2
    assert "there is no log in" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_log_in_use_is_not_touched(tmp_path: Path) -> None:
    async def repair_meanwhile() -> subprocess.CompletedProcess[str]:
        async with ThreadWorkers(1, halt) as workers:
            log = await DiskLog.open(system_runtime(tmp_path, workers), "orders")
            done = await asyncio.to_thread(penstock, "repair", tmp_path / "orders")
            await log.close()
            return done

    done = asyncio.run(repair_meanwhile())
    assert done.returncode == 2
    assert "in use by another process" in done.stderr


def test_a_partition_of_topics_in_use_is_not_touched(tmp_path: Path) -> None:
    async def repair_meanwhile() -> subprocess.CompletedProcess[str]:
        async with (
            ThreadWorkers(2, halt) as workers,
            await open_topics(system_runtime(tmp_path, workers), "streams") as topics,
        ):
            await topics.streams.create("events")
            return await asyncio.to_thread(penstock, "repair", tmp_path / "streams" / "partitions" / "1-0")

    done = asyncio.run(repair_meanwhile())
    assert done.returncode == 2
    assert "in use by another process" in done.stderr
    assert penstock("repair", tmp_path / "streams" / "partitions" / "1-0").returncode == 0


def test_help_teaches_the_ways_out() -> None:
    done = penstock("repair", "--help")
    assert done.returncode == 0
    assert "skip   what is damaged becomes a hole" in done.stdout
