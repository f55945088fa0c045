"""Finds out whether a database is still there while calls wait for its answer.

    a call takes long → ask over a new connection ─┬→ no answer: everybody is hung up
                                                   └→ an answer: those that nobody works for are hung up

No bound fits every call: one may wait for a lock, or count ten million rows. So what takes long is not ended but asked
after. A call whose process in the database is idle has been answered long ago, and the answer was lost on its way.

While it is silent, one at a time tries to connect, and everybody else is refused at once: else each call would wait
its own ten seconds, those that wait for a place one after the other.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

import psycopg
from psycopg import AsyncConnection, errors

from penstock.store.postgres.reach import answered_within
from penstock.store.postgres.session import Lost, Session, Silent

# How often it is looked whether a call takes long, and how long nobody tries after somebody has failed.
LOOK_S = 1.0
# Processes that wait for the next statement, and have for a while. One that is not there proves nothing: the number is
# the one that PgBouncer tells, where that is in between.
_IDLE = """
SELECT pid FROM pg_stat_activity
WHERE pid = ANY (%s) AND state LIKE 'idle%%' AND state_change < clock_timestamp() - make_interval(secs => %s)
"""


class Lookout:
    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection]], *, wait_s: float, is_pooled: bool) -> None:
        self._connect = connect
        self._wait_s = wait_s
        self._is_pooled = is_pooled
        # Sessions that are lent, and since when, or when they were last found to be worked for.
        self._since: dict[Session, float] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.Task[None] | None = None
        self._is_silent = False
        self._trying = 0
        self._next_try = 0.0

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait([self._asking])

    # These two are on the way of every call.

    def lent(self, session: Session) -> None:
        loop = asyncio.get_running_loop()
        self._since[session] = loop.time()
        if self._timer is None:
            self._timer = loop.call_later(min(LOOK_S, self._wait_s), self._look)

    def returned(self, session: Session) -> None:
        self._since.pop(session, None)

    @property
    def is_silent(self) -> bool:
        """Whether it is known that nobody answers, so that it is not worth while to try right now."""
        return self._is_silent and (self._trying > 0 or asyncio.get_running_loop().time() < self._next_try)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Try to connect: whoever is refused has been answered."""
        self._trying += 1
        try:
            yield
        except errors.ConnectionTimeout:
            self._fall_silent()
            raise
        except psycopg.Error:
            self._is_silent = False
            raise
        else:
            self._is_silent = False
        finally:
            self._trying -= 1

    def _fall_silent(self) -> None:
        self._is_silent = True
        self._next_try = asyncio.get_running_loop().time() + LOOK_S

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(min(LOOK_S, self._wait_s), self._look) if self._since else None
        if self._asking is not None and not self._asking.done():
            return
        long = [session for session, since in self._since.items() if loop.time() - since >= self._wait_s]
        if long:
            self._asking = asyncio.create_task(self._ask_after(long))  # noqa: TID251 - close awaits it.

    async def _ask_after(self, sessions: list[Session]) -> None:
        """Hang up those of the sessions that wait for nothing."""
        began = {session: self._since.get(session) for session in sessions}
        try:
            lost = await self._lost(sessions)
        except Silent:
            lost = set(sessions)
        except (Lost, psycopg.Error):
            # It refuses: so it is there, or whoever is there ends those connections by itself.
            lost = set()
        now = asyncio.get_running_loop().time()
        for session, since in began.items():
            # It may have come back meanwhile, and be lent for another call.
            if since is None or self._since.get(session) != since:
                continue
            if session in lost:
                session.hang_up()
            self._since[session] = now

    async def _lost(self, sessions: list[Session]) -> set[Session]:
        async with await self._connect() as connection:
            try:
                with answered_within(connection, self._wait_s):
                    pids = [] if self._is_pooled else [session.pid for session in sessions]
                    idle = await (await connection.execute(_IDLE, (pids, self._wait_s))).fetchall()
            except psycopg.OperationalError as error:
                if not connection.closed:
                    raise
                self._fall_silent()
                raise Silent(str(error)) from error
        gone = {pid for (pid,) in idle}
        return {session for session in sessions if session.pid in gone}
