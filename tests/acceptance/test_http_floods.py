"""Too much of everything, to a real server: what is too large costs it nothing, and many clients lose no answer."""

import asyncio
import contextlib
import json
import resource
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.acceptance.http_server import RunningServer, running_server
from tests.acceptance.raw_http import ask, connect, read_answer, request
from tests.waiting import wait_until

MIB = 1024 * 1024
REQUEST_BYTES_MAX = 1 * MIB
MESSAGES = "/api/queues/crowd/messages"
CLIENTS = 1_000
SECONDS_MAX = 300


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RunningServer]:
    _raise_limit_of_files(4_096)
    with running_server(tmp_path, request_bytes_max=REQUEST_BYTES_MAX, may_note="Invalid HTTP request") as running:
        settings = b'{"queue_name":"crowd","visibility_timeout":600}'
        assert ask(running.port, request("POST", "/api/queues", settings)).status == 201
        yield running


def _raise_limit_of_files(wanted: int) -> None:
    """For this process and for the server, which inherits it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(wanted, hard), hard))


def _pour(connection: socket.socket, parts: int, part: bytes) -> None:
    """Send much, until the other side has had enough."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for _ in range(parts):
            connection.sendall(part)


@pytest.mark.slow
@pytest.mark.parametrize("is_length_said", [True, False], ids=["with its length", "in chunks"])
def test_a_body_that_is_too_large_is_refused_and_not_kept(server: RunningServer, is_length_said: bool) -> None:
    before_kib = server.memory_kib("VmHWM")
    part = b"x" * MIB
    head = f"POST {MESSAGES} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    head += f"content-length: {64 * MIB}\r\n\r\n" if is_length_said else "transfer-encoding: chunked\r\n\r\n"
    for _ in range(5):
        with connect(server.port) as connection:
            connection.sendall(head.encode())
            if is_length_said:
                # It is refused before anything of it has come.
                assert read_answer(connection.makefile("rb")).code == "body_too_large"
                _pour(connection, 64, part)
            else:
                _pour(connection, 2, b"%x\r\n%s\r\n" % (MIB, part))
                answer = read_answer(connection.makefile("rb"))
                assert (answer.status, answer.code) == (413, "body_too_large")
                assert answer.json["limit"] == REQUEST_BYTES_MAX
                _pour(connection, 62, b"%x\r\n%s\r\n" % (MIB, part))

    assert server.memory_kib("VmHWM") - before_kib < 16 * 1024
    assert ask(server.port, request("POST", MESSAGES, b'{"data":"x"}')).status == 201


@pytest.mark.slow
def test_half_read_requests_of_both_protocols_share_one_budget(tmp_path: Path) -> None:
    budget, size = 64 * MIB, 14 * MIB
    with running_server(tmp_path, buffered_bytes_max=budget) as server, contextlib.ExitStack() as stack:
        ask(server.port, request("POST", "/api/queues", b'{"queue_name":"crowd"}'))
        before_kib = server.memory_kib("VmRSS")
        kafka_port = int(server.kafka.rpartition(":")[2])
        for _ in range(15):
            by_http = stack.enter_context(connect(server.port))
            by_http.sendall(request("POST", MESSAGES, content_length=str(size)))
            _pour(by_http, 13, b"x" * MIB)
            by_kafka = stack.enter_context(connect(kafka_port))
            _pour(by_kafka, 1, size.to_bytes(4, "big"))
            _pour(by_kafka, 13, b"\0" * MIB)
            # Others notice nothing: a small request, and a large one that comes quickly.
            assert ask(server.port, request("POST", MESSAGES, b'{"data":"x"}')).status == 201
            large = b'{"data":"%b"}' % (b"x" * (MIB - 1024))
            assert ask(server.port, request("POST", MESSAGES, large)).status == 201

        assert server.memory_kib("VmHWM") - before_kib < 3 * budget // 1024


def test_a_body_of_just_the_limit_is_taken(server: RunningServer) -> None:
    front, back = b'{"data":"', b'"}'
    data = b"x" * (REQUEST_BYTES_MAX - len(front) - len(back))

    assert ask(server.port, request("POST", MESSAGES, front + data + back)).status == 201
    assert ask(server.port, request("POST", MESSAGES, front + data + b"x" + back)).code == "body_too_large"


def test_a_server_that_may_open_few_files_serves_some_connections_and_keeps_the_rest_for_its_store(
    tmp_path: Path,
) -> None:
    with (
        running_server(tmp_path, files_max=256, may_note="server.files_limited") as server,
        contextlib.ExitStack() as stack,
    ):
        assert '"possible": ' in server.notes.read_text()
        kafka_port = int(server.kafka.rpartition(":")[2])
        statuses: Counter[int] = Counter()
        for _ in range(400):
            stack.enter_context(connect(kafka_port))
            connection = stack.enter_context(connect(server.port))
            statuses[_status(connection)] += 1
            assert len([*Path(f"/proc/{server.process.pid}/fd").iterdir()]) < 200
        # Those of Kafka take their share, too.
        assert statuses[200] >= 40
        assert statuses[503] >= 1
        assert statuses.keys() <= {0, 200, 503}
        stack.close()
        ask_until_there_is_room(server.port)
        assert ask(server.port, request("POST", "/api/queues", b'{"queue_name":"crowd"}')).status == 201
        assert ask(server.port, request("POST", MESSAGES, b'{"data":"x"}')).status == 201


def ask_until_there_is_room(port: int) -> None:
    """Return when the server has noticed that others are gone."""

    def is_answered() -> bool:
        with connect(port) as connection:
            return _status(connection) == 200

    wait_until(is_answered)


def _status(connection: socket.socket) -> int:
    """Ask something, and return the status of the answer; 0 if there is none."""
    try:
        connection.sendall(request("GET", "/health/live"))
        return read_answer(connection.makefile("rb")).status
    except (OSError, IndexError):
        return 0


class Crowd:
    """Clients of every kind, all at once. Those who behave write down what they were told."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.sent: dict[str, str] = {}
        self.received: Counter[str] = Counter()
        self.refused = self.dropped = 0

    async def send(self, number: int) -> None:
        """Send a message, and expect the id of this one and no other."""
        data = f"good {number}"
        status, body = await self._ask(request("POST", MESSAGES, json.dumps({"data": data}).encode()))
        assert status == 201
        message_id = json.loads(body)["message_id"]
        assert message_id not in self.sent
        self.sent[message_id] = data

    async def receive(self, number: int) -> None:
        status, body = await self._ask(request("GET", f"{MESSAGES}?limit=5&wait_s={number % 3}"))
        assert status == 200
        for each in json.loads(body)["messages"]:
            self.received[each["message_id"]] += 1

    async def send_junk(self, number: int) -> None:
        status, _ = await self._ask(request("POST", MESSAGES, b"[" * (number % 7 * 1_000) + b"junk"))
        assert status == 400
        self.refused += 1

    async def drop_in_the_head(self, number: int) -> None:
        await self._drop(request("POST", MESSAGES, b'{"data":"never"}')[: 10 + number % 60])

    async def drop_in_the_body(self, number: int) -> None:
        await self._drop(request("POST", MESSAGES, b'{"data":"never"}', content_length="1000"))

    async def drop_while_waiting(self, number: int) -> None:
        await self._drop(request("GET", "/api/queues/empty/messages?wait_s=20"))

    async def drop_before_the_answer(self, number: int) -> None:
        await self._drop(request("POST", MESSAGES, json.dumps({"data": f"maybe {number}"}).encode()))

    async def _drop(self, sent: bytes) -> None:
        async with self._connected() as (_, writer):
            writer.write(sent)
            await writer.drain()
            # Gone with a reset, not with a farewell.
            found = writer.get_extra_info("socket")
            found.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.dropped += 1

    async def _ask(self, sent: bytes) -> tuple[int, bytes]:
        async with self._connected() as (reader, writer):
            writer.write(sent)
            status = int((await reader.readline()).split()[1])
            length = 0
            while line := (await reader.readline()).strip():
                if line.lower().startswith(b"content-length:"):
                    length = int(line.split(b":")[1])
            return status, await reader.readexactly(length)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


@pytest.mark.slow
@pytest.mark.real_time
async def test_a_thousand_clients_of_every_kind_get_right_answers_or_none(server: RunningServer) -> None:
    ask(server.port, request("POST", "/api/queues", b'{"queue_name":"empty"}'))
    crowd = Crowd(server.port)
    kinds = [
        *(crowd.send, crowd.receive, crowd.send, crowd.send_junk, crowd.drop_in_the_head),
        *(crowd.drop_in_the_body, crowd.drop_while_waiting, crowd.drop_before_the_answer, crowd.send, crowd.receive),
    ]
    async with asyncio.timeout(SECONDS_MAX), asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(kinds[number % len(kinds)](number))

    # What was not received yet is received now: every message that was answered for, once, and nothing half sent.
    while rest := ask(server.port, request("GET", f"{MESSAGES}?limit=1000")).json["messages"]:
        for each in rest:
            crowd.received[each["message_id"]] += 1
            assert each["data"].startswith(("good ", "maybe "))
            assert crowd.sent.get(each["message_id"], each["data"]) == each["data"]
    assert len(crowd.sent) == CLIENTS * 3 // 10
    assert (crowd.refused, crowd.dropped) == (CLIENTS // 10, CLIENTS * 4 // 10)
    assert crowd.sent.keys() <= crowd.received.keys()
    assert set(crowd.received.values()) == {1}
    assert ask(server.port, request("GET", "/api/queues/empty")).json["in_flight"] == 0
