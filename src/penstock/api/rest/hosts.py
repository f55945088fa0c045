"""The names that a server answers to; and on loopback, who may send requests to a server without keys.

A server on loopback needs no keys, because only this machine reaches it. But so does
every page in a browser on this machine, also a page of an attacker:

- A page may send a request to another site without permission, as long as it looks like
  a form or an image. Browsers mark such requests, in `Sec-Fetch-Site` and `Origin`. Older
  browsers do not. They are recognized by `User-Agent`, which a page cannot change, and may
  follow links and use our own pages, as `Referer` shows.
- A page whose own name is made to point at 127.0.0.1 after it was loaded ("DNS
  rebinding") has the same origin as this server. The name it was loaded by is in `Host`.

Both are refused, with a key or without: a rebound page can set any header.

A server that other machines reach has keys. Its names may be configured; behind a proxy they
must be, since a proxy passes on requests for any name. Then other names are refused.
Health probes use an address, and are always answered.
"""

import ipaddress
from collections.abc import Awaitable
from functools import lru_cache

from penstock.api.front import ASGIApplication, Receive, Scope, Send
from penstock.api.rest.errors import encode_problem, problem
from penstock.wire.problems import Problem

_SAID_BY_BROWSERS = frozenset({b"sec-fetch-site", b"origin", b"user-agent", b"referer"})
_SENT_FOR_PAGES = frozenset({b"sec-fetch-site", b"origin"})
# All browsers begin with it, and programs do not.
_OF_BROWSERS = b"Mozilla/"
# No valid name is longer.
_HOST_BYTES_MAX = 300


class NamedHosts:
    """An ASGI application before another one: for a server with names, which are in lower case.

    A server that ``is_on_loopback`` answers to names of loopback, too: a proxy beside it may use them.
    """

    def __init__(self, application: ASGIApplication, names: frozenset[str], *, is_on_loopback: bool) -> None:
        self._application = application
        self._names = names
        self._is_on_loopback = is_on_loopback

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        host = hosts[0][:_HOST_BYTES_MAX].decode("latin-1") if len(hosts) == 1 else ""
        if self._is_ours(host) or scope["path"].startswith("/health/"):
            return self._application(scope, receive, send)
        return _refuse(problem("wrong_host", "Host is no name of this server's", field="Host"), send)

    def _is_ours(self, host: str) -> bool:
        return _is_named(host, self._names) or (self._is_on_loopback and is_local(host))


class LoopbackGuard:
    """An ASGI application before another one: for a server that only this machine reaches, by these names, too."""

    def __init__(self, application: ASGIApplication, names: frozenset[str] = frozenset()) -> None:
        self._application = application
        self._names = names

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        found = _refusal(scope, self._names)
        return self._application(scope, receive, send) if found is None else _refuse(found, send)


async def _refuse(found: Problem, send: Send) -> None:
    body, headers = encode_problem(found)
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _is_named(host: str, names: frozenset[str]) -> bool:
    return _without_port(host).lower().rstrip(".") in names


def _without_port(host: str) -> str:
    return host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host


def _refusal(scope: Scope, names: frozenset[str]) -> Problem | None:
    """Return why a request is refused; None if it is not."""
    hosts, found = [], {}
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value)
        elif name in _SAID_BY_BROWSERS:
            found[name] = value
    if len(hosts) != 1:
        # Before HTTP/1.1 there was none. No browser is that old.
        if not hosts and not found.keys() & _SENT_FOR_PAGES and scope["http_version"] != "1.1":
            return None
        return problem("bad_request", f"{len(hosts)} headers Host; there has to be one", field="Host")
    host = hosts[0][:_HOST_BYTES_MAX].decode("latin-1")
    if not is_local(host) and not _is_named(host, names):
        name = hosts[0][:100].decode("latin-1")
        return problem("wrong_host", f"Host is {name!r}, which is no name of this machine's loopback", field="Host")
    if found and not _is_ours(scope, hosts[0], found):
        return problem("cross_site", "a page of another site asks; let a program ask instead")
    return None


@lru_cache(maxsize=64)
def is_local(host: str) -> bool:
    """Whether a `Host` is a name or an address of loopback, with a port or without.

    >>> [is_local(host) for host in ("127.0.0.1:8080", "[::1]:8080", "LOCALHOST", "localhost.evil.example", "10.0.0.1")]
    [True, True, True, False, False]
    """
    name = _without_port(host)
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _is_ours(scope: Scope, host: bytes, found: dict[bytes, bytes]) -> bool:
    site = found.get(b"sec-fetch-site")
    if site in {b"same-origin", b"none"}:
        return True
    if site is None:
        origin = f"{scope['scheme']}://".encode() + host
        if b"origin" in found:
            return found[b"origin"] == origin
        if not found.get(b"user-agent", b"").startswith(_OF_BROWSERS):
            return True
        if found.get(b"referer", b"").startswith(origin + b"/"):
            return True
    # A link from elsewhere to the documentation is followed. Verbs of SQS are asked for at the root, too.
    is_page = not scope["path"].startswith("/api/") and b"Action=" not in scope["query_string"]
    return is_page and scope["method"] == "GET"
