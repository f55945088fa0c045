"""The synchronous face: threads, forks, interrupts, and the same answers."""

import multiprocessing
import os
import signal
import socket
import ssl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import penstock
from penstock.client import ClientClosed, Draft, PenstockError, QueueFull, QueueNotFound, StaleReceipt
from penstock.client.blocking_http import BlockingTransport, drive
from penstock.client.caller import Answer, NotSent
from penstock.client.http import Address
from tests.certificates import make_certificate
from tests.client.serving import Server
from tests.waiting import wait_until


def test_the_synchronous_face_does_what_the_other_does(url: str, name: str) -> None:
    with penstock.connect(url) as client:
        assert client.create_queue(name, retry={"min_backoff_s": 0}).queue_name == name
        queue = client.queue(name)
        first = queue.send("one", priority="HIGH")
        ids = queue.send_many([b"two", {"three": 3}, Draft(data="four", priority="LOW")])
        assert len(ids) == 3
        message = queue.receive()
        assert message is not None
        assert (message.id, message.text, message.priority) == (first, "one", "HIGH")
        with message:
            message.extend(100)
        with pytest.raises(StaleReceipt):
            message.ack()
        batch = queue.receive(limit=10, wait_s=1)
        assert (len(batch), batch.bodies[0], batch[-1].text) == (3, b"two", "four")
        assert batch.extend(60) == [True] * 3
        assert queue.release(batch[0], error="later", delay_s=50) == [True]
        assert batch.ack() == [False, True, True]
        assert queue.describe().delayed == 1
        assert name in [each.queue_name for each in client.queues(prefix="queue-")]
        assert queue.pause().paused
        assert not queue.resume().paused
        assert queue.purge() == 1
        assert queue.delete().deleted
        with pytest.raises(QueueNotFound):
            queue.send("x")


def test_a_block_of_the_synchronous_face_releases_on_an_exception(url: str, name: str) -> None:
    with penstock.connect(url) as client:
        client.create_queue(name, retry={"min_backoff_s": 0})
        queue = client.queue(name)
        queue.send("x")
        seen = []
        for message in queue.consume(prefetch=5):
            seen.append(message.delivery_count)
            if len(seen) == 2:
                assert message.last_error == "KeyError: 'a'"
                message.ack()
                break
            with pytest.raises(KeyError), message:
                raise KeyError("a")
        assert seen == [1, 2]
        assert queue.describe().current_message_count == 0


def test_many_threads_share_a_client(url: str, name: str) -> None:
    with penstock.connect(url) as client:
        client.create_queue(name)
        queue = client.queue(name)

        def work(first: int) -> list[str]:
            return [queue.send(b"%d" % number) for number in range(first, 400, 20)]

        with ThreadPoolExecutor(20) as threads:
            ids = [each for found in threads.map(work, range(20)) for each in found]
        assert len(set(ids)) == 400
        batch = queue.receive(limit=1000)
        assert sorted(map(int, batch.bodies)) == list(range(400))
        with ThreadPoolExecutor(20) as threads:
            assert list(threads.map(lambda message: message.ack(), batch)) == [None] * 400
        assert queue.describe().current_message_count == 0


def test_an_error_reaches_the_thread_that_made_it(url: str, name: str) -> None:
    with penstock.connect(url) as client:
        client.create_queue(name, queue_size=10)
        queue = client.queue(name)
        with pytest.raises(QueueFull):
            queue.send_many(["x"] * 20, timeout_s=0)
        # The thread is as well as before.
        assert queue.receive() is not None


def test_a_closed_client_ends_its_thread_and_says_that_it_is_closed(url: str, name: str) -> None:
    before = set(threading.enumerate())
    client = penstock.connect(url).sync()
    assert set(threading.enumerate()) <= before, "nothing starts before the first call"
    client.create_queue(name)
    # A client of a server has none: its calls run where they are made.
    has_thread = any(thread.name == "penstock-client" for thread in threading.enumerate())
    assert has_thread != url.startswith("http")
    client.close()
    client.close()
    assert not any(thread.name == "penstock-client" for thread in threading.enumerate())
    with pytest.raises(ClientClosed):
        client.queue(name).send("x")


def test_a_client_that_was_never_used_is_closed_without_a_thread() -> None:
    with penstock.connect("http://127.0.0.1:1") as client:
        assert client.queue("x").name == "x"


def _send_in_child(client: penstock.SyncClient, name: str) -> None:
    try:
        for number in range(10):
            client.queue(name).send(b"child %d" % number)
        client.close()
    except BaseException:
        os._exit(1)
    os._exit(0)


# Newer Pythons warn of every fork of a process with threads; that it goes well is what is tried here.
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_sends_under_a_name_of_its_own(server: Server, name: str) -> None:
    with penstock.connect(server.url) as client:
        client.create_queue(name)
        queue = client.queue(name)
        queue.send(b"parent")
        child = multiprocessing.get_context("fork").Process(target=_send_in_child, args=(client, name))
        child.start()
        for number in range(10):
            queue.send(b"parent %d" % number)
        child.join(120)
        assert child.exitcode == 0
        # With one sender for both, the server would have taken one's sends for repeats of the other's.
        assert len(queue.receive(limit=100)) == 21


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_ends_no_connection_of_its_parent(server: Server, name: str) -> None:
    with penstock.connect(server.url) as client:
        client.create_queue(name)
        queue = client.queue(name)
        queue.send(b"parent")
        (before,) = _sockets(client)
        child = multiprocessing.get_context("fork").Process(target=_send_in_child, args=(client, name))
        child.start()
        child.join(120)
        assert child.exitcode == 0
        queue.send(b"parent")
        assert _sockets(client) == [before]
        assert len(queue.receive(limit=100)) == 12


def _sockets(client: penstock.SyncClient) -> list[object]:
    transport = client._current().client._caller._transport  # type: ignore[attr-defined] # `sync.pyi` tells of none.
    assert isinstance(transport, BlockingTransport)
    return list(transport._open)


def test_an_interrupted_call_leaves_the_client_as_good_as_before(server: Server, name: str) -> None:
    with penstock.connect(server.url) as client:
        client.create_queue(name)
        queue = client.queue(name)

        def interrupt(*_: object) -> None:
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGALRM, interrupt)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.2)
            with pytest.raises(KeyboardInterrupt):
                queue.receive(wait_s=20)
        finally:
            signal.signal(signal.SIGALRM, before)
        # Its connection went with it, so no late answer is taken for the next one.
        queue.send(b"x")
        assert queue.receive(wait_s=60) is not None


def test_a_client_that_is_closed_ends_the_long_polls_of_other_threads(server: Server, name: str) -> None:
    client = penstock.connect(server.url).sync()
    client.create_queue(name)
    with ThreadPoolExecutor(2) as threads:
        polls = [threads.submit(client.queue(name).receive, wait_s=20) for _ in range(2)]
        wait_until(lambda: len(_sockets(client)) >= 2 and not client._current().client._caller._transport._idle)  # type: ignore[attr-defined]
        client.close()
        for poll in polls:
            with pytest.raises(PenstockError):
                poll.result()


def test_a_server_that_comes_back_is_found_again(tmp_path: Path, name: str) -> None:
    with Server(tmp_path / "data") as own, penstock.connect(own.url) as client:
        client.create_queue(name)
        queue = client.queue(name)
        queue.send(b"before")
        own.kill()
        own.start()
        # The connection of the pool is a dead one.
        queue.send(b"after")
        assert list(queue.receive(limit=2).bodies) == [b"before", b"after"]


def test_tls_is_spoken_without_an_event_loop(tmp_path: Path) -> None:
    made = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.cert, made.key)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        large = bytes(range(256)) * 20_000

        def serve() -> None:
            for _ in range(2):
                try:
                    with (
                        context.wrap_socket(listening.accept()[0], server_side=True) as peer,
                        peer.makefile("rwb") as file,
                    ):
                        for _ in range(2):
                            head = b"".join(iter(file.readline, b"\r\n"))
                            body = file.read(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
                            file.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
                            file.flush()
                except ssl.SSLError:
                    # The client that does not trust it.
                    pass

        serving = threading.Thread(target=serve)
        serving.start()
        address = Address("localhost", listening.getsockname()[1], True)
        with pytest.raises(NotSent, match=r"(?i)certificate"):
            _post(BlockingTransport(address), b"x")
        transport = BlockingTransport(address, tls=ssl.create_default_context(cafile=str(made.cert)))
        assert _post(transport, b"small").body == b"small"
        assert _post(transport, large).body == large
        drive(transport.close())
        serving.join(60)


def _post(transport: BlockingTransport, body: bytes) -> Answer:
    return drive(transport.request("POST", "/", headers=(), body=body, timeout_s=60, is_repeatable=False))


def test_connect_reads_the_environment_where_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str
) -> None:
    monkeypatch.setenv("PENSTOCK_URL", f"file:{tmp_path / 'data'}")
    with penstock.connect() as client:
        client.create_queue(name)
        client.queue(name).send("kept")
    with penstock.connect(f"file:{tmp_path / 'data'}") as client:
        message = client.queue(name).receive()
        assert message is not None
        assert message.text == "kept"
