"""Logins of browsers: a cookie that stands for a key, for some hours, at this server alone.

    Cookie: penstock_console=<256 bits>      X-Penstock-Console: 1

- The cookie is a number drawn here, and says nothing of the key. A session ends with its secret: when that is revoked,
  rotated away or expires, when nothing was asked for `IDLE_MS`, and in any case after `AGE_MS`. A restart ends all.
- A page of another site cannot use it. Browsers do not send the cookie with its requests (`SameSite=Strict`), cannot
  set the header for it without asking this server, and say in `Sec-Fetch-Site` and `Origin` who asks.
- Many logins of one key, or of many, take a bounded amount of memory: the session that was used longest ago goes first.
"""

import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256

from penstock.broker.access import Access, Caller

COOKIE = "penstock_console"
HEADER = b"x-penstock-console"
AGE_MS = 8 * 60 * 60 * 1_000
IDLE_MS = 60 * 60 * 1_000
SESSIONS_MAX = 1_000
_TOKEN_BYTES = 32


@dataclass(slots=True)
class Session:
    caller: Caller
    ends_at_ms: int
    used_at_ms: int


class Sessions:
    def __init__(self, access: Access, now_ms: Callable[[], int]) -> None:
        self._access = access
        self._now_ms = now_ms
        # By the hash of the cookie: who reads this memory cannot use it, and looking it up takes no telling time.
        self._sessions: OrderedDict[bytes, Session] = OrderedDict()

    def begin(self, caller: Caller) -> str:
        """Return the value of a new cookie."""
        token, now_ms = secrets.token_urlsafe(_TOKEN_BYTES), self._now_ms()
        self._sessions[_hash(token)] = Session(caller, now_ms + AGE_MS, now_ms)
        while len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return token

    def find(self, headers: Mapping[bytes, bytes]) -> Session | None:
        """Return the session that the cookie of a request stands for, if it may be used by it."""
        if not is_own_page(headers):
            return None
        token = _hash(cookie_of(headers))
        session, now_ms = self._sessions.get(token), self._now_ms()
        if session is None:
            return None
        is_over = now_ms >= session.ends_at_ms or now_ms >= session.used_at_ms + IDLE_MS
        if is_over or not self._access.is_good(session.caller):
            del self._sessions[token]
            return None
        session.used_at_ms = now_ms
        self._sessions.move_to_end(token)
        return session

    def caller_of(self, headers: Mapping[bytes, bytes]) -> Caller | None:
        session = self.find(headers)
        return None if session is None else session.caller

    def end(self, headers: Mapping[bytes, bytes]) -> None:
        self._sessions.pop(_hash(cookie_of(headers)), None)


def is_own_page(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from a page of this server, as far as its browser tells."""
    if HEADER not in headers or headers.get(b"sec-fetch-site", b"same-origin") != b"same-origin":
        return False
    origin = headers.get(b"origin")
    return origin is None or origin.partition(b"://")[2] == headers.get(b"host", b"")


def cookie_of(headers: Mapping[bytes, bytes]) -> str:
    """Return the value of the cookie; "" if there is none.

    >>> cookie_of({b"cookie": b"a=b; penstock_console=xyz"})
    'xyz'
    """
    for each in headers.get(b"cookie", b"").decode("latin-1").split(";"):
        name, _, value = each.strip().partition("=")
        if name == COOKIE:
            return value
    return ""


def _hash(token: str) -> bytes:
    return sha256(token.encode("latin-1", "replace")).digest()
