"""Work in a process of its own: answers, deaths, and no process left behind."""

import asyncio
import os
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from penstock.runtime.child_process import NICENESS, ChildProcess
from penstock.runtime.interface import BackgroundProcessFailed
from tests.acceptance import child_work
from tests.acceptance.mounts import needs_to_mount, tmpfs
from tests.acceptance.processes import ROOT, SECONDS_MAX

pytestmark = pytest.mark.real_time

MILLION = 1_000_000


@pytest.fixture(autouse=True)
def _in_the_repository(monkeypatch: pytest.MonkeyPatch) -> None:
    """A child finds the work of these tests from there."""
    monkeypatch.chdir(ROOT)


class Lifeline:
    """A pipe by its name, whose other end a child holds: it closes when the child is gone, whatever its parent is."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.name = os.fsencode(path)
        self._pipe = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def read(self) -> bytes:
        """Wait for the child's number, or for b"", its end."""
        ready, _, _ = select.select([self._pipe], [], [], SECONDS_MAX)
        assert ready, "the child says nothing, and is still there"
        return os.read(self._pipe, 100)

    def close(self) -> None:
        os.close(self._pipe)


@contextmanager
def lifeline(folder: Path) -> Iterator[Lifeline]:
    line = Lifeline(folder / "lifeline")
    try:
        yield line
    finally:
        line.close()


async def failure(root: Path, work: child_work.Work, request: bytes = b"") -> BackgroundProcessFailed:
    with pytest.raises(BackgroundProcessFailed) as raised:
        await ChildProcess(root).run(work, request)
    return raised.value


async def test_the_answer_comes_back(tmp_path: Path) -> None:
    assert await ChildProcess(tmp_path).run(child_work.reverse, b"abc") == b"cba"
    assert await ChildProcess(tmp_path).run(child_work.echo, b"") == b""


async def test_the_work_is_done_on_the_same_disk_at_a_lower_priority(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").touch()
    child = ChildProcess(tmp_path)
    assert await child.run(child_work.names, b"folder") == b"file"
    assert int(await child.run(child_work.niceness, b"")) == os.nice(0) + NICENESS


async def test_a_request_and_an_answer_may_be_large(tmp_path: Path) -> None:
    request = os.urandom(MILLION) * 50
    assert await ChildProcess(tmp_path).run(child_work.reverse, request) == request[::-1]


async def test_several_children_work_at_the_same_time(tmp_path: Path) -> None:
    child = ChildProcess(tmp_path)
    answers = await asyncio.gather(*(child.run(child_work.echo, b"%d" % number) for number in range(8)))
    assert answers == [b"%d" % number for number in range(8)]


async def test_an_exception_is_told_and_is_not_the_disks_fault(tmp_path: Path) -> None:
    error = await failure(tmp_path, child_work.go_wrong, b"the seventh is missing")
    assert "ValueError: the seventh is missing" in str(error)
    assert "child_work:go_wrong" in str(error)
    assert not error.is_disk_failure


async def test_a_child_that_is_killed_gives_no_answer(tmp_path: Path) -> None:
    error = await failure(tmp_path, child_work.be_killed)
    assert "ended with -9" in str(error)
    assert not error.is_disk_failure


async def test_a_child_that_dies_before_it_has_read_the_request_gives_no_answer(tmp_path: Path) -> None:
    """The rest is not read, and the parent must not wait for it."""
    child = ChildProcess(tmp_path)
    with pytest.raises(BackgroundProcessFailed):
        await child.run(_not_to_be_found, bytes(5 * MILLION))


def _not_to_be_found(disk: object, request: bytes) -> bytes:
    raise AssertionError


_not_to_be_found.__qualname__ = "no_such_work"


async def test_a_disk_that_fails_is_told_as_such(tmp_path: Path) -> None:
    error = await failure(tmp_path, child_work.meet_a_bad_block)
    assert "Input/output error" in str(error)
    assert error.is_disk_failure


@needs_to_mount
async def test_a_full_disk_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "disk", 100_000) as disk:
        error = await failure(disk, child_work.write, b"file")
    assert "No space left" in str(error)
    assert not error.is_disk_failure


async def test_a_file_that_is_not_there_is_no_failure_of_the_disk(tmp_path: Path) -> None:
    error = await failure(tmp_path, child_work.write, b"no such folder/file")
    assert "No such file" in str(error)
    assert not error.is_disk_failure


async def test_a_child_ends_when_its_caller_is_cancelled(tmp_path: Path) -> None:
    with lifeline(tmp_path) as line:
        async with asyncio.TaskGroup() as tasks:
            caller = tasks.create_task(ChildProcess(tmp_path).run(child_work.go_on_for_ever, line.name))
            child = int(await asyncio.to_thread(line.read))
            caller.cancel()
        assert caller.cancelled()
        # It has ended, and was waited for: there is no zombie of that number.
        with pytest.raises(ProcessLookupError):
            os.kill(child, 0)
        assert line.read() == b""


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with lifeline(tmp_path) as line:
        parent = subprocess.Popen([sys.executable, "-m", "tests.acceptance.child_work", line.name], cwd=ROOT)
        try:
            assert int(line.read()) != parent.pid
        finally:
            parent.kill()
            parent.wait()
        assert line.read() == b""
