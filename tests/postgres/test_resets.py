"""A backend that ends without having read what it was asked says so, and resets the connection.

Of a connection that was reset uvloop tells once, and then never again: also if there was something to read before.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
import uvloop

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.system import SystemClock, SystemDice
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.servers import shared_server
from tests.waiting import let_others_run

ROUNDS = 40


async def _with_backends_that_end() -> None:
    settings = PostgresSettings(url=shared_server().new_database(), connections_max=1)
    store = await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice(), has_upkeep=False)
    async with store:
        await store.create("orders", QueueSettings())
        # Whether the last word and the reset are noticed apart is chance.
        for _ in range(ROUNDS):
            await _send(store)
            (session,) = store._database._free
            await _end_unread(session.pid, _send(store))


async def _end_unread(pid: int, call: Coroutine[Any, Any, object]) -> None:
    """Let a backend end before it has read a call, and wait for the answer all the same."""
    os.kill(pid, signal.SIGSTOP)
    async with asyncio.timeout(60), asyncio.TaskGroup() as tasks:
        tasks.create_task(call)
        await let_others_run(3)
        os.kill(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGCONT)


async def _send(store: PostgresStore) -> object:
    return await store.send("orders", Drafts(bodies=[b"a"]))


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_call_that_was_never_read_is_made_again(run: Callable[[Coroutine[Any, Any, None]], None]) -> None:
    run(_with_backends_that_end())
