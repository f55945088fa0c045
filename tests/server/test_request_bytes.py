"""What a request may make a server keep: its head, what stands around its body, and how slowly that may come."""

import contextlib
from collections.abc import Iterator
from itertools import repeat

import pytest

from penstock.contract.limits import KIB
from penstock.listening.http_connection import Phase
from tests.server.serving import Client, hasty, listener
from tests.server.test_connections import application, assert_others_are_served, wait_for_connection

CHUNKED = b"POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n"
# Far more than is kept of anything; a server that does not refuse it is not tested any longer.
POURED_KIB_MAX = 16 * KIB

AROUND_A_BODY = {
    "a trailer that does not end": (b"0\r\nx: ", b"v" * KIB),
    "the name of a trailer that does not end": (b"0\r\n", b"n" * KIB),
    "trailers without end": (b"0\r\n", b"x: y\r\n" * 200),
    "trailers behind a large body": (b"40000\r\n" + b"b" * 0x40000 + b"\r\n0\r\n", b"x: y\r\n" * 200),
    "an extension of a chunk that does not end": (b"5;name=", b"v" * KIB),
    "chunks of a byte each": (b"", b"1\r\nx\r\n" * 200),
    "chunks with long extensions": (b"", b"1;%b\r\nx\r\n" % (b"v" * KIB)),
}


def pour(client: Client, first: bytes, parts: Iterator[bytes]) -> None:
    """Send until the other side has had enough."""
    with contextlib.suppress(ConnectionError):
        client.send(first)
        sent = 0
        while sent < POURED_KIB_MAX * KIB:
            part = next(parts)
            client.send(part)
            sent += len(part)


@pytest.mark.parametrize(("first", "part"), AROUND_A_BODY.values(), ids=AROUND_A_BODY.keys())
def test_what_stands_around_a_body_is_refused_beyond_the_limit_of_a_head(first: bytes, part: bytes) -> None:
    with listener(application, hasty(discarded_bytes_max=POURED_KIB_MAX * KIB)) as running, running.client() as client:
        pour(client, CHUNKED + first, repeat(part))

        answer = client.answer()
        assert (answer.status, answer.json()["code"]) == (431, "headers_too_large")
        assert answer.json()["limit"] == 64 * KIB
        assert_others_are_served(running)


def test_a_long_body_in_small_chunks_is_taken() -> None:
    body = b"c" * 64 * 20_000
    with listener(application) as running, running.client() as client:
        client.send(CHUNKED + b"".join(b"40\r\n%b\r\n" % body[at : at + 64] for at in range(0, len(body), 64)))
        client.send(b"0\r\nx-trailer: short\r\n\r\n")

        assert client.answer().body == body


def test_too_many_headers_are_refused_however_short() -> None:
    with listener(application) as running, running.client() as client:
        client.send(b"GET /hello HTTP/1.1\r\n" + b"a:b\r\n" * 257 + b"\r\n")

        assert client.answer().json()["code"] == "headers_too_large"
        assert client.is_closed()


def test_a_head_that_comes_in_pieces_behind_a_large_body_is_not_too_large() -> None:
    body = b"b" * (300 * KIB)
    with listener(application) as running, running.client() as client:
        client.send(b"POST /echo HTTP/1.1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))
        assert client.answer().body == body

        client.send(b"GET /hello HTTP/1.1\r\nhos")
        wait_for_connection(running, lambda each: each.phase is Phase.HEAD)
        client.send(b"t: x\r\n\r\n")
        assert client.answer().body == b"hello"
