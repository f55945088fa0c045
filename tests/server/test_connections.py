"""What a client can do to a connection, and that others do not feel it."""

import asyncio
import socket
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.contract.limits import KIB, MIB
from penstock.listening.http_connection import Phase
from penstock.listening.http_exchange import CLIENT_GONE, DEPARTURE
from penstock.telemetry import REST_FAILED
from tests.last_words import end_speech
from tests.server.serving import Client, HeldLoop, Running, hasty, listener
from tests.waiting import let_others_run, until_cancelled

LARGE = 8 * MIB
HELLO = b"GET /hello HTTP/1.1\r\nhost: x\r\n\r\n"


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Some of everything that an application can do."""
    path = scope["path"]
    headers = [(b"x-path", path.encode())]
    if path in {"/wait", "/departure", "/fails", "/nothing"}:
        await _misbehave(path, scope, receive)
        return
    if path == "/chunks":
        await _send_chunks(scope, send)
        return
    if path == "/slow":
        await let_others_run(50)
    if path == "/endless":
        await until_cancelled()
    body = await _read(receive) if path == "/echo" else bytes(LARGE) if path == "/large" else b"hello"
    status = 413 if path == "/refuse" else 200
    headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def _misbehave(path: str, scope: Any, receive: Any) -> None:
    if path == "/fails":
        raise ZeroDivisionError
    if path == "/departure":
        await scope[DEPARTURE]()
    while path == "/wait" and (await receive())["type"] != "http.disconnect":
        pass


async def _send_chunks(scope: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": b"one ", "more_body": True})
    if scope["query_string"] == b"fails":
        raise ZeroDivisionError
    await send({"type": "http.response.body", "body": b"two", "more_body": False})


async def _read(receive: Any) -> bytes:
    body, is_more = b"", True
    while is_more:
        message = await receive()
        if message["type"] == "http.disconnect":
            return b""
        body += message["body"]
        is_more = message["more_body"]
    return body


def assert_others_are_served(running: Running) -> None:
    with running.client() as client:
        assert client.ask("GET", "/hello").body == b"hello"


def test_a_client_that_does_not_finish_its_head_is_told_and_closed() -> None:
    with listener(application, hasty(head_s=10), loop=HeldLoop) as running, running.client() as slow:
        slow.send(b"GET /hello HTTP/1.1\r\nhos")
        wait_for_connection(running, lambda slow: slow.phase is Phase.HEAD)
        running.pass_time(9.9)
        assert_others_are_served(running)
        assert shared_of(running).timed_out == 0
        running.pass_time(0.2)
        answer = slow.answer()
        assert (answer.status, answer.json()["code"]) == (408, "request_timeout")
        assert answer.headers["content-type"] == "application/problem+json"
        assert slow.is_closed()


def test_a_head_that_drips_in_gets_no_more_time_for_each_byte() -> None:
    with listener(application, hasty(head_s=10), loop=HeldLoop) as running, running.client() as slow:
        head = b"GET /hello HTTP/1.1\r\nx-drips: xxxxx"
        for sent, part in enumerate((head[:-5], b"x", b"x", b"x", b"x", b"x"), len(head) - 5):
            slow.send(part)
            wait_for_connection(running, lambda slow, sent=sent: slow._head_bytes == sent)  # type: ignore[misc]
            assert shared_of(running).timed_out == 0
            running.pass_time(1.9)
        assert slow.answer().status == 408


def test_a_connection_that_says_nothing_is_closed() -> None:
    with listener(application, hasty(first_byte_s=10), loop=HeldLoop) as running, running.client() as silent:
        wait_for_connection(running, lambda silent: silent.phase is Phase.NEW)
        running.pass_time(9.9)
        assert_others_are_served(running)
        assert shared_of(running).timed_out == 0
        running.pass_time(0.2)
        assert silent.is_closed()


def test_line_breaks_without_a_request_buy_no_time() -> None:
    with listener(application, hasty(first_byte_s=10), loop=HeldLoop) as running, running.client() as silent:
        wait_for_connection(running, lambda silent: silent.phase is Phase.NEW)
        running.pass_time(9.9)
        silent.send(b"\r\n\r\n")
        wait_for_connection(running, lambda silent: silent._head_bytes == 4)
        running.pass_time(0.2)
        assert silent.is_closed()


def test_a_connection_that_was_used_may_rest_for_a_while_and_is_closed_then() -> None:
    with listener(application, hasty(idle_s=30), loop=HeldLoop) as running, running.client() as client:
        for _ in range(2):
            assert client.ask("GET", "/hello").status == 200
            wait_until_due_in(running, 30)
            running.pass_time(29)
        running.pass_time(1)
        assert client.is_closed()


def test_a_body_that_does_not_go_on_is_told_and_closed() -> None:
    with listener(application, hasty(body_s=0.2)) as running, running.client() as slow:
        slow.send(b"POST /echo HTTP/1.1\r\ncontent-length: 10\r\n\r\nabc")
        assert_others_are_served(running)
        assert slow.answer().status == 408
        assert slow.is_closed()


def test_a_body_that_drips_in_gets_no_more_time_for_each_byte() -> None:
    with listener(application, hasty(body_s=30), loop=HeldLoop) as running, running.client() as slow:
        slow.send(b"POST /echo HTTP/1.1\r\ncontent-length: 1000000\r\n\r\n")
        for sent in range(1, 4):
            slow.send(b"x")
            wait_for_connection(running, lambda slow, sent=sent: slow._body_bytes == sent)  # type: ignore[misc]
            assert shared_of(running).timed_out == 0
            running.pass_time(11)
        answer = slow.answer()
        assert (answer.status, answer.json()["code"]) == (408, "request_timeout")
        assert slow.is_closed()


def test_a_large_body_has_its_time_again_with_each_part_that_is_large_enough() -> None:
    body = b"b" * (256 * KIB)
    with listener(application, hasty(body_s=30), loop=HeldLoop) as running, running.client() as client:
        client.send(b"POST /echo HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % len(body))
        for start in range(0, len(body), 64 * KIB):
            wait_for_connection(running, lambda client, start=start: client._body_bytes == start)  # type: ignore[misc]
            wait_until_due_in(running, 30)
            client.send(body[start : start + 64 * KIB])
            end = min(start + 64 * KIB, len(body) - 1)
            wait_for_connection(running, lambda client, end=end: client._body_bytes >= end)  # type: ignore[misc]
            running.pass_time(30)
        assert client.answer().body == body


def test_a_request_that_is_worked_on_has_no_deadline_of_the_connection() -> None:
    held = Held()
    with listener(held, loop=HeldLoop) as running, running.client() as client:
        client.send(b"GET /held HTTP/1.1\r\n\r\n")
        running.wait_until(lambda: bool(shared_of(running).state.tasks))
        running.pass_time(86_400)
        running.call(held.go_on.set)
        assert client.answer().status == 200


@pytest.mark.parametrize("is_whole", [True, False])
def test_headers_beyond_the_limit_are_refused(is_whole: bool) -> None:
    with listener(application) as running, running.client() as client:
        head = b"GET /hello HTTP/1.1\r\n" + b"".join(b"x-%d: %b\r\n" % (row, b"v" * 1_000) for row in range(80))
        client.send(head + b"\r\n" if is_whole else head)
        answer = client.answer()
        assert (answer.status, answer.json()["code"]) == (431, "headers_too_large")
        assert answer.json()["limit"] == 64 * KIB
        assert client.is_closed()
        assert_others_are_served(running)


def test_a_large_body_behind_a_small_head_is_not_taken_for_headers() -> None:
    with listener(application) as running, running.client() as client:
        body = b"b" * (300 * KIB)
        client.send(b"POST /echo HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert client.answer().body == body


def test_one_connection_too_many_is_told_so() -> None:
    with listener(application, connections_max=2) as running, running.client() as first:
        with running.client() as second:
            assert first.ask("GET", "/hello").status == second.ask("GET", "/hello").status == 200
            with running.client() as third:
                answer = third.answer()
                assert (answer.status, answer.json()["code"]) == (503, "too_many_connections")
                assert third.is_closed()
            assert first.ask("GET", "/hello").status == 200
        # The second has left, and the server may hear of the fourth before it hears of that.
        running.wait_until(lambda: len(shared_of(running).connections) == 1)
        with running.client() as fourth:
            assert fourth.ask("GET", "/hello").status == 200


def test_a_client_that_does_not_read_makes_the_server_keep_one_answer_and_is_dropped() -> None:
    # What the system takes off the server's hands after the first look is not read either.
    with listener(application, hasty(answer_s=30, answer_bytes_min=LARGE), loop=HeldLoop) as running:
        with running.client(receives=4 * KIB) as greedy:
            greedy.send(b"GET /large HTTP/1.1\r\n\r\n" * 20)
            running.wait_until(lambda: unread(running) > 0)
            assert_others_are_served(running)
            most = max(running.call(lambda: unread(running)) for _ in range(20))
            assert 0 < most < LARGE + MIB
            running.pass_time(31)
            running.wait_until(lambda: not shared_of(running).connections)
        assert shared_of(running).timed_out == 1
        assert shared_of(running).state.total_requests < 10


def test_a_client_that_reads_slowly_and_steadily_is_not_dropped() -> None:
    limits = hasty(answer_s=30, answer_bytes_min=1 * KIB, idle_s=86_400)
    with listener(application, limits, loop=HeldLoop) as running, running.client(receives=64 * KIB) as slow:
        slow.send(b"GET /large HTTP/1.1\r\n\r\n")
        running.wait_until(lambda: unread(running) > 0)
        received, left, looks = 0, running.call(lambda: unread(running)), 0

        def has_read_enough() -> bool:
            nonlocal left
            if (now_left := unread(running)) > left - 1 * KIB:
                return False
            left = now_left
            return True

        while received < LARGE:
            part = slow.socket.recv(256 * KIB)
            assert part, "it was dropped"
            received += len(part)
            # Its time passes with each kilobyte that the server got rid of.
            looks += running.pass_time(31, once=has_read_enough)
        assert looks > 2
        assert shared_of(running).timed_out == 0


class Held:
    """An application whose answers at one path wait until they may go on."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["path"] == "/held":
            await self.go_on.wait()
        await application(scope, receive, send)


def wait_for_connection(running: Running, holds: Callable[[Any], bool]) -> None:
    """Return when something holds for a connection.

    A client may have connected, and sent, before the server has heard of it.
    """
    running.wait_until(lambda: any(holds(connection) for connection in shared_of(running).connections))


def wait_until_due_in(running: Running, seconds: float) -> None:
    """Return when a connection has so much time left."""
    assert running.loop is not None
    now = running.loop.time
    wait_for_connection(running, lambda connection: connection.due_at - now() == seconds)


def shared_of(running: Running) -> Any:
    assert running.shared is not None
    return running.shared


def unread(running: Running) -> int:
    return sum(each.transport.get_write_buffer_size() for each in shared_of(running).connections)


def test_pipelined_requests_are_answered_in_their_order() -> None:
    with listener(application) as running, running.client() as client:
        paths = ["/slow", "/hello", "/echo", "/slow", "/hello"]
        client.send(b"".join(b"GET %b HTTP/1.1\r\n\r\n" % path.encode() for path in paths))
        assert [client.answer().headers["x-path"] for _ in paths] == paths
        assert client.ask("GET", "/hello").status == 200


def test_a_client_that_pipelines_without_end_is_answered_so_far_and_closed() -> None:
    with listener(application, hasty(pipelined_max=5)) as running, running.client() as client:
        client.send(b"GET /slow HTTP/1.1\r\n\r\n" + HELLO * 1_000)
        answers = [client.answer() for _ in range(6)]
        assert all(answer.status == 200 for answer in answers)
        assert answers[-1].headers["connection"] == "close"
        with pytest.raises(ConnectionError):
            client.answer()
        assert_others_are_served(running)


def test_a_body_behind_another_request_has_its_time_when_that_is_answered() -> None:
    held = Held()
    with listener(held, hasty(body_s=30), loop=HeldLoop) as running, running.client() as client:
        client.send(b"GET /held HTTP/1.1\r\n\r\nPOST /echo HTTP/1.1\r\ncontent-length: 4\r\n\r\nab")
        wait_until_due_in(running, 30)
        running.pass_time(50)
        running.call(held.go_on.set)
        assert client.answer().headers["x-path"] == "/held"
        running.pass_time(29)
        client.send(b"cd")
        assert client.answer().body == b"abcd"


def test_what_is_no_request_is_refused_after_those_before_it() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"GET /slow HTTP/1.1\r\n\r\nno request at all\r\n\r\n")
        assert client.answer().headers["x-path"] == "/slow"
        with pytest.raises(ConnectionError):
            client.answer()


def test_what_is_no_request_is_refused() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        answer = client.answer()
        assert (answer.status, answer.json()["code"]) == (400, "bad_request")
        assert client.is_closed()


def test_a_bad_part_of_a_body_ends_the_request() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\nnot a size\r\n")
        assert client.answer().status == 400
        assert client.is_closed()


@pytest.mark.parametrize("both", [b"content-length: 5\r\ntransfer-encoding: chunked\r\n", b"content-length: 5\r\n" * 2])
def test_a_request_with_two_lengths_is_refused(both: bytes) -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"POST /echo HTTP/1.1\r\n" + both + b"\r\n0\r\n\r\n")
        assert client.answer().status == 400


def test_a_client_hears_a_refusal_although_it_is_still_sending() -> None:
    with listener(application) as running, running.client() as client:
        size = 20 * MIB
        client.send(b"POST /refuse HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % size)
        client.send(bytes(size))
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (413, "close")
        assert client.is_closed()


def test_a_client_that_goes_on_sending_after_a_refusal_is_cut_off() -> None:
    with listener(application, hasty(discarded_bytes_max=1 * MIB)) as running, running.client() as client:
        client.send(b"POST /refuse HTTP/1.1\r\ncontent-length: %d\r\n\r\n" % (100 * MIB))
        with pytest.raises(OSError):  # noqa: PT011 - reset or broken pipe, whichever is first.
            client.send(bytes(100 * MIB))


def test_asking_for_another_protocol_changes_nothing() -> None:
    with listener(application) as running, running.client() as client:
        asking = b"connection: upgrade, http2-settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABk\r\n"
        client.send(b"POST /echo HTTP/1.1\r\ncontent-length: 2\r\n" + asking + b"\r\nab" + HELLO)
        assert client.answer().body == b"ab"
        assert client.answer().body == b"hello"
        client.send(b"POST /echo HTTP/1.1\r\ntransfer-encoding: chunked\r\n" + asking + b"\r\n2\r\ncd\r\n0\r\n\r\n")
        assert client.answer().body == b"cd"
        client.send(b"GET /echo HTTP/1.1\r\n" + asking + b"\r\n")
        assert client.answer().body == b""


def test_a_client_that_asks_first_is_told_to_go_on() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"POST /echo HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 2\r\n\r\n")
        assert client.answer().status == 100
        client.send(b"ab")
        assert client.answer().body == b"ab"


def test_an_answer_of_unknown_length_comes_in_chunks() -> None:
    with listener(application) as running, running.client() as client:
        answer = client.ask("GET", "/chunks")
        assert (answer.body, answer.headers["transfer-encoding"]) == (b"one two", "chunked")
        client.send(b"HEAD /chunks HTTP/1.1\r\n\r\n")
        assert client.answer(is_to_head=True).status == 200
        assert client.ask("GET", "/hello").body == b"hello"


def test_an_old_client_gets_its_answer_and_the_end() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"GET /hello HTTP/1.0\r\n\r\n")
        assert client.answer().headers["connection"] == "close"
        assert client.is_closed()


@pytest.mark.parametrize("path", ["/fails", "/nothing"])
def test_a_mistake_of_ours_is_answered_and_noted(path: str) -> None:
    with listener(application) as running, running.client() as client:
        assert client.ask("GET", path).json()["code"] == "internal"
        assert [event for event, _ in running.log_events] == [REST_FAILED]


def test_each_answer_has_an_id_which_the_log_names_for_what_failed() -> None:
    with listener(application) as running, running.client() as client:
        ids = [client.ask("GET", path).headers["x-request-id"] for path in ("/hello", "/hello")]
        failed = client.ask("GET", "/fails")
        assert len({*ids}) == 2
        ((_, told),) = running.log_events
        assert told["request_id"] == failed.headers["x-request-id"]


def test_half_an_answer_never_looks_whole() -> None:
    with listener(application) as running, running.client() as client, pytest.raises((ConnectionError, ValueError)):
        client.ask("GET", "/chunks?fails")


@pytest.mark.parametrize("path", ["/wait", "/departure"])
def test_a_handler_learns_that_its_client_is_gone(path: str) -> None:
    with listener(application) as running:
        counted: list[int] = []
        shared_of(running).count = lambda _scope, status, _seconds: counted.append(status)
        with running.client() as client:
            client.send(f"GET {path} HTTP/1.1\r\n\r\n".encode())
            running.wait_until(lambda: len(shared_of(running).state.tasks) > 0)
        running.wait_until(lambda: counted == [CLIENT_GONE])


def test_a_peer_that_vanished_is_found_by_the_kernel() -> None:
    with listener(application) as running, running.client() as client:
        client.ask("GET", "/hello")
        (connection,) = shared_of(running).connections
        door = connection.transport.get_extra_info("socket")
        assert door.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert door.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60
        assert door.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 60_000


PIECES = st.sampled_from(
    [
        *(HELLO, b"POST /echo HTTP/1.1\r\n", b"content-length: 3\r\n", b"transfer-encoding: chunked\r\n", b"\r\n"),
        *(b"3\r\nabc\r\n", b"0\r\n\r\n", b"content-length: 99999999999999999999\r\n", b"upgrade: x\r\n", b"\x00\xff"),
        *(
            b"CONNECT a:1 HTTP/1.1\r\n\r\n",
            b"GET * HTTP/1.1\r\n\r\n",
            b"expect: 100-continue\r\n",
            b"GET \xff HTTP/1.1",
        ),
        *(b"connection: close\r\n", b"GET /%zz%00 HTTP/1.1\r\n\r\n", b" continued\r\n", b"HTTP/1.1 200 OK\r\n\r\n"),
    ]
)


@given(st.lists(PIECES | st.binary(max_size=20), max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_bytes_make_the_server_fail_or_hang(shared_listener: Running, pieces: list[bytes]) -> None:
    with shared_listener.client() as hostile:
        try:
            for piece in pieces:
                hostile.send(piece)
            end_speech(hostile.socket)
            while hostile.socket.recv(65_536):
                pass
        except ConnectionError:
            pass
    assert_others_are_served(shared_listener)
    assert not shared_listener.log_events


@pytest.fixture(scope="module", params=[True, False], ids=["tasks", "no-tasks"])
def shared_listener(request: pytest.FixtureRequest) -> Any:
    with listener(application, hasty(head_s=1, body_s=1), needs_tasks=request.param) as running:
        yield running


@pytest.mark.parametrize("needs_tasks", [True, False])
def test_a_client_that_leaves_in_the_middle_leaves_nothing_behind(needs_tasks: bool) -> None:
    with listener(application, needs_tasks=needs_tasks) as running:
        for data in (b"", b"GET /he", b"POST /echo HTTP/1.1\r\ncontent-length: 5\r\n\r\nab", HELLO * 3):
            with Client(running.address) as client:
                client.send(data)
        running.wait_until(lambda: not len(shared_of(running).connections) + len(shared_of(running).state.tasks))
