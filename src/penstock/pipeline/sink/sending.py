"""One chunk over HTTP: sent, waited for, tried again, or refused with a reason.

Only the standard library is used, because executors have little else. A connection is kept
open from chunk to chunk.

    201               done
    429, 503, 507     the server did nothing and says when to come back
    no answer, 502,   nobody knows whether it was done; the same send again is harmless,
    504               since the chunk carries its sender and sequence
    anything else     the server did nothing, and never will

All waiting of one chunk together is bounded. `SendFailed.is_unsure` says whether the chunk
may have been sent nevertheless.
"""

import http.client
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn
from urllib.parse import urlsplit

from penstock.frame import BadFrame
from penstock.wire.frames import FRAME_TYPE, decode_sent

ANSWER_S_MAX = 60.0
_FIRST_WAIT_S = 0.1
_WAIT_S_MAX = 10.0
_LATER = {429, 503, 507}
_UNANSWERED = {502, 504}


class SendFailed(Exception):
    """A chunk could not be sent; the message says why. ``is_unsure``: it may have been."""

    def __init__(self, text: str, *, is_unsure: bool) -> None:
        super().__init__(text)
        self.is_unsure = is_unsure


@dataclass(frozen=True, slots=True)
class Answered:
    """The ids of the first and the last message of a chunk."""

    first: str
    last: str


@dataclass(frozen=True, slots=True)
class Problem:
    """Why it did not work this time, and when the server wants to be asked again, if it says so."""

    text: str
    code: str = ""
    wait_s: float | None = None


class Sending:
    """A connection to a server, for the chunks of one task."""

    def __init__(
        self,
        url: str,
        key: str,
        *,
        wait_s_max: float,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._url = url
        self._prefix = urlsplit(url).path.rstrip("/")
        self._headers = {"content-type": FRAME_TYPE, "accept": FRAME_TYPE}
        if key:
            self._headers["authorization"] = f"Bearer {key}"
        self._wait_s_max = wait_s_max
        self._now_s = now_s
        self._sleep = sleep
        self._connection: http.client.HTTPConnection | None = None

    def send(self, queue: str, body: bytes) -> Answered:
        """Send until it is done. Raises `SendFailed` when it is refused, or after the longest wait."""
        deadline_s = self._now_s() + self._wait_s_max
        is_unsure, tries = False, 0
        while True:
            tries += 1
            try:
                status, headers, answer = self._post(queue, body)
            except (OSError, http.client.HTTPException) as error:
                self.close()
                # A connection that was refused has carried nothing.
                is_unsure |= not isinstance(error, ConnectionRefusedError)
                problem = Problem(f"{type(error).__name__}: {error}")
            else:
                if status == 201:
                    return _answered(answer)
                problem = _problem(status, headers, answer)
                if status not in _LATER | _UNANSWERED:
                    _refuse(queue, problem, is_unsure=is_unsure)
                is_unsure |= status in _UNANSWERED
            wait_s = _wait_s(problem, tries)
            if self._now_s() + wait_s > deadline_s:
                raise SendFailed(
                    f"queue {queue} at {self._url}: given up after {tries} tries in maxWait "
                    f"({self._wait_s_max:g} s); the last one said: {problem.text}",
                    is_unsure=is_unsure,
                )
            self._sleep(wait_s)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, queue: str, body: bytes) -> tuple[int, http.client.HTTPMessage, bytes]:
        if self._connection is None:
            self._connection = _connect(self._url)
        self._connection.request("POST", f"{self._prefix}/api/queues/{queue}/messages", body, self._headers)
        response = self._connection.getresponse()
        return response.status, response.headers, response.read()


def _connect(url: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    return kind(parts.hostname, parts.port, timeout=ANSWER_S_MAX)


def _answered(answer: bytes) -> Answered:
    try:
        ids = decode_sent(answer)
    except BadFrame as error:
        raise SendFailed(f"what answers is no Penstock server: {error}", is_unsure=True) from None
    return Answered(ids[0], ids[len(ids) - 1])


def _problem(status: int, headers: http.client.HTTPMessage, answer: bytes) -> Problem:
    found = _object(answer)
    code, detail = str(found.get("code", "")), str(found.get("detail", ""))
    where = "".join(f", {name} {found[name]}" for name in ("field", "limit") if name in found)
    text = f"{status} {code}: {detail}{where}" if code else f"{status} {answer[:200].decode(errors='replace')}"
    wait_s = found.get("retry_after_s", headers.get("retry-after"))
    try:
        return Problem(text, code, None if wait_s is None else max(0.0, float(str(wait_s))))
    except ValueError:
        # It may also be a date; our server never says one.
        return Problem(text, code)


def _refuse(queue: str, problem: Problem, *, is_unsure: bool) -> NoReturn:
    advice = ""
    if problem.code == "send_forgotten":
        advice = ". The job was used for other rows at this place before: name another job"
        is_unsure = True
    raise SendFailed(f"queue {queue} refuses it: {problem.text}{advice}", is_unsure=is_unsure)


def _wait_s(problem: Problem, tries: int) -> float:
    if problem.wait_s is not None:
        # All tasks that were turned away together shall not come back together.
        return problem.wait_s * random.uniform(1.0, 1.25)
    return random.uniform(0.5, 1.0) * min(_WAIT_S_MAX, _FIRST_WAIT_S * 2.0 ** min(tries - 1, 10))


def _object(answer: bytes) -> dict[str, object]:
    try:
        found = json.loads(answer)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
