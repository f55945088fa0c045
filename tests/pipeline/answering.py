"""Something that answers a task as it is told, and what the task has asked it."""

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from penstock.pipeline.sink.send import Sending
from penstock.wire.frames import Ids, encode_sent

PATIENCE_S = 60.0
HANGS_UP = (0, b"")
TAKEN = (201, encode_sent(Ids(1, [16, 24])))
FULL = (429, b'{"code": "queue_full", "detail": "it is full", "retry_after_s": 7.5}')


class Asked(NamedTuple):
    url: str
    # Of each request, in order.
    paths: list[str]
    answers: list[int]


@contextmanager
def answering(*answers: tuple[int, bytes], after: threading.Event | None = None) -> Iterator[Asked]:
    """Answer as told, the last answer repeatedly; status 0 closes the connection, as a vain wait for ``after`` does."""
    paths: list[str] = []
    said: list[int] = []

    class Answering(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            status, body = answers[min(len(said), len(answers) - 1)]
            paths.append(self.path)
            said.append(status)
            if not status or (after is not None and not after.wait(PATIENCE_S)):
                self.close_connection = True
                return
            self.send_response(status)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answering) as found:
        found.daemon_threads = True
        thread = threading.Thread(target=found.serve_forever)
        thread.start()
        try:
            yield Asked(f"http://127.0.0.1:{found.server_port}", paths, said)
        finally:
            found.shutdown()
            thread.join()


def waiting(url: str, wait_s_max: float = 60.0) -> tuple[Sending, list[float]]:
    """A sending whose clock moves by what it sleeps."""
    slept: list[float] = []
    sending = Sending(url, "", wait_s_max=wait_s_max, now_s=lambda: sum(slept), sleep=slept.append)
    return sending, slept
