"""Requests that offer another protocol (`Upgrade: h2c`, as some clients do at first) and are answered in this one.

The parser takes what follows the head of such a request for the other protocol: it
says that the request is complete, and stops before its body. A server that goes on
from there takes the body for the next request. So the body is read by a parser of its
own, which is told the length again and stays for all requests that follow.
"""

from typing import Any

import httptools

_LENGTHS = (b"content-length", b"transfer-encoding")


def framing_of(headers: list[tuple[bytes, bytes]]) -> bytes:
    """Return a head that says of a body what these headers say; empty if there is no body."""
    lengths = [b"%b: %b\r\n" % (name, value) for name, value in headers if name in _LENGTHS]
    return b"POST / HTTP/1.1\r\n%b\r\n" % b"".join(lengths) if lengths else b""


def parser_of_body(framing: bytes, protocol: Any) -> Any:
    """Return a parser that goes on where a head has ended, and calls ``protocol`` as its own would."""
    parser = httptools.HttpRequestParser(_Rest(protocol))
    parser.feed_data(framing)
    return parser


class _Rest:
    """Keeps the head that was made up to itself."""

    def __init__(self, protocol: Any) -> None:
        self._protocol = protocol
        self._is_past = False
        self.on_body = protocol.on_body

    def on_message_begin(self) -> None:
        if self._is_past:
            self._protocol.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._is_past:
            self._protocol.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_past:
            self._protocol.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._is_past:
            self._protocol.on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_past = True
        self._protocol.on_message_complete()
