"""The workloads of streams: librdkafka against our server, and topics alone.

    this process: librdkafka, by its C interface ──loopback──▶ the server, as `penstock serve --kafka` starts it

Messages have 256 bytes, `acks=all`: nothing is acknowledged before its `fdatasync`. Client and server share the
machine, so what the server itself can do is told by its CPU time for a message, more than by the rate. Topics alone are
measured within this process, with batches that were made beforehand.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench import Bench, Row, Workload, librdkafka, peer, processes
from bench.processes import Server
from penstock.broker.topics import FetchOne, Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log import record
from penstock.runtime.system import ThreadWorkers, halt, system_runtime
from penstock.streams.embedded.topic_store import Streams

MESSAGE_BYTES = 256
ROUNDS = 3
TOPIC = "bench"
WAIT_S = 60.0

_PRODUCER = {
    "acks": "all",
    "linger.ms": 5,
    "batch.size": 1_000_000,
    "batch.num.messages": 100_000,
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1_000_000,
}
_CONSUMER = {
    "group.id": "bench",
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "queued.min.messages": 1_000_000,
    "fetch.message.max.bytes": 4_000_000,
}


class Went(NamedTuple):
    """What went through in one direction."""

    messages: int
    seconds: float
    server_cpu_s: float

    @property
    def per_second(self) -> float:
        return self.messages / self.seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class Through:
    """One producer, then one consumer, of one topic."""

    name: str
    partitions: int
    in_target: float | None = None
    out_target: float | None = None
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        went_in, went_out = list[Went](), list[Went]()
        for _ in range(ROUNDS):
            with bench.folder() as folder, kafka_server(folder) as (server, address):
                create(address, self.partitions)
                went_in.append(timed(server, partial(produce, address, bench.seconds)))
                count = went_in[-1].messages
                went_out.append(timed(server, partial(consume, address, self.partitions, count)))
            bench.step_done()
        return [
            _row(f"{self.name}: in", went_in, self.in_target),
            _row(f"{self.name}: out", went_out, self.out_target),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    """A message every millisecond, and how long after its sending a consumer has it."""

    name: str
    ms_p99_max: float
    steps: int = 1
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        with bench.folder() as folder, kafka_server(folder) as (_, address):
            create(address, 1)
            waits_ms = latencies_ms(address, int(1_000 * max(3.0, bench.seconds)))
        bench.step_done()
        p50, p99 = peer.percentile(waits_ms, 0.5), peer.percentile(waits_ms, 0.99)
        return [
            Row(name=self.name, figure=p99, unit="ms", target=self.ms_p99_max, is_ceiling=True, remark=f"p50 {p50:.2f}")
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Alone:
    """Topics without a protocol: tasks that produce a batch, wait until it is durable, and produce the next."""

    name: str
    partitions: int
    messages: int
    tasks: int = 64
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        found: list[tuple[Went, Went]] = []
        for _ in range(ROUNDS):
            with bench.folder() as folder:
                found.append(asyncio.run(self._measure(folder, bench.seconds)))
            bench.step_done()
        went_in, went_out = zip(*found, strict=True)
        return [_row(f"{self.name}: in", list(went_in), None), _row(f"{self.name}: out", list(went_out), None)]

    async def _measure(self, folder: Path, seconds: float) -> tuple[Went, Went]:
        async with ThreadWorkers(4, halt) as workers:
            runtime = system_runtime(folder, workers)
            async with Topics(runtime, await Streams.open(runtime, "streams")) as topics:
                await topics.streams.create(TOPIC, TopicSettings(partitions=self.partitions))
                bodies = [(None, os.urandom(MESSAGE_BYTES)) for _ in range(self.messages)]
                batch = bytes(record.encode(bodies, at_ms=runtime.clock.now_ms()))
                return await self._produce(topics, batch, seconds), await self._fetch(topics)

    async def _produce(self, topics: Topics, batch: bytes, seconds: float) -> Went:
        began, spent = time.perf_counter(), time.process_time()
        count = 0

        async def produce(first: int) -> None:
            nonlocal count
            partition = first % self.partitions
            while time.perf_counter() - began < seconds:
                await topics.produce(TOPIC, partition, batch)
                partition = (partition + self.tasks) % self.partitions
                count += self.messages

        async with asyncio.TaskGroup() as tasks:
            for first in range(self.tasks):
                tasks.create_task(produce(first))
        return Went(count, time.perf_counter() - began, time.process_time() - spent)

    async def _fetch(self, topics: Topics) -> Went:
        began, spent = time.perf_counter(), time.process_time()
        offsets = [0] * self.partitions
        ends = [topics.latest(TOPIC, partition) for partition in range(self.partitions)]
        while offsets != ends:
            left = [each for each in range(self.partitions) if offsets[each] < ends[each]]
            wanted = [FetchOne(TOPIC, each, offsets[each], 1 << 20) for each in left]
            for each, answer in zip(left, await topics.fetch(wanted, bytes_max=50 << 20), strict=True):
                if answer.batches:
                    offsets[each] = record.header(answer.batches[-1]).next_offset
        return Went(sum(ends), time.perf_counter() - began, time.process_time() - spent)


@contextmanager
def kafka_server(folder: Path) -> Iterator[tuple[Server, str]]:
    """Lend a server of ours that speaks Kafka, and where."""
    options = ["--port", "0", "--kafka", "--kafka-port", "0", "--data", str(folder / "data")]
    with processes.started([sys.executable, "-m", "penstock", "serve", *options], folder, "  kafka ") as (line, pid):
        address = line.split()[-1]
        yield Server("penstock", address, pid), address


def create(address: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(TOPIC, num_partitions=partitions, replication_factor=1)])[TOPIC].result(WAIT_S)


def timed(server: Server, act: Callable[[], int]) -> Went:
    began, spent = time.perf_counter(), server.cpu()
    count = act()
    return Went(count, time.perf_counter() - began, server.cpu().since(spent).total_s)


def produce(address: str, seconds: float) -> int:
    """Produce for so long, and return how many were sent. All were acknowledged if `consume` finds as many."""
    with librdkafka.Producer({"bootstrap.servers": address, **_PRODUCER}, TOPIC) as producer:
        return producer.produce_for(seconds, os.urandom(MESSAGE_BYTES), wait_s=WAIT_S)


def consume(address: str, partitions: int, count: int) -> int:
    with librdkafka.Consumer({"bootstrap.servers": address, **_CONSUMER}, TOPIC) as consumer:
        return consumer.consume(partitions, count, wait_s=WAIT_S)


def latencies_ms(address: str, count: int) -> list[float]:
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    # A thread of its own: a producer that is late must not keep the consumer from looking.
    with ThreadPoolExecutor(1) as threads:
        waits_ms = threads.submit(_waits_ms, address, count)
        began = time.perf_counter()
        for number in range(count):
            time.sleep(max(0.0, began + number / 1_000 - time.perf_counter()))
            producer.produce(TOPIC, str(time.perf_counter_ns()).encode().ljust(MESSAGE_BYTES))
            producer.poll(0)
        assert producer.flush(WAIT_S) == 0
        # The first ones find connections being made.
        return waits_ms.result()[count // 5 :]


def _waits_ms(address: str, count: int) -> list[float]:
    consumer = Consumer({"bootstrap.servers": address, **_CONSUMER, "fetch.wait.max.ms": 500})
    waits_ms: list[float] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        while len(waits_ms) < count:
            found = consumer.poll(WAIT_S)
            assert found is not None
            assert found.error() is None
            waits_ms.append((time.perf_counter_ns() - int(found.value() or b"0")) / 1e6)
        return waits_ms
    finally:
        consumer.close()


def _row(name: str, went: list[Went], target: float | None) -> Row:
    rates = [each.per_second for each in went]
    cpu_us = median(each.server_cpu_s / each.messages for each in went) * 1e6
    return Row(
        name=name, figure=median(rates), unit="msg/s", target=target, cpu_us=round(cpu_us, 3), rounds=tuple(rates)
    )


WORKLOADS: tuple[Workload, ...] = (
    Alone(name="topics: 1 partition, batch 1000", partitions=1, messages=1_000),
    Alone(name="topics: 64 partitions, batch 1000", partitions=64, messages=1_000),
    Through(name="streams: 1 partition", partitions=1, in_target=1_000_000, out_target=2_000_000),
    Through(name="streams: 64 partitions", partitions=64, in_target=1_000_000, out_target=2_000_000),
    Latency(name="streams: produce to consume, 1000/s, p99", ms_p99_max=5.0),
)
