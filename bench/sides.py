"""A server and its peer, measured in turn: rounds, and what a row of the report says of them.

    round 1                round 2                round 3
    server │ Redis         Redis │ server         server │ Redis

Each measurement has a server of its own in a folder of its own, started for it and stopped after it: nothing that one
side still does in the background is paid for by the other.
"""

from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Generic, TypeVar

import uvloop

from bench import Bench, Row, number, redis_peer
from bench.log import ratio, turned
from bench.peer import percentile
from bench.processes import Server
from bench.traffic import Traffic

ROUNDS = 3

# A client.
T_co = TypeVar("T_co", covariant=True)
Opened = Callable[[Server], AbstractAsyncContextManager[T_co]]


@dataclass(frozen=True, slots=True)
class Side(Generic[T_co]):
    """How a server is started, and how a client of it is opened."""

    start: Callable[[Path], AbstractContextManager[Server]]
    opened: Opened[T_co]


def beside_redis(ours: Side[T_co], theirs: Side[T_co]) -> list[Side[T_co]]:
    """Return both sides, or only ours where there is no Redis."""
    return [ours, theirs] if redis_peer.is_installed() else [ours]


def rounds(
    bench: Bench, sides: Sequence[Side[T_co]], measure: Callable[[T_co, Server], Awaitable[Traffic]]
) -> list[list[Traffic]]:
    """Measure every side once in each round, and return what was found of each."""
    found: list[list[Traffic]] = [[] for _ in sides]
    for turn in range(ROUNDS):
        for side, results in turned([*zip(sides, found, strict=True)], turn):
            with bench.folder() as folder, side.start(folder) as server:
                results.append(uvloop.run(_measured(side, server, measure)))
        bench.step_done()
    return found


async def _measured(side: Side[T_co], server: Server, measure: Callable[[T_co, Server], Awaitable[Traffic]]) -> Traffic:
    async with side.opened(server) as client:
        return await measure(client, server)


def row(name: str, ours: Sequence[Traffic], *, target: float, verb: str) -> Row:
    """Return what was found of our side; ``verb`` is whose waits are shown."""
    rates = [each.per_second for each in ours]
    return Row(
        name=name,
        figure=median(rates),
        unit="msg/s",
        target=target,
        ack_ms_p50=waits(ours, verb, 0.5),
        ack_ms_p99=waits(ours, verb, 0.99),
        cpu_us=median(each.cpu_us for each in ours),
        rounds=tuple(rates),
        remark=costs(ours),
    )


def compared(ours: Row, found: Sequence[list[Traffic]], *, verb: str) -> Row:
    """Return a row of our side with Redis beside it, if it was there."""
    if len(found) == 1:
        return replace(ours, remark=f"{ours.remark}; {redis_peer.MISSING}")
    theirs = found[1]
    rates = [each.per_second for each in theirs]
    return replace(
        ours,
        to_redis=ratio(ours.rounds, rates),
        peer_ms_p50=waits(theirs, verb, 0.5),
        peer_ms_p99=waits(theirs, verb, 0.99),
        peer_cpu_us=median(each.cpu_us for each in theirs),
        remark=f"{ours.remark}; Redis {median(rates):,.0f} msg/s, {costs(theirs)} ({redis_peer.client_name()})",
    )


def waits(found: Sequence[Traffic], verb: str, share: float) -> float:
    return percentile([wait for each in found for wait in each.waits_ms[verb]], share)


def costs(found: Sequence[Traffic]) -> str:
    """Say what each process spent for a message, in its own code and in the kernel."""
    parts = []
    for name in found[0].cpu:
        user_us, system_us = (median(each.cpu[name][part] / each.messages * 1e6 for each in found) for part in (0, 1))
        parts.append(f"{name} {number(user_us)} + {number(system_us)}")
    return f"CPU µs a message, user + system: {', '.join(parts)}"
