"""HTTP as bytes on a socket, for requests that no client would send."""

import json
import socket
from typing import Any, NamedTuple

SECONDS_MAX = 60.0


class RawAnswer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of a problem."""
        assert self.headers["content-type"] == "application/problem+json", self
        assert self.json["status"] == self.status
        found: str = self.json["code"]
        return found


def request(method: str, path: str, body: bytes = b"", /, **headers: str) -> bytes:
    """Return a request as it should be, with a content type of JSON unless it says another."""
    fields = {"host": "localhost", "content_type": "application/json", "content_length": str(len(body)), **headers}
    head = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value)
    return f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def ask(port: int, sent: bytes) -> RawAnswer:
    """Send bytes on a connection of their own, and return the first answer."""
    with connect(port) as connection:
        connection.sendall(sent)
        return read_answer(connection.makefile("rb"))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=SECONDS_MAX)


def read_answer(stream: Any) -> RawAnswer:
    status = int(stream.readline().split()[1])
    headers = {}
    while line := stream.readline().strip():
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.lower()] = value.strip()
    if status == 100:
        return read_answer(stream)
    if "content-length" not in headers:
        return RawAnswer(status, headers, b"" if status in {204, 304} else stream.read())
    return RawAnswer(status, headers, stream.read(int(headers["content-length"])))
