"""API keys in a file: `keys.json` in the folder of the server, and how a running server follows its keys.

The laws of the file:
- Only its owner can read it, and a file that others may write is refused: who writes
  it makes keys.
- It is replaced as a whole: written beside, synced, renamed, its folder synced. A
  reader sees the old one or the new one, and neither is lost by a power cut.
- Those who change it take turns, by a lock on a file of its own.
- Where there has been a key, keys are needed. `keys.needed` stands beside the file from
  before the first key on, so a server does not open because the last key was revoked,
  or because the file is gone or damaged. Only `reset_file` takes both away.

A running server looks at its keys every second, so that they come and go while it runs.
What it cannot read then leaves the old keys good; at the start it is an error.
"""

import asyncio
import fcntl
import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Protocol

from penstock.broker import keyring as changes
from penstock.broker.access import Access, Grant, Key
from penstock.broker.keyring import Change, Keyring, KeysDamaged, NewKey, decode, encode
from penstock.runtime.disk import make_folders, open_regular
from penstock.store.errors import StoreUnreachable
from penstock.telemetry import KEYS_CHANGED, KEYS_DAMAGED

LOOK_S = 1.0
FILE_BYTES_MAX = 64 * 1024 * 1024
MARKER_SUFFIX = ".needed"
_MARKER = b"""This server has had API keys, so it needs them, also if keys.json is gone.
To begin without keys again: penstock key reset
"""

Stamp = tuple[int, int, int, int]


class Followed(Protocol):
    """The keys of a running server: ``access`` is what they allow."""

    access: Access
    # Why they could not be read the last time; empty if all is well.
    problem: str

    async def look(self) -> bool:
        """Look whether keys have changed; return whether other keys are good now."""
        ...


class Keys:
    """The keys of a file."""

    def __init__(self, path: Path) -> None:
        """Read the file if there is one; raise `KeysDamaged` if it is not good."""
        self._path = path
        self._stamp = _stamp(path)
        self.problem = ""
        if self._stamp is None and not _is_marked(path):
            self.access = Access.open()
            return
        _mark(path)
        keyring = read_keyring(path)
        self.access = Access(()) if keyring is None else Access(keyring.keys, seed=keyring.seed)

    async def look(self) -> bool:
        return self.refresh()

    def refresh(self) -> bool:
        """Do what `look` does. It costs one look at the disk."""
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            replace_keys(self.access, read_keyring(self._path))
        except KeysDamaged as error:
            self.problem = str(error)
            if self.access.is_open:
                self.access.replace(())
            return False
        self.problem = ""
        return True


class SharedKeys:
    """The keys of a database, which all its servers share. No caller is let in before they have been read."""

    def __init__(self) -> None:
        self.access = Access(())
        self.problem = ""
        self._read: Callable[[int], Awaitable[tuple[int, bytes | None] | None]] | None = None
        self._revision = 0

    async def open(self, read: Callable[[int], Awaitable[tuple[int, bytes | None] | None]]) -> None:
        """Read the keys for the first time. Raises `KeysDamaged`.

        ``read`` takes a revision and returns that of now, with the keys if it is another; None before the first key.
        """
        self._read = read
        if not await self._refresh(read):
            self.access.let_everybody_in()

    async def look(self) -> bool:
        if self._read is None:
            return False
        try:
            is_new = await self._refresh(self._read)
        except (KeysDamaged, StoreUnreachable) as error:
            self.problem = str(error)
            return False
        self.problem = ""
        return is_new

    async def _refresh(self, read: Callable[[int], Awaitable[tuple[int, bytes | None] | None]]) -> bool:
        found = await read(self._revision)
        if found is None:
            # They were taken away all together: who is let in then is decided at a start.
            return False
        revision, data = found
        if data is None:
            return False
        # Before the keys are read: what is damaged is read again only when it has changed.
        self._revision = revision
        try:
            keyring = decode(data, place="the table of keys")
        except KeysDamaged:
            if self.access.is_open:
                self.access.replace(())
            raise
        replace_keys(self.access, keyring)
        return True


@asynccontextmanager
async def following(keys: Followed, log_event: Callable[..., None]) -> AsyncIterator[None]:
    """Look at the keys every second for as long as this is entered."""

    async def look() -> None:
        while True:
            ends_ms = keys.access.next_end_ms()
            await asyncio.sleep(LOOK_S if ends_ms is None else min(LOOK_S, ends_ms / 1_000))
            keys.access.tell_those_who_ended()
            problem = keys.problem
            if await keys.look():
                log_event(KEYS_CHANGED)
            elif keys.problem and keys.problem != problem:
                log_event(KEYS_DAMAGED, reason=keys.problem)

    # Not a TaskGroup, which would wrap what the server raises into a group.
    looking = asyncio.create_task(look())  # noqa: TID251 - It is awaited below.
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


def replace_keys(access: Access, keyring: Keyring | None) -> None:
    """Accept the keys of a keyring; no key, if there is no keyring any more."""
    if keyring is None:
        access.replace(())
    else:
        access.replace(keyring.keys, seed=keyring.seed)


def read_keyring(path: Path) -> Keyring | None:
    """Return all keys; None if there is no file."""
    try:
        # A user who may link here could show us any file, or one that never ends.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(descriptor).st_mode
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                data = file.read(FILE_BYTES_MAX + 1) if stat.S_ISREG(mode) else b""
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeysDamaged(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise KeysDamaged(f"{path} is no regular file")
    if mode & 0o022:
        raise KeysDamaged(f"{path} may be written by others, who could make keys; mend it: chmod 600 {path}")
    return decode(data, place=str(path))


def read_keys(path: Path) -> list[Key]:
    """Return all keys in the order they were made; none if there is no file."""
    keyring = read_keyring(path)
    return [] if keyring is None else list(keyring.keys)


def change_file(path: Path, change: Callable[[Keyring | None], Change]) -> Change:
    """Change the keys of a file. Durable on return; running servers know within a second or two."""
    with _locked(path):
        done = change(read_keyring(path))
        _mark(path)
        _write(path, encode(done.keyring))
    return done


def create_key(
    path: Path, name: str, grants: Sequence[Grant], *, queues_max: int | None, created_at: str
) -> tuple[Key, str]:
    """Add a key to a file; return it and its text, which is nowhere else."""
    wanted = NewKey(name=name, grants=tuple(grants), queues_max=queues_max)
    done = change_file(path, lambda keyring: changes.create(keyring, wanted, created_at=created_at))
    return done.key, done.text


def revoke_key(path: Path, key_id: str) -> Key:
    """Take a key away; return it."""
    return change_file(path, lambda keyring: changes.revoke(keyring, key_id)).key


def reset_file(path: Path) -> bool:
    """Forget all keys and that there were any; return whether there were. A running server stays closed."""
    with _locked(path):
        had_keys = are_needed(path)
        # In this order: in between, the server needs keys that there are not.
        path.unlink(missing_ok=True)
        path.with_suffix(MARKER_SUFFIX).unlink(missing_ok=True)
        _sync_folder(path.parent)
    return had_keys


def are_needed(path: Path) -> bool:
    """Whether a server with this file needs keys: there is one, or there was."""
    return path.exists() or _is_marked(path)


def _is_marked(path: Path) -> bool:
    try:
        path.with_suffix(MARKER_SUFFIX).lstat()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise KeysDamaged(f"{path.parent} cannot be looked at: {error.strerror}") from error
    return True


def _mark(path: Path) -> None:
    """Note that keys are needed from now on, durably."""
    if _is_marked(path):
        return
    try:
        _write_new(path.with_suffix(MARKER_SUFFIX), _MARKER)
        _sync_folder(path.parent)
    except FileExistsError:
        # Another process was faster.
        pass


def _write(path: Path, data: bytes) -> None:
    beside = path.with_suffix(".new")
    # A file of this name is from a process that died: the lock is ours.
    beside.unlink(missing_ok=True)
    _write_new(beside, data)
    beside.replace(path)
    _sync_folder(path.parent)


def _write_new(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as new:
        _give_to_owner(descriptor, path.parent)
        new.write(data)
        new.flush()
        os.fsync(new.fileno())


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    make_folders(path.parent)
    # Not through a link: root would give away the file that it leads to.
    descriptor = open_regular(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, mode=0o600)
    try:
        _give_to_owner(descriptor, path.parent)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _give_to_owner(descriptor: int, folder: Path) -> None:
    """Let a file belong to whom the folder does: root makes keys for a server that is not root."""
    if os.geteuid() == 0:
        owner = folder.stat()
        os.fchown(descriptor, owner.st_uid, owner.st_gid)


def _stamp(path: Path) -> Stamp | None:
    """Return what changes whenever the file is replaced; None if there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise KeysDamaged(f"{path} cannot be looked at: {error.strerror}") from error
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino
