"""The SQS front end, beside moto's server: batches of ten, sent, received and deleted.

    recorded   requests that boto3 wrote once, sent by wrk: what the servers can do
    boto3      one client, one call after the other: what a program sees, most of which is boto3 itself
    backlog    recorded requests to two servers of ours, one with a hundred messages in its queue, one with a million

Ours answers when it is on the disk, moto's when it is in memory.

`python -m bench.sqs --seconds 3` measures these alone.
"""

import asyncio
import sys
from array import array
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import uvloop

from bench import Bench, Row, Workload, moto_peer, number, processes, sides, sqs_recorded, sqs_requests
from bench.log import ratio, turned
from bench.peer import Window
from bench.processes import Server
from bench.sides import ROUNDS, Side
from bench.sqs_requests import BATCH, CALLS, QUEUE
from bench.traffic import MESSAGE_BYTES, Traffic
from penstock.connect import connect

_FILL_BATCH = 1_000


@contextmanager
def _ours(folder: Path) -> Iterator[Server]:
    with processes.penstock(folder, "--sqs") as server:
        yield server


@asynccontextmanager
async def _nobody(_server: Server) -> AsyncIterator[None]:
    """wrk asks, from a process of its own."""
    yield


@asynccontextmanager
async def _boto3(server: Server) -> AsyncIterator[Any]:
    client = sqs_requests.client(server)
    try:
        yield client
    finally:
        client.close()


def _sides(opened: sides.Opened[Any]) -> list[Side[Any]]:
    peer = [Side(moto_peer.server, opened)] if moto_peer.is_installed() else []
    return [Side(_ours, opened), *peer]


def _compared(name: str, found: Sequence[list[Traffic]], *, target: float | None) -> Row:
    """Return a row whose figure is how many times as fast as moto we are; our own rate where there is no moto."""
    ours = sides.row(name, found[0], target=0, verb="call")
    rates = f"{number(ours.figure)} msg/s, {ours.remark}"
    if len(found) == 1:
        return replace(ours, target=None, remark=f"{ours.remark}; {moto_peer.MISSING}")
    theirs = [each.per_second for each in found[1]]
    return replace(
        ours,
        figure=ratio(ours.rounds, theirs),
        unit="× moto",
        target=target,
        rounds=tuple(our / their for our, their in zip(ours.rounds, theirs, strict=True)),
        peer_ms_p50=sides.waits(found[1], "call", 0.5),
        peer_ms_p99=sides.waits(found[1], "call", 0.99),
        peer_cpu_us=median(each.cpu_us for each in found[1]),
        remark=f"{rates}; moto {number(median(theirs))} msg/s, {sides.costs(found[1])}",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """Recorded requests to both servers."""

    name: str
    connections: int
    target: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        async def measure(_: None, server: Server) -> Traffic:
            return await sqs_recorded.replay(server, connections=self.connections, seconds=bench.seconds)

        return [_by(_compared(self.name, sides.rounds(bench, _sides(_nobody), measure), target=self.target))]


@dataclass(frozen=True, slots=True, kw_only=True)
class Boto3:
    """One client of boto3, which sends, receives and deletes in turn."""

    name: str
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        async def measure(client: Any, server: Server) -> Traffic:
            return await asyncio.to_thread(turns, client, server, bench.seconds)

        return [_compared(self.name, sides.rounds(bench, _sides(_boto3), measure), target=None)]


def turns(client: Any, server: Server, seconds: float) -> Traffic:
    """Send, receive and delete with one client, one call after the other, for some time."""
    url = client.create_queue(QueueName=QUEUE)["QueueUrl"]
    entries, window, clocks = sqs_requests.entries(), Window.lasting(seconds), server.clocks()
    while perf_counter() < window.since:
        _turn(client, url, entries)
    began, before, messages = perf_counter(), {name: clock() for name, clock in clocks.items()}, 0
    while perf_counter() < window.until or not messages:
        messages += _turn(client, url, entries)
    lasted = perf_counter() - began
    cpu = {name: clock().since(before[name]) for name, clock in clocks.items()}
    calls = messages // BATCH * CALLS
    return Traffic(messages, lasted, cpu, {"call": array("d", [lasted * 1_000 / calls])})


def _turn(client: Any, url: str, entries: list[dict[str, str]]) -> int:
    client.send_message_batch(QueueUrl=url, Entries=entries)
    found = client.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH)["Messages"]
    deletes = [{"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(found)]
    assert not client.delete_message_batch(QueueUrl=url, Entries=deletes).get("Failed")
    return len(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Backlog:
    """The same traffic before a small backlog and a large one, in turn, on two servers that run all the while."""

    name: str
    connections: int
    few: int
    many: int
    target: float
    steps: int = ROUNDS + 1
    is_long: bool = True

    def run(self, bench: Bench) -> list[Row]:
        with ExitStack() as stack:
            servers = [stack.enter_context(_ours(stack.enter_context(bench.folder()))) for _ in range(2)]
            return [_by(uvloop.run(self._measured(bench, servers)))]

    async def _measured(self, bench: Bench, servers: Sequence[Server]) -> Row:
        for server, messages in zip(servers, (self.few, self.many), strict=True):
            await _fill(server, messages)
        bench.step_done()
        found: list[list[Traffic]] = [[], []]
        for turn in range(ROUNDS):
            for server, results in turned([*zip(servers, found, strict=True)], turn):
                results.append(await sqs_recorded.replay(server, connections=self.connections, seconds=bench.seconds))
            bench.step_done()
        return self._row(*found)

    def _row(self, few: list[Traffic], many: list[Traffic]) -> Row:
        rates = [[each.per_second for each in found] for found in (many, few)]
        cpu_us = [[each.cpu["server"].total_s / each.messages * 1e6 for each in found] for found in (few, many)]
        remark = (
            f"by the clock {number(ratio(*rates))}: {number(median(rates[0]))} msg/s before {self.many:,} messages, "
            f"{number(median(rates[1]))} before {self.few}; CPU µs of the server {number(median(cpu_us[1]))} and "
            f"{number(median(cpu_us[0]))}"
        )
        return Row(
            name=self.name,
            figure=ratio(*cpu_us),
            unit=f"of {self.few}",
            target=self.target,
            ack_ms_p50=sides.waits(many, "call", 0.5),
            ack_ms_p99=sides.waits(many, "call", 0.99),
            rounds=tuple(a / b for a, b in zip(*cpu_us, strict=True)),
            remark=remark,
        )


async def _fill(server: Server, messages: int) -> None:
    """Leave so many messages in the queue, by the quickest way there is."""
    body = b"x" * MESSAGE_BYTES
    sqs_requests.record(server, QUEUE)
    async with connect(server.url) as client:
        queue = client.queue(QUEUE)
        for _ in range(0, messages, _FILL_BATCH):
            await queue.send_many([body] * min(messages, _FILL_BATCH))


def _by(row: Row) -> Row:
    return row if sqs_recorded.has_wrk() else replace(row, remark=f"{row.remark}; {sqs_recorded.NO_WRK}")


WORKLOADS: tuple[Workload, ...] = (
    Replayed(name="sqs: recorded, 1 connection", connections=1, target=5),
    Replayed(name="sqs: recorded, 8 connections", connections=8, target=5),
    Boto3(name="sqs: boto3"),
    Backlog(name="sqs: backlog of 1,000,000", connections=8, few=100, many=1_000_000, target=0.9),
)


def main() -> None:
    """Run these workloads, with the options of ``python -m bench``."""
    from bench.__main__ import app  # noqa: PLC0415

    app(sys.argv[1:] if "--only" in sys.argv else ["--only", "sqs:", *sys.argv[1:]])


if __name__ == "__main__":
    main()
