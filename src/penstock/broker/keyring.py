"""All keys of a server as one value: how they are written down, and how they change.

    {"version": 1, "seed": …, "keys": [{"id": …, "name": …, "sha256": …, "ending": …,
                                        "grants": [{"role": "write", "queue": "orders*"}],
                                        "queues_max": null, "created_at": …, …}]}

The laws of the text:
- It holds hashes, never the secret of a key. The one exception is the secret of an SQS
  pair: signatures of AWS are checked with the secret itself, so it has to be there.
- What is unknown in it, or out of bounds, is damage: a grant that is misread would be a right.

A change takes the keys as they are and returns them as they will be. Where they are kept
is another matter: `keys` has them in a file, a store in PostgreSQL in a table.
"""

import hmac
import secrets
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from penstock.broker.access import (
    GRANTED,
    GRANTS_MAX,
    KEY_NAME_CHARACTERS_MAX,
    KEYS_MAX,
    SALT_BYTES,
    SCRAM_ITERATIONS,
    BadGrant,
    Former,
    Grant,
    Key,
    Scram,
    hash_of,
)

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
