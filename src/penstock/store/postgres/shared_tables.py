"""What all servers of a database share beside queues: its API keys and its audit log.

The keys are one row, which every change replaces. The store does not read their text; see
`broker.api_keys`. Every change gives the row another revision, so a server that looks each second gets
the text only if it changed. There is no LISTEN, so that it works behind a pooler, too.

The row stays when the last key is revoked: a database that has had a key needs keys.
"""

from collections.abc import Callable, Sequence

import msgspec
import psycopg

from penstock.runtime.interface import Dice
from penstock.store.audit_log import Entry, decode_entry, encode_entry
from penstock.store.errors import StoreRefuses, StoreUnreachable
from penstock.store.postgres.database import Database

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
