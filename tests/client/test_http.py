"""The transport over sockets, against peers that behave well and badly."""

import asyncio
from asyncio import StreamReader, StreamWriter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client.caller import Answer, AnswerTooLarge, NotSent, Transport, Unanswered
from penstock.client.http import Address, HttpTransport
from penstock.client.http_answer import BODY_BYTES_MAX, HEADER_BYTES_MAX
from tests.client.peers import (
    OK,
    Peer,
    TransportTo,
    blocking_transport_to,
    looping_transport_to,
    nothing_idle,
    peer,
    polite,
)
from tests.ports import HeldPort
from tests.waiting import let_others_run

pytestmark = pytest.mark.real_time


async def get(transport: Transport, *, timeout_s: float = 60, is_repeatable: bool = True) -> Answer:
    return await transport.request(
        "GET", "/x", headers=(("accept", "a/b"),), body=b"", timeout_s=timeout_s, is_repeatable=is_repeatable
    )


async def post(transport: Transport, body: bytes) -> Answer:
    return await transport.request("POST", "/x", headers=(), body=body, timeout_s=60, is_repeatable=True)


@pytest.fixture(params=[looping_transport_to, blocking_transport_to], ids=["event loop", "blocking"], scope="module")
def transport_to(request: pytest.FixtureRequest) -> TransportTo:
    """Opens a transport of each kind."""
    opened: TransportTo = request.param
    return opened


async def test_a_connection_is_used_again_and_again(transport_to: TransportTo) -> None:
    async with peer(polite) as found, transport_to(found) as transport:
        for _ in range(5):
            assert (await get(transport)).body == b"ok"
        assert found.connections == 1
        assert found.heads[0].startswith(b"GET /x HTTP/1.1\r\n")
        assert b"accept: a/b\r\n" in found.heads[0]
        assert b"host: 127.0.0.1:%d\r\n" % found.address.port in found.heads[0]


async def closes_after_each(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
    await found.request(reader)
    writer.write(OK)
    await writer.drain()


async def test_an_idle_connection_that_the_server_closed_is_not_used_again(transport_to: TransportTo) -> None:
    async with peer(closes_after_each) as found, transport_to(found) as transport:
        for _ in range(3):
            assert (await get(transport, is_repeatable=False)).status == 200
            await nothing_idle(transport)
        assert found.connections == 3


async def closes_on_the_second(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
    await found.request(reader)
    writer.write(OK)
    if found.connections == 1:
        await found.request(reader)
        return
    await polite(found, reader, writer)


async def test_a_repeatable_request_goes_again_if_a_used_connection_was_closed_under_it(
    transport_to: TransportTo,
) -> None:
    async with peer(closes_on_the_second) as found, transport_to(found) as transport:
        await get(transport)
        assert (await get(transport)).body == b"ok"
        assert (found.connections, len(found.heads)) == (2, 3)


async def test_a_request_that_may_not_be_repeated_is_not(transport_to: TransportTo) -> None:
    async with peer(closes_on_the_second) as found, transport_to(found) as transport:
        await get(transport)
        with pytest.raises(Unanswered) as caught:
            await get(transport, is_repeatable=False)
        assert not isinstance(caught.value, NotSent)
        assert len(found.heads) == 2


async def test_a_fresh_connection_that_is_closed_leaves_the_request_unanswered(transport_to: TransportTo) -> None:
    async def hangs_up(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)

    async with peer(hangs_up) as found, transport_to(found) as transport:
        with pytest.raises(Unanswered, match="closed"):
            await get(transport)
        assert found.connections == 1


async def test_a_refused_connection_means_that_nothing_was_sent(transport_to: TransportTo) -> None:
    port = HeldPort()
    async with transport_to(Peer(Address("127.0.0.1", port.number, False))) as transport:
        with pytest.raises(NotSent):
            await get(transport)
    port.give_back()


async def test_an_answer_in_chunks_is_put_together(transport_to: TransportTo) -> None:
    async def chunked(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n")
        await writer.drain()
        writer.write(b"4\r\ndefg\r\n0\r\n\r\n")
        await polite(found, reader, writer)

    async with peer(chunked) as found, transport_to(found) as transport:
        assert (await get(transport)).body == b"abcdefg"
        assert (await get(transport)).body == b"ok"


async def test_an_interim_answer_is_not_taken_for_the_answer(transport_to: TransportTo) -> None:
    async def interim(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        writer.write(b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n" + OK)
        await polite(found, reader, writer)

    async with peer(interim) as found, transport_to(found) as transport:
        assert await get(transport) == Answer(200, {}, b"ok")


@pytest.mark.parametrize(
    ("answer", "kind", "reason"),
    [
        (
            b"HTTP/1.1 200 OK\r\n" + b"x: %s\r\n" % (b"y" * 1000) * (HEADER_BYTES_MAX // 1000 + 1) + b"\r\n",
            AnswerTooLarge,
            "HEADER_",
        ),
        (b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % (BODY_BYTES_MAX + 1), AnswerTooLarge, "BODY_BYTES_MAX"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", Unanswered, "not HTTP"),
        (b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", Unanswered, "protocol|HTTP"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort", Unanswered, "closed"),
    ],
    ids=["headers", "length", "another protocol", "upgrade", "cut off"],
)
async def test_an_answer_that_is_too_large_or_broken_is_no_answer(
    answer: bytes, kind: type[Exception], reason: str, transport_to: TransportTo
) -> None:
    async def says(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        writer.write(answer)
        await writer.drain()

    async with peer(says) as found, transport_to(found) as transport:
        with pytest.raises(kind, match=reason):
            await get(transport)


ENDLESS = {
    "the value of a header": (b"HTTP/1.1 200 OK\r\nx: ", b"y" * 1_000),
    "trailers": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"x: y\r\n" * 100),
    "the value of a trailer": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: ", b"y" * 1_000),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\n"),
    "chunks of a byte each": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n" * 100),
}


@pytest.mark.parametrize(("first", "part"), ENDLESS.values(), ids=ENDLESS.keys())
async def test_an_answer_without_an_end_is_not_taken_into_memory(
    first: bytes, part: bytes, transport_to: TransportTo
) -> None:
    async def says(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        writer.write(first)
        while True:
            writer.write(part)
            await writer.drain()

    async with peer(says) as found, transport_to(found) as transport:
        with pytest.raises(AnswerTooLarge, match="HEADER_BYTES_MAX"):
            await get(transport)


@given(noise=st.binary(min_size=1, max_size=200))
def test_no_noise_from_a_server_is_more_than_an_unanswered_request(noise: bytes, transport_to: TransportTo) -> None:
    async def noisy(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n" + noise)
        await writer.drain()

    async def ask() -> None:
        async with peer(noisy) as found, transport_to(found) as transport:
            try:
                answer = await get(transport, timeout_s=1)
                assert (answer.status, len(answer.body)) == (200, 3)
            except Unanswered:
                pass

    asyncio.run(ask())


async def test_time_runs_out_for_an_answer_that_does_not_come(transport_to: TransportTo) -> None:
    asked = asyncio.Event()

    async def silent(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        asked.set()
        await reader.read()

    async with peer(silent) as found, transport_to(found) as transport:
        with pytest.raises(Unanswered, match=r"within 1 s"):
            await get(transport, timeout_s=1)
        # A try that took all of its time is not tried again by itself.
        await asked.wait()
        assert len(found.heads) == 1


async def test_a_cancelled_request_closes_its_connection_and_no_other_gets_its_answer() -> None:
    asked, release = asyncio.Event(), asyncio.Event()

    async def slow(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        if found.connections == 1:
            asked.set()
            await release.wait()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")
            return
        writer.write(OK)
        await polite(found, reader, writer)

    async with peer(slow) as found, looping_transport_to(found) as transport:
        asking = asyncio.ensure_future(get(transport))  # noqa: TID251 - cancelled, and awaited, here.
        await asked.wait()
        asking.cancel()
        await asyncio.wait([asking])
        assert asking.cancelled()
        release.set()
        assert (await get(transport)).body == b"ok"
        assert found.connections == 2


async def test_a_large_body_arrives_whole_at_a_slow_reader(transport_to: TransportTo) -> None:
    async def slow(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await let_others_run(100)
        await polite(found, reader, writer)

    body = bytes(range(256)) * 80_000
    async with peer(slow) as found, transport_to(found) as transport:
        assert (await post(transport, body)).status == 200
        assert found.bodies == [body]
        assert (await post(transport, b"small")).status == 200
        assert found.connections == 1


async def test_an_answer_before_the_end_of_the_body_is_an_answer(transport_to: TransportTo) -> None:
    async def refuses(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        found.heads.append(head)
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        # It has been read when the other side closes.
        await reader.read(1)
        await answered.wait()

    answered = asyncio.Event()
    async with peer(refuses) as found, transport_to(found) as transport:
        assert (await post(transport, bytes(30_000_000))).status == 413
        assert (await post(transport, bytes(30_000_000))).status == 413
        assert found.connections == 2
        answered.set()


async def test_there_are_no_more_connections_than_allowed(transport_to: TransportTo) -> None:
    busy = most = 0

    async def counts(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        nonlocal busy, most
        while True:
            await found.request(reader)
            busy += 1
            most = max(most, busy)
            await let_others_run(20)
            busy -= 1
            writer.write(OK)

    async with peer(counts) as found, transport_to(found, connections_max=3) as transport:
        answers = await asyncio.gather(*(get(transport) for _ in range(30)))
        assert {answer.body for answer in answers} == {b"ok"}
        assert (most, found.connections) == (3, 3)


async def test_what_a_server_says_unasked_closes_the_connection(transport_to: TransportTo) -> None:
    async def chatty(found: Peer, reader: StreamReader, writer: StreamWriter) -> None:
        await found.request(reader)
        writer.write(OK)
        await heard.wait()
        writer.write(OK)
        await reader.read()

    heard = asyncio.Event()
    async with peer(chatty) as found, transport_to(found) as transport:
        await get(transport)
        heard.set()
        await nothing_idle(transport)
        await get(transport)
        assert found.connections == 2


async def test_a_closed_transport_sends_nothing_any_more(transport_to: TransportTo) -> None:
    async with peer(polite) as found:
        async with transport_to(found) as transport:
            await get(transport)
        with pytest.raises(NotSent):
            await get(transport)


@pytest.mark.parametrize("key", ["a\r\nx: y", "ключ", "a\0"])
async def test_a_header_cannot_carry_another_one_along(key: str) -> None:
    with pytest.raises(ValueError, match="authorization"):
        HttpTransport(Address("127.0.0.1", 1, False), headers=(("authorization", key),))


@pytest.mark.parametrize(
    ("url", "authority", "port"),
    [
        ("http://localhost", "localhost", 80),
        ("http://127.0.0.1:8080/", "127.0.0.1:8080", 8080),
        ("https://queue.example.org", "queue.example.org", 443),
        ("https://[::1]:8443/behind/a/proxy", "[::1]:8443", 8443),
    ],
)
def test_a_url_says_where_a_server_is(url: str, authority: str, port: int) -> None:
    address = Address.of(url)
    assert (address.authority, address.port, address.is_secure) == (authority, port, url.startswith("https"))
    assert address.prefix == ("/behind/a/proxy" if "proxy" in url else "")


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://u:p@x", "http://x/?a=b"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match="url is"):
        Address.of(url)
