"""How long a message takes from the call that sends it to the hands of a receiver that waits for it.

    this process: sends at a steady pace ──▶ server ──▶ a receiver, in a process of its own
                                                        long poll ─▶ look at the clock ─▶ ack ─▶ long poll

A body begins with the time it was sent at, by the clock that all processes of a machine share; 0 says that it was the
last. Each send is a task of its own, so one that is slow does not hold back the next and hide what that one would have
met. The receiver acks before it asks again, as a plain worker does.
"""

import asyncio
import json
import os
import sys
from array import array
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from statistics import median
from struct import Struct
from time import monotonic_ns, perf_counter
from typing import Any, Protocol

import uvloop

from bench import Bench, Row, number, processes, redis_peer, sdk, sides, traffic
from bench.peer import Window
from bench.processes import Server, own_cpu, spawned
from bench.sides import ROUNDS, Side
from bench.traffic import MESSAGE_BYTES, Traffic

# At this pace a second holds few messages, and the 99th of a hundred needs many.
SECONDS_EACH = 3
RECEIVED_MAX = 100
WAIT_S = 20
_STAMP = Struct("<q")
_FILLING = os.urandom(MESSAGE_BYTES - _STAMP.size)
# Sent before anything counts.
_WARMING = 1
_LAST = 0


class Leased(Protocol):
    @property
    def bodies(self) -> list[bytes]: ...

    def receipts(self) -> Any: ...


class Line(Protocol):
    """Both ends of what is measured, of the server and of its peer."""

    async def send_one(self, body: bytes, /) -> object: ...

    async def lease(self, queue: str, /, *, want: int, wait_s: float) -> Leased | None: ...

    async def ack(self, queue: str, receipts: Any, /) -> object: ...


OPENED: dict[str, Callable[[Server], AbstractAsyncContextManager[Line]]] = {
    "penstock": sdk.opened,
    "redis": redis_peer.opened,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Latency:
    name: str
    per_second: int
    p99_ms_max: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        async def measure(line: Line, server: Server) -> Traffic:
            return await _send_and_receive(line, server, self.per_second, bench.seconds * SECONDS_EACH)

        both = sides.beside_redis(
            Side(processes.penstock, OPENED["penstock"]), Side(redis_peer.server, OPENED["redis"])
        )
        found = sides.rounds(bench, both, measure)
        return [self._row(found)]

    def _row(self, found: list[list[Traffic]]) -> Row:
        ours, *peers = found
        p99_ms, remark = _p99_ms(ours), _described(ours)
        for theirs in peers:
            remark += f"; Redis {_described(theirs)} ({redis_peer.client_name()})"
        return Row(
            name=self.name,
            figure=p99_ms,
            unit="ms p99",
            target=self.p99_ms_max,
            is_ceiling=True,
            to_redis=_p99_ms(peers[0]) / p99_ms if peers else None,
            cpu_us=median(each.cpu_us for each in ours),
            peer_cpu_us=median(each.cpu_us for each in peers[0]) if peers else None,
            rounds=tuple(_p99_ms([each]) for each in ours),
            remark=f"at {self.per_second}/s, ms p50 / p99 / longest {remark}"
            + ("" if peers else f"; {redis_peer.MISSING}"),
        )


def _p99_ms(found: list[Traffic]) -> float:
    return sides.waits(found, "received", 0.99)


def _described(found: list[Traffic]) -> str:
    figures = [sides.waits(found, "received", share) for share in (0.5, 0.99, 1)]
    return f"{' / '.join(number(figure) for figure in figures)}, {sides.costs(found)}"


async def _send_and_receive(line: Line, server: Server, per_second: int, seconds: float) -> Traffic:
    command = [sys.executable, "-m", "bench.latency", server.kind, server.url]
    async with spawned(command) as receiver:
        assert receiver.stdout is not None
        assert await receiver.stdout.readline() == b"ready\n"
        window, waits_ms = Window.lasting(seconds), array("d")
        sender = _Sender(line, window)
        # The receiver's CPU time is not in it; that of the sender is what a client has for a send.
        clocks = {"server": server.cpu, "sender": own_cpu}
        async with asyncio.TaskGroup() as group:
            group.create_task(sender.send_all(per_second))
            found = await traffic.measured(window, lambda: sender.sent, clocks, {"received": waits_ms})
        await line.send_one(_STAMP.pack(_LAST) + _FILLING)
        told, _ = await receiver.communicate()
        waits_ms.extend(json.loads(told))
    return found


class _Sender:
    def __init__(self, line: Line, window: Window) -> None:
        self._line = line
        self._window = window
        self.sent = 0

    async def send_all(self, per_second: int) -> None:
        due = perf_counter()
        async with asyncio.TaskGroup() as group:
            while due < self._window.until:
                await asyncio.sleep(due - perf_counter())
                group.create_task(self._send(is_counted=due >= self._window.since))
                due += 1 / per_second

    async def _send(self, *, is_counted: bool) -> None:
        await self._line.send_one(_STAMP.pack(monotonic_ns() if is_counted else _WARMING) + _FILLING)
        self.sent += 1


async def _receive(line: Line) -> list[float]:
    """Receive until the last message, and return how long each was on its way, in milliseconds."""
    waits_ms: list[float] = []
    is_last = False
    while not is_last:
        leased = await line.lease(sdk.QUEUE, want=RECEIVED_MAX, wait_s=WAIT_S)
        now_ns = monotonic_ns()
        if leased is None:
            continue
        stamps = [_STAMP.unpack_from(body)[0] for body in leased.bodies]
        waits_ms += [(now_ns - stamp) / 1e6 for stamp in stamps if stamp not in (_WARMING, _LAST)]
        is_last = _LAST in stamps
        await line.ack(sdk.QUEUE, leased.receipts())
    return waits_ms


async def _be_the_receiver(server: Server) -> None:
    async with OPENED[server.kind](server) as line:
        print("ready", flush=True)
        print(json.dumps(await _receive(line)))


if __name__ == "__main__":
    uvloop.run(_be_the_receiver(Server(sys.argv[1], sys.argv[2], pid=0)))
