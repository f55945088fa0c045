"""Ask a server over HTTP: one connection that is kept, and a second try where that may help.

Busy (429), not ready (503), lost by a proxy (502, 504) and a connection that broke are tried again, each time after a
longer while; a server that restarts is back by then. Every request of a `ServerClient` reads, or is idempotent, so it
can be repeated. Any other status than 200 or 201 is an error with the words of the server.

The module imports only the standard library: executors run it.
"""

import http.client
import json
import random
import socket
import ssl
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

ARROW = "application/vnd.apache.arrow.stream"
_NO_ARROW = (
    "has no Arrow, in which jobs read: install it where that server runs, not here; there, "
    "pip install 'penstock[arrow]', and start it again. Or read its data folder, or its database"
)
BATCHES = "application/vnd.penstock.record-batches"
TRIES_MAX = 9
# For a person who waits for the first output of a job: a wrong address is reported soon.
TRIES_BY_HAND = 3
WAIT_S_FIRST = 0.1
WAIT_S_MAX = 5.0
ANSWER_S_MAX = 120.0
_QUEUES_PER_PAGE = 1_000
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
    """The server has not answered in any of the tries."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a request did not work, and when to try again, if the server says when."""

    text: str
    code: str = ""
    wait_s: float | None = None


@dataclass(frozen=True, slots=True)
class Response:
    status: int
    # The type of the body.
    kind: str
    body: bytes
    retry_after: str | None = None

    @property
    def problem(self) -> Problem:
        """What the server says is wrong: its problem (RFC 9457), or the beginning of the body."""
        try:
            said = json.loads(self.body)
        except ValueError:
            said = None
        found: dict[str, Any] = said if isinstance(said, dict) else {}
        text = f"{self.status} {self.body[:200].decode(errors='replace')}"
        code = str(found.get("code", ""))
        if code:
            where = "".join(f", {name} {found[name]}" for name in ("field", "limit") if name in found)
            text = f"{self.status} {code}: {found.get('detail', '')}{where}"
        wait_s = found.get("retry_after_s", self.retry_after)
        try:
            return Problem(text, code, None if wait_s is None else max(0.0, float(str(wait_s))))
        except ValueError:
            # It may also be a date; our server never sends one.
            return Problem(text, code)


class Connection:
    """A connection to a server, opened when it is needed. Not shared by threads, and not sent to executors."""

    def __init__(self, url: str, key: str, *, answer_s_max: float) -> None:
        parts = urlsplit(url)
        self._front = parts.path.rstrip("/")
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        self._connection = kind(parts.hostname or "", parts.port, timeout=answer_s_max)
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        # Whether there was a connection since the last `close`: if so, what was sent may have arrived.
        self.was_made = False

    def request(self, method: str, path: str, body: bytes | None, headers: Mapping[str, str]) -> None:
        if not self.was_made:
            self._connection.connect()
            self.was_made = True
        self._connection.request(method, self._front + path, body, {**self._headers, **headers})

    def response(self) -> Response:
        answer = self._connection.getresponse()
        kind = answer.headers.get_content_type() if "content-type" in answer.headers else ""
        return Response(answer.status, kind, answer.read(), answer.headers.get("retry-after"))

    def close(self) -> None:
        self._connection.close()
        self.was_made = False


class ServerClient:
    """A server, by its address. Each executor makes its own."""

    def __init__(self, url: str, key: str, *, tries_max: int = TRIES_MAX) -> None:
        self._url = url
        self._tries_max = tries_max
        self._connection = Connection(url, key, answer_s_max=ANSWER_S_MAX)

    def json(self, path: str, **query: object) -> Any:
        return json.loads(self._answer("GET", _with(path, query), "application/json"))

    def arrow(self, path: str, **query: object) -> bytes:
        return self._answer("GET", _with(path, query), ARROW)

    def batches(self, path: str, **query: object) -> bytes:
        return self._answer("GET", _with(path, query), BATCHES)

    def post(self, path: str, content: object) -> Any:
        """Have the server do something that does no harm when it is done twice."""
        return json.loads(self._answer("POST", path, "application/json", json.dumps(content).encode()))

    def queues(self) -> Iterator[dict[str, Any]]:
        """Yield all queues, as a list of them tells each."""
        cursor: str | None = ""
        while cursor is not None:
            page = self.json("/api/queues", limit=_QUEUES_PER_PAGE, cursor=cursor)
            yield from page["queues"]
            cursor = page["next_cursor"]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def _answer(self, method: str, path: str, accept: str, content: bytes | None = None) -> bytes:
        asked = f"{method} {path}"
        headers = {"Accept": accept} if content is None else {"Accept": accept, "Content-Type": "application/json"}
        trouble, wait_s = "", 0.0
        for tried in range(self._tries_max):
            time.sleep(wait_s)
            wait_s = min(WAIT_S_FIRST * 2**tried, WAIT_S_MAX) * random.uniform(0.5, 1)
            try:
                self._connection.request(method, path, content, headers)
                response = self._connection.response()
            except (http.client.HTTPException, ConnectionError, TimeoutError) as error:
                self._connection.close()
                trouble = f"{type(error).__name__}: {error}"
                continue
            except OSError as error:
                raise ServerUnreachable(f"{self._url} cannot be reached: {lasting_problem(error) or error}") from error
            if response.status in _DONE:
                if response.kind != accept:
                    # A page for people, at the address of something else.
                    found = f"it answers {asked} with {response.kind or 'bytes'}, not {accept}"
                    raise ServerRefused(f"{self._url} is no Penstock server: {found}", response.status)
                return response.body
            problem = response.problem
            trouble = f"it said {problem.text}"
            if response.status == http.HTTPStatus.NOT_ACCEPTABLE and accept == ARROW:
                raise ServerRefused(f"{self._url} {_NO_ARROW}", response.status)
            if response.status not in _AGAIN:
                raise ServerRefused(f"{self._url} refused {asked}: {problem.text}", response.status)
            wait_s = max(wait_s, min(problem.wait_s or 0.0, WAIT_S_MAX))
        raise ServerUnreachable(f"{self._url} has not answered {asked} in {self._tries_max} tries; last, {trouble}")


def is_server(url: str) -> bool:
    """Whether this can be the address of a server. A user, a password and a query are refused: no server takes them.

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
    """Whether a header can carry this key. An error about it must not show the key.

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


def _with(path: str, query: dict[str, object]) -> str:
    return f"{path}?{urlencode(query)}" if query else path
