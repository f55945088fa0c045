"""``python -m bench.growth.embedded``: a server on the embedded store while one thing grows, as ms and ratios.

Each line has a backlog at three sizes, or at four with `--most 5000000`, and one operation on all of it, at which a
server would stall first. While the operation and what follows it go on, another process asks for `/health/live`. A line
says how long the operation took; how long those answers took, at the 99.9th percentile and at most; and how long the
loop computed at most, from the start of the server, before it gave a sign to its watchdog: processor time, in which
other work of the machine has no part. An operation that has to grow has its rate beside it, in messages a second. On a
machine that does other things, too, `--ahead` lets the server and those who ask go before them, if root runs it.

The tests count lines of Python instead (`tests/store/test_steps.py`).
"""

import argparse
import http.client
import json
import multiprocessing
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from bench.processes import go_ahead, penstock

SIZES = (10_000, 100_000, 1_000_000, 5_000_000)
BATCH = 1_000
HEALTH_EVERY_S = 0.005
# What follows an operation goes on behind its answer: the history of a purge takes some five seconds for a million.
AFTER_S = 3.0
# What the server notes as a stall, with its culprit. Its loop is asked for a sign twice as often.
STALL_MS = 10
LOOP_CPU = re.compile(r"^penstock_loop_cpu_max_seconds (\S+)", re.MULTILINE)

HELD = {"visibility_timeout": 43_200}
ONCE = {"max_deliveries": 1}

Fill = Callable[["Client", int], None]
Operate = Callable[["Client"], None]


class Client:
    def __init__(self, port: int, pid: int = 0) -> None:
        self.port = port
        # Of the server.
        self.pid = pid
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
        # The messages of the last lease.
        self.leased: list[dict[str, Any]] = []

    def ask(self, method: str, path: str, body: object = None) -> Any:
        text = None if body is None else json.dumps(body)
        self._connection.request(method, path, text, {"content-type": "application/json"} if text else {})
        answer = self._connection.getresponse()
        data = answer.read()
        assert answer.status < 300, (answer.status, data[:300])
        return json.loads(data) if data and answer.headers["content-type"] == "application/json" else data

    def wait_until(self, instant: float) -> None:
        """Let time pass, without the connection: a server closes one that is idle."""
        self.close()
        time.sleep(max(0.0, instant - time.time()))

    def close(self) -> None:
        """It is opened again by the next request."""
        self._connection.close()

    def send(self, count: int, **also: Any) -> None:
        drafts = [{"data": "x", **also} for _ in range(BATCH)]
        for _ in range(count // BATCH):
            self.ask("POST", "/api/queues/orders/messages", {"messages": drafts})

    def lease(self, limit: int, **also: Any) -> list[dict[str, Any]]:
        self.leased = self.ask("POST", "/api/queues/orders/lease", {"limit": limit, **also})["messages"]
        return self.leased

    def counts(self) -> dict[str, Any]:
        return dict(self.ask("GET", "/api/queues/orders"))


@dataclass(frozen=True)
class Measured:
    took_ms: float
    # Of the whole run, with what fills the queue.
    loop_cpu_ms: float
    health: "Health"
    stalls: list[str]


@dataclass(frozen=True)
class Line:
    name: str
    settings: dict[str, Any]
    fill: Fill
    operate: Operate
    # It grows with the backlog by its nature: its rate is what should stay the same.
    grows: bool = False
    # What is measured is the start of a second server on the same folder.
    restarts: bool = False


class Health:
    """Asks whether the server lives, from a process of its own, and remembers how long each answer took.

    Where it goes before what else the machine does, it waits for the server alone.
    """

    def __init__(self, server: Client, *, is_ahead: bool) -> None:
        self._port = server.port
        self._is_ahead = is_ahead
        self.answers_ms: list[float] = []

    def __enter__(self) -> Self:
        self._ours, theirs = multiprocessing.Pipe()
        self._process = multiprocessing.Process(target=self._ask, args=(theirs,), daemon=True)
        self._process.start()
        assert self._ours.recv()
        return self

    def __exit__(self, *_: object) -> None:
        self._ours.send("enough")
        self.answers_ms = self._ours.recv()
        self._process.join()

    def _ask(self, until: Connection) -> None:
        client = Client(self._port)
        os.setsid()
        if self._is_ahead:
            go_ahead()
        answers_ms: list[float] = []
        until.send("begun")
        while not until.poll(HEALTH_EVERY_S):
            began = time.perf_counter()
            # Until a server that starts listens, there is none to ask.
            try:
                client.ask("GET", "/health/live")
            except ConnectionError:
                client.close()
            else:
                answers_ms.append((time.perf_counter() - began) * 1_000)
        until.send(answers_ms)

    def at_most_ms(self, share: float) -> float:
        return sorted(self.answers_ms)[min(len(self.answers_ms) - 1, int(len(self.answers_ms) * share))]


def _grouped(client: Client, size: int) -> None:
    for nth in range(size // BATCH):
        drafts = [{"data": "x", "group": f"g{(nth * BATCH + row) % 1_000}"} for row in range(BATCH)]
        client.ask("POST", "/api/queues/orders/messages", {"messages": drafts})


def _delayed(client: Client, size: int) -> None:
    ends_at = _soon(size)
    client.send(size, scheduled_at=ends_at)
    client.wait_until(ends_at)


def _leased_for_the_last_time(client: Client, size: int) -> None:
    ends_at = _soon(size)
    for _ in range(size // BATCH):
        client.send(BATCH)
        client.lease(BATCH, visibility_timeout=max(0.5, ends_at - time.time()))
    client.wait_until(ends_at)


def _soon(size: int) -> float:
    """An instant for all, when there has been time to send them."""
    return time.time() + 5 + size / 8_000


def _leased(client: Client, size: int, each: int = BATCH) -> None:
    for _ in range(size // BATCH):
        client.send(BATCH)
        for _ in range(BATCH // each):
            client.lease(each)


def _waiting(client: Client, size: int) -> None:
    client.send(size)


def _leased_by_one(client: Client, size: int) -> None:
    _leased(client, size, 1)


def _leased_by_ten(client: Client, size: int) -> None:
    _leased(client, size, 10)


def _dead(client: Client, size: int) -> None:
    for _ in range(size // BATCH):
        client.send(BATCH)
        receipts = [message["receipt"] for message in client.lease(BATCH)]
        client.ask("POST", "/api/queues/orders/release", {"receipts": receipts, "reject": True})
    _wait_until_none_is("stuck")(client)


def _queues(client: Client, size: int) -> None:
    for number in range(size // 200):
        client.ask("POST", "/api/queues", {"queue_name": f"quiet-{number}"})


def _purge(client: Client) -> None:
    client.ask("POST", "/api/queues/orders/purge")


def _wait_until_none_is(place: str) -> Operate:
    def wait(client: Client) -> None:
        while client.counts()[place]:
            time.sleep(0.05)

    return wait


def _pages(client: Client) -> None:
    cursor = ""
    for _ in range(20):
        page = client.ask("GET", f"/api/queues/orders/live?bodies=false&limit=1000&cursor={cursor}")
        cursor = page["next_cursor"]
        if not cursor:
            return


def _purge_and_tell(client: Client) -> None:
    """Until the history has all rows: they are written in turns, behind the answer."""
    _purge(client)
    client.ask("GET", "/api/queues/orders/live?bodies=false&limit=1&told=true")


def _nothing(_: Client) -> None:
    """What is measured is the start."""


def _ack_by_id(client: Client) -> None:
    for message in client.leased:
        client.ask("DELETE", f"/api/queues/orders/messages/{message['message_id']}")


def _scrape(client: Client) -> None:
    for _ in range(10):
        client.ask("GET", "/metrics")


def _escalate(client: Client) -> None:
    why = {"actor": "bench", "reason": "none fits"}
    client.ask("POST", "/api/queues/orders/escalate", {"priority": "HIGH", "filter": {"text": "needle"}, **why})


def _redrive(**wanted: Any) -> Operate:
    def redrive(client: Client) -> None:
        path = "/api/queues/orders.dead/redrive"
        task = client.ask("POST", path, wanted)
        while task["state"] == "running":
            time.sleep(0.02)
            task = client.ask("GET", f"{path}/{task['task_id']}")
        assert task["state"] in {"done", "stopped"}, task

    return redrive


LINES = (
    Line("purge of grouped messages", {}, _grouped, _purge),
    Line("the same until its history is written", {}, _grouped, _purge_and_tell, grows=True),
    Line("purge of messages in leases of 1,000", HELD, _leased, _purge),
    Line("delays that end at one instant", {}, _delayed, _wait_until_none_is("delayed"), grows=True),
    Line(
        "last deliveries that lapse together",
        ONCE,
        _leased_for_the_last_time,
        _wait_until_none_is("in_flight"),
        grows=True,
    ),
    Line("20 pages of what is live, grouped", {}, _grouped, _pages),
    Line("ack 10 by id among leases of ten", HELD, _leased_by_ten, _ack_by_id),
    Line("escalate by a filter that fits nothing", {}, _grouped, _escalate, grows=True),
    Line("redrive by a filter that fits nothing", ONCE, _dead, _redrive(filter={"text": "needle"}), grows=True),
    Line("the same as a dry run", ONCE, _dead, _redrive(filter={"text": "needle"}, dry_run=True), grows=True),
    Line("redrive of all", ONCE, _dead, _redrive(), grows=True),
    Line("10 scrapes, a queue for each 200", {}, _queues, _scrape),
    Line("restart with messages that wait", {}, _waiting, _nothing, grows=True, restarts=True),
    Line("restart with FIFO groups", {"fifo": True}, _grouped, _nothing, grows=True, restarts=True),
    Line("restart with leases of ten", HELD, _leased_by_ten, _nothing, grows=True, restarts=True),
    Line("restart with leases of one", HELD, _leased_by_one, _nothing, grows=True, restarts=True),
)


@contextmanager
def _serving(folder: Path, port: int = 0, *, is_ahead: bool = False) -> Iterator[Client]:
    with penstock(folder, "--no-kafka", "--port", str(port), is_ahead=is_ahead) as server:
        yield Client(server.port, server.pid)


def measure(line: Line, size: int, *, is_ahead: bool) -> Measured:
    folder = Path(tempfile.mkdtemp(prefix="growth-"))
    (folder / "penstock.toml").write_text(f"[server]\nstall_ms = {STALL_MS}\n")
    try:
        with ExitStack() as servers:
            client = servers.enter_context(_serving(folder))
            client.ask("POST", "/api/queues", {"queue_name": "orders", **line.settings})
            line.fill(client, size)
            if line.restarts:
                servers.close()
            if is_ahead and not line.restarts:
                go_ahead(client.pid)
            with Health(client, is_ahead=is_ahead) as health:
                began = time.perf_counter()
                if line.restarts:
                    client = servers.enter_context(_serving(folder, client.port, is_ahead=is_ahead))
                else:
                    (folder / "stderr").write_text("")
                    line.operate(client)
                took_ms = (time.perf_counter() - began) * 1_000
                # To let go on what goes on behind the answer, and to have a percentile.
                time.sleep(AFTER_S)
            notes = (folder / "stderr").read_text().replace("\0", "").splitlines()
            (loop_cpu_s,) = LOOP_CPU.findall(client.ask("GET", "/metrics").decode())
            stalls = [text for text in notes if "server.stalled" in text]
            return Measured(took_ms, float(loop_cpu_s) * 1_000, health, stalls)
    finally:
        with suppress(OSError):
            shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--most", type=int, default=SIZES[-2], help="leave out sizes above this")
    parser.add_argument("--least", type=int, default=SIZES[0], help="leave out sizes below this")
    parser.add_argument("--only", default="", help="only lines with this in their names")
    parser.add_argument("--culprits", action="store_true", help="print what the server notes of stalls")
    parser.add_argument("--ahead", action="store_true", help="give the server's loop precedence, as root")
    args = parser.parse_args()
    print(
        "ms of the operation, times that of the smallest size · /health/live: p99.9, longest · the loop's CPU at most"
    )
    for line in LINES:
        if args.only not in line.name:
            continue
        first_ms = 0.0
        for size in (size for size in SIZES if args.least <= size <= args.most):
            found = measure(line, size, is_ahead=args.ahead)
            first_ms = first_ms or found.took_ms
            rate = f"{size / found.took_ms * 1_000:>11,.0f}/s" if line.grows else ""
            print(
                f"{line.name:40} {size:>10,} {found.took_ms:10.1f} {found.took_ms / first_ms:6.1f}× {rate:13}"
                f"  · {found.health.at_most_ms(0.999):6.1f} {found.health.at_most_ms(1.0):6.1f}"
                f"  · {found.loop_cpu_ms:6.1f}",
                flush=True,
            )
            if args.culprits:
                print(*found.stalls, sep="\n", flush=True)


if __name__ == "__main__":
    main()
