"""What all servers of a database share beside queues: its API keys, its audit log, and which servers there are.

The keys are one row, which every change replaces. The store does not read their text; see
`broker.api_keys`. Every change gives the row another revision, so a server that looks each second gets
the text only if it changed. There is no LISTEN, so that it works behind a pooler, too.

The row stays when the last key is revoked: a database that has had a key needs keys.

None of the servers leads. Each writes its row once a second. One whose row stands still for `LOST_MS` is gone. Two
processes of one name are a mistake: the second one serves all the same, and says so, but the row stays with the first
while that is heard.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

import msgspec
import psycopg
from psycopg import AsyncConnection

from penstock.runtime.interface import Dice, LogEventWriter, beside
from penstock.store.audit_log import Entry, decode_entry, encode_entry
from penstock.store.errors import StoreForbids, StoreRefuses, StoreUnreachable
from penstock.store.postgres.database import Database
from penstock.store.postgres.statements import statement
from penstock.telemetry import NODE_NAME_TAKEN
from penstock.version import __version__

_LOCK = b"LOCK TABLE %s.keyring IN SHARE ROW EXCLUSIVE MODE"
_READ = b"SELECT revision, CASE WHEN revision <> %%s THEN content END FROM %s.keyring"
_WRITE = b"""
INSERT INTO %s.keyring (revision, content) VALUES (1 + (random() * 4e18)::bigint, %%s)
ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, content = EXCLUDED.content
"""
# No revision is this one.
NONE = 0


class PostgresAuditLog:
    def __init__(
        self, database: Database, dice: Dice, leads: Callable[[], bool], *, bytes_max: int, age_ms_max: int
    ) -> None:
        """Keep entries in a database; only the store that ``leads`` trims."""
        self._database = database
        self._dice = dice
        self._leads = leads
        self._bytes_max = bytes_max
        self._age_ms_max = age_ms_max

    async def append(self, entries: Sequence[Entry]) -> None:
        # Each has a token, so that an append whose answer was lost can be made again.
        rows = [{"token": self._dice.token(), "at_ms": each.at_ms, "entry": _text(each)} for each in entries]
        await self._ask("append_audit", entries=msgspec.json.encode(rows).decode())

    async def newest(self, *, before: int | None, most: int) -> list[tuple[int, Entry]]:
        rows = await self._ask("read_audit", before=before, most=most)
        return [(position, decode_entry(text)) for position, text in rows]

    async def trim(self, now_ms: int) -> None:
        if self._leads():
            await self._ask("trim_audit", before_ms=now_ms - self._age_ms_max, bytes_max=self._bytes_max)

    async def _ask(self, name: str, **named: object) -> list[tuple[int, str]]:
        try:
            return await self._database.ask(name, **named)
        except psycopg.Error as error:
            raise StoreRefuses(f"the database did not do this: {error}") from error


def _text(entry: Entry) -> str:
    return encode_entry(entry).decode()


class KeyTable:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._schema = database.settings.schema.encode()

    async def read(self, revision: int) -> tuple[int, bytes | None] | None:
        """Return the revision of the keys, and what they are unless it is this one; None before the first key.

        Raises `StoreUnreachable`.
        """
        try:
            rows = await self._database.read(_READ % self._schema, (revision,))
        except psycopg.Error as error:
            raise StoreUnreachable(f"the database does not tell its keys: {error}") from error
        if not rows:
            return None
        newest, content = rows[0]
        return newest, None if content is None else bytes(content)

    async def change(self, change: Callable[[bytes | None], bytes]) -> None:
        """Replace the keys by what ``change`` makes of them; those who change them take turns."""
        async with self._database.transaction() as connection:
            await connection.execute(_LOCK % self._schema)
            found = await (await connection.execute(_READ % self._schema, (0,))).fetchone()
            content = change(None if found is None else bytes(found[1]))
            await connection.execute(_WRITE % self._schema, (content,))

    def audit_log(self, dice: Dice) -> PostgresAuditLog:
        """Where changes of keys are written down; servers trim it."""
        return PostgresAuditLog(self._database, dice, lambda: False, bytes_max=0, age_ms_max=0)

    async def reset(self) -> bool:
        """Forget all keys and that there were any; return whether there were."""
        async with self._database.transaction() as connection:
            done = await connection.execute(b"DELETE FROM %s.keyring" % self._schema)
            return done.rowcount > 0


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


@dataclass(slots=True)
class Identity:
    """Which server of a database this process is."""

    name: str
    # Of the process: a later one of the same name has another.
    incarnation: int
    # Where Kafka clients reach it, as HOST:PORT; "" if they do not.
    kafka: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A server, as it presents itself."""

    identity: Identity
    address: str
    # Serving, draining or stopped, at this moment.
    state: Callable[[], str]
    # Called when an operator wants it to stop.
    drain: Callable[[], None]


class NodeTable:
    def __init__(self, database: Database, now_ms: Callable[[], int]) -> None:
        self._database = database
        self._now_ms = now_ms

    async def brokers(self) -> list[tuple[str, str]]:
        """Return the servers that Kafka clients reach now: name, and HOST:PORT."""
        return [(name, kafka) for name, kafka in await self._database.ask("list_brokers", lost_ms=LOST_MS)]

    async def list(self) -> list[NodeRow]:
        """Return all servers of the database, those that have ended among them."""
        return [NodeRow(*row) for row in await self._database.ask("list_nodes")]

    @asynccontextmanager
    async def presenting(self, node: Node, log_event: LogEventWriter) -> AsyncIterator[None]:
        """Present a server for as long as this lasts, and say that it has stopped in the end."""
        try:
            async with beside(self._beat_on(node, log_event)):
                yield
        finally:
            with suppress(StoreUnreachable, StoreForbids, psycopg.Error, TimeoutError):
                async with asyncio.timeout(_FAREWELL_S):
                    await self._beat(node, STOPPED)

    async def _beat_on(self, node: Node, log_event: LogEventWriter) -> None:
        is_told = has_drained = is_presented = False
        me = node.identity
        while True:
            with suppress(StoreUnreachable, StoreForbids, psycopg.Error):
                is_to_drain = await self._beat(node, node.state())
                if is_to_drain is not None and not is_presented:
                    asked = {"kafka": me.kafka, "node": me.name, "incarnation": me.incarnation}
                    is_presented = bool(await self._database.ask("present_kafka", **asked))
                if is_to_drain is None and not is_told:
                    is_told = True
                    log_event(NODE_NAME_TAKEN, node=me.name)
                if is_to_drain and not has_drained:
                    has_drained = True
                    node.drain()
            await asyncio.sleep(_BEAT_S)

    async def _beat(self, node: Node, state: str) -> bool | None:
        me = node.identity
        (is_to_drain,) = await self._database.call_ungated(
            "beat", me.name, me.incarnation, node.address, __version__, state, self._now_ms(), LOST_MS
        )
        return is_to_drain if is_to_drain is None else bool(is_to_drain)
