"""The workloads of the server over HTTP, beside Redis Streams in the same minutes.

    load generator (this process) ──loopback──▶ the server, in its own process, as `penstock serve` starts it

Everything is durable, settings are the default ones (history `facts`), messages have 256 bytes. Both event loops are
uvloop's. A message counts when it was sent, received and acked, unless the row is about sending alone.
"""

from dataclasses import dataclass

from bench import Bench, Row, Workload, idle_polls, latency, posting, processes, redis_peer, rest, sdk, sides, traffic
from bench import singles as single_calls
from bench.processes import Server
from bench.sides import ROUNDS, Side
from bench.singles import SingleCalls, Soloists
from bench.traffic import Crowd, Queues, Traffic


@dataclass(frozen=True, slots=True, kw_only=True)
class Batches:
    """Senders and consumers on one queue, at once, with a batch in each call."""

    name: str
    crowd: Crowd
    target: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        async def measure(queues: Queues, server: Server) -> Traffic:
            return await traffic.run(queues, [sdk.QUEUE], self.crowd, bench.seconds, clocks=server.clocks())

        found = sides.rounds(bench, _both_queues(), measure)
        row = sides.row(self.name, found[0], target=self.target, verb="ack")
        return [sides.compared(row, found, verb="ack")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Singles:
    """Tasks that send, and ack, one message in each call. Without consumers it is about sending alone."""

    name: str
    soloists: Soloists
    target: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        async def measure(calls: SingleCalls, server: Server) -> Traffic:
            return await single_calls.run(calls, self.soloists, bench.seconds, server.clocks())

        found = sides.rounds(bench, _both_callers(), measure)
        row = sides.row(self.name, found[0], target=self.target, verb="send")
        return [sides.compared(row, found, verb="send")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """Objects over plain HTTP, in batches, encoded and decoded one by one. Redis has no HTTP to compare with."""

    name: str
    form: rest.Format
    crowd: Crowd
    target: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        async def measure(queues: Queues, server: Server) -> Traffic:
            clocks, length = server.clocks(), len(rest.ITEM)
            return await traffic.run(queues, [sdk.QUEUE], self.crowd, bench.seconds, clocks=clocks, body_length=length)

        side: Side[Queues] = Side(processes.penstock, self.form.opened)
        (ours,) = sides.rounds(bench, [side], measure)
        return [sides.row(self.name, ours, target=self.target, verb="ack")]


def _both_queues() -> list[Side[Queues]]:
    return sides.beside_redis(Side(processes.penstock, sdk.opened), Side(redis_peer.server, redis_peer.opened))


def _both_callers() -> list[Side[SingleCalls]]:
    return sides.beside_redis(Side(processes.penstock, sdk.opened), Side(redis_peer.server, redis_peer.opened))


# Small backlogs: a large one takes a slow side the whole window to build up.
FEW = Crowd(callers=6, batch=1_000, backlog_sends=1)
MORE = Crowd(callers=12, batch=100, backlog_sends=1)

WORKLOADS: tuple[Workload, ...] = (
    Batches(name="server: SDK, batch 1000", crowd=FEW, target=300_000),
    Batches(name="server: SDK, batch 100", crowd=MORE, target=150_000),
    Singles(name="server: SDK, single calls", soloists=Soloists(senders=2_000, consumers=4), target=150_000),
    Objects(name="server: JSON, batch 100", form=rest.JSON, crowd=MORE, target=60_000),
    Objects(name="server: MessagePack, batch 100", form=rest.MSGPACK, crowd=MORE, target=60_000),
    Singles(name="server: 32 senders", soloists=Soloists(senders=32), target=20_000),
    posting.Posts(name="server: plain POST", connections=64, target=8_000),
    latency.Latency(name="server: publish to received", per_second=200, p99_ms_max=3),
    idle_polls.IdleServer(name="server: idle, memory", memory_mb_max=100),
    idle_polls.IdlePolls(name="server: 10,000 idle long polls", polls=10_000, share_max=5),
)
