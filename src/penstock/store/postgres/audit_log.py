"""The audit log in a table of the database, which all servers share; satisfies `store.audit_log.AuditLog`."""

from collections.abc import Callable, Sequence

import msgspec
import psycopg

from penstock.runtime.interface import Dice
from penstock.store.audit_log import Entry, decode_entry, encode_entry
from penstock.store.errors import StoreRefuses
from penstock.store.postgres.database import Database


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
