"""One connection: the order of answers, what overlaps, deadlines, limits, and the end of the server."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from penstock.api.kafka.connection import Connection, Limits, Parts, Shared
from penstock.api.kafka.wire.fields import Malformed
from penstock.api.kafka.wire.frames import Header
from penstock.api.kafka.wire.schema import Api
from penstock.contract.limits import MIB
from penstock.listening.listener import BufferBudget, Listener, listening
from penstock.listening.sockets import bind
from penstock.telemetry import LogEvent
from tests.waiting import eventually, let_others_run

pytestmark = pytest.mark.real_time
WAIT_S = 60.0


class Talk:
    """Answers each request with its body, when it is let."""

    def __init__(self, stage: "Stage") -> None:
        self._stage = stage

    @property
    def is_stranger(self) -> bool:
        return self._stage.is_stranger

    async def answer(self, header: Header, frame: memoryview) -> Parts | None:
        body = bytes(frame[header.body :])
        self._stage.begun.append(body)
        self._stage.changed.set()
        if body == b"bad":
            raise Malformed("bad")
        if body == b"mistake":
            raise KeyError("ours")
        if body == b"silent":
            return None
        if body.startswith(b"wait"):
            await self._stage.gate.wait()
        return [bytes(2_000_000)] if body == b"large" else [b"<", body, b">"]

    def refuse(self, header: Header, front: memoryview) -> Parts | None:
        return [b"too large, beginning with ", bytes(front[header.body : header.body + 3])]

    def end(self) -> None:
        pass


class Stage:
    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.changed = asyncio.Event()
        self.gate = asyncio.Event()
        self.log_events: list[tuple[LogEvent, dict[str, object]]] = []
        self.is_stranger = False
        self.listener: Listener[Shared]
        self.address: tuple[str, int]

    def log_event(self, event: LogEvent, /, **fields: object) -> None:
        self.log_events.append((event, fields))

    async def until_begun(self, count: int) -> None:
        async with asyncio.timeout(WAIT_S):
            while len(self.begun) < count:
                self.changed.clear()
                await self.changed.wait()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    def send(self, body: bytes, key: int = Api.HEARTBEAT, correlation: int = 1) -> None:
        frame = key.to_bytes(2, "big") + b"\0\3" + correlation.to_bytes(4, "big") + b"\xff\xff" + body
        self.writer.write(len(frame).to_bytes(4, "big") + frame)

    async def answer(self) -> bytes:
        """Return the body of the next answer."""
        async with asyncio.timeout(WAIT_S):
            size = int.from_bytes(await self.reader.readexactly(4), "big")
            return (await self.reader.readexactly(size))[4:]

    async def is_closed(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@asynccontextmanager
async def staged(*, budget_bytes: int | None = None, **limits: Any) -> AsyncIterator[Stage]:
    stage = Stage()

    def open_session(_connection: Connection) -> Talk:
        return Talk(stage)

    budget = BufferBudget(budget_bytes or 256 * MIB, asyncio.get_running_loop().time)
    shared = Shared(open_session, Limits(**{"sweep_s": 0.02, "farewell_s": 5.0, **limits}), stage.log_event, budget)
    doors = bind("127.0.0.1", 0)
    stage.address = doors[0].getsockname()[:2]
    async with listening(doors, shared, None) as stage.listener:
        yield stage


@asynccontextmanager
async def connected(stage: Stage) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(*stage.address)
    try:
        yield Client(reader, writer)
    finally:
        writer.close()


async def turns() -> None:
    """Let the server, which runs on this loop, read and begin all that it would."""
    await let_others_run(100)


async def test_a_request_begins_when_the_one_before_it_is_answered() -> None:
    async with staged() as stage, connected(stage) as client:
        for body in (b"wait 1", b"2", b"3"):
            client.send(body)
        await stage.until_begun(1)
        await turns()
        assert stage.begun == [b"wait 1"]
        stage.gate.set()
        assert [await client.answer() for _ in range(3)] == [b"<wait 1>", b"<2>", b"<3>"]


async def test_produce_requests_overlap_and_are_answered_in_order() -> None:
    async with staged() as stage, connected(stage) as client:
        for body in (b"wait 1", b"2", b"silent", b"4"):
            client.send(body, Api.PRODUCE)
        client.send(b"after")
        await stage.until_begun(4)
        assert stage.begun == [b"wait 1", b"2", b"silent", b"4"]
        stage.gate.set()
        assert [await client.answer() for _ in range(4)] == [b"<wait 1>", b"<2>", b"<4>", b"<after>"]


async def test_no_more_produce_requests_overlap_than_may() -> None:
    async with staged(overlapping_max=2) as stage, connected(stage) as client:
        for number in range(5):
            client.send(b"wait %d" % number, Api.PRODUCE)
        await stage.until_begun(2)
        await turns()
        assert len(stage.begun) == 2
        stage.gate.set()
        assert [await client.answer() for _ in range(5)] == [b"<wait %d>" % number for number in range(5)]


async def test_what_cannot_be_understood_ends_a_connection_after_the_answers_before_it() -> None:
    async with staged() as stage, connected(stage) as client:
        client.send(b"wait 1")
        client.writer.write(b"\0\0\0\2\xff\xff")
        client.send(b"never")
        await stage.until_begun(1)
        stage.gate.set()
        assert await client.answer() == b"<wait 1>"
        assert await client.is_closed()
        assert stage.begun == [b"wait 1"]


async def test_a_produce_request_that_is_too_large_is_refused_and_the_next_one_answered() -> None:
    async with staged(frame_bytes_max=100_000) as stage, connected(stage) as client:
        client.send(b"abc" + bytes(300_000), key=Api.PRODUCE)
        client.send(b"next", key=Api.PRODUCE)
        assert await client.answer() == b"too large, beginning with abc"
        assert await client.answer() == b"<next>"
        client.send(bytes(300_000))
        assert await client.is_closed()
        assert stage.begun == [b"next"]


async def test_a_flood_after_a_frame_that_is_none_is_not_read() -> None:
    async with staged() as stage, connected(stage) as client:
        client.send(b"wait 1")
        client.writer.write(b"\xff\xff\xff\xff" + bytes(300_000))
        await stage.until_begun(1)
        await turns()
        stage.gate.set()
        assert await client.answer() == b"<wait 1>"
        assert await client.is_closed()
        assert stage.log_events == []


@pytest.mark.parametrize("body", [b"bad", b"mistake"])
async def test_a_request_that_fails_ends_its_connection_and_a_mistake_is_noted(body: bytes) -> None:
    async with staged() as stage, connected(stage) as client, connected(stage) as other:
        client.send(body)
        assert await client.is_closed()
        other.send(b"fine")
        assert await other.answer() == b"<fine>"
        assert [event.name for event, _ in stage.log_events] == (["kafka.failed"] if body == b"mistake" else [])


async def test_nothing_is_read_while_many_requests_wait() -> None:
    async with staged(pipelined_max=3) as stage, connected(stage) as client:
        client.send(b"wait 1")
        for _ in range(200):
            client.send(bytes(60_000))
        await stage.until_begun(1)
        await turns()
        (connection,) = stage.listener.shared.connections
        # The last one arrived with what was read before it was known that it is too many.
        assert len(connection._waiting) <= 4
        stage.gate.set()
        for _ in range(201):
            await client.answer()


async def test_what_all_connections_hold_together_is_bounded() -> None:
    async with staged(budget_bytes=400_000) as stage, connected(stage) as first, connected(stage) as second:
        for client in (first, second):
            for _ in range(30):
                client.send(b"wait" + bytes(60_000))
        await stage.until_begun(1)
        await turns()
        assert stage.listener.shared.budget.held_bytes < 500_000
        stage.gate.set()
        for client in (first, second):
            for _ in range(30):
                await client.answer()
        assert stage.listener.shared.budget.held_bytes == 0


@pytest.mark.parametrize("limit", ["first_request_s", "idle_s", "arriving_s"])
async def test_a_connection_that_keeps_the_server_waiting_is_closed(limit: str) -> None:
    limits: dict[str, Any] = {limit: 0.05}
    async with staged(**limits) as stage, connected(stage) as client:
        if limit != "first_request_s":
            client.send(b"one")
            assert await client.answer() == b"<one>"
        if limit == "arriving_s":
            client.writer.write(b"\0\0\0\x40half of it")
        assert await client.is_closed()


async def arrived(stage: Stage, size: int) -> Connection:
    """Return the first connection that so many bytes have come by."""
    connections = stage.listener.shared.connections
    found: Connection = await eventually(
        lambda: next((each for each in connections if each._arrived_bytes >= size), None)
    )
    return found


@pytest.mark.parametrize("is_behind_another", [False, True])
async def test_a_request_that_drips_in_gets_no_more_time_for_each_byte(is_behind_another: bool) -> None:
    async with staged(arriving_s=WAIT_S) as stage, connected(stage) as client:
        if is_behind_another:
            client.send(b"wait")
            await stage.until_begun(1)
        before = 18 if is_behind_another else 0
        client.writer.write(b"\0\1\0\0")
        connection = await arrived(stage, before + 4)
        due_at = connection.due_at
        assert due_at <= asyncio.get_running_loop().time() + WAIT_S
        client.writer.write(b"\0")
        await arrived(stage, before + 5)
        assert connection.due_at == due_at
        connection.due_at = 0.0
        assert await client.is_closed()


async def test_a_large_request_has_its_time_again_when_enough_of_it_has_come() -> None:
    async with staged(arriving_s=WAIT_S) as stage, connected(stage) as client:
        size = 400_000
        client.writer.write(size.to_bytes(4, "big") + b"\0\x0c\0\3\0\0\0\1\xff\xff" + bytes(200_000))
        connection = await arrived(stage, 200_014)
        connection.due_at = 0.0
        connection.expire(asyncio.get_running_loop().time())
        assert connection.due_at > asyncio.get_running_loop().time()
        client.writer.write(bytes(size - 200_010))
        assert len(await client.answer()) == size - 10 + 2


async def test_what_has_arrived_of_all_requests_together_is_bounded() -> None:
    async with staged(budget_bytes=1_000_000) as stage, AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(connected(stage)) for _ in range(10)]
        for client in clients:
            client.writer.write((1_000_000).to_bytes(4, "big") + bytes(300_000))
        budget = stage.listener.shared.budget
        async with asyncio.timeout(WAIT_S):
            while budget.shed < 7:
                await let_others_run()
                assert budget.held_bytes <= 1_000_000
        # Those that are small get through, and later ones as well.
        async with connected(stage) as another:
            another.send(b"one")
            assert await another.answer() == b"<one>"
        for client in clients:
            client.writer.close()
        await eventually(lambda: not budget.held_bytes)


async def test_answers_before_a_request_that_is_shed_are_given() -> None:
    async with staged(budget_bytes=200_000) as stage, connected(stage) as client:
        client.send(b"wait 1")
        await stage.until_begun(1)
        client.writer.write((1_000_000).to_bytes(4, "big") + bytes(300_000))
        await eventually(lambda: stage.listener.shared.budget.shed)
        stage.gate.set()
        assert await client.answer() == b"<wait 1>"
        assert await client.is_closed()


async def test_a_stranger_has_to_say_in_time_who_it_is() -> None:
    async with staged(first_request_s=WAIT_S) as stage:
        stage.is_stranger = True
        async with connected(stage) as client:
            due: set[float] = set()
            for body in (b"one", b"two"):
                client.send(body)
                assert await client.answer() == b"<" + body + b">"
                (connection,) = stage.listener.shared.connections
                due.add(connection.due_at)
            # It is given no more time by what it says.
            (due_at,) = due
            assert due_at <= asyncio.get_running_loop().time() + WAIT_S
            connection.due_at = 0.0
            assert await client.is_closed()


async def test_a_client_that_does_not_read_its_answers_is_dropped() -> None:
    async with staged(answer_s=0.05) as stage, connected(stage) as client:
        for _ in range(20):
            client.send(b"large")
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        gone = asyncio.Event()
        stage.listener.shared.emptied = gone.set
        await asyncio.wait_for(gone.wait(), WAIT_S)
        assert len(stage.begun) < 20
        assert stage.listener.shared.timed_out == 1


async def test_answers_get_small_while_much_is_unread() -> None:
    async with staged(unread_bytes_max=1_000_000) as stage, connected(stage) as client, connected(stage) as other:
        other.send(b"one")
        await other.answer()
        shared = stage.listener.shared
        assert {each.fetched_bytes_max for each in shared.connections} == {1_000_000}
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(20):
            client.send(b"large")
        await eventually(lambda: shared.unread_bytes)
        assert {each.fetched_bytes_max for each in shared.connections} == {max(0, 1_000_000 - shared.unread_bytes)}
        client.writer.transport.abort()
        await eventually(lambda: not shared.unread_bytes)


async def test_connections_beyond_the_limit_are_turned_away() -> None:
    async with staged(connections_max=1) as stage, connected(stage) as client:
        client.send(b"one")
        await client.answer()
        async with connected(stage) as other:
            assert await other.is_closed()
        client.send(b"two")
        assert await client.answer() == b"<two>"
        assert stage.listener.shared.turned_away == 1


async def test_a_server_that_stops_finishes_what_changes_something_and_cuts_waits_short() -> None:
    async with staged() as stage, connected(stage) as producer, connected(stage) as fetcher, connected(stage) as idle:
        producer.send(b"wait 1", Api.PRODUCE)
        fetcher.writer.write(b"\0\0\0\x0e\0\1\0\4\0\0\0\1\xff\xffwait")
        await stage.until_begun(2)
        draining = asyncio.gather(stage.listener.drain(WAIT_S, asyncio.Event()), return_exceptions=False)
        assert await fetcher.is_closed()
        assert await idle.is_closed()
        stage.gate.set()
        assert await producer.answer() == b"<wait 1>"
        assert await producer.is_closed()
        assert [*await draining] == [0]


async def test_a_server_in_a_hurry_says_how_many_requests_it_cut_off() -> None:
    async with staged() as stage, connected(stage) as producer:
        producer.send(b"wait 1", Api.PRODUCE)
        await stage.until_begun(1)
        assert await stage.listener.drain(0.05, asyncio.Event()) == 1
        assert await producer.is_closed()


async def test_a_server_told_twice_to_stop_does_not_wait() -> None:
    async with staged() as stage, connected(stage) as producer:
        producer.send(b"wait 1", Api.PRODUCE)
        await stage.until_begun(1)
        hurry = asyncio.Event()
        draining = asyncio.gather(stage.listener.drain(3_600, hurry))
        await turns()
        hurry.set()
        assert [*await asyncio.wait_for(draining, WAIT_S)] == [1]
        assert await producer.is_closed()
