"""What becomes of messages that a worker works on."""

import asyncio
import logging
import threading
import time

import pytest

from penstock.client import QueueNotFound
from penstock.client.message import Message
from penstock.client.worker import LoggingMiddleware, Reject, Retry, RetryIn, Worker
from penstock.client.worker.attempt import CallNext
from penstock.wire.messages import Draft
from tests.waiting import eventually, let_others_run, until_cancelled
from tests.worker.stage import staged

pytestmark = pytest.mark.real_time


async def test_a_message_is_acked_when_its_work_is_done() -> None:
    async with staged() as stage:
        ids = list(await stage.queue.send_many([f"order {number}" for number in range(500)]))
        worked: list[str] = []

        @stage.worker.handler("orders", concurrency=20)
        async def work(message: Message) -> None:
            worked.append(message.id)

        await stage.worker.run(until_idle=True)
        assert sorted(worked) == sorted(ids)
        assert await stage.count() == 0
        assert stage.stats().done == 500


async def test_a_message_whose_work_fails_is_released_with_the_error() -> None:
    async with staged() as stage:
        message_id = await stage.queue.send("order 1")

        @stage.worker.handler("orders", retry={KeyError: 3_600})
        async def work(message: Message) -> None:
            raise KeyError("no such customer")

        await stage.worker.run(until_idle=True)
        seen = await stage.queue.get_message(message_id)
        assert seen.state == "delayed"
        assert str(seen.last_error).startswith("KeyError: 'no such customer'\n")
        assert "in work: raise KeyError" in str(seen.last_error)
        places = str(seen.last_error).splitlines()[1:]
        assert [place.split(":")[0].strip() for place in places] == ["tests/worker/test_working.py"]
        assert stage.stats().failed == 1


async def test_an_error_in_code_of_ours_is_told_with_the_frames_of_the_handler() -> None:
    async with staged() as stage:
        message_id = await stage.queue.send("order 1")

        @stage.worker.handler("orders", retry={QueueNotFound: 3_600})
        async def work(message: Message) -> None:
            await stage.client.queue("nowhere").send("x")

        await stage.worker.run(until_idle=True)
        told = str((await stage.queue.get_message(message_id)).last_error)
        assert "tests/worker/test_working.py" in told
        assert "src/penstock" not in told
        assert "penstock/client" not in told


async def test_a_worker_on_a_missing_queue_says_so_once_and_works_when_it_is_made(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with staged() as stage:
        worked: list[str] = []

        @stage.worker.handler("bills")
        async def work(message: Message) -> None:
            worked.append(message.text)

        async with stage.running():
            await eventually(lambda: "worker_queue_not_found" in caplog.text)
            await stage.client.create_queue("bills")
            await stage.client.queue("bills").send("first")
            await eventually(lambda: worked == ["first"])
    (said,) = [each.getMessage() for each in caplog.records if "worker_queue_not_found" in each.getMessage()]
    assert "queue not found" in said
    assert "penstock queue create bills" in said
    assert "worker_server_lost" not in caplog.text
    assert ".py" not in said


async def test_a_rejected_message_goes_straight_to_the_dead_letters() -> None:
    async with staged(max_deliveries=5) as stage:
        await stage.queue.send_many(["good", "bad", "worse"])
        calls: list[str] = []

        @stage.worker.handler("orders", retry={ValueError: Reject})
        async def work(message: Message) -> None:
            calls.append(message.text)
            if message.text == "bad":
                raise Reject("no such customer")
            if message.text == "worse":
                raise ValueError("not a number")

        await stage.worker.run(until_idle=True)
        await stage.queue.receive()
        dead = await stage.client.queue("orders.dead").receive(limit=10)
        assert sorted(calls) == ["bad", "good", "worse"]
        assert sorted((message.text, (message.last_error or "")[:16]) for message in dead) == [
            ("bad", "no such customer"),
            ("worse", "ValueError: not "),
        ]


async def test_work_is_tried_again_after_as_long_as_it_says() -> None:
    async with staged() as stage:
        await stage.queue.send("order")
        deliveries: list[int] = []

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            deliveries.append(message.delivery_count)
            if message.delivery_count < 3:
                raise RetryIn(0)

        await stage.worker.run(until_idle=True)
        assert deliveries == [1, 2, 3]
        assert await stage.count() == 0


async def test_work_never_runs_more_often_at_once_than_it_may() -> None:
    async with staged() as stage:
        await stage.queue.send_many([b"x"] * 100)
        at_once: list[int] = []
        running, is_full = 0, asyncio.Event()

        @stage.worker.handler("orders", concurrency=7)
        async def work(message: Message) -> None:
            nonlocal running
            running += 1
            at_once.append(running)
            if running == 7:
                is_full.set()
            await is_full.wait()
            # Others begin meanwhile, if they may.
            await let_others_run(20)
            running -= 1

        await stage.worker.run(until_idle=True)
        assert max(at_once) == 7
        assert len(at_once) == 100


async def test_plain_functions_run_in_threads_as_many_as_the_concurrency() -> None:
    async with staged() as stage:
        await stage.queue.send_many([b"x"] * 40)
        threads: set[str] = set()
        together = threading.Barrier(4, timeout=60)

        @stage.worker.handler("orders", concurrency=4)
        def work(message: Message) -> None:
            threads.add(threading.current_thread().name)
            together.wait()

        await stage.worker.run(until_idle=True)
        assert len(threads) == 4
        assert threading.main_thread().name not in threads
        assert stage.stats().done == 40


async def test_an_error_in_a_thread_is_released_like_any_other() -> None:
    async with staged() as stage:
        message_id = await stage.queue.send("order")

        @stage.worker.handler("orders", retry=Retry(min_backoff_s=3_600, jitter=False))
        def work(message: Message) -> None:
            next(iter([]))

        await stage.worker.run(until_idle=True)
        assert "StopIteration" in str((await stage.queue.get_message(message_id)).last_error)


async def test_work_that_takes_too_long_is_cancelled_and_tried_again() -> None:
    async with staged() as stage:
        message_id = await stage.queue.send("order")
        ends: list[str] = []

        @stage.worker.handler("orders", time_limit_s=0.05, retry=Retry(min_backoff_s=3_600, jitter=False))
        async def work(message: Message) -> None:
            try:
                await until_cancelled()
            finally:
                ends.append("cancelled")

        await stage.worker.run(until_idle=True)
        error = (await stage.queue.get_message(message_id)).last_error
        assert ends == ["cancelled"]
        assert error == "TimeLimitExceeded: the work took longer than 0.05 s"
        assert stage.stats().timed_out == 1


async def test_a_timeout_of_the_work_itself_is_an_error_like_any_other() -> None:
    async with staged() as stage:
        await stage.queue.send("order")

        @stage.worker.handler("orders", time_limit_s=30, retry={TimeoutError: Reject})
        async def work(message: Message) -> None:
            raise TimeoutError("the bank does not answer")

        await stage.worker.run(until_idle=True)
        assert stage.stats().rejected == 1
        assert stage.stats().timed_out == 0


async def test_a_thread_that_takes_too_long_keeps_its_place_until_it_ends() -> None:
    async with staged() as stage:
        await stage.queue.send_many(["slow", "quick"])
        go_on, order = threading.Event(), list[str]()

        @stage.worker.handler("orders", concurrency=1, time_limit_s=2, retry=Retry(min_backoff_s=3_600, jitter=False))
        def work(message: Message) -> None:
            if message.text == "slow":
                go_on.wait(60)
            order.append(message.text)

        async with stage.running():
            await eventually(lambda: stage.stats().abandoned_threads == 1)
            await let_others_run(100)
            assert order == []
            assert stage.stats().timed_out == 1
            go_on.set()
            await eventually(lambda: stage.stats().done == 1)
        assert order == ["slow", "quick"]
        assert stage.stats().abandoned_threads == 0


async def test_messages_of_a_fifo_group_are_worked_on_one_after_the_other() -> None:
    async with staged(fifo=True) as stage:
        drafts = [Draft(data=f"{group}{number}", group=group) for number in range(20) for group in "abcde"]
        await stage.queue.send_many(drafts)
        began: dict[str, list[str]] = {}
        running: set[str] = set()
        most = 0

        @stage.worker.handler("orders", concurrency=50)
        async def work(message: Message) -> None:
            nonlocal most
            group = message.group
            assert group is not None
            assert group not in running
            running.add(group)
            most = max(most, len(running))
            began.setdefault(group, []).append(message.text)
            # Others begin meanwhile, if they may.
            await let_others_run(20)
            running.discard(group)

        await stage.worker.run(until_idle=True)
        assert began == {group: [f"{group}{number}" for number in range(20)] for group in "abcde"}
        assert most == 5


async def test_when_one_of_a_fifo_group_fails_those_after_it_wait_for_it() -> None:
    async with staged(fifo=True, max_deliveries=3) as stage:
        await stage.queue.send_many([Draft(data=f"{number}", group="a") for number in range(5)])
        worked: list[str] = []

        @stage.worker.handler("orders", retry={ValueError: 0})
        async def work(message: Message) -> None:
            worked.append(message.text)
            if message.text == "2" and worked.count("2") < 3:
                raise ValueError("not yet")

        await stage.worker.run(until_idle=True)
        assert worked == ["0", "1", "2", "2", "2", "3", "4"]
        assert stage.stats().returned == 4


async def test_groups_of_a_standard_queue_are_worked_on_at_once() -> None:
    async with staged() as stage:
        await stage.queue.send_many([Draft(data="x", group="a")] * 6)
        together = asyncio.Barrier(6)

        @stage.worker.handler("orders", concurrency=6)
        async def work(message: Message) -> None:
            async with asyncio.timeout(60):
                await together.wait()

        await stage.worker.run(until_idle=True)
        assert stage.stats().done == 6


async def test_middleware_stands_around_the_work_the_first_outermost() -> None:
    async with staged() as stage:
        await stage.queue.send("order")
        story: list[str] = []

        def named(name: str):  # type: ignore[no-untyped-def]
            async def middleware(message: Message, call_next: CallNext) -> None:
                story.append(f"{name} in")
                await call_next(message)
                story.append(f"{name} out")

            return middleware

        stage.worker.use(named("first"))
        stage.worker.use(named("second"))

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            story.append("work")

        await stage.worker.run(until_idle=True)
        assert story == ["first in", "second in", "work", "second out", "first out"]


async def test_one_line_is_logged_for_each_message(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "penstock.worker")
    async with staged() as stage:
        await stage.queue.send_many(["good", "bad"])
        stage.worker.use(LoggingMiddleware())

        @stage.worker.handler("orders", retry={ValueError: 3_600})
        async def work(message: Message) -> None:
            if message.text == "bad":
                raise ValueError("what is that")

        await stage.worker.run(until_idle=True)
    lines = [record for record in caplog.records if getattr(record, "event", "") == "message_worked"]
    fields = sorted((record.__dict__["fields"] for record in lines), key=lambda each: str(each["outcome"]))
    assert [each["outcome"] for each in fields] == ["done", "failed"]
    assert fields[1]["error"] == "ValueError: what is that"
    assert {each["queue"] for each in fields} == {"orders"}
    assert all(each["duration_ms"] >= 0 for each in fields)


async def test_until_idle_waits_for_what_one_queue_sends_to_another() -> None:
    async with staged() as stage:
        await stage.client.create_queue("mail")
        await stage.queue.send_many(["a", "b"])
        mailed: list[str] = []

        @stage.worker.handler("orders")
        async def order(message: Message) -> None:
            # Meanwhile the other queue has nothing to do.
            await let_others_run(100)
            await stage.client.queue("mail").send(message.text)

        @stage.worker.handler("mail")
        async def mail(message: Message) -> None:
            await let_others_run(100)
            mailed.append(message.text)

        await stage.worker.run(until_idle=True)
        assert sorted(mailed) == ["a", "b"]


async def test_a_test_that_runs_until_idle_is_told_what_is_wrong() -> None:
    async with staged() as stage:

        @stage.worker.handler("nowhere")
        async def work(message: Message) -> None: ...

        with pytest.raises(ExceptionGroup) as raised:
            await stage.worker.run(until_idle=True)
        assert raised.value.subgroup(QueueNotFound) is not None


@pytest.mark.parametrize(
    "options",
    [{"concurrency": 0}, {"concurrency": 1_001}, {"time_limit_s": 0}, {"visibility_timeout": 0.0}],
)
def test_settings_that_cannot_be_are_refused_where_they_are_said(options: dict[str, float]) -> None:
    worker = Worker("http://127.0.0.1:1")
    with pytest.raises(ValueError, match=next(iter(options))):
        worker.handler("orders", **options)(print)  # type: ignore[arg-type]


def test_a_queue_has_one_handler_and_keeps_the_function_as_it_is() -> None:
    worker = Worker("http://127.0.0.1:1")

    def work(message: Message) -> str:
        return "called"

    assert worker.handler("orders")(work) is work
    with pytest.raises(ValueError, match="already"):
        worker.handler("orders")(work)
    assert worker.queues == ["orders"]


async def test_quick_work_is_not_held_up_by_its_settlements() -> None:
    async with staged() as stage:
        await stage.queue.send_many([b"x"] * 3_000)

        @stage.worker.handler("orders", concurrency=10)
        async def work(message: Message) -> None: ...

        began_s = time.process_time()
        await stage.worker.run(until_idle=True)
        # With a journal synced for each message by itself it would be half a minute.
        assert time.process_time() - began_s < 10
        assert stage.stats().done == 3_000
