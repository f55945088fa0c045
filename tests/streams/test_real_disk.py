"""The same on the machine's own disk, clock, threads and processes."""

import asyncio
import resource
from dataclasses import replace
from pathlib import Path

import pytest

from penstock.broker.topics import FetchOne
from penstock.contract.limits import TOPIC_FILES_MAX
from penstock.contract.topic_settings import TopicSettings
from penstock.runtime.open_files import files_for_topics
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.streams.embedded.topic_store import StreamsSettings
from tests.streams.small import CODECS, NEVER_MS, batch, in_folder, look_after, open_topics, read_all, values

COMPACTED = TopicSettings(segment_bytes=20_000, is_compacted=True, is_deleted=False, dirty_percent_max=1)
CALM = StreamsSettings(upkeep_ms=NEVER_MS, retention_check_ms=NEVER_MS)


@pytest.mark.real_time
async def test_a_compacted_topic_is_cleaned_by_a_process_of_its_own(tmp_path: Path) -> None:
    async with ThreadWorkers(2, halt) as workers:
        runtime = system_runtime(tmp_path, workers)
        async with await open_topics(runtime, "streams", CALM) as topics:
            await topics.streams.create("events", COMPACTED)
            now_ms = runtime.clock.now_ms()
            for number in range(200):
                codec = sorted(CODECS)[number % len(CODECS)]
                records = [(b"%d" % (each % 7), b"%d %d" % (number, each) * 20) for each in range(20)]
                await topics.produce("events", 0, batch(*records, at_ms=now_ms, codec=codec))
            partition = in_folder(topics).find("events").partitions[0]
            await partition.log.roll()
            await look_after(topics)
            assert sum(segment.size_bytes for segment in partition.log.segments) < 5_000
            found = await read_all(topics)
            assert {entry.key: entry.value for entry in found} == {
                b"%d" % (each % 7): b"199 %d" % each * 20 for each in range(13, 20)
            }
            assert found[-1].offset == 3_999
        async with await open_topics(runtime, "streams", CALM) as topics:
            assert await read_all(topics) == found
            await topics.streams.delete("events")
        assert files_below(tmp_path / "streams" / "partitions") == []


@pytest.mark.real_time
async def test_many_partitions_take_little_of_the_disk_and_few_files(tmp_path: Path) -> None:
    async with ThreadWorkers(4, halt) as workers:
        runtime = system_runtime(tmp_path, workers)
        async with await open_topics(runtime, "streams", replace(CALM, open_files_max=8)) as topics:
            await topics.streams.create("events", TopicSettings(partitions=64))
            assert taken_bytes(tmp_path) < 64 * 30_000
            sent = values(b"x", at_ms=runtime.clock.now_ms())
            await asyncio.gather(*(topics.produce("events", each, sent) for each in range(64)))
            wanted = [FetchOne("events", each, 0, 1_000) for each in range(64)]
            assert all(one.batches for one in await topics.fetch(wanted, bytes_max=1 << 20))
            # The locks of the folder and of the catalog come on top.
            assert len(open_files(tmp_path)) <= 8 + 2
            assert taken_bytes(tmp_path) < 64 * 300_000


def test_topics_keep_a_quarter_open_of_what_the_process_may_open(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, kept in (
        (256, 64),
        (1_024, 256),
        (1_000_000, TOPIC_FILES_MAX),
        (resource.RLIM_INFINITY, TOPIC_FILES_MAX),
    ):
        monkeypatch.setattr(resource, "getrlimit", lambda _which, soft=soft: (soft, soft))
        assert files_for_topics() == kept


def open_files(folder: Path) -> list[Path]:
    """Return the files below a folder that this process has open; others may come and go."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(each.readlink())
        except FileNotFoundError:
            # Closed since it was listed.
            continue
    return [path for path in found if path.is_relative_to(folder)]


def files_below(folder: Path) -> list[Path]:
    return list(folder.rglob("*"))


def taken_bytes(folder: Path) -> int:
    return 512 * sum(path.stat().st_blocks for path in folder.rglob("*") if path.is_file())
