"""The audit log in files: entries stay in order, through crashes and restarts, until they are too many or too old."""

import os
from pathlib import Path

import pytest

from penstock.broker.audit_files import FolderAuditLog
from penstock.runtime.interface import NotARegularFile
from penstock.store.audit_log import Entry

DAY_MS = 24 * 60 * 60 * 1_000


def log_in(folder: Path, *, bytes_max: int = 1_000_000, age_ms_max: int = DAY_MS) -> FolderAuditLog:
    return FolderAuditLog(folder / "audit", bytes_max=bytes_max, age_ms_max=age_ms_max)


def entry(number: int, at_ms: int = 1) -> Entry:
    return Entry(at_ms=at_ms, actor="ops", action="queue.purge", target=f"orders-{number}")


async def targets(log: FolderAuditLog, *, most: int = 1_000) -> list[str]:
    """Everything, read in pages of this size, the newest first."""
    found: list[str] = []
    before: int | None = None
    while page := await log.newest(before=before, most=most):
        found += [each.target for _, each in page]
        before = page[-1][0]
    return found


async def test_entries_are_read_back_the_newest_first_in_pages_of_any_size(tmp_path: Path) -> None:
    log = log_in(tmp_path, bytes_max=8 * 300)
    for number in range(20):
        await log.append([entry(number)])
    wanted = [f"orders-{number}" for number in reversed(range(20))]
    assert len(list((tmp_path / "audit").glob("*.jsonl"))) > 2
    for most in (1, 3, 20, 100):
        assert await targets(log, most=most) == wanted
    # As after a restart.
    assert await targets(log_in(tmp_path)) == wanted


async def test_a_log_that_was_never_written_is_empty_and_makes_no_folder(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    assert await targets(log) == []
    await log.trim(DAY_MS)
    assert not (tmp_path / "audit").exists()


async def test_a_line_that_a_crash_has_cut_is_passed_over(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    await log.append([entry(1), entry(2)])
    (file,) = (tmp_path / "audit").glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:-10])
    assert await targets(log) == ["orders-1"]
    await log.append([entry(3)])
    assert await targets(log) == ["orders-3", "orders-1"]


async def test_the_oldest_entries_go_when_there_are_too_many(tmp_path: Path) -> None:
    log = log_in(tmp_path, bytes_max=8 * 300)
    for number in range(100):
        await log.append([entry(number)])
        await log.trim(2)
    left = await targets(log)
    assert left == [f"orders-{number}" for number in reversed(range(100 - len(left), 100))]
    assert 10 < len(left) < 50
    size = sum(file.stat().st_size for file in (tmp_path / "audit").glob("*.jsonl"))
    assert size <= 8 * 300 + 400


async def test_entries_go_when_they_are_too_old_and_positions_are_never_used_again(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    await log.append([entry(1, at_ms=0)])
    ((first, _),) = await log.newest(before=None, most=1)
    await log.trim(DAY_MS)
    assert await targets(log) == ["orders-1"]
    await log.trim(DAY_MS + 1)
    assert await targets(log) == []
    await log.append([entry(2, at_ms=DAY_MS)])
    ((second, _),) = await log.newest(before=None, most=1)
    assert second > first


async def test_the_files_are_for_their_owner_alone_and_links_are_not_followed(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    await log.append([entry(1)])
    (file,) = (tmp_path / "audit").glob("*.jsonl")
    assert file.stat().st_mode & 0o777 == 0o600
    other = tmp_path / "other"
    other.write_text("mine\n")
    file.unlink()
    file.symlink_to(other)
    with pytest.raises(NotARegularFile):
        await log.append([entry(2)])
    assert other.read_text() == "mine\n"


async def refuse_all(log: FolderAuditLog) -> None:
    with pytest.raises(NotARegularFile):
        log.check()
    with pytest.raises(NotARegularFile):
        await log.newest(before=None, most=1)
    with pytest.raises(NotARegularFile):
        await log.trim(2 * DAY_MS)
    with pytest.raises(NotARegularFile):
        await log.append([entry(2)])


async def test_a_link_in_the_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    await log.append([entry(1)])
    (tmp_path / "audit").rename(tmp_path / "elsewhere")
    (tmp_path / "audit").symlink_to(tmp_path / "elsewhere")
    await refuse_all(log)


async def test_a_pipe_in_the_place_of_a_file_is_not_waited_for(tmp_path: Path) -> None:
    (tmp_path / "audit").mkdir()
    os.mkfifo(tmp_path / "audit" / "000000000001.jsonl")
    await refuse_all(log_in(tmp_path))


async def test_files_of_other_names_are_left_alone(tmp_path: Path) -> None:
    log = log_in(tmp_path)
    await log.append([entry(1)])
    for name in ("\N{SUPERSCRIPT TWO}.jsonl", "7.jsonl", "000000000009.jsonl.old"):
        (tmp_path / "audit" / name).write_text("not ours\n")
    await log.append([entry(2)])
    await log.trim(2 * DAY_MS)
    assert {each.read_text() for each in (tmp_path / "audit").iterdir()} == {"not ours\n", ""}
