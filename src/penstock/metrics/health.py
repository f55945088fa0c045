"""Liveness, readiness, and a watchdog that finds long steps of the event loop.

    /health/live     200 as long as the event loop runs; without an answer, the server should be killed
    /health/ready    200, or 503 with reasons: the server should get no traffic, and not be killed

Neither needs a key: they show nothing about queues.

All work of a server happens in steps on one loop, so a long step delays every request. The
watchdog is a thread that asks the loop for a sign twice within the time that a step may take. If
none comes in time, it looks at what the loop is doing, and logs that when the sign has come at last.

The time from question to sign is the lag of the loop: one long step, or many short
ones. A stall that is shorter than half the bound may fall between two questions. Beside it
is logged how long the loop's thread had a processor meanwhile: where that is little, other
processes or threads had it, and no step of ours was long.
"""

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from penstock.runtime.interface import Histogram
from penstock.telemetry import SERVER_STALLED
from penstock.wire.problems import CODES, PROBLEM_TYPE, Problem

# A journal that has something to write and makes no progress for this long is behind.
BEHIND_S = 3.0

STARTING = "starting"
STOPPING = "stopping"
DISK_FULL = "disk_full"
DISK_BEHIND = "disk_behind"
HISTORY_BEHIND = "history_behind"
DATABASE_SILENT = "database_silent"
NOT_DURABLE = "not_durable"
CLOCK_DOUBTED = "clock_doubted"

# What a database makes sure of before it confirms a commit, the weakest first.
_STRENGTHS = ("one machine", "synchronous standby")
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Journal:
    """What a journal looks like from outside."""

    name: str
    size_bytes: int
    end_offset: int
    durable_offset: int
    # Whether sends are refused for want of space.
    is_full: bool
    # Whether more settled messages wait for the history than should.
    is_history_behind: bool
    # Whether the clock is so far ahead that time goes on without it.
    is_clock_doubted: bool = False
    # Records whose settled messages are not in the history yet.
    history_lag: int = 0


class Commits(Protocol):
    """What confirms the commits of a database."""

    @property
    def durability(self) -> str: ...
    @property
    def standbys_needed(self) -> int: ...
    @property
    def standbys(self) -> int | None: ...
    @property
    def refusal(self) -> str: ...
    @property
    def unconfirmed(self) -> int: ...


class Database(Protocol):
    """What a database looks like from outside."""

    @property
    def is_answering(self) -> bool: ...
    @property
    def commits(self) -> Commits: ...


class Health:
    """Starting at first. ``look`` looks at the journals, once there are any, and ``vitals`` at the databases."""

    def __init__(self) -> None:
        self.look: Callable[[], Sequence[Journal]] | None = None
        self.vitals: Callable[[], Sequence[Database]] | None = None
        self.is_stopping = False
        # What a crash may lose of what was answered, and by which policy; empty if nothing.
        self.fsync = ""
        self.may_lose = ""
        # By journal: how far it was durable, and when that was first seen.
        self._seen: dict[str, tuple[int, float]] = {}
        self._now = 0.0

    def watch(self, now: float) -> None:
        """Look how far the journals have come; to be called about every second."""
        self._now = now
        for journal in self.journals():
            seen = self._seen.get(journal.name)
            if seen is None or seen[0] != journal.durable_offset or journal.durable_offset == journal.end_offset:
                self._seen[journal.name] = journal.durable_offset, now

    def journals(self) -> Sequence[Journal]:
        return () if self.look is None else self.look()

    def reasons(self) -> list[str]:
        """Why the server is not ready; empty if it is."""
        if self.look is None:
            return [STARTING]
        journals, databases = self.journals(), self._databases()
        found = {
            STOPPING: self.is_stopping,
            DISK_FULL: any(journal.is_full for journal in journals),
            DISK_BEHIND: any(map(self._is_behind, journals)),
            HISTORY_BEHIND: any(journal.is_history_behind for journal in journals),
            DATABASE_SILENT: self._is_silent(),
            NOT_DURABLE: bool(databases) and all(database.commits.refusal for database in databases),
        }
        return [reason for reason, holds in found.items() if holds]

    def _is_silent(self) -> bool:
        """Whether no database answers. If one of several does not, the queues of the others need this server."""
        databases = self._databases()
        return bool(databases) and not any(database.is_answering for database in databases)

    def _databases(self) -> Sequence[Database]:
        return () if self.vitals is None else self.vitals()

    def _is_behind(self, journal: Journal) -> bool:
        offset, since = self._seen.get(journal.name, (-1, self._now))
        has_waited = self._now - since >= BEHIND_S
        return has_waited and journal.durable_offset == offset < journal.end_offset

    def routes(self) -> list[Route]:
        return [Route("/health/live", self._answer_live), Route("/health/ready", self._answer_ready)]

    async def _answer_live(self, _: Request) -> Response:
        return _json({"status": "live"})

    def warnings(self) -> list[str]:
        """What a person should look at, although the server is of use."""
        return [CLOCK_DOUBTED] if any(journal.is_clock_doubted for journal in self.journals()) else []

    async def _answer_ready(self, _: Request) -> Response:
        reasons, warnings = self.reasons(), self.warnings()
        said: dict[str, object] = {"status": "not_ready" if reasons else "ready", "reasons": reasons}
        databases = self._databases()
        if databases:
            # Of several, the weakest.
            said["durability"] = min((database.commits.durability for database in databases), key=_STRENGTHS.index)
            refusals = sorted({database.commits.refusal for database in databases} - {""})
            if refusals:
                said["refusals"] = refusals
        if self.may_lose:
            said |= {"fsync": self.fsync, "may_lose": self.may_lose}
        if warnings:
            said["warnings"] = warnings
        return _json(said, status=503 if reasons else 200)


def starting(health: Health) -> Router:
    """What is answered while the store is being opened: health, and that there is nothing else yet."""
    return Router(health.routes(), default=_not_yet, redirect_slashes=False)


async def _not_yet(scope: Any, receive: Any, send: Any) -> None:
    detail = "the server is starting: its store is being opened"
    await refused("starting", detail)(scope, receive, send)


def refused(code: str, detail: str) -> Response:
    """Return a problem of the table as an answer."""
    _, status, title, *_ = CODES[code]
    headers = {}
    if status == 401:
        headers["www-authenticate"] = 'Bearer realm="penstock"'
    elif status == 503:
        headers["retry-after"] = "1"
    body = _encode(Problem(title=title, status=status, code=code, detail=detail))
    return Response(body, status_code=status, media_type=PROBLEM_TYPE, headers=headers)


def _json(value: dict[str, object], *, status: int = 200) -> Response:
    return Response(
        _encode(value), status_code=status, media_type="application/json", headers={"cache-control": "no-store"}
    )


BOUNDS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
# At most one log event in this many seconds; the metric counts all.
LOGGED_EVERY_S = 1.0
_FRAMES_MAX = 6
_PACKAGE = "penstock"


class _Sign:
    """What the loop gives. It notes the time itself: the thread that asked may have to wait for a processor."""

    def __init__(self) -> None:
        self.given = threading.Event()
        self.at_s = self.cpu_s = 0.0

    def give(self) -> None:
        self.at_s = time.monotonic()
        self.cpu_s = time.thread_time() if sys.platform == "linux" else 0.0
        self.given.set()


class Watchdog:
    """Watches the loop of the thread in which it is made."""

    def __init__(self, stall_ms: int, log_event: Callable[..., None]) -> None:
        self._bound_s = stall_ms / 1_000
        self._log_event = log_event
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
        self._cpu_clock = time.pthread_getcpuclockid(self._watched) if sys.platform == "linux" else None
        self._stopped = threading.Event()
        # Set when the loop has been seen standing still.
        self.has_seen = threading.Event()
        self.lags = Histogram(BOUNDS_S)
        self.longest_s = self.longest_cpu_s = 0.0
        # How often each function of Penstock held up the loop; "" when none ran.
        self.stalls: Counter[str] = Counter()
        self._logged_at = -LOGGED_EVERY_S

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()

    def _watch(self) -> None:
        while not self._stopped.wait(self._bound_s / 2):
            sign = _Sign()
            asked_at, spent_s = time.monotonic(), self._cpu_s()
            try:
                self._loop.call_soon_threadsafe(sign.give)
            except RuntimeError:
                # The loop has been closed.
                return
            culprit = None if sign.given.wait(self._bound_s) else self._culprit()
            while not sign.given.wait(self._bound_s):
                if self._stopped.is_set():
                    return
            lag_s, cpu_s = sign.at_s - asked_at, sign.cpu_s - spent_s
            self._count(lag_s, cpu_s)
            if culprit is not None and lag_s > self._bound_s:
                self._note(culprit, lag_s, cpu_s)

    def _cpu_s(self) -> float:
        """Return how long the watched thread has had a processor; 0 where the system does not tell."""
        return time.clock_gettime(self._cpu_clock) if self._cpu_clock is not None else 0.0

    def _culprit(self) -> dict[str, str]:
        """Return what the loop is doing at this moment: the task, and Penstock's functions, the innermost first."""
        task = asyncio.current_task(self._loop)
        frame: FrameType | None = sys._current_frames().get(self._watched)
        functions: list[str] = []
        while frame is not None and len(functions) < _FRAMES_MAX:
            if str(frame.f_globals.get("__name__", "")).startswith(_PACKAGE):
                functions.append(f"{frame.f_globals['__name__']}.{frame.f_code.co_qualname}:{frame.f_lineno}")
            frame = frame.f_back
        self.has_seen.set()
        return {"task": _name(task), "at": " < ".join(functions)}

    def _count(self, lag_s: float, cpu_s: float) -> None:
        self.lags.add(lag_s)
        self.longest_s = max(self.longest_s, lag_s)
        self.longest_cpu_s = max(self.longest_cpu_s, cpu_s)

    def _note(self, culprit: dict[str, str], lag_s: float, cpu_s: float) -> None:
        self.stalls[culprit["at"].partition(":")[0]] += 1
        if time.monotonic() - self._logged_at >= LOGGED_EVERY_S:
            self._logged_at = time.monotonic()
            self._log_event(SERVER_STALLED, ms=round(lag_s * 1_000), cpu_ms=round(cpu_s * 1_000), **culprit)


def _name(task: "asyncio.Task[Any] | None") -> str:
    if task is None:
        return ""
    return str(getattr(task.get_coro(), "__qualname__", task.get_name()))


@asynccontextmanager
async def watching(stall_ms: int, log_event: Callable[..., None]) -> AsyncIterator[Watchdog | None]:
    """Watch over the running loop; 0 does not."""
    if not stall_ms:
        yield None
        return
    watchdog = Watchdog(stall_ms, log_event)
    watchdog.start()
    try:
        yield watchdog
    finally:
        watchdog.stop()
