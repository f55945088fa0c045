"""Queues in PostgreSQL while processes are killed: nothing that was confirmed is lost, and no effect comes twice.

The effects are rows that transactional handlers write. Workers are processes of their own, killed with `kill -9`
and replaced; the postmaster is killed, too, and started again on what it had synced.
"""

import asyncio
import multiprocessing
import time
from collections import Counter
from multiprocessing.context import SpawnProcess
from typing import Any

import psycopg
import pytest

import penstock
from tests.postgres.crowds import leased_by_all, left_in
from tests.postgres.races import raced
from tests.postgres.schemas import empty_schema
from tests.postgres.servers import Server

pytestmark = pytest.mark.real_time
QUEUE = "orders"
LEASE_S = 3
ROUNDS = 8


def _work(dsn: str) -> None:
    asyncio.run(_work_on(dsn))


async def _work_on(dsn: str) -> None:
    """Ship until killed; a database that is away is waited for."""
    worker = penstock.Worker(penstock.connect(dsn))

    @worker.handler(QUEUE, transactional=True, visibility_timeout=LEASE_S)
    async def ship(message: penstock.Message, connection: psycopg.AsyncConnection[Any]) -> None:
        await connection.execute("INSERT INTO shipped VALUES (%s)", (int(message.body),))

    await worker.run()


class Crew:
    """Worker processes; one that is killed has a successor."""

    def __init__(self, dsn: str, count: int) -> None:
        self._context = multiprocessing.get_context("spawn")
        self._dsn = dsn
        self._workers = [self._start() for _ in range(count)]

    def _start(self) -> SpawnProcess:
        worker = self._context.Process(target=_work, args=(self._dsn,))
        worker.start()
        return worker

    def replace(self, place: int) -> None:
        self._workers[place].kill()
        self._workers[place].join()
        self._workers[place] = self._start()

    def alive(self) -> int:
        return sum(worker.is_alive() for worker in self._workers)

    def end(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.join()


def _shipped(dsn: str) -> list[int]:
    with psycopg.connect(dsn) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM shipped").fetchall()]


def _wait_while_they_ship(dsn: str, confirmed: set[int]) -> None:
    """Return when everything is shipped, or nothing has been for longer than leases and rests last."""
    before, until = -1, 0.0
    while not confirmed <= set(found := _shipped(dsn)):
        if len(found) > before:
            before, until = len(found), time.monotonic() + 60
        if time.monotonic() > until:
            return
        time.sleep(0.5)  # Real time: between two looks.


async def _send(dsn: str, over: asyncio.Event, confirmed: set[int]) -> None:
    """Send numbers until it is over, some at a time, and remember those that were confirmed."""
    async with penstock.connect(dsn, timeout_s=60) as client:
        while not over.is_set():
            part = range(len(confirmed), len(confirmed) + 100)
            await client.queue(QUEUE).send_many([b"%d" % number for number in part])
            confirmed.update(part)
            # Slow enough that workers keep up.
            await asyncio.sleep(0.05)  # Real time: a rate.


@pytest.mark.parametrize("version", [None, 18])
def test_no_kill_loses_a_message_or_doubles_an_effect(version: int | None) -> None:
    with Server(version) as server:
        dsn = server.new_database()
        with psycopg.connect(dsn) as connection:
            connection.execute("CREATE TABLE shipped (number int)")
        with penstock.connect(dsn) as client:
            client.create_queue(QUEUE, max_deliveries=100)
        crew, confirmed = Crew(dsn, 4), set[int]()
        try:

            async def story() -> None:
                over = asyncio.Event()
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(_send(dsn, over, confirmed))
                    for round_number in range(ROUNDS):
                        await asyncio.sleep(1)  # Real time: between two kills.
                        await asyncio.to_thread(crew.replace, round_number % 4)
                        if round_number % 2:
                            await asyncio.to_thread(server.kill)
                            await asyncio.to_thread(server.start)
                    over.set()

            asyncio.run(story())
            _wait_while_they_ship(dsn, confirmed)
            # A worker outlives the database.
            assert crew.alive() == 4
        finally:
            crew.end()
        counted = Counter(_shipped(dsn))
        assert len(confirmed) > 1_000
        assert confirmed - counted.keys() == set(), f"{asyncio.run(left_in(dsn))} are in the queue"
        assert {number: count for number, count in counted.items() if count > 1} == {}


def test_eight_processes_lease_eighty_thousand_messages_once_each() -> None:
    with Server() as server:
        url = server.new_database()
        found = leased_by_all(url, processes=8, each=10_000)
        assert found == {b"%d/%d" % (number, nth): 1 for number in range(8) for nth in range(10_000)}
        assert asyncio.run(left_in(url)) == 0


@pytest.mark.parametrize("nth", range(40))
async def test_whatever_stores_answer_at_once_is_legal_from_many_seeds(seed: int, nth: int) -> None:
    race = await raced(empty_schema(), seed * 100 + nth)
    assert race.illegal() == []
