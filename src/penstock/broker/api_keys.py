"""All keys of a server as one value, where it is kept, and how a running server follows it.

    {"version": 1, "seed": …, "keys": [{"id": …, "name": …, "sha256": …, "ending": …,
                                        "grants": [{"role": "write", "queue": "orders*"}],
                                        "queues_max": null, "created_at": …, …}]}

The laws of this text:
- It holds hashes, never the secret of a key. The one exception is the secret of an SQS
  pair: signatures of AWS are checked with the secret itself, so it has to be there.
- What is unknown in it, or out of bounds, is damage: a grant that is misread would be a right.
- A change takes the keys as they are and returns them as they will be.

It is kept in `keys.json` in the folder of the server, or in a table of PostgreSQL. The laws of the file:
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
import hmac
import os
import secrets
import stat
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Literal, Protocol

import msgspec
from msgspec import Meta, Struct

from penstock.broker.access import (
    GRANTED,
    GRANTS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    KEYS_MAX,
    SALT_BYTES,
    SCRAM_ITERATIONS,
    Access,
    BadGrant,
    Former,
    Grant,
    Key,
    Scram,
    hash_of,
)
from penstock.runtime.disk import make_folders, open_regular
from penstock.runtime.interface import beside
from penstock.store.errors import StoreUnreachable
from penstock.telemetry import KEYS_CHANGED, KEYS_DAMAGED

ENDING_CHARACTERS = 4
SECRET_BYTES = 32
SEED_BYTES = 32


class KeysDamaged(Exception):
    """The keys are not as Penstock wrote them, or others may write them; the message says why."""


class KeyNotFound(Exception):
    """There is no key with this id."""


class KeyExists(Exception):
    """There is a key with this id already; ``is_same`` tells whether it has the same secret."""

    def __init__(self, key_id: str, *, is_same: bool) -> None:
        super().__init__(f"there is a key {key_id} already" + ("" if is_same else ", with another secret"))
        self.is_same = is_same


class TooManyKeys(Exception):
    """There are as many keys as a server may have."""


@dataclass(frozen=True, slots=True)
class Keyring:
    # In the order they were made.
    keys: tuple[Key, ...]
    # What answers to unknown users of SCRAM are made of: the same on every server, at every start.
    seed: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKey:
    """What is wanted of a key."""

    name: str
    grants: tuple[Grant, ...]
    queues_max: int | None = None
    expires_at_ms: int | None = None
    # Whether it has a pair for SQS, too.
    has_sqs: bool = False
    requests_per_s: int | None = None
    bytes_per_s: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= KEY_NAME_CHARACTERS_MAX or not self.name.isprintable():
            raise ValueError(f"the name of a key has 1 to {KEY_NAME_CHARACTERS_MAX} characters that can be printed")
        if not 1 <= len(self.grants) <= GRANTS_MAX:
            raise ValueError(f"a key has 1 to {GRANTS_MAX} grants, not {len(self.grants)}")


@dataclass(frozen=True, slots=True)
class Change:
    """What was done to the keys: all of them as they are now, and the one it was about."""

    action: Literal["create", "rotate", "revoke"]
    keyring: Keyring
    key: Key
    # The key itself, which is shown this one time; empty if there is no new secret.
    text: str = ""


def new_text(key_id: str) -> str:
    """Draw a key: an id, and a secret that cannot be guessed."""
    return f"pk_{key_id}_{secrets.token_urlsafe(SECRET_BYTES)}"


def create(keyring: Keyring | None, wanted: NewKey, *, created_at: str, text: str = "") -> Change:
    """Add a key; ``keyring`` is None before the first. ``text`` is the key if it was drawn elsewhere."""
    keyring = keyring or Keyring((), secrets.token_bytes(SEED_BYTES))
    text = text or new_text(_free_id({each.id for each in keyring.keys}))
    _, key_id, secret = text.split("_", 2)
    for each in keyring.keys:
        if each.id == key_id:
            raise KeyExists(key_id, is_same=hmac.compare_digest(each.secret_sha256, hash_of(secret)))
    if len(keyring.keys) >= KEYS_MAX:
        raise TooManyKeys(f"there are {KEYS_MAX} keys, and there may not be more")
    key = Key(
        id=key_id,
        name=wanted.name,
        secret_sha256=hash_of(secret),
        ending=secret[-ENDING_CHARACTERS:],
        grants=wanted.grants,
        queues_max=wanted.queues_max,
        created_at=created_at,
        scram=Scram.of(text, salt=secrets.token_bytes(SALT_BYTES), iterations=SCRAM_ITERATIONS),
        expires_at_ms=wanted.expires_at_ms,
        sqs_secret=secrets.token_urlsafe(SECRET_BYTES) if wanted.has_sqs else "",
        requests_per_s=wanted.requests_per_s,
        bytes_per_s=wanted.bytes_per_s,
    )
    return Change("create", replace(keyring, keys=(*keyring.keys, key)), key, text)


def rotate(keyring: Keyring | None, key_id: str, *, keep_ms: int, now_ms: int) -> Change:
    """Give a key another secret; the one it has stays good for a while. One that was former before ends now."""
    key = _find(keyring, key_id)
    text = new_text(key_id)
    secret = text.split("_", 2)[2]
    # The salt stays: SCRAM tells it before it knows which of the two secrets will be proven.
    salt = secrets.token_bytes(SALT_BYTES) if key.scram is None else key.scram.salt
    rotated = replace(
        key,
        secret_sha256=hash_of(secret),
        ending=secret[-ENDING_CHARACTERS:],
        scram=Scram.of(text, salt=salt, iterations=SCRAM_ITERATIONS),
        former=Former(key.secret_sha256, key.scram, now_ms + keep_ms, key.sqs_secret) if keep_ms else None,
        sqs_secret=secrets.token_urlsafe(SECRET_BYTES) if key.sqs_secret else "",
    )
    assert keyring is not None
    keys = tuple(rotated if each is key else each for each in keyring.keys)
    return Change("rotate", replace(keyring, keys=keys), rotated, text)


def revoke(keyring: Keyring | None, key_id: str) -> Change:
    gone = _find(keyring, key_id)
    assert keyring is not None
    return Change("revoke", replace(keyring, keys=tuple(each for each in keyring.keys if each is not gone)), gone)


def _find(keyring: Keyring | None, key_id: str) -> Key:
    found = next((key for key in (keyring.keys if keyring is not None else ()) if key.id == key_id), None)
    if found is None:
        raise KeyNotFound(f"there is no key {key_id}")
    return found


def _free_id(taken: set[str]) -> str:
    while (found := secrets.token_hex(6)) in taken:
        pass
    return found


class _Grant(Struct, forbid_unknown_fields=True):
    role: Literal["metrics", "send", "receive", "read", "write", "admin"]
    queue: str


_Sha256 = Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
# Salt, stored key and server key of SCRAM-SHA-256 in hex, one after the other; empty for none.
_Scram = Annotated[str, Meta(pattern=r"\A(?:[0-9a-f]{160})?\Z")]
_SqsSecret = Annotated[str, Meta(pattern=r"\A(?:[A-Za-z0-9_-]{43})?\Z")]
_PerSecond = Annotated[int, Meta(ge=1, lt=2**53)]
_Instant = Annotated[int, Meta(ge=0, lt=2**53)]


class _Former(Struct, forbid_unknown_fields=True):
    sha256: _Sha256
    scram_sha256: _Scram
    ends_at_ms: _Instant
    sqs_secret: _SqsSecret = ""


class _Key(Struct, forbid_unknown_fields=True):
    id: Annotated[str, Meta(pattern=r"\A[0-9a-f]{12}\Z")]
    name: Annotated[str, Meta(min_length=1, max_length=KEY_NAME_CHARACTERS_MAX)]
    sha256: _Sha256
    ending: Annotated[str, Meta(max_length=ENDING_CHARACTERS)]
    grants: Annotated[list[_Grant], Meta(min_length=1, max_length=GRANTS_MAX)]
    queues_max: Annotated[int, Meta(ge=0)] | None
    created_at: str
    scram_sha256: _Scram = ""
    expires_at_ms: _Instant | None = None
    former: _Former | None = None
    sqs_secret: _SqsSecret = ""
    requests_per_s: _PerSecond | None = None
    bytes_per_s: _PerSecond | None = None


class _Keyring(Struct, forbid_unknown_fields=True):
    version: Literal[1]
    seed: Annotated[str, Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    keys: Annotated[list[_Key], Meta(max_length=KEYS_MAX)]


def encode(keyring: Keyring) -> bytes:
    written = _Keyring(1, keyring.seed.hex(), [_stored(key) for key in keyring.keys])
    return msgspec.json.format(msgspec.json.encode(written), indent=1)


def decode(data: bytes, *, place: str) -> Keyring:
    """Read what `encode` wrote; ``place`` is what an error calls it."""
    try:
        read = msgspec.json.decode(data, type=_Keyring)
        keys = tuple(_key(each) for each in read.keys)
    except (msgspec.DecodeError, UnicodeDecodeError, BadGrant, RecursionError) as error:
        raise KeysDamaged(f"{place} does not hold keys as they are written: {error}") from error
    if len({key.id for key in keys}) < len(keys):
        raise KeysDamaged(f"{place} has two keys with one id")
    return Keyring(keys, bytes.fromhex(read.seed))


def _key(stored: _Key) -> Key:
    former = stored.former
    return Key(
        id=stored.id,
        name=stored.name,
        secret_sha256=bytes.fromhex(stored.sha256),
        ending=stored.ending,
        grants=tuple(Grant(GRANTED[grant.role], grant.queue) for grant in stored.grants),
        queues_max=stored.queues_max,
        created_at=stored.created_at,
        scram=_scram(stored.scram_sha256),
        expires_at_ms=stored.expires_at_ms,
        former=None if former is None else _former(former),
        sqs_secret=stored.sqs_secret,
        requests_per_s=stored.requests_per_s,
        bytes_per_s=stored.bytes_per_s,
    )


def _former(stored: _Former) -> Former:
    return Former(bytes.fromhex(stored.sha256), _scram(stored.scram_sha256), stored.ends_at_ms, stored.sqs_secret)


def _scram(text: str) -> Scram | None:
    if not text:
        return None
    data = bytes.fromhex(text)
    return Scram(data[:SALT_BYTES], SCRAM_ITERATIONS, data[SALT_BYTES:-32], data[-32:])


def _stored(key: Key) -> _Key:
    former = key.former
    return _Key(
        id=key.id,
        name=key.name,
        sha256=key.secret_sha256.hex(),
        ending=key.ending,
        grants=[_Grant(grant.role.name.lower(), grant.pattern) for grant in key.grants],  # type: ignore[arg-type]
        queues_max=key.queues_max,
        created_at=key.created_at,
        scram_sha256=_scram_text(key.scram),
        expires_at_ms=key.expires_at_ms,
        former=None
        if former is None
        else _Former(former.secret_sha256.hex(), _scram_text(former.scram), former.ends_at_ms, former.sqs_secret),
        sqs_secret=key.sqs_secret,
        requests_per_s=key.requests_per_s,
        bytes_per_s=key.bytes_per_s,
    )


def _scram_text(scram: Scram | None) -> str:
    return "" if scram is None else (scram.salt + scram.stored_key + scram.server_key).hex()


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

    async def read(self) -> Keyring | None:
        """Return the keys as they are kept now. Raises `KeysDamaged`."""
        return await asyncio.to_thread(read_keyring, self._path)

    async def change(self, change: Callable[[Keyring | None], Change]) -> Change:
        """Change the keys as `change_file` does; they are good here on return."""
        done = await asyncio.to_thread(change_file, self._path, change)
        self.refresh()
        return done

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
        self._replace: Callable[[Callable[[bytes | None], bytes]], Awaitable[None]] | None = None
        self._revision = 0

    async def open(
        self,
        read: Callable[[int], Awaitable[tuple[int, bytes | None] | None]],
        replace: Callable[[Callable[[bytes | None], bytes]], Awaitable[None]] | None = None,
    ) -> None:
        """Read the keys for the first time. Raises `KeysDamaged`.

        ``read`` takes a revision and returns that of now, with the keys if it is another; None before the first key.
        ``replace`` changes them by a function; without it they cannot be changed here.
        """
        self._read, self._replace = read, replace
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

    async def read(self) -> Keyring | None:
        """Return the keys as they are kept now. Raises `KeysDamaged` and `StoreUnreachable`."""
        found = None if self._read is None else await self._read(0)
        return None if found is None or found[1] is None else decode(found[1], place="the table of keys")

    async def change(self, change: Callable[[Keyring | None], Change]) -> Change:
        """Change the keys of the database; they are good here on return, at its other servers in a second or two."""
        assert self._replace is not None, "it was opened with a way to change them"
        done: list[Change] = []

        def decide(data: bytes | None) -> bytes:
            done[:] = [change(None if data is None else decode(data, place="the table of keys"))]
            return encode(done[0].keyring)

        await self._replace(decide)
        await self.look()
        return done[0]

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

    async with beside(look()):
        yield


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
    done = change_file(path, lambda keyring: create(keyring, wanted, created_at=created_at))
    return done.key, done.text


def revoke_key(path: Path, key_id: str) -> Key:
    """Take a key away; return it."""
    return change_file(path, lambda keyring: revoke(keyring, key_id)).key


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
