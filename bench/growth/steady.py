"""``python -m bench.growth.steady``: minutes of the same load, and whether anything grows meanwhile.

A server on each store sends, leases and acks at a steady pace: plain messages and those of groups, delayed ones, some
that fail once and some that are rejected. A line for each part of the time says how many messages went round, how long
the calls took (median, 99th percentile, longest), the memory of the server, and what is stored: the history grows by
design, as each message leaves a row, until it is as old as is kept. All else should level off.
"""

import argparse
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from bench.growth.embedded import Client
from bench.processes import Server, penstock
from tests.postgres import servers

BATCH = 100
# What waits all the while.
BACKLOG = 5_000
WORKERS = 2
PER_S = 3_000
_SIZES = """
SELECT CASE WHEN c.relname LIKE 'history%' THEN 'history' ELSE 'tables' END, sum(pg_total_relation_size(c.oid))::bigint
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'penstock' AND c.relkind IN ('r', 'm') GROUP BY 1
"""

Stored = Callable[[], dict[str, int]]


@dataclass
class Load:
    """Threads that work as long as they are let."""

    port: int
    pace_s: float
    calls_ms: list[float] = field(default_factory=list)
    rounds: int = 0
    _stopped: threading.Event = field(default_factory=threading.Event)

    def work(self) -> None:
        client = Client(self.port)
        drafts = [
            {"data": "x" * 1_000}
            | ({"group": f"g{number}"} if number % 5 == 0 else {})
            | ({"delay_s": 1} if number % 10 == 1 else {})
            for number in range(BATCH)
        ]
        next_at = time.monotonic()
        while not self._stopped.wait(max(0.0, next_at - time.monotonic())):
            next_at = max(next_at + self.pace_s, time.monotonic() - 1)
            self._timed(lambda: client.ask("POST", "/api/queues/orders/messages", {"messages": drafts}))
            self._timed(lambda: client.lease(BATCH))
            receipts = [message["receipt"] for message in client.leased]
            for path, part, how in (
                ("release", receipts[:2], {}),
                ("release", receipts[2:3], {"reject": True}),
                ("ack", receipts[3:], {}),
            ):
                if part:
                    self._timed(
                        lambda path=path, part=part, how=how: client.ask(  # type: ignore[misc]
                            "POST", f"/api/queues/orders/{path}", {"receipts": part, **how}
                        )
                    )
            self.rounds += 1

    def _timed(self, call: Callable[[], object]) -> None:
        began = time.perf_counter()
        call()
        self.calls_ms.append((time.perf_counter() - began) * 1_000)

    def stop(self) -> None:
        self._stopped.set()


def _measure(server: Server, stored: Stored, *, minutes: float, parts: int) -> None:
    client = Client(server.port)
    client.ask("POST", "/api/queues", {"queue_name": "orders"})
    client.send(BACKLOG)
    # A server closes a connection that is idle for as long as a part lasts.
    client.close()
    load = Load(server.port, pace_s=BATCH * WORKERS / PER_S)
    threads = [threading.Thread(target=load.work) for _ in range(WORKERS)]
    for thread in threads:
        thread.start()
    try:
        for part in range(parts):
            began, rounds, cpu = time.monotonic(), load.rounds, server.cpu()
            load.calls_ms = []
            time.sleep(minutes * 60 / parts)
            took_s, calls_ms = time.monotonic() - began, sorted(load.calls_ms)
            found = {name: f"{size / 1e6:,.1f} MB" for name, size in sorted(stored().items())}
            p99_ms, spent = calls_ms[int(len(calls_ms) * 0.99)], server.cpu().since(cpu).total_s / took_s
            print(
                f"{minutes * (part + 1) / parts:5.1f} min {(load.rounds - rounds) * BATCH / took_s:8,.0f}/s"
                f"  {statistics.median(calls_ms):6.1f} {p99_ms:6.1f} {calls_ms[-1]:7.1f} ms"
                f"  CPU {spent:5.0%}  memory {server.memory_mb():6.1f} MB  ",
                *(f"{name} {size}" for name, size in found.items()),
                flush=True,
            )
            # What is rejected would be a backlog of its own.
            client.ask("POST", "/api/queues/orders.dead/purge")
            client.close()
    finally:
        load.stop()
        for thread in threads:
            thread.join()


def _stored_in(folder: Path) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for path in folder.rglob("*"):
        # Files come and go meanwhile.
        with suppress(FileNotFoundError):
            if path.is_file():
                name = path.relative_to(folder).parts[0]
                kind = "history" if "history" in path.parts else "snapshots" if "snapshots" in path.parts else name
                sizes[kind] = sizes.get(kind, 0) + path.stat().st_size
    return sizes


@contextmanager
def _embedded(folder: Path) -> Iterator[tuple[Server, Stored]]:
    with penstock(folder, "--no-kafka") as server:
        yield server, lambda: _stored_in(folder / "data")


@contextmanager
def _postgres(folder: Path) -> Iterator[tuple[Server, Stored]]:
    with servers.Server() as database:
        url = database.new_database()
        with penstock(folder, "--no-kafka", "--store", url) as server, psycopg.connect(url, autocommit=True) as watcher:
            yield server, lambda: {str(kind): int(size) for kind, size in watcher.execute(_SIZES).fetchall()}


STORES = {"embedded": _embedded, "postgres": _postgres}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long on each store")
    parser.add_argument("--parts", type=int, default=10, help="how many lines")
    parser.add_argument("--store", choices=STORES, help="one store only")
    asked = parser.parse_args()
    for name, begin in STORES.items():
        if asked.store not in {None, name}:
            continue
        print(f"{name}: messages a second; calls: median, p99, longest")
        folder = Path(tempfile.mkdtemp(prefix="steady-"))
        try:
            with begin(folder) as (server, stored):
                _measure(server, stored, minutes=asked.minutes, parts=asked.parts)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
