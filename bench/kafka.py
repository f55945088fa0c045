"""What a server takes and gives by Kafka's protocol: librdkafka on the same machine, 256-byte messages, acks=all.

    python -m bench.kafka [--messages 2000000] [--partitions 1] [--data FOLDER]

The broker's own time on the CPU for a million messages says more than the rate on a
machine that has other things to do: the client takes most of it.
"""

import argparse
import contextlib
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

SIZE_BYTES = 256
CHUNK = 10_000
WAIT_S = 120.0


class Broker:
    def __init__(self, data: Path) -> None:
        command = [
            "serve",
            "--port",
            "0",
            "--kafka",
            "--kafka-port",
            "0",
            "--data",
            str(data),
            "--log-level",
            "warning",
        ]
        self.process = subprocess.Popen([sys.executable, "-m", "penstock", *command], stdout=subprocess.PIPE)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.search(rb"kafka +(\S+)", line):
                self.servers = found[1].decode()
                return
        raise RuntimeError("the server did not start")

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def running(data: Path) -> Iterator[Broker]:
    broker = Broker(data)
    try:
        yield broker
    finally:
        broker.process.terminate()
        broker.process.wait(30)
        assert broker.process.stdout is not None
        broker.process.stdout.close()


def create(servers: str, topic: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, num_partitions=partitions, replication_factor=1)])[topic].result(WAIT_S)


def produce(servers: str, topic: str, count: int, partitions: int) -> float:
    """Produce so many messages, and return how long it took until all were acknowledged."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "acks": "all",
            "linger.ms": 20,
            "batch.size": 1_000_000,
            "batch.num.messages": 100_000,
            "queue.buffering.max.messages": 1_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
            "delivery.report.only.error": True,
        }
    )
    value = os.urandom(SIZE_BYTES // 2).hex().encode()
    began_at = time.perf_counter()
    for chunk in range(count // CHUNK):
        messages = [{"value": value, "partition": chunk % partitions}] * CHUNK
        while True:
            try:
                producer.produce_batch(topic, [dict(each) for each in messages])
                break
            except BufferError:
                producer.poll(0.05)
        while len(producer) > 600_000:
            producer.poll(0.01)
    assert producer.flush(WAIT_S) == 0
    return time.perf_counter() - began_at


def consume(servers: str, topic: str, count: int, partitions: int) -> float:
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "bench",
            "enable.auto.commit": False,
            "fetch.max.bytes": 50_000_000,
            "max.partition.fetch.bytes": 8_000_000,
            "queued.max.messages.kbytes": 500_000,
            "queued.min.messages": 1_000_000,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    began_at = time.perf_counter()
    seen = 0
    while seen < count:
        seen += len(consumer.consume(CHUNK, timeout=WAIT_S))
    seconds = time.perf_counter() - began_at
    consumer.close()
    return seconds


def latency_ms(servers: str, topic: str, rate: int, seconds: float) -> list[float]:
    """Return how long each message took from being produced to being consumed, at a steady rate."""
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "linger.ms": 0})
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "latency", "fetch.wait.max.ms": 500})
    consumer.assign([TopicPartition(topic, 0, 0)])
    count = int(rate * seconds)
    found: list[float] = []

    def read() -> None:
        while len(found) < count:
            message = consumer.poll(WAIT_S)
            value = None if message is None else message.value()
            assert value is not None
            found.append((time.perf_counter_ns() - int(value)) / 1e6)

    reading = threading.Thread(target=read)
    reading.start()
    began_at = time.perf_counter()
    for number in range(count):
        pause_s = began_at + number / rate - time.perf_counter()
        if pause_s > 0:
            time.sleep(pause_s)
        producer.produce(topic, b"%d" % time.perf_counter_ns())
        producer.poll(0)
    producer.flush(WAIT_S)
    reading.join()
    consumer.close()
    return found


def main() -> None:
    said = argparse.ArgumentParser(description=__doc__)
    said.add_argument("--messages", type=int, default=2_000_000)
    said.add_argument("--partitions", type=int, default=1)
    said.add_argument("--data", type=Path, default=None)
    asked = said.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.data) as folder, running(Path(folder) / "data") as broker:
        create(broker.servers, "bench", asked.partitions)
        millions = asked.messages / 1e6
        for name, run in (("in", produce), ("out", consume)):
            before = broker.cpu_s()
            seconds = run(broker.servers, "bench", asked.messages, asked.partitions)
            cpu_s = (broker.cpu_s() - before) / millions
            print(f"{name:>4} {asked.messages / seconds:12,.0f} msg/s   broker {cpu_s:.2f} CPU s per million")
        create(broker.servers, "latency", 1)
        rows = sorted(latency_ms(broker.servers, "latency", 1_000, 5.0)[500:])
        p99 = rows[len(rows) * 99 // 100]
        print(f"produce → consume at 1,000/s: p50 {statistics.median(rows):.1f} ms, p99 {p99:.1f} ms")


if __name__ == "__main__":
    main()
