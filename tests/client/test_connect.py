"""`penstock.connect`: what a URL may be, TLS, and queues in the process itself."""

import asyncio
import re
import ssl
import subprocess
import sys
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

import penstock
from penstock.client import BadRequest, ConnectionFailed, SyncClient
from penstock.client.caller import Unanswered
from penstock.connect import InProcessTransport, Message, Opened
from penstock.runtime.interface import FolderTaken
from tests.certificates import make_certificate
from tests.client.peers import OK, Peer, peer
from tests.waiting import let_others_run

pytestmark = pytest.mark.real_time


def test_importing_the_package_brings_in_nothing_else() -> None:
    program = (
        "import sys, penstock; assert penstock.__version__; "
        "assert {name for name in sys.modules if name.startswith('penstock.')} <= {'penstock.version'}; "
        "client = penstock.connect('http://127.0.0.1:1'); assert type(client) is penstock.Client; "
        "heavy = {'penstock.server', 'penstock.store', 'penstock.core.queue.queue', 'uvicorn', 'starlette', 'uvloop'}; "
        "assert not heavy & {name for name in sys.modules}, heavy & set(sys.modules); "
        "import penstock.connect; penstock.connect('http://127.0.0.1:1')"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_what_the_package_does_not_have_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="nothing"):
        _ = penstock.nothing
    assert "connect" in dir(penstock)


@pytest.mark.parametrize("url", ["", "file:", "postgresql:x", "127.0.0.1:8080", "memory"])
def test_a_url_that_names_no_place_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="url"):
        penstock.connect(url or "ftp://x")


def test_a_url_without_a_scheme_is_told_all_there_are() -> None:
    for url in ("localhost:8080", "memory", "./data"):
        with pytest.raises(
            ValueError, match=re.escape("http://host:port, https://host:port, postgresql://…, file:PATH")
        ):
            penstock.connect(url)


@pytest.mark.parametrize("name", ["", "a/b", "../x", "é", ".a"])
def test_a_name_that_no_queue_can_have_is_refused_with_the_rule(name: str) -> None:
    with penstock.connect("memory:") as client, pytest.raises(BadRequest) as refused:
        client.queue(name).describe()
    assert refused.value.field == "queue_name"
    assert "the name or the id of a queue has A-Z a-z 0-9 _ - and dots" in refused.value.detail


def test_a_key_that_is_no_key_is_refused_at_once() -> None:
    for url in ("http://127.0.0.1:1", "memory:"):
        with pytest.raises(ValueError, match="authorization"):
            penstock.connect(url, key="a\r\nb")


async def test_a_key_goes_with_every_request() -> None:
    async def refuses(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        writer.write(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n")
        await reader.read()

    async with peer(refuses) as found:
        async with penstock.connect(f"http://{found.address.authority}", key="pk_secret") as client:
            with pytest.raises(penstock.PenstockError):
                await client.queue("x").receive()
        assert b"authorization: Bearer pk_secret\r\n" in found.heads[0]


async def test_queues_in_memory_are_gone_with_their_client() -> None:
    for _ in range(2):
        async with penstock.connect("memory:") as client:
            await client.create_queue("x")
            await client.queue("x").send("y")
            assert (await client.queue("x").describe()).ready == 1


async def test_a_folder_has_one_client_at_a_time(tmp_path: Path) -> None:
    url = f"file:{tmp_path / 'data'}"
    async with penstock.connect(url) as client:
        await client.create_queue("x")
        async with penstock.connect(url) as other:
            for _ in range(2):
                with pytest.raises(FolderTaken):
                    await other.create_queue("y")
    async with penstock.connect(url) as client:
        assert [each.queue_name async for each in client.queues()] == ["x"]


async def test_a_cancelled_call_in_process_is_finished_by_the_application(tmp_path: Path) -> None:
    async with penstock.connect(f"file:{tmp_path / 'data'}") as client:
        await client.create_queue("x")
        queue = client.queue("x")
        task = asyncio.ensure_future(queue.send("y"))  # noqa: TID251 - awaited below.
        # Past the lane, and into the application.
        await let_others_run(10)
        task.cancel()
        await asyncio.wait([task])
        message = await queue.receive(wait_s=60)
        assert message is not None


async def test_a_long_poll_in_process_does_not_keep_a_client_open() -> None:
    client = penstock.connect("memory:")
    await client.create_queue("x")
    waiting = asyncio.ensure_future(client.queue("x").receive(wait_s=60))  # noqa: TID251 - awaited below.
    await let_others_run(20)
    async with asyncio.timeout(40):
        await client.close()
        await asyncio.wait([waiting])


async def test_an_application_that_is_too_slow_leaves_a_request_unanswered() -> None:
    transport = InProcessTransport(slow_application, headers=())
    with pytest.raises(Unanswered, match="within"):
        await transport.request("GET", "/", headers=(), body=b"", timeout_s=0.01, is_repeatable=True)
    await transport.close()


@asynccontextmanager
async def slow_application() -> AsyncIterator[Opened]:
    """An application that answers when its client has left."""

    async def asgi(
        scope: Message, receive: Callable[[], Awaitable[Message]], send: Callable[[Message], Awaitable[None]]
    ) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    yield Opened(asgi, lambda: None)


def test_the_synchronous_face_works_in_memory() -> None:
    with penstock.connect("memory:") as client:
        assert isinstance(client, SyncClient)
        client.create_queue("x")
        client.queue("x").send("y")
        message = client.queue("x").receive()
        assert message is not None
        with message:
            assert message.text == "y"


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    path = tmp_path / "both.pem"
    made = make_certificate(tmp_path, names="DNS:localhost")
    path.write_text(made.key.read_text() + made.cert.read_text())
    return path


async def test_https_is_spoken_only_to_a_server_that_the_client_trusts(
    certificate: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                writer.write(OK.replace(b"200 OK", b"404 No"))
        except (asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            writer.close()

    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(certificate)
    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=own)
    url = f"https://localhost:{server.sockets[0].getsockname()[1]}"
    async with penstock.connect(url, timeout_s=0) as client:
        with pytest.raises(ConnectionFailed, match=r"(?i)certificate"):
            await client.queue("x").describe()
    assert "a certificate that is not trusted here?" in caplog.text
    assert "is the server running" not in caplog.text
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with penstock.connect(url, timeout_s=0, tls=trusting) as client:
        with pytest.raises(penstock.PenstockError, match="404"):
            await client.queue("x").describe()
    server.close()
    await server.wait_closed()
