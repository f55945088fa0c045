"""The rows of the server: what counts as done, and every way to a server that is measured."""

import asyncio
from array import array
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from bench import peer, processes, redis_peer, rest, sdk, sides, singles, traffic
from bench.peer import Window
from bench.processes import Cpu, Server, own_cpu
from bench.singles import Soloists
from bench.traffic import Crowd, Queues, Traffic
from tests.waiting import elapse

SHORT_S = 0.1
BATCH = 10


@pytest.fixture
def virtual_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a bench look at the clock of its event loop, which is a simulated one: no machine is too slow for it."""
    for module in (peer, singles, traffic):
        monkeypatch.setattr(module, "perf_counter", lambda: asyncio.get_running_loop().time())


@dataclass
class Instant:
    """Sends take no time; two messages are there for each receive."""

    senders_max: int = 1
    handed_out: int = 0

    async def send_one(self, _body: bytes, /) -> None:
        await elapse(0.001)

    async def consume(self) -> int:
        await elapse(0.001)
        self.handed_out += 2
        return 2


async def test_acks_of_consumers_that_overlap_all_count(virtual_clock: None) -> None:
    calls = Instant()

    found = await singles.run(calls, Soloists(senders=5, consumers=8), 0.2, {"client": own_cpu})

    # What was handed out while it warmed up is not in it.
    assert 0.5 < found.messages / calls.handed_out < 1


async def test_a_window_in_which_nothing_is_done_is_no_figure(virtual_clock: None) -> None:
    with pytest.raises(traffic.WindowTooShort):
        await traffic.measured(Window.lasting(0.01), lambda: 7, {}, {})


def test_costs_are_told_by_process_and_message() -> None:
    cpu = {"server": Cpu(0.5, 0.25), "client": Cpu(1.0, 0.0)}
    found = Traffic(1_000_000, 2.0, cpu, {"ack": array("d", [1.0])})

    assert sides.costs([found]) == "CPU µs a message, user + system: server 0.5 + 0.25, client 1 + 0"
    assert found.cpu_us == pytest.approx(1.75)


@pytest.mark.slow
def test_every_way_to_a_server_carries_messages_and_leaves_no_process(tmp_path: Path) -> None:
    with processes.penstock(tmp_path) as server:
        for opened in (sdk.opened, rest.JSON.opened, rest.MSGPACK.opened):
            length = traffic.MESSAGE_BYTES if opened is sdk.opened else len(rest.ITEM)
            found = asyncio.run(_measured(opened, server, length))
            assert found.messages >= BATCH
            assert set(found.cpu) == {"server", "client"}
        assert server.memory_mb() > 10

    assert not Path(f"/proc/{server.pid}").exists()


@pytest.mark.slow
@pytest.mark.skipif(not redis_peer.is_installed(), reason="redis-server is not installed")
def test_the_peer_carries_the_same_messages(tmp_path: Path) -> None:
    with redis_peer.server(tmp_path) as server:
        found = asyncio.run(_measured(redis_peer.opened, server, traffic.MESSAGE_BYTES))
        assert found.messages >= BATCH

    assert not Path(f"/proc/{server.pid}").exists()


async def _measured(opened: sides.Opened[Queues], server: Server, length: int) -> Traffic:
    crowd = Crowd(callers=3, batch=BATCH, backlog_sends=1)
    async with opened(server) as queues:
        for seconds in (SHORT_S, 10 * SHORT_S):
            with suppress(traffic.WindowTooShort):
                return await _run(queues, crowd, seconds, server, length)
        # A busy machine does nothing for a second, but hardly for ten.
        return await _run(queues, crowd, 100 * SHORT_S, server, length)


async def _run(queues: Queues, crowd: Crowd, seconds: float, server: Server, length: int) -> Traffic:
    return await traffic.run(queues, [sdk.QUEUE], crowd, seconds, clocks=server.clocks(), body_length=length)
