"""How a worker stops: nothing is lost, and nothing is held for longer than needed."""

import asyncio
import threading

import pytest

from penstock.client.message import Message
from penstock.client.worker import Worker
from tests.waiting import eventually, until_cancelled
from tests.worker.stage import staged

pytestmark = pytest.mark.real_time


async def test_work_that_runs_may_end_before_the_worker_stops() -> None:
    async with staged() as stage:
        await stage.queue.send_many([b"x"] * 20)
        go_on = asyncio.Event()

        @stage.worker.handler("orders", concurrency=5)
        async def work(message: Message) -> None:
            await go_on.wait()

        async with stage.running():
            await eventually(lambda: stage.stats().running == 5)
            # It is told to stop first, when this block ends.
            asyncio.get_running_loop().call_later(0.2, go_on.set)
        assert (stage.stats().done, await stage.count()) == (5, 15)


async def test_what_was_not_begun_is_given_back_at_once() -> None:
    async with staged(fifo=True) as stage:
        for number in range(10):
            await stage.queue.send(str(number), group="a")

        @stage.worker.handler("orders", concurrency=10)
        async def work(message: Message) -> None:
            if message.text == "3":
                stage.worker.stop()

        await stage.worker.run()
        assert stage.stats().returned == 6
        assert await stage.bodies() == [str(number) for number in range(4, 10)]


async def test_prefetched_messages_are_given_back_while_others_are_worked_on() -> None:
    async with staged() as stage:
        await stage.queue.send_many([b"x"] * 2_000)
        has_many = asyncio.Event()

        @stage.worker.handler("orders", concurrency=2)
        async def work(message: Message) -> None:
            # Looked at here, as all may be done before another task looks.
            if stage.stats().prefetched > 10:
                has_many.set()
            if has_many.is_set():
                await eventually(lambda: stage.stats().returned)

        async with asyncio.timeout(60), stage.running():
            await has_many.wait()
        stats = stage.stats()
        assert stats.returned > 0
        assert stats.done + await stage.count() == 2_000
        assert (await stage.queue.describe()).in_flight == 0


async def test_work_that_takes_longer_than_the_drain_is_cancelled_and_given_back() -> None:
    async with staged() as stage:
        await stage.queue.send("order")
        worker = Worker(stage.client, shutdown_timeout_s=0.1)
        ends: list[str] = []

        @worker.handler("orders")
        async def work(message: Message) -> None:
            worker.stop()
            try:
                await until_cancelled()
            finally:
                ends.append("cancelled")

        await worker.run()
        assert ends == ["cancelled"]
        assert await stage.bodies() == ["order"]


async def test_a_second_wish_to_stop_does_not_wait_for_work() -> None:
    async with staged() as stage:
        await stage.queue.send("order")
        worker = Worker(stage.client, shutdown_timeout_s=60)

        @worker.handler("orders")
        async def work(message: Message) -> None:
            worker.stop()
            worker.stop()
            await until_cancelled()

        async with asyncio.timeout(50):
            await worker.run()
        assert await stage.bodies() == ["order"]


async def test_a_thread_that_never_ends_does_not_keep_the_worker_from_stopping() -> None:
    async with staged() as stage:
        await stage.queue.send("order")
        worker = Worker(stage.client, shutdown_timeout_s=0.1)
        go_on = threading.Event()

        @worker.handler("orders")
        def work(message: Message) -> None:
            worker.stop()
            go_on.wait(60)

        async with asyncio.timeout(50):
            await worker.run()
        assert await stage.bodies() == ["order"]
        go_on.set()


async def test_a_cancelled_worker_gives_back_what_it_has_in_hand() -> None:
    async with staged() as stage:
        await stage.queue.send("order")
        began = asyncio.Event()

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            began.set()
            await until_cancelled()

        run = asyncio.ensure_future(stage.worker.run())  # noqa: TID251 - to be cancelled, and awaited below.
        await began.wait()
        run.cancel()
        await asyncio.wait([run], timeout=50)
        assert run.cancelled()
        assert await stage.bodies() == ["order"]


async def test_a_worker_that_has_stopped_may_run_again() -> None:
    async with staged() as stage:
        worked: list[str] = []

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            worked.append(message.text)

        for text in ("first", "second"):
            await stage.queue.send(text)
            await stage.worker.run(until_idle=True)
        assert worked == ["first", "second"]


async def test_a_worker_without_handlers_says_so() -> None:
    with pytest.raises(RuntimeError, match="no handlers"):
        await Worker("http://127.0.0.1:1").run()


async def test_a_worker_that_runs_cannot_be_run_again() -> None:
    async with staged() as stage:

        @stage.worker.handler("orders")
        async def work(message: Message) -> None: ...

        async with stage.running():
            await eventually(stage.worker.stats)
            with pytest.raises(RuntimeError, match="runs already"):
                await stage.worker.run()


def test_stopping_a_worker_that_does_not_run_changes_nothing() -> None:
    worker = Worker("http://127.0.0.1:1")
    worker.stop()
    assert worker.stats() == {}
