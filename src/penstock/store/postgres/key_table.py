"""The API keys of a database: one row, which all its servers read and every change replaces.

What is in the text is no matter of the store; see `broker.api_keys`. Every change gives it
another revision, so that who looks each second is sent the text only if it is another one.
There is no LISTEN, so that it works behind a pooler, too.

The row stays when the last key is revoked: a database that has had a key needs keys.
"""

from collections.abc import Callable

import psycopg

from penstock.runtime.interface import Dice
from penstock.store.errors import StoreUnreachable
from penstock.store.postgres.audit_log import PostgresAuditLog
from penstock.store.postgres.database import Database

_LOCK = b"LOCK TABLE %s.keyring IN SHARE ROW EXCLUSIVE MODE"
_READ = b"SELECT revision, CASE WHEN revision <> %%s THEN content END FROM %s.keyring"
_WRITE = b"""
INSERT INTO %s.keyring (revision, content) VALUES (1 + (random() * 4e18)::bigint, %%s)
ON CONFLICT (id) DO UPDATE SET revision = EXCLUDED.revision, content = EXCLUDED.content
"""
# No revision is this one.
NONE = 0


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
