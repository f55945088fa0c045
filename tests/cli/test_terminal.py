"""What a server says reaches a terminal as text: nothing in it moves the cursor, or is taken for a command."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app

# Clears the screen, names the window, and goes back over the line; a C1 control, and a mark that turns the writing.
EVIL = "\x1b[2J\x1b]0;owned\x07\rgone\x9b31m\u202e"
PRINTED = [character for character in EVIL if not character.isprintable()]


@contextmanager
def answering(status: int, value: Any) -> Iterator[str]:
    """A server that gives one answer to everything; what is yielded is its address."""
    body = json.dumps(value).encode()

    class OneAnswer(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(status)
            self.send_header("content-type", "application/problem+json" if status >= 400 else "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_DELETE = do_PATCH = _answer  # noqa: N815 - names of the library.

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), OneAnswer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def penstock(url: str, *arguments: str) -> Result:
    environment = {"PENSTOCK_URL": url, "PENSTOCK_KEY": "", "PENSTOCK_CONFIG": "", "PENSTOCK_DATA": ""}
    return CliRunner().invoke(app, [*arguments], env=environment)


@pytest.mark.parametrize("command", [("queue", "list"), ("queue", "purge", "orders", "--yes"), ("send", "orders", "x")])
def test_an_error_of_a_server_cannot_move_the_cursor(command: tuple[str, ...]) -> None:
    problem = {"title": EVIL, "status": 400, "code": "bad_request", "detail": f"before{EVIL}after", "field": EVIL}
    with answering(400, problem) as url:
        said = penstock(url, *command)

    assert said.exit_code == 65
    assert "before" in said.stderr
    assert "after" in said.stderr
    assert not [character for character in PRINTED if character in said.output]


def test_a_table_of_what_a_server_says_cannot_move_the_cursor() -> None:
    row = {"topic_name": f"before{EVIL}after", "topic_id": "t_1", "partition_count": 1, "record_count": 1}
    with answering(200, {"topics": [row | {"size_bytes": 1}], "next_cursor": None}) as url:
        said = penstock(url, "topic", "list")

    assert "before" in said.stdout, said.output
    assert not [character for character in PRINTED if character in said.stdout]
