"""Who may ask a server that has no lock: programs on this machine, and pages that it serves itself.

A server on loopback needs no keys, because only this machine reaches it. But every
page in a browser on this machine does, too, whoever made it:

- A page may send a request to another site without asking it, as long as it looks like
  a form or an image. Browsers say so, in `Sec-Fetch-Site` and `Origin`.
- A page whose own name is made to point at 127.0.0.1 after it was loaded ("DNS
  rebinding") is of the same origin as we are. The name it was loaded by is in `Host`.

Both are refused, with a key or without: a page that was rebound can make up any header.
A server that other machines reach has keys; it has names that we do not know, and is
not wrapped in this.
"""

import ipaddress
from functools import lru_cache

from penstock.api.asgi import ASGIApplication, Receive, Scope, Send
from penstock.api.rest.errors import encode_problem, problem
from penstock.wire.problems import Problem

# No name is longer; what is cut off would not have been a name of ours.
_HOST_BYTES_MAX = 300


class LocalOnly:
    """An ASGI application before another one."""

    def __init__(self, application: ASGIApplication) -> None:
        self._application = application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = _refusal(scope)
        if found is None:
            await self._application(scope, receive, send)
            return
        body, headers = encode_problem(found)
        headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": found.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


def _refusal(scope: Scope) -> Problem | None:
    """Return why a request is refused; None if it is not."""
    hosts, found = [], {}
    for name, value in scope["headers"]:
        if name == b"host":
            hosts.append(value)
        elif name in {b"sec-fetch-site", b"origin"}:
            found[name] = value
    if len(hosts) != 1:
        # Before HTTP/1.1 there was none. No browser is that old.
        if not hosts and not found and scope["http_version"] != "1.1":
            return None
        return problem("bad_request", f"{len(hosts)} headers Host; there has to be one", field="Host")
    if not is_local(hosts[0][:_HOST_BYTES_MAX].decode("latin-1")):
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
    name = host.rpartition(":")[0] if ":" in host and not host.endswith("]") else host
    if name.lower().rstrip(".") == "localhost":
        return True
    try:
        return ipaddress.ip_address(name.removeprefix("[").removesuffix("]")).is_loopback
    except ValueError:
        return False


def _is_ours(scope: Scope, host: bytes, found: dict[bytes, bytes]) -> bool:
    site = found.get(b"sec-fetch-site")
    if site is None:
        return found[b"origin"] == f"{scope['scheme']}://".encode() + host
    if site in {b"same-origin", b"none"}:
        return True
    # A link from elsewhere to the documentation is followed.
    is_api: bool = scope["path"].startswith("/api/")
    return not is_api and scope["method"] == "GET"
