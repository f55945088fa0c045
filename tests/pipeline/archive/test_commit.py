"""How a batch comes to count: cut off at every step, and with a second archiver at the same archive."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa  # type: ignore[import-untyped]
import pyarrow.dataset as ds  # type: ignore[import-untyped]
import pyarrow.parquet as pq  # type: ignore[import-untyped]
import pytest

from penstock.pipeline.archive.commit import AnotherArchiver, Reach, Staged, commit, entry_of, recover
from penstock.pipeline.archive.lock import STALE_MS, ArchiveTaken, Lock
from penstock.pipeline.archive.manifest import LOCK, BrokenArchive, Entry, newest_entries, staging_path
from penstock.pipeline.storage import LocalFiles

BATCHES = 3
BATCH_ROWS = 10
AT = "2026-03-01T12:00:02.000Z"
SOURCE = "http://127.0.0.1:8080"


class PowerFailed(Exception):
    """The machine went away in the middle of an operation."""


class FailingFiles:
    """Files of this machine that fail at one operation, before or after it is done, and at all that follow."""

    def __init__(self, root: Path, *, at: int, is_done: bool) -> None:
        self._files = LocalFiles(root)
        self._left = at
        self._is_done = is_done

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._files, name)

        def perform(*arguments: Any, **named: Any) -> Any:
            self._left -= 1
            if self._left > 0:
                return operation(*arguments, **named)
            if self._left == 0 and self._is_done:
                operation(*arguments, **named)
            raise PowerFailed(name)

        return operation if name == "where" else perform


def staged(root: Path, staging: str, numbers: range) -> list[Staged]:
    """Write rows as Spark would: a file for each queue and day."""
    files: list[Staged] = []
    for queue, day in (("orders", "2026-03-01"), ("orders", "2026-03-02"), ("orders.dead", "2026-03-01")):
        mine = [number for number in numbers if number % 3 == len(files)]
        path = f"queue={queue}/day={day}/part-0000{len(files)}.zstd.parquet"
        full = root / staging / path
        full.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"offset": mine}), full)
        files.append(Staged(path=path, bytes=full.stat().st_size, rows=len(mine), settled_from=AT, settled_to=AT))
    (root / staging / "_SUCCESS").touch()
    return files


def reach(batch: int) -> Reach:
    return Reach(
        source=SOURCE,
        queues=(),
        offsets_from={"0": batch * BATCH_ROWS},
        offsets_to={"0": (batch + 1) * BATCH_ROWS},
    )


def archive_one(files: Any, root: Path, last: Entry | None, run: str) -> Entry:
    """Stage and commit what comes after the last entry."""
    begun = last.offsets_to.get("0", 0) // BATCH_ROWS if last is not None else 0
    number = 0 if last is None else last.batch + 1
    staging = staging_path(number, run)
    rows = range(begun * BATCH_ROWS, (begun + 1) * BATCH_ROWS)
    entry = entry_of(number, staging, reach(begun), staged(root, staging, rows), written_at=AT)
    return commit(files, last=last, entry=entry)


def archive_all(files: Any, root: Path, run: str) -> None:
    last = recover(files, source=SOURCE, queues=(), written_at=AT)
    while last is None or last.offsets_to.get("0", 0) < BATCHES * BATCH_ROWS:
        last = archive_one(files, root, last, run)


def rows_of(root: Path) -> Counter[int]:
    """The rows that any reader of Parquet finds."""
    if not list((root / "messages").rglob("*.parquet")):
        return Counter()
    return Counter(
        ds.dataset(root / "messages", format="parquet", partitioning="hive").to_table()["offset"].to_pylist()
    )


def named_rows(root: Path) -> set[int]:
    """The rows that the manifest says are there."""
    entries = newest_entries(LocalFiles(root))
    return {row for each in entries for row in range(each.offsets_from.get("0", 0), each.offsets_to.get("0", 0))}


EACH_ONCE = Counter(range(BATCHES * BATCH_ROWS))


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_run_that_is_cut_off_at_any_operation_is_made_whole_by_the_next(tmp_path: Path, is_done: bool) -> None:
    for at in range(1, 200):
        root = tmp_path / str(at)
        try:
            archive_all(FailingFiles(root, at=at, is_done=is_done), root, "first")
        except PowerFailed:
            # A reader who comes now sees no row twice, and none that does not count.
            seen = rows_of(root)
            assert set(seen.values()) <= {1}
            assert set(seen) <= named_rows(root)
        else:
            break
        archive_all(LocalFiles(root), root, "second")
        assert rows_of(root) == EACH_ONCE
        assert LocalFiles(root).names("staging") == []

    assert at > 30


def test_a_run_may_be_cut_off_again_while_it_makes_the_last_one_whole(tmp_path: Path) -> None:
    for at in range(5, 40, 5):
        for again in range(1, 15, 2):
            root = tmp_path / f"{at}-{again}"
            with pytest.raises(PowerFailed):
                archive_all(FailingFiles(root, at=at, is_done=False), root, "first")
            with pytest.raises(PowerFailed):
                archive_all(FailingFiles(root, at=again, is_done=True), root, "second")
            archive_all(LocalFiles(root), root, "third")

            assert rows_of(root) == EACH_ONCE


def test_of_two_archivers_that_commit_one_batch_the_second_changes_nothing(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    last = recover(files, source=SOURCE, queues=(), written_at=AT)
    archive_one(files, tmp_path, last, "one")

    with pytest.raises(AnotherArchiver, match="two archivers are at work"):
        archive_one(files, tmp_path, last, "two")

    assert rows_of(tmp_path) == Counter(range(BATCH_ROWS))
    assert LocalFiles(tmp_path).names("staging") == []


def test_an_archiver_thought_dead_cannot_commit_files_that_were_taken_away(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    archive_one(files, tmp_path, recover(files, source=SOURCE, queues=(), written_at=AT), "one")
    last = newest_entries(files)[-1]
    mine = staging_path(1, "slow")
    entry = entry_of(1, mine, reach(1), staged(tmp_path, mine, range(10, 20)), written_at=AT)

    archive_all(files, tmp_path, "other")
    with pytest.raises(AnotherArchiver):
        commit(_without_sync(files), last=last, entry=entry)

    assert rows_of(tmp_path) == EACH_ONCE
    assert [each.rows for each in newest_entries(files)] == [10, 0, 10, 10]


def test_a_fence_before_the_first_batch_knows_no_offsets(tmp_path: Path) -> None:
    staged(tmp_path, staging_path(0, "dead"), range(10))

    archive_all(LocalFiles(tmp_path), tmp_path, "next")

    assert rows_of(tmp_path) == EACH_ONCE
    assert newest_entries(LocalFiles(tmp_path))[0].offsets_to == {}


def test_a_batch_that_does_not_begin_where_the_last_one_ended_is_refused(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    last = archive_one(files, tmp_path, recover(files, source=SOURCE, queues=(), written_at=AT), "one")

    for begun, what in ((2, "the rows between are missing"), (0, "rows would be there twice")):
        with pytest.raises(BrokenArchive, match=what):
            commit(files, last=last, entry=entry_of(1, "", reach(begun), (), written_at=AT))

    assert rows_of(tmp_path) == Counter(range(BATCH_ROWS))


def test_a_gap_in_the_manifest_is_named_when_a_run_starts(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    archive_all(files, tmp_path, "one")
    middle = tmp_path / "manifest" / f"{1:020}.json"
    said = json.loads(middle.read_text())
    middle.write_text(json.dumps({**said, "offsets_from": {"0": 12}}))

    with pytest.raises(BrokenArchive, match="batch 1 begins at offset 12 of shard 0, but batch 0 ended at 10"):
        recover(files, source=SOURCE, queues=(), written_at=AT)

    middle.unlink()
    with pytest.raises(BrokenArchive, match=r"00000000000000000001\.json is missing"):
        recover(files, source=SOURCE, queues=(), written_at=AT)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"version": 1}', '{"version": 2}', "null"])
def test_an_entry_that_cannot_be_read_is_named(tmp_path: Path, content: str) -> None:
    files = LocalFiles(tmp_path)
    recover(files, source=SOURCE, queues=(), written_at=AT)
    (tmp_path / "manifest" / f"{0:020}.json").write_text(content)

    with pytest.raises(BrokenArchive, match=r"00000000000000000000\.json"):
        recover(files, source=SOURCE, queues=(), written_at=AT)


def test_a_second_archiver_is_told_who_is_at_work(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    lock = Lock.take(files, now_ms=0)

    with pytest.raises(ArchiveTaken, match=f"process {os.getpid()}"):
        Lock.take(files, now_ms=STALE_MS)

    lock.release()
    Lock.take(files, now_ms=0).release()
    assert not files.exists(LOCK)


def test_a_lock_that_was_broken_ends_its_old_owner(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    old = Lock.take(files, now_ms=0)
    new = Lock.take(files, now_ms=1, is_forced=True)

    with pytest.raises(ArchiveTaken, match="taken over"):
        old.refresh(now_ms=STALE_MS)
    old.release()

    assert files.exists(LOCK)
    new.refresh(now_ms=STALE_MS)


def test_the_lock_of_a_process_that_was_killed_is_taken_at_once(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys; from pathlib import Path\n"
        "from penstock.pipeline.storage import LocalFiles\n"
        "from penstock.pipeline.archive.lock import Lock\n"
        "Lock.take(LocalFiles(Path(sys.argv[1])), now_ms=0); os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=False)
    assert (tmp_path / LOCK).exists()

    Lock.take(LocalFiles(tmp_path), now_ms=1).release()


def test_an_old_lock_of_another_machine_is_taken_after_ten_minutes(tmp_path: Path) -> None:
    files = LocalFiles(tmp_path)
    theirs = {"run": "x", "host": "elsewhere", "pid": 1, "life": "another boot", "seen_at_ms": 0}
    (tmp_path / LOCK).write_text(json.dumps(theirs))

    with pytest.raises(ArchiveTaken, match="on elsewhere"):
        Lock.take(files, now_ms=STALE_MS)
    Lock.take(files, now_ms=STALE_MS + 1).release()


def _without_sync(files: LocalFiles) -> Any:
    """Files whose owner has passed the sync before they were taken away."""

    class Synced:
        def __getattr__(self, name: str) -> Any:
            nothing: Callable[[Iterable[str]], None] = lambda paths: None  # noqa: E731
            return nothing if name == "sync" else getattr(files, name)

    return Synced()
