"""Acks and a lease in one request: asked for by the caller, brought along by `consume`, and by the worker."""

import pytest

import penstock
from penstock.client import BadRequest, Message, StaleReceipt
from penstock.client.worker import Worker
from tests.client.proxies import lossy_proxy
from tests.client.scripted import Request, leased, scripted
from tests.client.serving import Server
from tests.postgres.servers import shared_server

pytestmark = pytest.mark.real_time


@pytest.fixture(params=["http", "file", "memory", "postgres"])
def place(request: pytest.FixtureRequest) -> str:
    """A place with queues, on both stores."""
    if request.param == "postgres":
        return shared_server().new_database()
    if request.param == "http":
        server: Server = request.getfixturevalue("server")
        return server.url
    return "memory:" if request.param == "memory" else f"file:{request.getfixturevalue('tmp_path') / 'data'}"


async def test_one_request_acks_a_batch_and_brings_the_next(place: str, name: str) -> None:
    async with penstock.connect(place) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"%d" % number for number in range(5)])
        first = await queue.receive(limit=2)
        acked, second = await queue.ack_and_receive(first, limit=10)
        assert acked == [True, True]
        assert list(second.bodies) == [b"2", b"3", b"4"]
        # It waits for messages, and is answered without any.
        acked, third = await queue.ack_and_receive(second, limit=10, wait_s=0.05)
        assert (acked, len(third)) == ([True] * 3, 0)
        assert (await queue.describe()).current_message_count == 0


def test_a_stale_ack_is_told_and_brings_the_next_messages_all_the_same(place: str, name: str) -> None:
    with penstock.connect(place) as client:
        client.create_queue(name)
        queue = client.queue(name)
        queue.send_many([b"one", b"two", b"three"])
        one, two = queue.receive(limit=2)
        one.release(delay_s=100)
        acked, batch = queue.ack_and_receive([one, two.receipt], limit=10)
        assert acked == [False, True]
        assert [message.text for message in batch] == ["three"]
        assert batch[0].delivery_count == 1
        batch.ack()
        assert queue.describe().delayed == 1


async def test_nothing_to_ack_is_a_plain_receive(place: str, name: str) -> None:
    async with penstock.connect(place) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send("x")
        acked, batch = await queue.ack_and_receive([], limit=3)
        assert (acked, len(batch)) == ([], 1)


async def test_an_ack_whose_answer_was_lost_with_the_messages_is_done(server: Server, name: str) -> None:
    async with lossy_proxy(server.url) as proxy, penstock.connect(proxy.url) as client:
        await client.create_queue(name, visibility_timeout=30)
        queue = client.queue(name)
        await queue.send_many([b"one", b"two"])
        first = await queue.receive(limit=1)
        proxy.loses += ["/lease"]
        acked, second = await queue.ack_and_receive(first, limit=1)
        # The message of the lost answer comes back when its lease ends, as after any lost answer.
        assert (acked, len(second), proxy.lost) == ([True], 0, 1)
        assert (await queue.describe()).in_flight == 1


async def test_a_bad_request_to_both_acks_nothing(server: Server, name: str) -> None:
    async with penstock.connect(server.url) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send("x")
        message = await queue.receive()
        assert isinstance(message, Message)
        for said in ({"limit": 0}, {"limit": 1, "wait_s": -1}, {"limit": 1, "visibility_timeout": 50_000}):
            with pytest.raises(BadRequest) as caught:
                await queue.ack_and_receive(message, **said)
            assert caught.value.field in said
        await message.ack()


@pytest.mark.parametrize("prefetch", [1, 4, 16])
def test_a_loop_pays_one_request_for_a_message(place: str, name: str, prefetch: int) -> None:
    seen: list[str] = []
    with penstock.connect(place) as client:
        client.create_queue(name)
        queue = client.queue(name)
        queue.send_many([str(number) for number in range(40)])
        for message in queue.consume(prefetch=prefetch, wait_s=0):
            with message:
                seen.append(message.text)
            if len(seen) == 40:
                break
        assert seen == [str(number) for number in range(40)]
        view = queue.describe()
        assert (view.current_message_count, view.totals.received) == (0, 40)


def test_requests_of_a_loop_are_counted(server: Server, name: str) -> None:
    with penstock.connect(server.url) as client:
        client.create_queue(name)
        client.queue(name).send_many(["x"] * 40)
        sent = _Counted(client, name)
        for number, message in enumerate(client.queue(name).consume(prefetch=1, wait_s=0), 1):
            message.ack()
            if number == 40:
                break
        # The first message is leased by itself, and the last ack finds nothing more to bring.
        assert sent.paths.count("lease") == 41
        assert sent.paths.count("ack") == 0


class _Counted:
    """Notes the last part of the path of each request of a synchronous client."""

    def __init__(self, client: penstock.SyncClient, name: str) -> None:
        self.paths: list[str] = []
        caller = client.queue(name)._asynchronous()._outbox.caller  # type: ignore[attr-defined] # Not in the stub.
        attempt = caller.attempt

        async def noted(call):  # type: ignore[no-untyped-def]
            self.paths.append(call.path.partition("?")[0].rpartition("/")[2])
            return await attempt(call)

        caller.attempt = noted


async def test_a_loop_that_is_left_gives_back_what_an_ack_has_brought(place: str, name: str) -> None:
    async with penstock.connect(place) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"%d" % number for number in range(20)])
        loop = queue.consume(prefetch=8, wait_s=0)
        message = await anext(loop)
        await message.ack()
        await loop.aclose()
        view = await queue.describe()
        assert (view.current_message_count, view.in_flight) == (19, 0)


async def test_a_stale_ack_in_a_loop_is_an_error_and_the_next_messages_come(place: str, name: str) -> None:
    async with penstock.connect(place) as client:
        await client.create_queue(name)
        queue = client.queue(name)
        await queue.send_many([b"one", b"two"])
        loop = queue.consume(prefetch=1, wait_s=0)
        message = await anext(loop)
        await message.release(delay_s=100)
        with pytest.raises(StaleReceipt):
            await message.ack()
        following = await anext(loop)
        assert following.body == b"two"
        await following.ack()
        await loop.aclose()


async def test_a_worker_leases_in_the_request_of_its_acks(place: str, name: str) -> None:
    async with penstock.connect(place) as client:
        await client.create_queue(name)
        await client.queue(name).send_many([str(number) for number in range(50)])
        worker, seen = Worker(client), list[str]()

        @worker.handler(name, concurrency=1)
        async def work(message: Message) -> None:
            seen.append(message.text)

        both: list[str] = []
        caller = client._caller
        attempt = caller.attempt

        async def noted(call):  # type: ignore[no-untyped-def]
            if "/lease" in call.path and call.body:
                both.append(call.path)
            return await attempt(call)

        caller.attempt = noted  # type: ignore[method-assign]
        await worker.run(until_idle=True)
        assert seen == [str(number) for number in range(50)]
        assert (await client.queue(name).describe()).current_message_count == 0
        assert both


async def test_an_answer_to_both_that_says_too_little_is_an_error() -> None:
    async def half(request: Request) -> penstock.client.caller.Answer:
        return await leased(1)(request)

    async with scripted(leased(1), half) as (client, _):
        message = await client.queue("q").receive()
        assert isinstance(message, Message)
        with pytest.raises(penstock.PenstockError, match="cannot be read"):
            await client.queue("q").ack_and_receive(message, limit=1)
