"""Asks a server over HTTP: one connection that is kept, and a second try where that may help.

Busy (429), not ready (503), lost by a proxy (502, 504) and a connection that broke are tried again, each time after a
longer while; a server that restarts is back by then. Every question here reads, or does
what may be done twice, so to ask twice is to ask once. Any other answer than 200 or 201 is an
error that says what the server said.

Only the standard library: executors run it.
"""

import http.client
import json
import random
import socket
import ssl
import time
from types import TracebackType
from typing import Any, NamedTuple, Self
from urllib.parse import urlencode, urlsplit


def is_server(url: str) -> bool:
    """Whether this can be the address of a server: a user, a password and a query are for nobody, and refused.

    >>> [is_server(url) for url in ("https://queues.example.com:8080/front", "queues:8080", "http://", "http://a:b@h")]
    [True, False, False, False]
    """
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        return False
    return is_good and not parts.query and not parts.fragment and parts.username is None


def is_key(key: str) -> bool:
    """Whether a header can carry this key. Who finds that it cannot says so without the key.

    >>> [is_key(key) for key in ("", "sesame", "two words", "sesame\\n", "clé")]
    [True, True, True, False, False]
    """
    return key.isascii() and key.isprintable()


def lasting_problem(error: BaseException) -> str:
    """Return what is wrong with the name or the TLS of a server, if no second try mends it; else nothing."""
    if isinstance(error, socket.gaierror) and error.errno == socket.EAI_NONAME:
        return "no machine is known by this name here"
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"its certificate is not trusted: {error.verify_message}. For an authority of your own, set SSL_CERT_FILE "
            "where the driver and the executors run"
        )
    if isinstance(error, ssl.SSLError) and error.reason == "WRONG_VERSION_NUMBER":
        return "what answers speaks no TLS: the address may begin with http://"
    return ""


ARROW = "application/vnd.apache.arrow.stream"
_NO_ARROW = (
    "has no Arrow, in which jobs read: install it where that server runs, not here; there, "
    "pip install 'penstock[arrow]', and start it again. Or read its data folder, or its database"
)
BATCHES = "application/vnd.penstock.record-batches"
TRIES_MAX = 9
# Of a person who waits for the first word of a job: a wrong address shall not take long to be told.
TRIES_BY_HAND = 3
WAIT_S_FIRST = 0.1
WAIT_S_MAX = 5.0
ANSWER_S_MAX = 120.0
_AGAIN = frozenset({429, 502, 503, 504})
_DONE = frozenset({200, 201})


class ServerRefused(Exception):
    """The server has answered, and not with what was asked for."""

    def __init__(self, said: str, status: int) -> None:
        super().__init__(said, status)
        self.status = status

    def __str__(self) -> str:
        return str(self.args[0])


class ServerUnreachable(Exception):
    """The server has not answered, however often it was asked."""


class Said(NamedTuple):
    status: int
    # Seconds to wait before the next try, as the server has it.
    wait_s: float
    # The type of what it says.
    kind: str
    body: bytes


class Asking:
    """A server, by its address. Not shared by threads, and not sent to executors: each makes its own."""

    def __init__(self, url: str, key: str, *, tries_max: int = TRIES_MAX) -> None:
        self._url = url
        self._tries_max = tries_max
        parts = urlsplit(url)
        self._front = parts.path.rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=ANSWER_S_MAX)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}

    def json(self, path: str, **query: object) -> Any:
        return json.loads(self._answer("GET", _with(path, query), "application/json"))

    def arrow(self, path: str, **query: object) -> bytes:
        return self._answer("GET", _with(path, query), ARROW)

    def batches(self, path: str, **query: object) -> bytes:
        return self._answer("GET", _with(path, query), BATCHES)

    def post(self, path: str, content: object) -> Any:
        """Have the server do something that does no harm when it is done twice."""
        return json.loads(self._answer("POST", path, "application/json", json.dumps(content).encode()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def _answer(self, method: str, path: str, accept: str, content: bytes | None = None) -> bytes:
        asked = f"{method} {path}"
        trouble, wait_s = "", 0.0
        for tried in range(self._tries_max):
            time.sleep(wait_s)
            wait_s = min(WAIT_S_FIRST * 2**tried, WAIT_S_MAX) * random.uniform(0.5, 1)
            try:
                said = self._ask(method, path, accept, content)
            except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
                self._connection.close()
                trouble = f"{type(error).__name__}: {error}"
                continue
            except OSError as error:
                raise ServerUnreachable(f"{self._url} cannot be reached: {lasting_problem(error) or error}") from error
            if said.status in _DONE:
                self._check_kind(said, asked, accept)
                return said.body
            trouble = f"it said {_problem(said)}"
            if said.status == http.HTTPStatus.NOT_ACCEPTABLE and accept == ARROW:
                raise ServerRefused(f"{self._url} {_NO_ARROW}", said.status)
            if said.status not in _AGAIN:
                raise ServerRefused(f"{self._url} refused {asked}: {_problem(said)}", said.status)
            wait_s = max(wait_s, min(said.wait_s, WAIT_S_MAX))
        raise ServerUnreachable(f"{self._url} has not answered {asked} in {self._tries_max} tries; last, {trouble}")

    def _check_kind(self, said: Said, asked: str, accept: str) -> None:
        """Tell a page for people, at the address of something else, from what was asked for."""
        if said.kind != accept:
            found = f"it answers {asked} with {said.kind or 'bytes'}, not {accept}"
            raise ServerRefused(f"{self._url} is no Penstock server: {found}", said.status)

    def _ask(self, method: str, path: str, accept: str, content: bytes | None) -> Said:
        headers = {**self._headers, "Accept": accept}
        if content is not None:
            headers["Content-Type"] = "application/json"
        self._connection.request(method, self._front + path, content, headers)
        answer = self._connection.getresponse()
        wait = answer.headers.get("Retry-After", "")
        kind = answer.headers.get_content_type() if "content-type" in answer.headers else ""
        return Said(answer.status, float(wait) if wait.isdigit() else 0.0, kind, answer.read())


def _with(path: str, query: dict[str, object]) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _problem(said: Said) -> str:
    """Return what an answer says is wrong: its problem (RFC 9457), or the beginning of whatever it is."""
    try:
        problem = json.loads(said.body)
        return f"{said.status} {problem['code']}: {problem['detail']}"
    except (ValueError, KeyError, TypeError):
        return f"{said.status} {said.body[:200].decode(errors='replace')}"
