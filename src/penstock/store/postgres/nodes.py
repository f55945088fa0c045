"""The servers of a database: who is there, where, and what each does. None of them leads.

A server writes its row once a second. One whose row stands still for `LOST_MS` is gone. Two processes of one name are a
mistake: the second one serves all the same, and says so, but the row stays with the first while that is heard.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import psycopg
from psycopg import AsyncConnection

from penstock.runtime.interface import LogEventWriter
from penstock.store.errors import StoreForbids, StoreUnreachable
from penstock.store.postgres.database import Database
from penstock.store.postgres.statements import statement
from penstock.telemetry import NODE_NAME_TAKEN
from penstock.version import __version__

LOST_MS = 5_000
SERVING, DRAINING, STOPPED = "serving", "draining", "stopped"
_BEAT_S = 1.0
# A server that stops does not wait longer for its last word.
_FAREWELL_S = 2.0


@dataclass(frozen=True, slots=True)
class NodeRow:
    """What the others know of a server."""

    name: str
    address: str
    version: str
    state: str
    started_at_ms: int
    # How long ago it was heard.
    silent_ms: int
    is_to_drain: bool

    @property
    def is_live(self) -> bool:
        return self.state != STOPPED and self.silent_ms < LOST_MS

    @property
    def condition(self) -> str:
        """Its state, or that it is lost."""
        return self.state if self.state == STOPPED or self.is_live else "lost"


@dataclass(frozen=True, slots=True)
class StandbyRow:
    """A connection that receives the log; "" and None where the role may not see it."""

    name: str
    address: str
    state: str
    sync_state: str
    behind_bytes: int | None


async def list_nodes(connection: "AsyncConnection[object]", schema: str) -> list[NodeRow]:
    found = await connection.execute(statement("list_nodes", schema))
    return [NodeRow(*row) for row in await found.fetchall()]  # type: ignore[misc]


async def list_standbys(connection: "AsyncConnection[object]", schema: str) -> list[StandbyRow]:
    found = await connection.execute(statement("standbys", schema))
    return [StandbyRow(*row) for row in await found.fetchall()]  # type: ignore[misc]


async def drain_node(connection: "AsyncConnection[object]", schema: str, name: str) -> bool:
    """Ask a server to stop in good order; return whether there is one of this name."""
    found = await connection.execute(statement("drain_node", schema), {"name": name})
    return await found.fetchone() is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A server, as it presents itself."""

    name: str
    address: str
    incarnation: int
    # Serving, draining or stopped, at this moment.
    state: Callable[[], str]
    # Called when an operator wants it to stop.
    drain: Callable[[], None]


class NodeTable:
    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms

    @asynccontextmanager
    async def presenting(self, node: Node, log_event: LogEventWriter) -> AsyncIterator[None]:
        """Present a server for as long as this lasts, and say that it has stopped in the end."""
        beating = asyncio.create_task(self._beat_on(node, log_event))  # noqa: TID251 - It is awaited below.
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait([beating])
            with suppress(StoreUnreachable, StoreForbids, psycopg.Error, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._beat(node, STOPPED)

    async def _beat_on(self, node: Node, log_event: LogEventWriter) -> None:
        is_told = has_drained = False
        while True:
            with suppress(StoreUnreachable, StoreForbids, psycopg.Error):
                is_to_drain = await self._beat(node, node.state())
                if is_to_drain is None and not is_told:
                    is_told = True
                    log_event(NODE_NAME_TAKEN, node=node.name)
                if is_to_drain and not has_drained:
                    has_drained = True
                    node.drain()
            await asyncio.sleep(_BEAT_S)

    async def _beat(self, node: Node, state: str) -> bool | None:
        (is_to_drain,) = await self._database.call_ungated(
            "beat", node.name, node.incarnation, node.address, __version__, state, self._now_ms(), LOST_MS
        )
        return is_to_drain if is_to_drain is None else bool(is_to_drain)
