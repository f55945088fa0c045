"""Who may do what: callers, their roles, and the queues those hold for.

    role      see  fetch  send  receive  read  metrics  write  admin
    metrics    ·     ·     ·      ·       ·      ●        ·      ·
    send       ●     ·     ●      ·       ·      ·        ·      ·
    receive    ●     ●     ·      ●       ·      ·        ·      ·
    read       ●     ●     ·      ·       ●      ●        ·      ·
    write      ●     ●     ●      ●       ●      ●        ●      ·
    admin      ●     ●     ●      ●       ●      ●        ●      ●

A column is what a request can ask for: `SEE` is to list and describe, `FETCH` to read
the records of a topic and the offsets of a group. These two are never granted by name.

A key is `pk_<id>_<secret>`. The secret has 256 bits of chance, so nobody guesses it
from its hash, and one round of SHA-256 is the right hash: a slow one protects short
passwords, and would cost every request a tenth of a second. Hashes are compared in
a time that does not depend on where they differ.

Nothing here touches a file; `keys` does.
"""

import hmac
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from hashlib import pbkdf2_hmac, sha256
from typing import Self

from penstock.core.names import is_dead_letters
from penstock.core.patterns import BadPattern, check_pattern, fits

KEYS_MAX = 10_000
GRANTS_MAX = 100
KEY_NAME_CHARACTERS_MAX = 100

_BEARER = re.compile(r"(?i:bearer) +pk_([0-9a-f]{12})_([A-Za-z0-9_-]{43}) *", re.ASCII)


class Role(IntEnum):
    """What a key grants, and what a request asks for."""

    METRICS = 1
    SEE = 2
    FETCH = 3
    SEND = 4
    RECEIVE = 5
    READ = 6
    WRITE = 7
    ADMIN = 8


INCLUDED: dict[Role, frozenset[Role]] = {
    Role.METRICS: frozenset({Role.METRICS}),
    Role.SEND: frozenset({Role.SEND, Role.SEE}),
    Role.RECEIVE: frozenset({Role.RECEIVE, Role.SEE, Role.FETCH}),
    Role.READ: frozenset({Role.READ, Role.SEE, Role.FETCH, Role.METRICS}),
    Role.WRITE: frozenset(Role) - {Role.ADMIN},
    Role.ADMIN: frozenset(Role),
}
# The roles that a key can have, by the names that people write.
GRANTED: dict[str, Role] = {role.name.lower(): role for role in INCLUDED}


def spoken(role: Role, *, quote: str = "") -> str:
    """Return a role as a refusal names it: for one that is not granted by name, the roles that bring it.

    >>> spoken(Role.SEND), spoken(Role.FETCH)
    ('role send', 'role receive or read')
    """
    if role in INCLUDED:
        return f"role {quote}{role.name.lower()}{quote}"
    least = [name for name, each in GRANTED.items() if role in INCLUDED[each] and each < Role.WRITE]
    return "role " + " or ".join(f"{quote}{name}{quote}" for name in least)


class KeyNeeded(Exception):
    """The server has keys, and the request has none."""


class KeyUnknown(Exception):
    """The key of the request is not one of the server's."""


class NotAllowed(Exception):
    """The key does not have this role on this queue."""


class TooManyQueuesMade(Exception):
    """There are as many queues under the key as it may have."""


class BadGrant(ValueError):
    """This is no pattern for the names of queues."""


@dataclass(frozen=True, slots=True)
class Grant:
    """A role on all queues whose names fit a pattern, in which `*` stands for any characters, or none."""

    role: Role
    pattern: str

    def __post_init__(self) -> None:
        if self.role not in INCLUDED:
            raise BadGrant(f"{self.role.name.lower()} is no role of a key; there are {', '.join(GRANTED)}")
        try:
            check_pattern(self.pattern)
        except BadPattern as error:
            raise BadGrant(str(error)) from None

    def includes(self, role: Role) -> bool:
        return role in INCLUDED[self.role]

    def covers(self, queue: str) -> bool:
        return fits(self.pattern, queue)


@dataclass(frozen=True, slots=True)
class Scram:
    """What SCRAM-SHA-256 needs of a key, from which nobody gets the key back (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, *, salt: bytes, iterations: int) -> Self:
        salted = pbkdf2_hmac("sha256", password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return cls(salt, iterations, sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as the server knows it: everything but the secret."""

    id: str
    name: str
    secret_sha256: bytes
    # The last characters of the secret, so that a person can tell which key a client has.
    ending: str
    grants: tuple[Grant, ...]
    # How many queues there may be under the key; None for any number.
    queues_max: int | None
    created_at: str
    # None for a key from before SCRAM was spoken.
    scram: Scram | None = None


class Caller:
    """Somebody who asks for something, and what they may do."""

    __slots__ = ("name", "queues_max", "_grants")

    def __init__(self, name: str, grants: tuple[Grant, ...], queues_max: int | None = None) -> None:
        self.name = name
        self.queues_max = queues_max
        self._grants = grants

    def has(self, role: Role, queue: str) -> bool:
        return any(role in INCLUDED[grant.role] and grant.covers(queue) for grant in self._grants)

    def check(self, role: Role, queue: str) -> None:
        if not self.has(role, queue):
            raise NotAllowed(f"the key {self.name!r} does not have the {spoken(role)} on {queue}")

    def check_everywhere(self, role: Role) -> None:
        """Check for what is about all queues at once, deleted ones too: some patterns together are not all names."""
        if not any(grant.includes(role) and not grant.pattern.strip("*") for grant in self._grants):
            raise NotAllowed(f"the key {self.name!r} does not have the {spoken(role)} on all queues (*)")

    def patterns(self, role: Role) -> tuple[str, ...] | None:
        """Return the patterns of the queues that the caller has a role on; None if that is every queue."""
        found = tuple(grant.pattern for grant in self._grants if grant.includes(role))
        return None if any(not pattern.strip("*") for pattern in found) else found

    def may_list(self, queue: str) -> bool:
        return self.has(Role.SEE, queue)

    def check_may_create(self, queue: str, existing: Iterable[str]) -> None:
        """Check the role, and that there is room for one more queue.

        Nobody remembers who made a queue. What counts is how many of the queues
        that exist this key may administer, dead letters not counted; so a limit
        also holds for queues from before the key, and for several keys together
        that share a pattern. ``existing`` is looked at only if there is a limit.
        """
        self.check(Role.ADMIN, queue)
        if self.queues_max is None:
            return
        names = set(existing)
        count = sum(self.has(Role.ADMIN, name) for name in names if not is_dead_letters(name))
        if queue not in names and count >= self.queues_max:
            raise TooManyQueuesMade(f"the key {self.name!r} may have {self.queues_max} queues, and there are {count}")


EVERYBODY = Caller("everybody", (Grant(Role.ADMIN, "*"),))


class Access:
    """The keys that are good now. Without keys, because there is none yet, everybody may do everything."""

    __slots__ = ("_callers", "_scrams")

    def __init__(self, keys: Iterable[Key]) -> None:
        self._callers: dict[str, tuple[bytes, Caller]] | None = None
        self._scrams: dict[str, tuple[str, Scram]] = {}
        self.replace(keys)

    @classmethod
    def open(cls) -> Self:
        """Return an access that lets everybody in; for a server that only its own machine can reach."""
        access = cls(())
        access._callers = None
        return access

    @property
    def is_open(self) -> bool:
        return self._callers is None

    def replace(self, keys: Iterable[Key]) -> None:
        """Let in those with these keys, and nobody else from now on."""
        found = list(keys)
        self._callers = {key.id: (key.secret_sha256, Caller(key.name, key.grants, key.queues_max)) for key in found}
        # By name, too, if it is the name of one; an id is never taken for a name.
        named = Counter(key.name for key in found)
        unique = {key.name: (key.id, key.scram) for key in found if key.scram is not None and named[key.name] == 1}
        self._scrams = unique | {key.id: (key.id, key.scram) for key in found if key.scram is not None}

    def scram_of(self, user: str) -> tuple[str, Scram]:
        """Return the id of the key that a user names, and what its password is proven by; raises `KeyUnknown`."""
        found = self._scrams.get(user)
        if found is None:
            raise KeyUnknown("the user is no key of this server's, or one from before SCRAM was spoken")
        return found

    def caller_of(self, key_id: str, scram: Scram) -> Caller:
        """Return who has proven a key, if it is good still; raises `KeyUnknown`."""
        found = self._scrams.get(key_id)
        if self._callers is None or found is None or found[1] != scram:
            raise KeyUnknown("the key is not one of this server's; it may have been revoked")
        return self._callers[key_id][1]

    def authenticate(self, header: str | None) -> Caller:
        """Return who sent a request with this `Authorization` header."""
        if self._callers is None:
            return EVERYBODY
        if header is None:
            raise KeyNeeded("this server needs a key; send the header Authorization: Bearer <key>")
        found = _BEARER.fullmatch(header)
        known = self._callers.get(found[1]) if found else None
        if found is None or known is None or not hmac.compare_digest(hash_of(found[2]), known[0]):
            # The same words for every reason: a stranger learns nothing about what was nearly right.
            raise KeyUnknown("the key is not one of this server's; it may have been revoked")
        return known[1]


def hash_of(secret: str) -> bytes:
    return sha256(secret.encode("ascii")).digest()
