"""One chunk over HTTP: sent, waited for, tried again, or refused with a reason.

Only the standard library is used, because executors have little else. A connection is kept
open from chunk to chunk.

    201               done
    429, 503, 507     the server did nothing and says when to come back; of a chunk for several
                      partitions of a topic it may have done some
    no answer, 502,   it may have been done or not; the same send again is harmless,
    504               since the chunk carries its sender and sequence
    no connection     nothing was done; it is tried again, unless no second try can mend it
    any other 5xx     it may have been done or not, and another try is left to a later run
    anything else     the server did nothing, and never will

All waiting of one chunk together is bounded. `SendFailed.is_unsure` says whether the chunk
may have been sent nevertheless.
"""

import http.client
import json
import logging
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn, TypeAlias
from urllib.parse import quote

from penstock.frame import BadFrame
from penstock.pipeline.http import BATCHES, Connection, Problem, lasting_problem
from penstock.wire.frames import FRAME_TYPE, decode_sent

_log = logging.getLogger("penstock.pipeline")

ANSWER_S_MAX = 60.0
_FIRST_WAIT_S = 0.1
_WAIT_S_MAX = 10.0
_TOLD_AFTER_S = 5.0
_LATER = {429, 503, 507}
_UNANSWERED = {502, 504}
_SERVER_FAILED = 500
UNKNOWN = "producer_unknown"
_ADVICE = {
    "send_expired": "The job was used for other rows at this place before: name another job",
    UNKNOWN: "The server has forgotten this job, or lost what it sent: run it again, and it goes on under a new name",
    "out_of_order_sequence": "Another attempt of the task is ahead, and this one shall be run again; or the server has "
    "lost records that it had answered for",
    "producer_fenced": "A later batch of the stream has begun",
}


class SendFailed(Exception):
    """A chunk could not be sent; the message says why. ``is_unsure``: it may have been."""

    def __init__(self, text: str, *, is_unsure: bool, code: str = "") -> None:
        super().__init__(text)
        self.is_unsure = is_unsure
        self.code = code


@dataclass(frozen=True, slots=True)
class Answered:
    """The ids of the first and the last message of a chunk; of records, partition and offset."""

    first: str
    last: str


class _Address(NamedTuple):
    """Where a chunk goes, and how its answer is read."""

    noun: str
    path: str
    # What is added to the path when the chunk may have arrived already.
    again: str
    sent_type: str
    answer_type: str
    read: Callable[[bytes], Answered]


# What a task has to do while it waits for an answer.
Meanwhile: TypeAlias = Callable[[], None]


def _nothing() -> None:
    pass


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
        self._wait_s_max = wait_s_max
        self._now_s = now_s
        self._sleep = sleep
        self._connection = Connection(url, key, answer_s_max=ANSWER_S_MAX)

    def send(self, queue: str, body: bytes, *, meanwhile: Meanwhile = _nothing) -> Answered:
        """Send messages until it is done. Raises `SendFailed` when it is refused, or after the longest wait.

        ``meanwhile`` is done once, before the answer is waited for.
        """
        path = f"/api/queues/{queue}/messages"
        to = _Address(f"queue {queue}", path, "", FRAME_TYPE, FRAME_TYPE, _answered)
        return self._send(to, body, meanwhile=meanwhile)

    def produce(
        self,
        topic: str,
        partitions: Sequence[int],
        body: bytes,
        *,
        is_repeat: bool,
        meanwhile: Meanwhile = _nothing,
    ) -> Answered:
        """Send a record batch for each partition, as `send` does."""
        path = f"/api/topics/{quote(topic, safe='')}/records?partitions={','.join(map(str, partitions))}"
        path, again = (f"{path}&repeat=true", "") if is_repeat else (path, "&repeat=true")
        address = _Address(f"topic {topic}", path, again, BATCHES, "application/json", _produced)
        return self._send(address, body, is_partial=len(partitions) > 1, meanwhile=meanwhile)

    def _send(self, to: _Address, body: bytes, *, is_partial: bool = False, meanwhile: Meanwhile) -> Answered:
        began_s = self._now_s()
        deadline_s = began_s + self._wait_s_max
        is_unsure, is_told, tries = False, False, 0
        while True:
            tries += 1
            try:
                path = f"{to.path}{to.again if is_unsure else ''}"
                headers = {"content-type": to.sent_type, "accept": to.answer_type}
                self._connection.request("POST", path, body, headers)
                if tries == 1:
                    # What the task itself takes is not the server's fault.
                    asked_s = self._now_s()
                    meanwhile()
                    deadline_s += self._now_s() - asked_s
                response = self._connection.response()
            except (OSError, http.client.HTTPException) as error:
                # A connection that was never made has carried nothing.
                is_unsure |= self._connection.was_made
                self.close()
                problem = self._problem_of(error, is_unsure=is_unsure)
            else:
                if response.status == 201:
                    return to.read(response.body)
                problem = response.problem
                if response.status not in _LATER | _UNANSWERED:
                    _refuse(to.noun, problem, is_unsure=is_unsure or response.status >= _SERVER_FAILED)
                is_unsure |= response.status in _UNANSWERED or is_partial
            left_s = deadline_s - self._now_s()
            if left_s < _FIRST_WAIT_S:
                raise SendFailed(
                    f"{to.noun} at {self._url}: given up after {tries} tries in maxWait "
                    f"({self._wait_s_max:g} s); the last one said: {problem.text}",
                    is_unsure=is_unsure,
                )
            # Whatever wait a server names, there is one more try when the time is up.
            wait_s = min(_wait_s(problem, tries), left_s)
            is_told = is_told or self._tell(to, problem, waited_s=self._now_s() + wait_s - began_s)
            self._sleep(wait_s)

    def _tell(self, to: _Address, problem: Problem, *, waited_s: float) -> bool:
        """Log what a task waits for once it takes long, so that the task is not taken for dead."""
        if waited_s < _TOLD_AFTER_S:
            return False
        _log.warning(
            "penstock: %s at %s is tried again, for up to maxWait (%g s): %s",
            to.noun,
            self._url,
            self._wait_s_max,
            problem.text,
        )
        return True

    def _problem_of(self, error: Exception, *, is_unsure: bool) -> Problem:
        """Return what went wrong on the way; raises `SendFailed` if it will go wrong every time."""
        if trouble := lasting_problem(error):
            raise SendFailed(f"{self._url}: {trouble}", is_unsure=is_unsure) from error
        return Problem(f"{type(error).__name__}: {error}")

    def close(self) -> None:
        self._connection.close()


def _answered(answer: bytes) -> Answered:
    try:
        ids = decode_sent(answer)
    except BadFrame as error:
        raise SendFailed(f"what answers is no Penstock server: {error}", is_unsure=True) from None
    return Answered(ids[0], ids[len(ids) - 1])


def _produced(answer: bytes) -> Answered:
    try:
        batches = json.loads(answer)["batches"]
        first, last = (f"{each['partition']}@{each['offset']}" for each in (batches[0], batches[-1]))
    except (ValueError, LookupError, TypeError) as error:
        raise SendFailed(f"what answers is no Penstock server: {error!r}", is_unsure=True) from None
    return Answered(first, last)


def _refuse(noun: str, problem: Problem, *, is_unsure: bool) -> NoReturn:
    advice = f". {_ADVICE[problem.code]}" if problem.code in _ADVICE else ""
    is_unsure |= problem.code == "send_expired"
    raise SendFailed(f"{noun} refuses it: {problem.text}{advice}", is_unsure=is_unsure, code=problem.code)


def _wait_s(problem: Problem, tries: int) -> float:
    if problem.wait_s is not None:
        # All tasks that were turned away together shall not come back together. What a server says is a guess from the
        # past: a queue that gets its first worker now shall not stand empty for a minute.
        return min(_WAIT_S_MAX, problem.wait_s) * random.uniform(1.0, 1.25)
    return random.uniform(0.5, 1.0) * min(_WAIT_S_MAX, _FIRST_WAIT_S * 2.0 ** min(tries - 1, 10))
