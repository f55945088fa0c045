"""One queue of each side, in the verbs that are measured, by the Python client that its users have.

A batch is sent and acked as that client does it best: in one request, in a pipeline, or with all confirmations awaited
together. `lease` waits for at least one message. Lines of a client that blocks are for a single caller.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from bench.race import install

GROUP = "workers"
# How many messages a side may hand out ahead.
_AHEAD = 2_000


class Line(Protocol):
    async def send(self, bodies: Sequence[bytes], /) -> None:
        """Return once all are acknowledged."""
        ...

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        """Return bodies, and what `ack` takes."""
        ...

    async def ack(self, receipts: Any, /) -> None: ...


class PenstockLine:
    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def send(self, bodies: Sequence[bytes], /) -> None:
        await (self._queue.send(bodies[0]) if len(bodies) == 1 else self._queue.send_many(bodies))

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        batch = await self._queue.receive(limit=most, wait_s=wait_s)
        return list(batch.bodies), batch

    async def ack(self, receipts: Any, /) -> None:
        await receipts.ack()

    async def ack_and_lease(self, receipts: Any, most: int, /) -> tuple[list[bytes], Any]:
        _, batch = await self._queue.ack_and_receive(receipts, limit=most)
        return list(batch.bodies), batch


@asynccontextmanager
async def _penstock(url: str, queues: Sequence[str], _callers: int) -> AsyncIterator[list[Line]]:
    import penstock  # noqa: PLC0415 - each client process has one of them.

    async with penstock.connect(url) as client:
        for queue in queues:
            await client.create_queue(queue)
        yield [PenstockLine(client.queue(queue)) for queue in queues]


class RedisLine:
    def __init__(self, client: Any, stream: str) -> None:
        self._client = client
        self._stream = stream

    async def send(self, bodies: Sequence[bytes], /) -> None:
        if len(bodies) == 1:
            await self._client.xadd(self._stream, {b"b": bodies[0]})
            return
        pipeline = self._client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._stream, {b"b": body})
        await pipeline.execute()

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        found = await self._client.xreadgroup(
            GROUP, "one", {self._stream: ">"}, count=most, block=int(wait_s * 1_000) or None
        )
        return _of_stream(found)

    async def ack(self, receipts: Any, /) -> None:
        await self._acking(receipts).execute()

    async def ack_and_lease(self, receipts: Any, most: int, /) -> tuple[list[bytes], Any]:
        pipeline = self._acking(receipts)
        pipeline.xreadgroup(GROUP, "one", {self._stream: ">"}, count=most)
        return _of_stream((await pipeline.execute())[-1])

    def _acking(self, receipts: Any) -> Any:
        return _acking(self._client, self._stream, receipts)


@asynccontextmanager
async def _redis(url: str, queues: Sequence[str], callers: int) -> AsyncIterator[list[Line]]:
    from redis.asyncio import BlockingConnectionPool, Redis  # noqa: PLC0415
    from redis.exceptions import ResponseError  # noqa: PLC0415

    pool = BlockingConnectionPool.from_url(url, max_connections=callers + 1, timeout=None, protocol=2)
    async with Redis.from_pool(pool) as client:
        for queue in queues:
            try:
                await client.xgroup_create(queue, GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        yield [RedisLine(client, queue) for queue in queues]


class NatsLine:
    """A stream that forgets what is acked, and a pull consumer. Each ack is confirmed, as ours are."""

    def __init__(self, jetstream: Any, subject: str, pulled: Any) -> None:
        self._jetstream = jetstream
        self._subject = subject
        self._pulled = pulled

    async def send(self, bodies: Sequence[bytes], /) -> None:
        publish, subject = self._jetstream.publish, self._subject
        if len(bodies) == 1:
            await publish(subject, bodies[0])
        else:
            await asyncio.gather(*(publish(subject, body) for body in bodies))

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        try:
            found = await self._pulled.fetch(most, timeout=wait_s or 0.2)
        except TimeoutError:
            found = []
        return [each.data for each in found], found

    async def ack(self, receipts: Any, /) -> None:
        if len(receipts) == 1:
            await receipts[0].ack_sync()
        else:
            await asyncio.gather(*(each.ack_sync() for each in receipts))


@asynccontextmanager
async def _nats(url: str, queues: Sequence[str], _callers: int) -> AsyncIterator[list[Line]]:
    import nats  # noqa: PLC0415
    from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig  # noqa: PLC0415

    client = await nats.connect(url)
    try:
        jetstream = client.jetstream(timeout=30)
        made: list[Line] = []
        for queue in queues:
            kept = RetentionPolicy.WORK_QUEUE
            stream = StreamConfig(queue, subjects=[queue], retention=kept, storage=StorageType.FILE)
            await jetstream.add_stream(stream)
            config = ConsumerConfig(max_ack_pending=100_000)
            pulled = await jetstream.pull_subscribe(queue, durable=GROUP, config=config)
            made.append(NatsLine(jetstream, queue, pulled))
        yield made
    finally:
        await client.close()


class RabbitLine:
    """Publisher confirms, and a consumer with a prefetch; RabbitMQ does not confirm acks. Sends share a connection."""

    def __init__(self, channel: Any, queue: Any, message_of: Callable[[bytes], Any]) -> None:
        self._channel = channel
        self._queue = queue
        self._message_of = message_of
        self._came: asyncio.Queue[Any] = asyncio.Queue()
        self._is_consuming = False

    async def send(self, bodies: Sequence[bytes], /) -> None:
        publish, name = self._channel.default_exchange.publish, self._queue.name
        if len(bodies) == 1:
            await publish(self._message_of(bodies[0]), name)
        else:
            await asyncio.gather(*(publish(self._message_of(body), name) for body in bodies))

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        if not self._is_consuming:
            self._is_consuming = True
            await self._queue.consume(self._came.put)
        try:
            found = [await asyncio.wait_for(self._came.get(), wait_s or 0.2)]
        except TimeoutError:
            return [], None
        while len(found) < most and not self._came.empty():
            found.append(self._came.get_nowait())
        return [each.body for each in found], found

    async def ack(self, receipts: Any, /) -> None:
        # Of several consumers in one process each acks its own.
        for each in receipts:
            await each.ack()


@asynccontextmanager
async def _rabbitmq(url: str, queues: Sequence[str], _callers: int) -> AsyncIterator[list[Line]]:
    import aio_pika  # noqa: PLC0415

    def message_of(body: bytes) -> aio_pika.Message:
        return aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)

    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel(publisher_confirms=True)
        await channel.set_qos(prefetch_count=_AHEAD)
        kind = {"x-queue-type": "quorum"}
        declared = [await channel.declare_queue(queue, durable=True, arguments=kind) for queue in queues]
        yield [RabbitLine(channel, each, message_of) for each in declared]


class PgmqLine:
    """PGMQ's functions as its documentation calls them, by psycopg. Bodies are JSON, as it wants them."""

    def __init__(self, pool: Any, queue: str) -> None:
        self._pool = pool
        self._queue = queue

    async def send(self, bodies: Sequence[bytes], /) -> None:
        texts = [_json_of(body) for body in bodies]
        async with self._pool.connection() as connection:
            if len(texts) == 1:
                await connection.execute("SELECT pgmq.send(%s, %s::jsonb)", (self._queue, texts[0]))
            else:
                await connection.execute("SELECT pgmq.send_batch(%s, %s::jsonb[])", (self._queue, texts))

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        question, told = "SELECT msg_id, message FROM pgmq.read(%s, 30, %s)", [self._queue, most]
        if wait_s:
            question = "SELECT msg_id, message FROM pgmq.read_with_poll(%s, 30, %s, %s, 5)"
            told.append(max(1, int(wait_s)))
        async with self._pool.connection() as connection:
            rows = await (await connection.execute(question, told)).fetchall()
        return [bytes.fromhex(message["b"]) for _, message in rows], [number for number, _ in rows]

    async def ack(self, receipts: Any, /) -> None:
        async with self._pool.connection() as connection:
            await connection.execute("SELECT pgmq.delete(%s, %s::bigint[])", (self._queue, receipts))


def _json_of(body: bytes) -> str:
    # As many bytes as the others have.
    return json.dumps({"b": body[: len(body) // 2 - 4].hex()})


@asynccontextmanager
async def _pgmq(url: str, queues: Sequence[str], callers: int) -> AsyncIterator[list[Line]]:
    from psycopg_pool import AsyncConnectionPool  # noqa: PLC0415

    async def prepare(connection: Any) -> None:
        await connection.set_autocommit(True)
        connection.prepare_threshold = 0

    async with AsyncConnectionPool(url, min_size=callers, max_size=callers, configure=prepare, timeout=60) as pool:
        async with pool.connection() as connection:
            for queue in queues:
                # Two clients of one queue begin at the same time.
                await connection.execute("SELECT pg_advisory_lock(1)")
                await connection.execute("SELECT pgmq.create(%s)", (queue,))
                await connection.execute("SELECT pg_advisory_unlock(1)")
        yield [PgmqLine(pool, queue) for queue in queues]


class MotoLine:
    """boto3, whose calls block, in threads. A batch is of ten, as in SQS. Bodies are text."""

    def __init__(self, client: Any, url: str) -> None:
        self._client = client
        self._url = url

    async def send(self, bodies: Sequence[bytes], /) -> None:
        for start in range(0, len(bodies), 10):
            part = [
                {"Id": str(number), "MessageBody": body[: len(body) // 2].hex()}
                for number, body in enumerate(bodies[start : start + 10])
            ]
            await asyncio.to_thread(self._client.send_message_batch, QueueUrl=self._url, Entries=part)

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        found = await asyncio.to_thread(
            self._client.receive_message,
            QueueUrl=self._url,
            MaxNumberOfMessages=min(10, most),
            WaitTimeSeconds=int(wait_s),
        )
        messages = found.get("Messages", [])
        return [bytes.fromhex(each["Body"]) for each in messages], [each["ReceiptHandle"] for each in messages]

    async def ack(self, receipts: Any, /) -> None:
        part = [{"Id": str(number), "ReceiptHandle": handle} for number, handle in enumerate(receipts)]
        await asyncio.to_thread(self._client.delete_message_batch, QueueUrl=self._url, Entries=part)


@asynccontextmanager
async def _moto(url: str, queues: Sequence[str], callers: int) -> AsyncIterator[list[Line]]:
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    client = boto3.client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
        config=Config(max_pool_connections=callers + 1),
    )
    made = [await asyncio.to_thread(client.create_queue, QueueName=queue) for queue in queues]
    yield [MotoLine(client, each["QueueUrl"]) for each in made]


# Opens a line to each queue, for so many callers.
Opened = Callable[[str, Sequence[str], int], AbstractAsyncContextManager[list[Line]]]
LINES: dict[str, Opened] = {
    "penstock": _penstock,
    "redis": _redis,
    "nats": _nats,
    "rabbitmq": _rabbitmq,
    "pgmq": _pgmq,
    "moto": _moto,
}


class SyncPenstockLine:
    """The blocking client in the words of an asynchronous line, for one caller: no call waits for the event loop."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue

    async def send(self, bodies: Sequence[bytes], /) -> None:
        self._queue.send(bodies[0]) if len(bodies) == 1 else self._queue.send_many(bodies)

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        batch = self._queue.receive(limit=most, wait_s=wait_s)
        return list(batch.bodies), batch

    async def ack(self, receipts: Any, /) -> None:
        receipts.ack()

    async def ack_and_lease(self, receipts: Any, most: int, /) -> tuple[list[bytes], Any]:
        _, batch = self._queue.ack_and_receive(receipts, limit=most)
        return list(batch.bodies), batch


@asynccontextmanager
async def _penstock_sync(url: str, queues: Sequence[str], _callers: int) -> AsyncIterator[list[Line]]:
    import penstock  # noqa: PLC0415

    with penstock.connect(url) as client:
        for queue in queues:
            client.create_queue(queue)
        yield [SyncPenstockLine(client.queue(queue)) for queue in queues]


class SyncRedisLine:
    """redis-py's blocking client, as above."""

    def __init__(self, client: Any, stream: str) -> None:
        self._client = client
        self._stream = stream

    async def send(self, bodies: Sequence[bytes], /) -> None:
        if len(bodies) == 1:
            self._client.xadd(self._stream, {b"b": bodies[0]})
            return
        pipeline = self._client.pipeline(transaction=False)
        for body in bodies:
            pipeline.xadd(self._stream, {b"b": body})
        pipeline.execute()

    async def lease(self, most: int, wait_s: float, /) -> tuple[list[bytes], Any]:
        block = int(wait_s * 1_000) or None
        found = self._client.xreadgroup(GROUP, "one", {self._stream: ">"}, count=most, block=block)
        return _of_stream(found)

    async def ack(self, receipts: Any, /) -> None:
        self._acking(receipts).execute()

    async def ack_and_lease(self, receipts: Any, most: int, /) -> tuple[list[bytes], Any]:
        pipeline = self._acking(receipts)
        pipeline.xreadgroup(GROUP, "one", {self._stream: ">"}, count=most)
        return _of_stream(pipeline.execute()[-1])

    def _acking(self, receipts: Any) -> Any:
        return _acking(self._client, self._stream, receipts)


def _acking(client: Any, stream: str, receipts: Any) -> Any:
    pipeline = client.pipeline(transaction=False)
    pipeline.xack(stream, GROUP, *receipts)
    pipeline.xdel(stream, *receipts)
    return pipeline


def _of_stream(found: Any) -> tuple[list[bytes], Any]:
    rows = found[0][1] if found else []
    return [fields[b"b"] for _, fields in rows], [message for message, _ in rows]


@asynccontextmanager
async def _redis_sync(url: str, queues: Sequence[str], _callers: int) -> AsyncIterator[list[Line]]:
    from redis import Redis  # noqa: PLC0415
    from redis.exceptions import ResponseError  # noqa: PLC0415

    with Redis.from_url(url, protocol=2) as client:
        for queue in queues:
            try:
                client.xgroup_create(queue, GROUP, id="0", mkstream=True)
            except ResponseError as error:
                if "BUSYGROUP" not in str(error):
                    raise
        yield [SyncRedisLine(client, queue) for queue in queues]


SYNC_LINES: dict[str, Opened] = {"penstock": _penstock_sync, "redis": _redis_sync}


def opened(
    client: str, url: str, queues: Sequence[str], *, callers: int, is_sync: bool
) -> AbstractAsyncContextManager[list[Line]]:
    install.use_wheels()
    return (SYNC_LINES if is_sync else LINES)[client](url, queues, callers)
