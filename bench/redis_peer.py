"""The peer of the server: a stream with a consumer group in Redis, the queue that many Python teams have today.

    send    XADD, a pipeline of the whole batch
    lease   XREADGROUP of as many
    ack     XACK and XDEL, in one pipeline

`appendfsync always`, so that an answer promises what ours does: it is on the disk. It does less: no priorities,
delays, retries or dead letters, and a lapsed lease comes back only if a consumer asks for it (XAUTOCLAIM). Its file is
never rewritten meanwhile, which Redis would do in between, and it writes no snapshots. Clients are redis-py's, with
hiredis if that is installed, and have at most as many connections as ours: senders, and consumers once more.
"""

import asyncio
import shutil
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from bench import processes
from bench.processes import Server
from bench.sdk import GLANCE_S
from penstock.client.http import CONNECTIONS_MAX
from penstock.core.queue.message import Drafts

STREAM, GROUP, CONSUMER, BODY = "orders", "workers", "bench", b"body"
MISSING = "no redis-server here (apt-get install redis-server), so nothing to compare with"


def is_installed() -> bool:
    return shutil.which("redis-server") is not None and find_spec("redis") is not None


def client_name() -> str:
    return "redis-py with hiredis" if find_spec("hiredis") else "redis-py without hiredis"


class Leased(NamedTuple):
    """Id and fields of each message."""

    rows: list[tuple[bytes, dict[bytes, bytes]]]

    @property
    def bodies(self) -> list[bytes]:
        return [fields[BODY] for _, fields in self.rows]

    def receipts(self) -> list[bytes]:
        return [message for message, _ in self.rows]


class RedisStream:
    """One stream. The names of queues are there for the looks only."""

    # Each send needs a connection for itself.
    senders_max = CONNECTIONS_MAX

    # The types of redis-py do not tell its asynchronous answers from the others.
    def __init__(self, senders: Any, consumers: Any) -> None:
        self._senders = senders
        self._consumers = consumers

    async def send(self, _queue: str, drafts: Drafts, /) -> None:
        pipeline = self._senders.pipeline(transaction=False)
        for body in drafts.bodies:
            pipeline.xadd(STREAM, {BODY: body})
        await pipeline.execute()

    async def lease(self, _queue: str, /, *, want: int, wait_s: float = 0) -> Leased | None:
        found = await self._consumers.xreadgroup(
            GROUP, CONSUMER, {STREAM: ">"}, count=want, block=int(wait_s * 1_000) or None
        )
        return Leased(found[0][1]) if found else None

    async def ack(self, _queue: str, receipts: list[bytes], /) -> None:
        pipeline = self._consumers.pipeline(transaction=False)
        pipeline.xack(STREAM, GROUP, *receipts)
        pipeline.xdel(STREAM, *receipts)
        assert await pipeline.execute() == [len(receipts), len(receipts)]

    async def send_one(self, body: bytes, /) -> None:
        await self._senders.xadd(STREAM, {BODY: body})

    async def consume(self) -> int:
        # As many as there are connections to ack them on: more would only wait their turn.
        leased = await self.lease(STREAM, want=CONNECTIONS_MAX, wait_s=GLANCE_S)
        if leased is None:
            return 0
        await asyncio.gather(*[self.ack(STREAM, [message]) for message in leased.receipts()])
        return len(leased.rows)


@contextmanager
def server(folder: Path) -> Iterator[Server]:
    """Lend a Redis that answers when it is on the disk."""
    with _port_kept() as port:
        yield from _served(folder, port)


def _served(folder: Path, port: int) -> Iterator[Server]:
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--dir", str(folder), "--save", ""]
    command += ["--appendonly", "yes", "--appendfsync", "always", "--auto-aof-rewrite-percentage", "0"]
    with processes.started(command, folder, "Ready to accept connections") as (_, pid):
        yield Server("redis", f"redis://127.0.0.1:{port}", pid)


@asynccontextmanager
async def opened(server: Server) -> AsyncIterator[RedisStream]:
    # Without a Redis to compare with its client is not needed either.
    from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415
    from redis.exceptions import ResponseError  # noqa: PLC0415

    def client() -> Redis:
        pool = BlockingConnectionPool.from_url(server.url, max_connections=CONNECTIONS_MAX, timeout=None, protocol=2)
        return Redis.from_pool(pool)

    # Two, as consumers and senders are two programs: in one pool the many would keep the few from their turn.
    async with client() as senders, client() as consumers:
        try:
            await consumers.xgroup_create(STREAM, GROUP, id="0", mkstream=True)
        except ResponseError as error:
            # Another client of the same server was first.
            if "BUSYGROUP" not in str(error):
                raise
        yield RedisStream(senders, consumers)


@contextmanager
def _port_kept() -> Iterator[int]:
    """Lend a port that no other program gets: to Redis 0 means none. A socket that does not listen may share it."""
    with socket.socket() as found:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(("127.0.0.1", 0))
        yield found.getsockname()[1]
