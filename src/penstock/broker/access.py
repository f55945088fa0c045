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

A key is `pk_<id>_<secret>`. The secret has 256 bits of chance, so it cannot be guessed
from its hash, and one round of SHA-256 is the right hash: a slow one protects short
passwords, and would cost every request a tenth of a second. Hashes are compared in
a time that does not depend on where they differ, also for a key that there is not.

Between two secrets of a key both are good (`former`), until the older one ends. Who
waits for something is told when the key ends: see `Access.watch`.

Rates: a key may have so many requests and bytes a second, with a burst of one second. Each
server counts for itself. What is taken is counted after it is known, so a level may fall
below zero: a large request is let through whole, and the next one waits until it is paid for.

Shares: one key cannot use up a limit that all keys share.

    long polls, waiting fetches, running redrives     counted while they last, by the name of the key
    consumer groups, partitions                       counted by name: those that the key may use, made by any key

A key with the role `admin` on all queues may have all: it can delete what others have anyway. So may
the one caller of a server without keys.

Nothing here touches a file; `api_keys` does. Time is an argument.
"""

import hmac
import re
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from hashlib import pbkdf2_hmac, sha256
from typing import NamedTuple, Self

from penstock.contract.limits import KEY_SHARE_PERCENT
from penstock.contract.names import BadPattern, check_pattern, fits, is_dead_letters
from penstock.runtime.system import SystemClock

KEYS_MAX = 10_000
GRANTS_MAX = 100
KEY_NAME_CHARACTERS_MAX = 100

_NEEDED = "this server needs a key; send the header Authorization: Bearer <key>"
_UNKNOWN = "the key is not one of this server's; it may have been revoked, or have expired"
# The least that clients accept. More would protect short passwords; these have 256 bits of chance.
SCRAM_ITERATIONS = 4_096
SALT_BYTES = 16
_SQS_PREFIX = "PSTK"
_BEARER = re.compile(r"(?i:bearer) +pk_([0-9a-f]{12})_([A-Za-z0-9_-]{43}) *", re.ASCII)
KEY_TEXT = re.compile(r"pk_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", re.ASCII)


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
    """The key of the request is not one of the server's, or not any more."""


class NotAllowed(Exception):
    """The key does not have this role on this queue."""


class TooManyQueuesMade(Exception):
    """There are as many queues and topics under the key as it may have."""


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


@dataclass(frozen=True, slots=True)
class Scram:
    """What SCRAM-SHA-256 needs of a key, from which the key cannot be computed (RFC 5802)."""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    @classmethod
    def of(cls, password: str, *, salt: bytes, iterations: int) -> Self:
        salted = pbkdf2_hmac("sha256", password.encode(), salt, iterations)
        client_key = hmac.digest(salted, b"Client Key", "sha256")
        return cls(salt, iterations, sha256(client_key).digest(), hmac.digest(salted, b"Server Key", "sha256"))


@dataclass(frozen=True, slots=True)
class Former:
    """The secret that a key had before it was rotated, and until when it is good. Both have one salt for SCRAM."""

    secret_sha256: bytes
    scram: Scram | None
    ends_at_ms: int
    sqs_secret: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """A key as the server knows it: everything but the secret."""

    id: str
    name: str
    secret_sha256: bytes
    # The last characters of the secret, so that a person can tell which key a client has.
    ending: str
    grants: tuple[Grant, ...]
    # How many queues and topics there may be under the key; None for any number.
    queues_max: int | None
    created_at: str
    # None for a key from before SCRAM was spoken.
    scram: Scram | None = None
    # When it is good no longer; None for never.
    expires_at_ms: int | None = None
    former: Former | None = None
    # The secret access key of its pair for SQS, in clear: signatures of AWS are checked with it. Empty for none.
    sqs_secret: str = ""
    # How fast it may go on each server; None for as fast as it can.
    requests_per_s: int | None = None
    bytes_per_s: int | None = None


def as_shown(key: Key, instant_of: Callable[[int], str]) -> dict[str, object]:
    """Return what may be told of a key, as JSON has it."""
    return {
        "id": key.id,
        "name": key.name,
        "grants": [{"role": grant.role.name.lower(), "queue": grant.pattern} for grant in key.grants],
        "queues_max": key.queues_max,
        "requests_per_s": key.requests_per_s,
        "bytes_per_s": key.bytes_per_s,
        "created_at": key.created_at,
        "expires_at": None if key.expires_at_ms is None else instant_of(key.expires_at_ms),
        "sqs": bool(key.sqs_secret),
        "old_secret_until": None if key.former is None else instant_of(key.former.ends_at_ms),
        "ending": key.ending,
    }


class Caller:
    """The caller of a request, and what it may do."""

    __slots__ = ("name", "queues_max", "ends_at_ms", "is_revoked", "rate", "_grants")

    def __init__(
        self, name: str, grants: tuple[Grant, ...], queues_max: int | None = None, *, ends_at_ms: int | None = None
    ) -> None:
        self.name = name
        self.queues_max = queues_max
        # When the secret that was shown is good no longer; None for never.
        self.ends_at_ms = ends_at_ms
        self.is_revoked = False
        # All secrets of a key share one; None for no limit.
        self.rate: Rate | None = None
        self._grants = grants

    @property
    def grants(self) -> tuple[Grant, ...]:
        return self._grants

    def has(self, role: Role, queue: str) -> bool:
        for grant in self._grants:
            if role in INCLUDED[grant.role] and (grant.pattern == "*" or fits(grant.pattern, queue)):
                return True
        return False

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

    @property
    def is_owner(self) -> bool:
        """Whether the caller may do everything, so that limits for single keys are useless against it."""
        return self.patterns(Role.ADMIN) is None

    def signature(self, label: str) -> str:
        """Return who acts: the name of the key, with what a client says of itself only beside it."""
        return f"{self.name} ({label})" if label else self.name

    def may_list(self, queue: str) -> bool:
        return self.has(Role.SEE, queue)

    def check_may_create(self, name: str, existing: Iterable[str], *, others: Iterable[str] = ()) -> None:
        """Check the role, and that there is room for one more queue or topic.

        Who made a queue is not stored. What counts is how many of the queues
        and topics that exist this key may administer, dead letters not counted; so a
        limit also holds for what is from before the key, and for several keys together
        that share a pattern. ``existing`` are those of the kind that is made, ``others``
        those of the other kind; they are looked at only if there is a limit.
        """
        self.check(Role.ADMIN, name)
        if self.queues_max is None:
            return
        names = set(existing)
        counted = [each for each in (*names, *others) if not is_dead_letters(each) and self.has(Role.ADMIN, each)]
        if name not in names and len(counted) >= self.queues_max:
            raise TooManyQueuesMade(
                f"the key {self.name!r} may have {self.queues_max} queues and topics, and there are {len(counted)}"
            )


ANONYMOUS_ADMIN = Caller("everybody", (Grant(Role.ADMIN, "*"),))


class Holder(NamedTuple):
    """One secret of a key, and who shows it."""

    secret_sha256: bytes
    scram: Scram | None
    sqs_secret: str
    caller: Caller


# What a stranger's key is compared with, so that it takes as long as with a key that there is.
_NOBODY = (Holder(bytes(32), None, "", Caller("nobody", ())),)


class Access:
    """The keys that are good now. Without keys, because there is none yet, everybody may do everything."""

    __slots__ = ("_keys", "_holders", "_names", "_watchers", "_now_ms", "_seed")

    def __init__(self, keys: Iterable[Key], *, seed: bytes = b"", now_ms: Callable[[], int] | None = None) -> None:
        """Let in those with these keys; ``seed`` is what answers to unknown users of SCRAM are made of."""
        self._keys: dict[str, Key] | None = {}
        self._holders: dict[str, tuple[Holder, ...]] = {}
        # The ids of keys by their names, if there is one of a name. An id is never taken for a name.
        self._names: dict[str, str] = {}
        self._watchers: dict[Caller, dict[Callable[[], None], None]] = {}
        self._now_ms = now_ms or SystemClock().now_ms
        self._seed = seed or secrets.token_bytes(32)
        self.replace(keys)

    @classmethod
    def open(cls, *, now_ms: Callable[[], int] | None = None) -> Self:
        """Return an access that lets everybody in; for a server that only its own machine can reach."""
        access = cls((), now_ms=now_ms)
        access.let_everybody_in()
        return access

    def let_everybody_in(self) -> None:
        self._keys = None

    @property
    def is_open(self) -> bool:
        return self._keys is None

    def replace(self, keys: Iterable[Key], *, seed: bytes = b"") -> None:
        """Accept these keys and no others from now on. A caller that waits with another key is told."""
        self._seed = seed or self._seed
        before, self._keys = self._keys or {}, {key.id: key for key in keys}
        holders = {}
        for key in self._keys.values():
            there = before.get(key.id)
            same = self._holders[key.id] if there is not None and _rights(there) == _rights(key) else ()
            holders[key.id] = _holders(key, {each.secret_sha256: each.caller for each in same})
        staying = {holder.caller for found in holders.values() for holder in found}
        for found in self._holders.values():
            for holder in found:
                holder.caller.is_revoked |= holder.caller not in staying
        self._holders = holders
        named = Counter(key.name for key in self._keys.values())
        self._names = {key.name: key.id for key in self._keys.values() if named[key.name] == 1}
        self.tell_those_who_ended()

    def is_good(self, caller: Caller) -> bool:
        """Whether a caller that was let in would be let in now."""
        if caller is ANONYMOUS_ADMIN:
            return self.is_open
        return not caller.is_revoked and (caller.ends_at_ms is None or self._now_ms() < caller.ends_at_ms)

    def check_good(self, caller: Caller) -> None:
        """Raise what `authenticate` would raise now; for those who have waited before they hand something out."""
        if not self.is_good(caller):
            raise KeyNeeded(_NEEDED) if caller is ANONYMOUS_ADMIN else KeyUnknown(_UNKNOWN)

    def watch(self, caller: Caller, ended: Callable[[], None]) -> Callable[[], None]:
        """Call ``ended`` once a caller is no longer let in, or now if that is so already; return how to stop it."""
        if not self.is_good(caller):
            ended()
            return _nothing
        watchers = self._watchers.setdefault(caller, {})
        watchers[ended] = None

        def stop() -> None:
            watchers.pop(ended, None)
            if not watchers and self._watchers.get(caller) is watchers:
                del self._watchers[caller]

        return stop

    def tell_those_who_ended(self) -> None:
        """Tell those who watch a caller that has ended; called whenever keys change or time has passed."""
        for caller in [caller for caller in self._watchers if not self.is_good(caller)]:
            for ended in self._watchers.pop(caller):
                ended()

    def next_end_ms(self) -> int | None:
        """Return for how long no caller that is watched ends by itself; None if none will."""
        ends = [caller.ends_at_ms for caller in self._watchers if caller.ends_at_ms is not None]
        return max(0, min(ends) - self._now_ms()) if ends else None

    def admit(self, caller: Caller) -> None:
        """Count a request of a caller, or raise `RateLimited`."""
        if caller.rate is not None:
            caller.rate.check(caller.name, self._now_ms())

    def charge(self, caller: Caller, size_bytes: int) -> None:
        """Count bytes that a caller has sent or was sent."""
        if caller.rate is not None:
            caller.rate.take_bytes(size_bytes, self._now_ms())

    def wait_ms(self, caller: Caller) -> int:
        """Return for how long a caller has to wait before its next request."""
        return 0 if caller.rate is None else caller.rate.wait_ms(self._now_ms())

    def scrams_of(self, user: str) -> tuple[str, tuple[Scram, ...]]:
        """Return the id of the key that a user names, and what its passwords are proven by: the newest first.

        For a user that there is not, they are made up, always the same ones, and nothing proves
        them: so a stranger does not learn who has a key.
        """
        salt = hmac.digest(self._seed, user.encode("utf-8", "surrogatepass"), "sha256")
        unknown = Scram(salt[:SALT_BYTES], SCRAM_ITERATIONS, secrets.token_bytes(32), secrets.token_bytes(32))
        key_id = user if user in self._holders else self._names.get(user, "")
        found = tuple(each.scram for each in self._holders.get(key_id, ()) if each.scram is not None)
        return (key_id, found) if found else ("", (unknown,))

    def caller_of(self, key_id: str, scram: Scram) -> Caller:
        """Return who has proven a key, if it is good still; raises `KeyUnknown`."""
        for holder in self._holders.get(key_id, ()):
            if holder.scram == scram and self.is_good(holder.caller):
                return holder.caller
        raise KeyUnknown(_UNKNOWN)

    @property
    def has_sqs_keys(self) -> bool:
        return any(holder.sqs_secret for found in self._holders.values() for holder in found)

    def sqs_pairs(self, access_key_id: str) -> list[tuple[str, Caller]]:
        """Return the secrets that requests with an access key id may be signed with now, and who signs with each."""
        if not access_key_id.startswith(_SQS_PREFIX):
            return []
        holders = self._holders.get(access_key_id[len(_SQS_PREFIX) :].lower(), ())
        return [(each.sqs_secret, each.caller) for each in holders if each.sqs_secret and self.is_good(each.caller)]

    def authenticate(self, header: str | None) -> Caller:
        """Return who sent a request with this `Authorization` header."""
        if self._keys is None:
            return ANONYMOUS_ADMIN
        if header is None:
            raise KeyNeeded(_NEEDED)
        found = _BEARER.fullmatch(header)
        if found is not None:
            shown = hash_of(found[2])
            for holder in self._holders.get(found[1], _NOBODY):
                if hmac.compare_digest(shown, holder.secret_sha256) and self.is_good(holder.caller):
                    return holder.caller
        # The same words for every reason: a stranger learns nothing about what was nearly right.
        raise KeyUnknown(_UNKNOWN)


def _rights(key: Key) -> tuple[object, ...]:
    return key.name, key.grants, key.queues_max, key.requests_per_s, key.bytes_per_s


def _holders(key: Key, known: dict[bytes, Caller]) -> tuple[Holder, ...]:
    """Return the secrets of a key; who has shown one of those before stays the same caller."""
    is_limited = key.requests_per_s is not None or key.bytes_per_s is not None
    rate = next((caller.rate for caller in known.values()), None)
    if rate is None and is_limited:
        rate = Rate(requests_per_s=key.requests_per_s, bytes_per_s=key.bytes_per_s)

    def holder(secret_sha256: bytes, scram: Scram | None, sqs_secret: str, *ends_at_ms: int | None) -> Holder:
        caller = known.get(secret_sha256) or Caller(key.name, key.grants, key.queues_max)
        caller.rate = rate
        caller.ends_at_ms = min((each for each in ends_at_ms if each is not None), default=None)
        return Holder(secret_sha256, scram, sqs_secret, caller)

    newest = holder(key.secret_sha256, key.scram, key.sqs_secret, key.expires_at_ms)
    if key.former is None:
        return (newest,)
    former = key.former
    return newest, holder(former.secret_sha256, former.scram, former.sqs_secret, former.ends_at_ms, key.expires_at_ms)


def _nothing() -> None:
    pass


def sqs_access_key_id(key_id: str) -> str:
    """Return the id of a key's pair for SQS.

    >>> sqs_access_key_id("0123456789ab")
    'PSTK0123456789AB'
    """
    return _SQS_PREFIX + key_id.upper()


def hash_of(secret: str) -> bytes:
    return sha256(secret.encode("ascii")).digest()


def key_id_of(header: str) -> str:
    """Return the id of the key that a header shows, whether it is good or not; "" for what is no key."""
    found = _BEARER.fullmatch(header)
    return found[1] if found else ""


class RateLimited(Exception):
    """The key goes faster than it may; ``retry_after_ms`` says when it may go on."""

    def __init__(self, message: str, retry_after_ms: int) -> None:
        super().__init__(message)
        self.retry_after_ms = retry_after_ms


class Bucket:
    """Fills at a rate up to what comes in a second, and is taken from.

    >>> bucket = Bucket(per_s=10)
    >>> bucket.take(15, now_ms=0)
    >>> [bucket.wait_ms(now_ms) for now_ms in (0, 400, 501)]
    [501, 101, 0]
    """

    __slots__ = ("per_s", "_level", "_at_ms")

    def __init__(self, per_s: int) -> None:
        assert per_s > 0
        self.per_s = per_s
        # In thousandths, so that all numbers are whole.
        self._level = per_s * 1_000
        self._at_ms = 0

    def take(self, amount: int, *, now_ms: int) -> None:
        self._fill(now_ms)
        self._level -= amount * 1_000

    def wait_ms(self, now_ms: int) -> int:
        """Return for how long nothing may be taken; 0 if something may."""
        self._fill(now_ms)
        return 0 if self._level > 0 else -self._level // self.per_s + 1

    def _fill(self, now_ms: int) -> None:
        passed_ms = max(0, now_ms - self._at_ms)
        self._at_ms = max(now_ms, self._at_ms)
        self._level = min(self.per_s * 1_000, self._level + passed_ms * self.per_s)


class Rate:
    """The two buckets of a key; one that is None has no limit."""

    __slots__ = ("requests", "bytes")

    def __init__(self, *, requests_per_s: int | None, bytes_per_s: int | None) -> None:
        self.requests = None if requests_per_s is None else Bucket(requests_per_s)
        self.bytes = None if bytes_per_s is None else Bucket(bytes_per_s)

    def wait_ms(self, now_ms: int) -> int:
        return max(0 if each is None else each.wait_ms(now_ms) for each in (self.requests, self.bytes))

    def take_request(self, now_ms: int) -> None:
        if self.requests is not None:
            self.requests.take(1, now_ms=now_ms)

    def take_bytes(self, size: int, now_ms: int) -> None:
        if self.bytes is not None:
            self.bytes.take(size, now_ms=now_ms)

    def check(self, name: str, now_ms: int) -> None:
        """Count a request, or raise `RateLimited`."""
        for bucket, what in ((self.requests, "requests"), (self.bytes, "bytes")):
            wait_ms = 0 if bucket is None else bucket.wait_ms(now_ms)
            if bucket is not None and wait_ms:
                raise RateLimited(f"the key {name!r} may do {bucket.per_s} {what} per second", wait_ms)
        self.take_request(now_ms)


class Share:
    """So many percent of a limit for each key."""

    __slots__ = ("percent",)

    def __init__(self, percent: int = KEY_SHARE_PERCENT) -> None:
        self.percent = percent

    def most(self, caller: Caller, limit: int) -> int:
        """Return how many a caller may have where all may have ``limit``: at least one.

        >>> from penstock.broker.access import ANONYMOUS_ADMIN
        >>> Share(25).most(ANONYMOUS_ADMIN, 100), Share(25).most(Caller("shop", ()), 100)
        (100, 25)
        """
        return limit if caller.is_owner else max(1, limit * self.percent // 100)


class Holds:
    """What each key holds at this moment of something that all may have ``limit`` of."""

    def __init__(self, limit: int, share: Share, refusal: Callable[[int], Exception]) -> None:
        self._limit = limit
        self._share = share
        self._refusal = refusal
        self._held: Counter[str] = Counter()

    @contextmanager
    def one(self, caller: Caller) -> Iterator[None]:
        """Hold one more within this. Raises the refusal if the key holds its share already."""
        most = self._share.most(caller, self._limit)
        name = caller.name
        if not caller.is_owner and self._held[name] >= most:
            raise self._refusal(most)
        self._held[name] += 1
        try:
            yield
        finally:
            self._held[name] -= 1
            if not self._held[name]:
                del self._held[name]
