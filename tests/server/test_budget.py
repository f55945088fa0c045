"""One budget for what all requests hold: past it those that arrive slowly are refused, and the others get through."""

import socket
from contextlib import ExitStack

import pytest

from penstock.contract.limits import KIB, MIB
from penstock.listening.listener import BufferBudget
from tests.server.serving import Answer, Client, HeldLoop, Running, listener
from tests.server.test_connections import Held, application, assert_others_are_served, shared_of

HALF = 300 * KIB


def budget_of(running: Running) -> BufferBudget:
    found: BufferBudget = shared_of(running).budget
    return found


def head_of(length: int, path: str = "/echo") -> bytes:
    return b"POST %b HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (path.encode(), length)


def send_half(running: Running, client: Client) -> None:
    """Send a part of a body, and return when it has arrived."""
    before = running.call(lambda: (budget_of(running).held_bytes, budget_of(running).shed))
    client.send(head_of(MIB) + bytes(HALF))
    held, shed = before
    running.wait_until(lambda: budget_of(running).held_bytes >= held + HALF or budget_of(running).shed > shed)


def is_refused(client: Client) -> bool:
    """Whether something was said to a client that is still sending."""
    client.socket.setblocking(False)
    try:
        return client.socket.recv(1, socket.MSG_PEEK) != b""
    except BlockingIOError:
        return False
    finally:
        client.socket.settimeout(60)


def test_half_read_bodies_of_all_connections_together_are_bounded_and_small_requests_get_through() -> None:
    with ExitStack() as stack:
        running = stack.enter_context(listener(application, buffered_bytes_max=MIB))
        clients = [stack.enter_context(running.client()) for _ in range(10)]
        for client in clients:
            send_half(running, client)
            assert running.call(lambda: budget_of(running).held_bytes) <= MIB
            assert_others_are_served(running)
        refused = [client for client in clients if is_refused(client)]
        assert len(refused) == running.call(lambda: budget_of(running).shed) >= 7
        answer = refused[0].answer()
        assert (answer.status, answer.json()["code"]) == (503, "no_room")
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["limit"] == MIB


def test_a_body_that_comes_quickly_outlives_those_that_were_left() -> None:
    with ExitStack() as stack:
        running = stack.enter_context(listener(application, buffered_bytes_max=MIB, loop=HeldLoop))
        left = [stack.enter_context(running.client()) for _ in range(3)]
        for client in left:
            send_half(running, client)
        running.pass_time(1)
        quick = stack.enter_context(running.client())
        body = b"q" * (600 * KIB)
        quick.send(head_of(len(body)) + body)

        assert quick.answer().body == body
        assert any(is_refused(client) for client in left)


def test_nothing_is_held_when_everybody_is_answered_or_gone() -> None:
    held = Held()
    with listener(held, buffered_bytes_max=MIB) as running:
        with running.client() as first, running.client() as gone, running.client() as piped:
            first.send(head_of(HALF, "/held") + bytes(HALF))
            gone.send(head_of(MIB, "/held") + bytes(HALF))
            piped.send(b"GET /held HTTP/1.1\r\n\r\n" * 5 + head_of(20 * KIB, "/held") + bytes(10 * KIB))
            running.wait_until(lambda: budget_of(running).held_bytes > 2 * HALF)
            running.call(held.go_on.set)
            assert first.answer().status == 200
        running.wait_until(lambda: budget_of(running).held_bytes == 0)
        assert budget_of(running).kept_bytes == 0


def test_requests_that_wait_behind_another_are_counted_and_may_be_refused() -> None:
    held = Held()
    with listener(held, buffered_bytes_max=100 * KIB) as running, running.client() as piped:
        piped.send(b"GET /held HTTP/1.1\r\n\r\n" * 60)
        running.wait_until(lambda: budget_of(running).shed > 0)
        assert running.call(lambda: budget_of(running).held_bytes) <= 100 * KIB
        running.call(held.go_on.set)
        # Those before it are answered, the last with a word that it is the last; none is left out in between.
        statuses: list[Answer] = []
        while not statuses or statuses[-1].headers.get("connection") != "close":
            statuses.append(piped.answer())
        assert {each.status for each in statuses} == {200}
        assert len(statuses) < 60
        assert piped.is_closed()


@pytest.mark.parametrize("is_complete", [False, True], ids=["half of a head", "a whole head"])
def test_large_heads_are_counted(is_complete: bool) -> None:
    held = Held()
    with ExitStack() as stack:
        running = stack.enter_context(listener(held, buffered_bytes_max=200 * KIB))
        for _ in range(10):
            client = stack.enter_context(running.client())
            head = b"GET /held HTTP/1.1\r\nx: " + bytes(50 * KIB).replace(b"\0", b"v")
            client.send(head + b"\r\n\r\n" if is_complete else head)
        running.wait_until(lambda: budget_of(running).shed >= 6)
        assert running.call(lambda: budget_of(running).held_bytes) <= 200 * KIB
        running.call(held.go_on.set)
