"""What is remembered of messages that were worked on, so that they are worked on once."""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.client.idempotency import ClaimResult, IdempotencyStore, MemoryIdempotencyStore, SqliteIdempotencyStore
from penstock.client.idempotency_postgres import PostgresIdempotencyStore
from penstock.client.message import Message
from penstock.client.worker import Worker
from tests.postgres.servers import shared_server
from tests.worker.stage import staged

pytestmark = pytest.mark.real_time
BEGUN, DONE, TAKEN = ClaimResult.BEGUN, ClaimResult.DONE, ClaimResult.TAKEN


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


Make = Callable[[Path, Clock], IdempotencyStore]
every_seen = pytest.mark.parametrize(
    "make",
    [
        lambda folder, clock: MemoryIdempotencyStore(100, clock=clock),
        lambda folder, clock: SqliteIdempotencyStore(folder / "seen.db", 100, clock=clock),
        lambda folder, clock: PostgresIdempotencyStore(shared_server().new_database(), 100, clock=clock),
    ],
    ids=["memory", "sqlite", "postgres"],
)


@every_seen
async def test_what_is_done_is_remembered_until_it_expires(make: Make, tmp_path: Path) -> None:
    clock = Clock()
    seen = make(tmp_path, clock)
    assert await seen.begin("a", 10) is BEGUN
    await seen.finish("a")
    clock.now_s += 99
    assert await seen.begin("a", 10) is DONE
    clock.now_s += 1
    assert await seen.begin("a", 10) is BEGUN
    await seen.close()


@every_seen
async def test_work_in_progress_is_taken_until_the_claim_expires(make: Make, tmp_path: Path) -> None:
    clock = Clock()
    seen = make(tmp_path, clock)
    assert await seen.begin("a", 10) is BEGUN
    clock.now_s += 9
    assert await seen.begin("a", 10) is TAKEN
    await seen.extend("a", 10)
    clock.now_s += 9
    assert await seen.begin("a", 10) is TAKEN
    clock.now_s += 1
    assert await seen.begin("a", 10) is BEGUN
    await seen.close()


@every_seen
async def test_what_has_failed_may_be_begun_again_at_once(make: Make, tmp_path: Path) -> None:
    seen = make(tmp_path, Clock())
    assert await seen.begin("a", 10) is BEGUN
    await seen.forget("a")
    assert await seen.begin("a", 10) is BEGUN
    await seen.close()


async def test_in_memory_the_oldest_of_too_many_are_forgotten() -> None:
    seen = MemoryIdempotencyStore(100, most=3)
    for key in "abcd":
        await seen.begin(key, 10)
        await seen.finish(key)
    assert [await seen.begin(key, 10) for key in "abcd"] == [BEGUN, DONE, DONE, DONE]
    assert len(seen) == 3


async def test_who_lost_a_claim_cannot_give_away_that_of_another(tmp_path: Path) -> None:
    clock = Clock()
    slow, quick = (
        SqliteIdempotencyStore(tmp_path / "seen.db", clock=clock),
        SqliteIdempotencyStore(tmp_path / "seen.db", clock=clock),
    )
    await slow.begin("a", 10)
    clock.now_s += 10
    assert await quick.begin("a", 10) is BEGUN
    await slow.forget("a")
    await slow.extend("a", 1_000)
    assert await slow.begin("a", 10) is TAKEN
    clock.now_s += 10
    assert await slow.begin("a", 10) is BEGUN
    await slow.close()
    await quick.close()


async def test_a_file_remembers_what_was_done_before_it_was_closed(tmp_path: Path) -> None:
    first = SqliteIdempotencyStore(tmp_path / "seen.db")
    await first.begin("a", 10)
    await first.finish("a")
    await first.close()
    second = SqliteIdempotencyStore(tmp_path / "seen.db")
    assert await second.begin("a", 10) is DONE
    await second.close()


RACER = """
import asyncio, sys
from penstock.client.idempotency import SqliteIdempotencyStore, ClaimResult

async def race():
    seen, won = SqliteIdempotencyStore(sys.argv[1]), []
    for number in range(300):
        if await seen.begin(str(number), 60) is ClaimResult.BEGUN:
            won.append(number)
            await seen.finish(str(number))
    await seen.close()
    print(*won)

asyncio.run(race())
"""


def test_two_processes_on_one_file_never_both_begin_a_message(tmp_path: Path) -> None:
    command = [sys.executable, "-c", RACER, str(tmp_path / "seen.db")]
    racers = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    won = [[int(number) for number in racer.communicate(timeout=120)[0].split()] for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert sorted(won[0] + won[1]) == list(range(300))


@every_seen
async def test_a_message_that_was_done_is_acked_without_work(make: Make, tmp_path: Path) -> None:
    seen = make(tmp_path, Clock())
    async with staged() as stage:
        message_id = await stage.queue.send("order")
        await seen.begin(f"orders/{message_id}", 60)
        await seen.finish(f"orders/{message_id}")
        worked: list[str] = []

        @stage.worker.handler("orders", idempotency=seen)
        async def work(message: Message) -> None:
            worked.append(message.id)

        other_id = await stage.queue.send("another order")
        await stage.worker.run(until_idle=True)
        assert worked == [other_id]
        assert (stage.stats().duplicate, stage.stats().done, await stage.count()) == (1, 1, 0)


async def test_messages_may_be_known_by_what_is_in_them() -> None:
    async with staged() as stage:
        await stage.queue.send_many([{"order": 1}, {"order": 2}, {"order": 1}])
        worked: list[int] = []

        @stage.worker.handler(
            "orders",
            concurrency=1,
            idempotency=MemoryIdempotencyStore(),
            idempotency_key=lambda message: str(message.json()["order"]),
        )
        async def work(message: Message) -> None:
            worked.append(message.json()["order"])

        await stage.worker.run(until_idle=True)
        assert worked == [1, 2]


async def test_work_that_failed_is_not_taken_for_done(tmp_path: Path) -> None:
    async with staged() as stage:
        await stage.queue.send("order")
        deliveries: list[int] = []

        @stage.worker.handler("orders", idempotency=SqliteIdempotencyStore(tmp_path / "seen.db"), retry={ValueError: 0})
        async def work(message: Message) -> None:
            deliveries.append(message.delivery_count)
            if message.delivery_count == 1:
                raise ValueError("once")

        await stage.worker.run(until_idle=True)
        assert deliveries == [1, 2]


async def test_a_memory_that_cannot_be_asked_fails_the_message(tmp_path: Path) -> None:
    async with staged() as stage:
        message_id = await stage.queue.send("order")
        worked: list[str] = []

        @stage.worker.handler(
            "orders", idempotency=SqliteIdempotencyStore(tmp_path / "no such folder" / "seen.db"), retry={Exception: 90}
        )
        async def work(message: Message) -> None:
            worked.append(message.id)

        await stage.worker.run(until_idle=True)
        assert worked == []
        assert "OperationalError" in str((await stage.queue.get_message(message_id)).last_error)


async def test_a_claim_lasts_as_long_as_the_work_does(tmp_path: Path) -> None:
    async with staged(visibility_timeout=3) as stage:
        message_id = await stage.queue.send("order")
        seen = SqliteIdempotencyStore(tmp_path / "seen.db", clock=stage.clock)
        standings: list[ClaimResult] = []

        @stage.worker.handler("orders", idempotency=seen)
        async def work(message: Message) -> None:
            for _ in range(5):
                await asyncio.sleep(0.9)  # Real time: the lease of three seconds is extended meanwhile.
                standings.append(await seen.begin(f"orders/{message_id}", 3))

        await stage.worker.run(until_idle=True)
        assert standings == [TAKEN] * 5


def test_a_worker_is_not_needed_to_remember(tmp_path: Path) -> None:
    worker = Worker("http://127.0.0.1:1")
    worker.handler("orders", idempotency=SqliteIdempotencyStore(tmp_path / "seen.db"))(print)
    assert not (tmp_path / "seen.db").exists()
