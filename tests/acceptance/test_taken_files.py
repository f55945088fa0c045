"""A server whose files are taken away while it runs notices it, says so and stops."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.runtime.disk import SystemDisk
from penstock.runtime.interface import EXIT_FILES_TAKEN, FolderTaken
from tests.acceptance.server_process import ServerProcess

pytestmark = pytest.mark.real_time

SEGMENT = "00000000000000000000.log"


def replace_lock(data: Path) -> None:
    (data / "journal" / "lock").unlink()
    (data / "journal" / "lock").touch()


@pytest.mark.parametrize(
    ("take", "what"),
    [
        (lambda data: shutil.rmtree(data / "journal"), "data/journal"),
        (replace_lock, "data/journal"),
        (lambda data: data.rename(data.with_name("moved")), "data/"),
        (lambda data: (data / "history" / SEGMENT).unlink(), "data/history"),
        (lambda data: shutil.rmtree(data / "streams" / "catalog"), "data/streams/catalog"),
    ],
    ids=["journal", "lock", "data folder", "segment", "catalog"],
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


def test_a_folder_stays_taken_though_its_lock_file_was_removed(tmp_path: Path) -> None:
    disk = SystemDisk(tmp_path)
    disk.make_folder("data")
    lock = disk.lock("data")
    (tmp_path / "data" / "lock").unlink()
    assert not lock.is_in_place()
    with pytest.raises(FolderTaken, match="in use by another process"):
        SystemDisk(tmp_path).lock("data")
    lock.release()
    SystemDisk(tmp_path).lock("data").release()


def test_a_folder_is_in_place_as_long_as_nobody_touches_it(tmp_path: Path) -> None:
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
