"""A server that is told to stop: who is answered, who is refused, and how long it takes."""

import asyncio
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from penstock.settings import ServerSettings
from tests.server.serving import Running, hasty, listener, server
from tests.server.test_connections import Held, application, shared_of
from tests.waiting import wait_until


def in_memory(tmp_path: Path, **more: Any) -> ServerSettings:
    return ServerSettings(port=0, data=tmp_path, store="memory:", **more)


def tell(running: Running) -> None:
    assert running.loop is not None
    running.loop.call_soon_threadsafe(running.stop)


def test_long_polls_are_answered_at_once_with_nothing(tmp_path: Path) -> None:
    # One that waited on would be cut off after half of its time, and have no answer.
    settings = in_memory(tmp_path, stop_timeout_s=10)
    with server(settings) as running, running.client() as client, running.client() as other:
        client.ask("POST", "/api/queues", {"queue_name": "orders"})
        client.send(b"GET /api/queues/orders/messages?wait_s=20 HTTP/1.1\r\nhost: localhost\r\n\r\n")
        while b"penstock_long_polls_waiting 1.0" not in other.ask("GET", "/metrics").body:
            pass
        tell(running)
        answer = client.answer()
        assert (answer.status, answer.json()["message"]) == (200, None)
        assert answer.headers["connection"] == "close"


def test_sends_on_open_connections_are_refused_and_new_connections_too(tmp_path: Path) -> None:
    # Both clients have said something before it is over, however slow the machine is; the second wish cuts it short.
    with (
        server(in_memory(tmp_path), hasty(grace_s=60)) as running,
        running.client() as client,
        running.client() as probe,
    ):
        client.ask("POST", "/api/queues", {"queue_name": "orders"})
        tell(running)
        while (ready := probe.ask("GET", "/health/ready")).status == 200:
            pass
        assert ready.json() == {"status": "not_ready", "reasons": ["stopping"]}
        # The sockets are closed a moment after that is said.
        wait_until(lambda: _is_refused(running))
        refused = client.ask("POST", "/api/queues/orders/messages", {"data": "x"})
        assert (refused.status, refused.json()["code"]) == (503, "stopping")
        assert refused.headers["connection"] == "close"
        assert client.is_closed()
        tell(running)


def _is_refused(running: Running) -> bool:
    try:
        with running.client():
            return False
    except ConnectionError:
        return True


def test_a_running_request_is_finished() -> None:
    held = Held()
    with listener(held) as running, running.client() as client:
        client.send(b"GET /held HTTP/1.1\r\n\r\n")
        _wait_for_work(running)
        draining = begin_to_drain(running, timeout_s=60)
        running.wait_until(lambda: shared_of(running).is_stopping)
        running.call(held.go_on.set)
        answer = client.answer()
        assert (answer.status, answer.headers["connection"]) == (200, "close")
        assert draining.result(100) == 0


def test_a_request_that_does_not_end_is_cut_off_when_time_is_up() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"GET /endless HTTP/1.1\r\n\r\n")
        _wait_for_work(running)
        assert drain(running, timeout_s=0.3) == 1
        assert client.is_closed()


def test_a_second_signal_cuts_requests_off() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"GET /endless HTTP/1.1\r\n\r\n")
        _wait_for_work(running)
        assert drain(running, timeout_s=600, hurry_after_s=0.3) == 1
        assert client.is_closed()


def _wait_for_work(running: Running) -> None:
    while not running.call(lambda: len(running.shared.state.tasks)):  # type: ignore[union-attr]
        pass


def drain(running: Running, *, timeout_s: float, hurry_after_s: float | None = None) -> int:
    """Drain the listener as a server that stops does; return how many requests were cut off."""
    return begin_to_drain(running, timeout_s=timeout_s, hurry_after_s=hurry_after_s).result(100)


def begin_to_drain(running: Running, *, timeout_s: float, hurry_after_s: float | None = None) -> Future[int]:

    async def on_the_loop() -> int:
        hurry = asyncio.Event()
        if hurry_after_s is not None:
            asyncio.get_running_loop().call_later(hurry_after_s, hurry.set)
        assert running.listener is not None
        return await running.listener.drain(timeout_s, hurry)

    assert running.loop is not None
    return asyncio.run_coroutine_threadsafe(on_the_loop(), running.loop)


def test_a_server_with_a_delay_serves_on_after_it_has_said_that_it_stops(tmp_path: Path) -> None:
    with server(in_memory(tmp_path, stop_delay_s=600)) as running, running.client() as client:
        client.ask("POST", "/api/queues", {"queue_name": "orders"})
        tell(running)
        while client.ask("GET", "/health/ready").status == 200:
            pass
        sent = client.ask("POST", "/api/queues/orders/messages", {"messages": [{"data": "teapot"}]})
        assert sent.status == 201
        # The second wish cuts it short.
        tell(running)
