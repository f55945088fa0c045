"""What is tried again and what is not, in virtual time."""

import asyncio
from contextlib import aclosing
from itertools import pairwise

import pytest

from penstock.client import (
    BadRequest,
    ClientClosed,
    ConnectionFailed,
    PenstockError,
    QueueFull,
    ServerBusy,
    ServerError,
    StaleReceipt,
    Unauthorized,
)
from penstock.client.caller import Answer, AnswerTooLarge, NotSent, Unanswered
from penstock.client.delivery import WINDOW
from penstock.contract.limits import SENDER_SENDS_MAX
from penstock.wire import frames
from tests.client.scripted import Request, leased, problem, raises, scripted, sent, settled, settles_all
from tests.waiting import elapse

LOST = raises(Unanswered("the connection was lost"))


async def test_a_send_without_an_answer_is_repeated_as_it_was() -> None:
    async with scripted(LOST, LOST, sent) as (client, transport):
        await asyncio.gather(*(client.queue("q").send(b"x") for _ in range(10)))
        assert len(transport.requests) == 3
        assert len({request.body for request in transport.requests}) == 1


async def test_the_waits_between_tries_grow_and_have_an_end() -> None:
    async with scripted(*[LOST] * 12, sent) as (client, transport):
        await client.queue("q").send(b"x")
        times = [request.at_s for request in transport.requests]
        waits = [later - earlier for earlier, later in pairwise(times)]
        assert all(0.02 <= wait <= 2.01 for wait in waits)
        assert waits[-1] > waits[0] * 4


async def test_time_runs_out_for_each_caller_by_itself() -> None:
    async with scripted(LOST) as (client, _):
        loop, queue = asyncio.get_running_loop(), client.queue("q")
        ends: list[float] = []

        async def send(timeout_s: float) -> None:
            with pytest.raises(ConnectionFailed, match="lost"):
                await queue.send(b"x", timeout_s=timeout_s)
            ends.append(loop.time())

        start = loop.time()
        await asyncio.gather(send(30), send(0), send(5))
        waited = [round(end - start) for end in ends]
        assert waited[0] == 0
        assert 4 <= waited[1] <= 8
        assert 29 <= waited[2] <= 33


async def test_a_busy_server_is_asked_again_when_it_says() -> None:
    async with scripted(problem("journal_busy", retry_after_s=3.0), problem("stopping"), sent) as (client, transport):
        await client.queue("q").send(b"x")
        times = [request.at_s for request in transport.requests]
        assert 3.0 <= times[1] - times[0] <= 4.0
    async with scripted(problem("journal_busy"), timeout_s=5) as (client, transport):
        with pytest.raises(ServerBusy):
            await client.queue("q").receive()
        assert len(transport.requests) > 3


async def test_who_waits_for_messages_waits_after_a_pause_for_what_is_left_of_the_time() -> None:
    async def nothing(request: Request) -> Answer:
        await elapse(_wait_s(request))
        return Answer(204, {}, b"")

    async with scripted(problem("unreachable", retry_after_s=3.0), nothing) as (client, transport):
        assert await client.queue("q").receive(wait_s=5) is None
        first, second = map(_wait_s, transport.requests)
        assert first == 5
        assert 1.0 <= second <= 2.0
    async with scripted(problem("unreachable", retry_after_s=3.0), nothing) as (client, transport):
        assert await client.queue("q").receive(wait_s=2) is None
        assert [_wait_s(request) for request in transport.requests] == [2, 0]


def _wait_s(request: Request) -> float:
    return float(request.path.partition("wait_s=")[2])


@pytest.mark.real_time
async def test_a_lease_counts_from_the_try_that_was_answered() -> None:
    async with scripted(problem("journal_busy", retry_after_s=1.0), leased(1)) as (client, transport):
        batch = await client.queue("q").lease(limit=1, wait_s=0, visibility_timeout=30)
        assert batch is not None
        # The clock of the loop is the one that leases are counted by. A try begins just before its request is made.
        first, second = (request.at_s for request in transport.requests)
        assert first + 0.9 < batch._end.earliest_s - 30 <= second


async def test_a_server_that_is_starting_is_waited_for_and_says_so_if_asked() -> None:
    async def starting(request: Request) -> Answer:
        body = b'{"title":"The server is starting","status":503,"code":"starting","detail":"wait"}'
        return Answer(503, {"retry-after": "1"}, body)

    async def not_ready(request: Request) -> Answer:
        return Answer(503, {}, b'{"status":"not_ready","reasons":["starting"]}')

    async with scripted(starting, sent) as (client, transport):
        await client.queue("q").send(b"x")
        assert len(transport.requests) == 2
    async with scripted(not_ready) as (client, transport):
        assert (await client.health())["reasons"] == ["starting"]
        assert len(transport.requests) == 1


async def test_a_key_that_is_refused_is_not_tried_again() -> None:
    async with scripted(problem("unauthorized")) as (client, transport):
        for _ in range(2):
            with pytest.raises(Unauthorized) as caught:
                await client.queue("q").send(b"x")
            assert (caught.value.code, caught.value.status) == ("unauthorized", 401)
        assert len(transport.requests) == 2


async def test_what_must_not_happen_twice_is_repeated_only_if_it_was_not_sent() -> None:
    async with scripted(LOST, problem("bad_request")) as (client, transport):
        with pytest.raises(ConnectionFailed) as caught:
            await client.queue("q").delete()
        assert caught.value.is_sent
        assert len(transport.requests) == 1
    async with scripted(raises(NotSent("no connection")), problem("queue_not_found")) as (client, transport):
        with pytest.raises(PenstockError, match="queue_not_found"):
            await client.queue("q").delete()
        assert len(transport.requests) == 2


async def test_a_full_queue_is_tried_with_less_and_then_waited_for() -> None:
    full = problem("queue_full", retry_after_s=2.0)
    async with scripted(full, full, full, sent) as (client, transport):
        ids = await asyncio.gather(*(client.queue("q").send(b"%d" % row) for row in range(4)))
        sizes = [len(frames.decode_send(request.body).bodies) for request in transport.requests]
        # Half, and half again; the last one waits, and what goes through doubles.
        assert sizes == [4, 2, 1, 1, 2, 1]
        assert 2.0 <= transport.requests[3].at_s - transport.requests[2].at_s <= 2.6
        assert len(set(ids)) == 4
        # What was refused was stored under no sequence, so other messages do not go under the same.
        senders = [frames.decode_send(request.body).sender for request in transport.requests]
        assert [sender.sequence for sender in senders if sender is not None] == list(range(6))


async def test_a_full_queue_is_given_up_when_the_time_is_up() -> None:
    async with scripted(problem("queue_full", retry_after_s=60.0)) as (client, transport):
        start = asyncio.get_running_loop().time()
        with pytest.raises(QueueFull) as caught:
            await client.queue("q").send_many([b"x"] * 3, timeout_s=20)
        assert caught.value.sent == [None] * 3
        assert 20 <= asyncio.get_running_loop().time() - start <= 27
        assert len(transport.requests) >= 5


async def test_one_message_that_is_refused_is_found_and_the_others_go() -> None:
    async def refuses_five(request: Request) -> Answer:
        if b"five" in map(bytes, frames.decode_send(request.body).bodies):
            return await problem("bad_field", field="data")(request)
        return await sent(request)

    async with scripted(refuses_five) as (client, transport):
        bodies = [b"five" if row == 5 else b"x" for row in range(1000)]
        results = await asyncio.gather(*(client.queue("q").send(body) for body in bodies), return_exceptions=True)
        assert [row for row, result in enumerate(results) if isinstance(result, BadRequest)] == [5]
        assert len(set(map(str, results))) == 1000
        assert len(transport.requests) < 30


async def test_no_sequence_is_begun_too_far_above_one_without_an_answer() -> None:
    stuck = asyncio.Event()
    highest = 0

    async def first_is_stuck(request: Request) -> Answer:
        nonlocal highest
        sender = frames.decode_send(request.body).sender
        assert sender is not None
        highest = max(highest, sender.sequence)
        if sender.sequence == 0:
            await stuck.wait()
        return await sent(request)

    async with scripted(first_is_stuck) as (client, _):
        queue = client.queue("q")
        async with asyncio.TaskGroup() as tasks:
            for _ in range(200):
                tasks.create_task(queue.send_many([b"x"]))
            await elapse(1)
            assert highest == WINDOW - 1 < SENDER_SENDS_MAX // 2
            stuck.set()
        assert highest == 199


async def test_a_stale_answer_to_a_repeated_ack_is_done_if_the_lease_cannot_have_ended() -> None:
    async with scripted(leased(3), LOST, settled(0b000)) as (client, _):
        batch = await client.queue("q").receive(limit=3)
        assert await batch.ack() == [True] * 3
    async with scripted(leased(3, lasts_s=-1), LOST, settled(0b010)) as (client, _):
        batch = await client.queue("q").receive(limit=3)
        assert await batch.ack() == [False, True, False]
    async with scripted(leased(1), raises(NotSent("no connection")), settled(0)) as (client, _):
        message = await client.queue("q").receive()
        assert message is not None
        with pytest.raises(StaleReceipt):
            await message.ack()


async def test_a_clock_that_is_wrong_by_an_hour_hides_no_messages() -> None:
    async with scripted(leased(3, lasts_s=-3600), leased(3, lease=2, lasts_s=-3600), settles_all) as (client, _):
        seen = 0
        async with aclosing(client.queue("q").consume(prefetch=3)) as messages:
            async for message in messages:
                seen += 1
                if seen == 3:
                    break
                assert not message.leased.surely_held(1 << message.row)
        assert seen == 3
    async with scripted(leased(3, lasts_s=-3600), LOST, settled(0)) as (client, _):
        batch = await client.queue("q").receive(limit=3, visibility_timeout=30)
        # The length is known, so the time of day does not matter.
        assert await batch.ack() == [True] * 3


async def test_acks_of_one_turn_are_one_request_with_a_bit_for_each() -> None:
    async with scripted(leased(5, lease=1), leased(9, lease=2), settles_all) as (client, transport):
        queue = client.queue("q")
        first, second = await queue.receive(limit=5), await queue.receive(limit=9)
        await asyncio.gather(first[1].ack(), second[8].ack(), first[3].ack())
        (request,) = transport.requests[2:]
        assert frames.decode_settle(request.body).held == [(1, 7, 0b01010), (2, 7, 0b100000000)]


async def test_sends_of_one_turn_are_one_request_and_those_after_it_wait_for_it() -> None:
    async def slow(request: Request) -> Answer:
        await elapse(1)
        return await sent(request)

    async with scripted(slow) as (client, transport):
        queue = client.queue("q")
        async with asyncio.TaskGroup() as tasks:
            for turn in range(5):
                for _ in range(10):
                    tasks.create_task(queue.send(b"%d" % turn))
                await elapse(0.1)
        sizes = [len(frames.decode_send(request.body).bodies) for request in transport.requests]
        assert sizes == [10, 40]


async def test_an_answer_that_is_not_from_our_server_is_named_so() -> None:
    async def page(request: Request) -> Answer:
        return Answer(200, {}, b"<html>Welcome</html>")

    async def gateway(request: Request) -> Answer:
        return Answer(502, {}, b"<html>Bad gateway</html>")

    async with scripted(page) as (client, _):
        for call in (client.queue("q").send(b"x"), client.queue("q").receive(), client.queue("q").describe()):
            with pytest.raises(ServerError, match="Penstock"):
                await call
    async with scripted(gateway, sent) as (client, transport):
        await client.queue("q").send(b"x")
        assert len(transport.requests) == 2


async def test_messages_in_an_answer_that_is_too_large_are_not_asked_for_again() -> None:
    async with scripted(raises(AnswerTooLarge("too much"))) as (client, transport):
        with pytest.raises(ServerError, match="too much"):
            await client.queue("q").receive(limit=1000)
        # A second try would take what is left, and lose that too.
        assert len(transport.requests) == 1


async def test_a_cancelled_close_abandons_what_is_on_its_way() -> None:
    async with scripted(problem("journal_busy")) as (client, transport):
        async with asyncio.TaskGroup() as tasks:
            sending = tasks.create_task(_fails(client.queue("q").send(b"x"), ClientClosed))
            await elapse(1)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(3):
                    await client.close()
            await sending
        assert transport.is_closed


async def _fails(call: "asyncio.Future[str] | object", kind: type[Exception]) -> None:
    with pytest.raises(kind):
        await call  # type: ignore[misc]
