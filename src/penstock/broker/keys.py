"""API keys in a file: `keys.json` in the folder of the server.

    {"version": 1, "keys": [{"id": …, "name": …, "sha256": …, "ending": …,
                             "grants": [{"role": "write", "queue": "orders*"}],
                             "queues_max": null, "created_at": …}]}

The laws of the file:
- It holds hashes, never a secret. Only its owner can read it, and a file that
  others may write is refused: whoever writes it makes keys.
- It is replaced as a whole: written beside, synced, renamed, its folder synced. A
  reader sees the old one or the new one, and neither is lost by a power cut.
- Those who change it take turns, by a lock on a file of its own.
- A server looks at it every second, so that keys come and go while it runs. What
  it cannot understand then leaves the old keys good; at the start it is an error.
- Where there has been a file, keys are needed. A server never opens up because
  the last key was revoked, or the file is gone or damaged.
"""

import asyncio
import fcntl
import os
import secrets
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.broker.access import (
    GRANTS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    KEYS_MAX,
    SALT_BYTES,
    SCRAM_ITERATIONS,
    Access,
    BadGrant,
    Grant,
    Key,
    Role,
    Scram,
    hash_of,
)
from penstock.telemetry import KEYS_CHANGED, KEYS_DAMAGED

LOOK_S = 1.0
ENDING_CHARACTERS = 4
SECRET_BYTES = 32
FILE_BYTES_MAX = 64 * 1024 * 1024


class KeysDamaged(Exception):
    """The file with the keys is not one that Penstock wrote, or others may write it; the message says why."""


class KeyNotFound(Exception):
    """There is no key with this id."""


class TooManyKeys(Exception):
    """There are as many keys as a server may have."""


class _Grant(Struct, forbid_unknown_fields=True):
    role: Literal["metrics", "send", "receive", "read", "write", "admin"]
    queue: str


class _Key(Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(pattern=r"\A[0-9a-f]{12}\Z")]
    name: Annotated[str, Meta(min_length=1, max_length=KEY_NAME_CHARACTERS_MAX)]
    sha256: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    ending: Annotated[str, Meta(max_length=ENDING_CHARACTERS)]
    grants: Annotated[list[_Grant], Meta(min_length=1, max_length=GRANTS_MAX)]
    queues_max: Annotated[int, Meta(ge=0)] | None
    created_at: str
    # Salt, stored key and server key of SCRAM-SHA-256 in hex, one after the other; not there in older files.
    scram_sha256: Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{160})?\Z")] = ""


class _File(Struct, forbid_unknown_fields=True):
    version: Literal[1]
    keys: Annotated[list[_Key], Meta(max_length=KEYS_MAX)]


Stamp = tuple[int, int, int, int]


class Keys:
    """The keys of a running server: ``access`` is what they allow."""

    def __init__(self, path: Path) -> None:
        """Read the file if there is one; raise `KeysDamaged` if it is not good."""
        self._path = path
        self._stamp = _stamp(path)
        self.access = Access.open() if self._stamp is None else Access(read_keys(path))
        # Why the file was not read the last time; empty if all is well.
        self.problem = ""

    def refresh(self) -> bool:
        """Look whether the file has changed; return whether other keys are good now. It costs one look at the disk."""
        try:
            stamp = _stamp(self._path)
            if stamp == self._stamp:
                return False
            self._stamp = stamp
            self.access.replace(read_keys(self._path))
        except KeysDamaged as error:
            self.problem = str(error)
            if self.access.is_open:
                self.access.replace(())
            return False
        self.problem = ""
        return True


@asynccontextmanager
async def following(keys: Keys, note: Callable[..., None]) -> AsyncIterator[None]:
    """Look at the file every second for as long as this is entered."""

    async def look() -> None:
        while True:
            ends_ms = keys.access.next_end_ms()
            await asyncio.sleep(LOOK_S if ends_ms is None else min(LOOK_S, ends_ms / 1_000))
            keys.access.tell_those_who_ended()
            problem = keys.problem
            if keys.refresh():
                note(KEYS_CHANGED)
            elif keys.problem != problem:
                note(KEYS_DAMAGED, reason=keys.problem)

    # Not a TaskGroup, which would wrap what the server raises into a group.
    looking = asyncio.create_task(look())  # noqa: TID251 - It is awaited below.
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.wait([looking])


def read_keys(path: Path) -> list[Key]:
    """Return all keys in the order they were made; none if there is no file."""
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise KeysDamaged(f"{path} cannot be read: {error.strerror}") from error
    if mode & 0o022:
        raise KeysDamaged(f"{path} may be written by others, who could make keys; mend it: chmod 600 {path}")
    try:
        keys = [_key(each) for each in msgspec.json.decode(data, type=_File).keys]
    except (msgspec.DecodeError, UnicodeDecodeError, BadGrant, RecursionError) as error:
        raise KeysDamaged(f"{path} is not a file of keys: {error}") from error
    if len({key.id for key in keys}) < len(keys):
        raise KeysDamaged(f"{path} has two keys with one id")
    return keys


def create_key(
    path: Path, name: str, grants: Sequence[Grant], *, queues_max: int | None, created_at: str
) -> tuple[Key, str]:
    """Add a key; return it and its text, which is nowhere else. Durable on return."""
    if not 1 <= len(name) <= KEY_NAME_CHARACTERS_MAX or not name.isprintable():
        raise ValueError(f"the name of a key has 1 to {KEY_NAME_CHARACTERS_MAX} characters that can be printed")
    if not 1 <= len(grants) <= GRANTS_MAX:
        raise ValueError(f"a key has 1 to {GRANTS_MAX} grants, not {len(grants)}")
    secret = secrets.token_urlsafe(SECRET_BYTES)
    salt = secrets.token_bytes(SALT_BYTES)
    with _locked(path):
        keys = read_keys(path)
        if len(keys) >= KEYS_MAX:
            raise TooManyKeys(f"there are {KEYS_MAX} keys, and there may not be more")
        key_id = _free_id({each.id for each in keys})
        text = f"pk_{key_id}_{secret}"
        key = Key(
            id=key_id,
            name=name,
            secret_sha256=hash_of(secret),
            ending=secret[-ENDING_CHARACTERS:],
            grants=tuple(grants),
            queues_max=queues_max,
            created_at=created_at,
            scram=Scram.of(text, salt=salt, iterations=SCRAM_ITERATIONS),
        )
        _write(path, [*keys, key])
    return key, text


def revoke_key(path: Path, key_id: str) -> Key:
    """Take a key away; return it. Durable on return; running servers know within a second or two."""
    with _locked(path):
        keys = read_keys(path)
        gone = next((key for key in keys if key.id == key_id), None)
        if gone is None:
            raise KeyNotFound(f"there is no key {key_id} in {path}")
        _write(path, [key for key in keys if key.id != key_id])
    return gone


def _free_id(taken: set[str]) -> str:
    while (found := secrets.token_hex(6)) in taken:
        pass
    return found


def _write(path: Path, keys: list[Key]) -> None:
    file = _File(1, [_stored(key) for key in keys])
    data = msgspec.json.format(msgspec.json.encode(file), indent=1)
    beside = path.with_suffix(".new")
    # A file of this name is from somebody who died: the lock is ours.
    beside.unlink(missing_ok=True)
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as new:
        _give_to_owner(descriptor, path.parent)
        new.write(data)
        new.flush()
        os.fsync(new.fileno())
    beside.replace(path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
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


def _key(stored: _Key) -> Key:
    return Key(
        id=stored.id,
        name=stored.name,
        secret_sha256=bytes.fromhex(stored.sha256),
        ending=stored.ending,
        grants=tuple(Grant(Role[grant.role.upper()], grant.queue) for grant in stored.grants),
        queues_max=stored.queues_max,
        created_at=stored.created_at,
        scram=_scram(stored.scram_sha256),
    )


def _scram(text: str) -> Scram | None:
    if not text:
        return None
    data = bytes.fromhex(text)
    return Scram(data[:SALT_BYTES], SCRAM_ITERATIONS, data[SALT_BYTES:-32], data[-32:])


def _stored(key: Key) -> _Key:
    return _Key(
        id=key.id,
        name=key.name,
        sha256=key.secret_sha256.hex(),
        ending=key.ending,
        grants=[_Grant(grant.role.name.lower(), grant.pattern) for grant in key.grants],  # type: ignore[arg-type]
        queues_max=key.queues_max,
        created_at=key.created_at,
        scram_sha256="" if key.scram is None else (key.scram.salt + key.scram.stored_key + key.scram.server_key).hex(),
    )
