"""The audit log of an embedded store: files of JSON, one entry a line, in the folder `audit`.

    audit/000000000001.jsonl        {"at_ms":1,"actor":"ops","action":"queue.purge","target":"orders"}
    audit/000000000002.jsonl        …

The laws of these files
-----------------------
1. Lines are only added, and are on the disk (fdatasync) before the caller goes on.
2. A file is full at an eighth of what is kept; then the next one begins. Whole files go,
   the oldest first, and their numbers are never used again.
3. The server and the command line may both write: they take turns, by a lock on a file.
4. A line that a crash has cut is passed over by readers, and ended by the next writer.
5. Only regular files in the folder itself are opened, and no link is followed. Files are for their owner alone.

The position of an entry is the number of its file · 2³² + where its line begins.
"""

import asyncio
import fcntl
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from penstock.runtime.disk import FOLDER_MODE, open_folder, open_regular
from penstock.store.audit_log import Entry, decode_entry, encode_entry

FOLDER = "audit"
FILES = 8
_SHIFT = 32
_MODE = 0o600
_NAME = re.compile(r"([0-9]{12})\.jsonl", re.ASCII)


class FolderAuditLog:
    def __init__(self, folder: Path, *, bytes_max: int, age_ms_max: int) -> None:
        """Keep entries in this folder, which is made when there is the first."""
        self._folder = folder
        self._bytes_max = bytes_max
        self._age_ms_max = age_ms_max

    def check(self) -> None:
        """Raise `NotARegularFile` if a link, a pipe or a device is where the folder or a file of it belongs."""
        for number in self._numbers():
            self._size(number)

    def is_begun(self) -> bool:
        """Whether there is a file; the last one stays, however old it is."""
        return bool(self._numbers())

    async def append(self, entries: Sequence[Entry]) -> None:
        await asyncio.to_thread(self.append_now, entries)

    async def newest(self, *, before: int | None, most: int) -> list[tuple[int, Entry]]:
        return await asyncio.to_thread(self._newest, before, most)

    async def trim(self, now_ms: int) -> None:
        await asyncio.to_thread(self._trim, now_ms)

    def append_now(self, entries: Sequence[Entry]) -> None:
        """Keep entries, without a loop: for the command line."""
        data = b"".join(encode_entry(entry) + b"\n" for entry in entries)
        with self._locked() as folder:
            number = max(self._numbers(), default=1)
            if self._size(number) >= max(1, self._bytes_max // FILES):
                number += 1
            self._write(folder, number, data)

    def _write(self, folder: int, number: int, data: bytes) -> None:
        path = self._folder / _name(number)
        file = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, folder_fd=folder, mode=_MODE)
        try:
            size = os.fstat(file).st_size
            if not size:
                _give_to_owner(file, folder)
            elif os.pread(file, 1, size - 1) != b"\n":
                data = b"\n" + data
            while data:
                data = data[os.write(file, data) :]
            os.fdatasync(file)
        finally:
            os.close(file)
        if not size:
            os.fsync(folder)

    def _newest(self, before: int | None, most: int) -> list[tuple[int, Entry]]:
        found: list[tuple[int, Entry]] = []
        for number in sorted(self._numbers(), reverse=True):
            if before is None or number << _SHIFT < before:
                for position, line in self._lines(number, before):
                    if len(found) == most:
                        return found
                    entry = _entry(line)
                    found += [] if entry is None else [(position, entry)]
        return found

    def _lines(self, number: int, before: int | None) -> Iterator[tuple[int, bytes]]:
        """Yield the lines of a file, the last first, with their positions."""
        data = self._read(number)
        first = number << _SHIFT
        end = len(data) if before is None else min(len(data), max(0, before - first))
        while end > 0:
            start = data.rfind(b"\n", 0, end - 1) + 1
            yield first + start, data[start:end]
            end = start

    def _read(self, number: int) -> bytes:
        try:
            with self._opened(number) as file, os.fdopen(file, "rb", closefd=False) as reader:
                return reader.read()
        except FileNotFoundError:
            # It went between two looks.
            return b""

    def _trim(self, now_ms: int) -> None:
        numbers = sorted(self._numbers())
        if not numbers:
            return
        with self._locked() as folder:
            *full, last = numbers
            if self._is_old(last, now_ms):
                # So that a quiet log forgets, too; the next file takes over.
                self._write(folder, last + 1, b"")
                full.append(last)
            size = sum(self._size(number) for number in numbers)
            for number in full:
                if size > self._bytes_max or self._is_old(number, now_ms):
                    size -= self._size(number)
                    os.unlink(_name(number), dir_fd=folder)
            os.fsync(folder)

    def _is_old(self, number: int, now_ms: int) -> bool:
        """Whether all of a file is older than what is kept."""
        entries = (_entry(line) for _, line in self._lines(number, None))
        last = next((entry for entry in entries if entry is not None), None)
        return last is not None and last.at_ms < now_ms - self._age_ms_max

    def _numbers(self) -> list[int]:
        try:
            with self._lent() as folder:
                found = map(_NAME.fullmatch, os.listdir(folder))  # noqa: PTH208
                return [int(each[1]) for each in found if each is not None]
        except FileNotFoundError:
            return []

    def _size(self, number: int) -> int:
        try:
            with self._opened(number) as file:
                return os.fstat(file).st_size
        except FileNotFoundError:
            return 0

    @contextmanager
    def _lent(self) -> Iterator[int]:
        folder = open_folder(self._folder)
        try:
            yield folder
        finally:
            os.close(folder)

    @contextmanager
    def _opened(self, number: int) -> Iterator[int]:
        with self._lent() as folder:
            file = open_regular(self._folder / _name(number), os.O_RDONLY, folder_fd=folder)
        try:
            yield file
        finally:
            os.close(file)

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Have a turn; yields the folder."""
        self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        with self._lent() as folder:
            _give_to_owner(folder, folder, of=self._folder.parent)
            fcntl.flock(folder, fcntl.LOCK_EX)
            yield folder


def _name(number: int) -> str:
    return f"{number:012d}.jsonl"


def _entry(line: bytes) -> Entry | None:
    try:
        return decode_entry(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _give_to_owner(descriptor: int, folder: int, *, of: Path | None = None) -> None:
    """Let a file belong to whom the folder does: root may make keys for a server that is not root."""
    if os.geteuid() == 0:
        owner = os.fstat(folder) if of is None else of.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)
