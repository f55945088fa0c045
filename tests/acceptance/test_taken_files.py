"""A server whose files are taken away while it runs notices it, says so and stops."""

import errno
import fcntl
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.runtime.disk import SystemDisk
from penstock.runtime.interface import EXIT_FILES_TAKEN, FolderTaken
from tests.acceptance.server_process import ServerProcess

pytestmark = pytest.mark.real_time

SEGMENT = "00000000000000000000.log"


@pytest.mark.parametrize(
    ("take", "what"),
    [
        (lambda data: shutil.rmtree(data / "journal"), "data/journal"),
        (lambda data: data.rename(data.with_name("moved")), "data/"),
        (lambda data: (data / "history" / SEGMENT).unlink(), "data/history"),
        (lambda data: shutil.rmtree(data / "streams" / "catalog"), "data/streams/catalog"),
    ],
    ids=["journal", "data folder", "segment", "catalog"],
)
def test_a_server_whose_files_are_taken_away_stops_with_a_code_of_its_own(
    tmp_path: Path, take: Callable[[Path], None], what: str
) -> None:
    data = tmp_path / "data"
    with ServerProcess(data, "--kafka", "--kafka-port", "0") as server:
        take(data)
        assert server.finish() == EXIT_FILES_TAKEN
        last = server.notes().splitlines()[-1]
        # Of a folder that was moved as a whole, any part may be missed first.
        assert last.startswith(f"penstock: stopped, because its files were taken away: {what}")
        assert last.endswith("was removed, renamed or replaced while it was in use")


def test_no_file_can_be_removed_to_let_a_second_server_in(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        assert not [*tmp_path.glob("data/**/lock")]
        with pytest.raises(FolderTaken, match="in use by another process"):
            SystemDisk(tmp_path).lock("data/journal")
        server.tell()
        assert server.finish() == 0
    SystemDisk(tmp_path).lock("data/journal").release()


@pytest.fixture
def folders_cannot_be_locked(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on NFS, which locks files only."""
    flock = fcntl.flock

    def flock_of_files(fd: int, operation: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        flock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", flock_of_files)


@pytest.mark.usefixtures("folders_cannot_be_locked")
def test_where_folders_cannot_be_locked_a_file_is_and_its_removal_is_noticed(tmp_path: Path) -> None:
    disk, file = SystemDisk(tmp_path), tmp_path / "data" / "lock"
    disk.make_folder("data")
    lock = disk.lock("data")
    assert file.stat().st_mode & 0o777 == 0o640
    with pytest.raises(FolderTaken, match="in use by another process"):
        disk.lock("data")
    assert lock.is_in_place()
    for _ in range(10):
        file.unlink()
        file.touch()
        assert not lock.is_in_place(), "a new file never has the number of the one that is held open"
    lock.release()
    disk.lock("data").release()


def test_a_folder_is_in_place_as_long_as_it_is_not_touched(tmp_path: Path) -> None:
    disk = SystemDisk(tmp_path)
    disk.make_folder("data")
    lock, file = disk.lock("data"), disk.open("data/file")
    assert lock.is_in_place()
    assert file.is_in_place()
    (tmp_path / "data" / "file").rename(tmp_path / "data" / "other")
    assert not file.is_in_place()
    disk.open("data/file").close()
    assert not file.is_in_place()
    (tmp_path / "data").rename(tmp_path / "moved")
    assert not lock.is_in_place()
    file.close()
    lock.release()
