"""Redrives in a table of the database; satisfies `store.kept_redrives.KeptRedrives`.

Each verb is one statement that does no harm if it is run twice, so one whose answer was lost
is run again. Who runs a redrive is in its row: to take over, and to note, checks that in
the same statement.
"""

from typing import Any

import psycopg

from penstock.contract.limits import REDRIVES_KEPT_MAX, REDRIVES_MAX
from penstock.store.errors import StoreRefuses
from penstock.store.interface import LOST_MS, KeptRedrive
from penstock.store.postgres.database import Database


class PostgresRedrives:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, redrive: KeptRedrive, *, runner: int) -> bool:
        begun = await self._ask(
            "begin_redrive",
            id=redrive.id,
            queue=redrive.queue,
            order=redrive.order,
            state=redrive.state,
            progress=redrive.progress,
            now_ms=redrive.started_at_ms,
            runner=runner,
            running_max=REDRIVES_MAX,
            kept_max=REDRIVES_KEPT_MAX,
        )
        return bool(begun)

    async def note(self, redrive: KeptRedrive, *, runner: int, now_ms: int) -> bool | None:
        noted = await self._ask(
            "note_redrive",
            id=redrive.id,
            state=redrive.state,
            progress=redrive.progress,
            ended_at_ms=redrive.ended_at_ms,
            runner=runner,
            now_ms=now_ms,
        )
        return bool(noted[0][0]) if noted else None

    async def hold(self, *, runner: int, now_ms: int, takes_over: bool) -> list[KeptRedrive]:
        rows = await self._ask(
            "hold_redrives", runner=runner, now_ms=now_ms, lost_ms=now_ms - LOST_MS, takes_over=takes_over
        )
        return [_kept(row) for row in rows]

    async def let_go(self, *, runner: int) -> None:
        await self._ask("let_go_of_redrives", runner=runner)

    async def stop(self, queue: str, task_id: str, *, state: str, now_ms: int) -> None:
        await self._ask("stop_redrive", id=task_id, queue=queue, stopped=state, now_ms=now_ms, lost_ms=now_ms - LOST_MS)

    async def of(self, queue: str) -> list[KeptRedrive]:
        return [_kept(row) for row in await self._ask("list_redrives", queue=queue)]

    async def find(self, queue: str, task_id: str) -> KeptRedrive | None:
        # No text of a database has a NUL.
        rows = [] if "\0" in task_id else await self._ask("find_redrive", queue=queue, id=task_id)
        return _kept(rows[0]) if rows else None

    async def _ask(self, name: str, **named: Any) -> list[Any]:
        try:
            return await self._database.ask(name, **named)
        except psycopg.Error as error:
            # Whoever notes tries again, whatever it was; a redrive does not die of it.
            raise StoreRefuses(f"the database did not do this: {error}") from error


def _kept(row: Any) -> KeptRedrive:
    task_id, queue, order, state, progress, started_at_ms, ended_at_ms, is_to_stop = row
    return KeptRedrive(
        id=task_id,
        queue=queue,
        order=order,
        state=state,
        progress=progress,
        started_at_ms=started_at_ms,
        ended_at_ms=ended_at_ms,
        is_to_stop=is_to_stop,
    )
