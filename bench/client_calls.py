"""What one call costs a client, in CPU time: both APIs against a server that answers canned bytes.

    python -m bench.client_calls            # this checkout
    python -m bench.client_calls FOLDER     # also a checkout there, in turn with this one

The server is a process of its own and answers at once, so what is measured is the client alone: its Python and its
part of the work of the kernel. Rounds go in turn, and the figure is the smallest: others on the machine only add.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time

import uvloop

from bench import processes
from bench.processes import environment
from penstock.wire import frames

CALLS, ROUNDS = 1_500, 3
_ROOT = Path(__file__).parent.parent


class _Stub(asyncio.Protocol):
    """Answers each request, which comes whole, by its path."""

    def __init__(self, answers: dict[bytes, bytes]) -> None:
        self._answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        verb = data[: data.index(b" HTTP/1.1")].rpartition(b"/")[2].partition(b"?")[0]
        self._transport.write(self._answers[verb])  # type: ignore[attr-defined]


def _answer(status: bytes, frame: bytes) -> bytes:
    head = b"HTTP/1.1 %b\r\ncontent-type: application/vnd.penstock.frame\r\ncache-control: no-store\r\n" % status
    return head + b"content-length: %d\r\n\r\n%b" % (len(frame), frame)


async def _serve() -> None:
    leased = frames.LeasedFrame(
        lease=1,
        token=7,
        until_ms=2**45,
        ids=frames.Ids(1, [1]),
        bodies=[os.urandom(256)],
        tiers=b"\2",
        deliveries=[1],
        sent_at_ms=[1],
    )
    settled, lease = frames.encode_settled([1]), frames.encode_leased(leased)
    answers = {
        b"messages": _answer(b"201 Created", frames.encode_sent(frames.Ids(1, [1]))),
        b"lease": _answer(b"200 OK", lease),
        b"ack": _answer(b"200 OK", settled),
    }
    server = await asyncio.get_running_loop().create_server(lambda: _Stub(answers), "127.0.0.1", 0)
    print("stub listens on", server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def _spent(calls: int, work: Callable[[int], object]) -> float:
    """Return the CPU time of a call, in microseconds."""
    began = process_time()
    work(calls)
    return (process_time() - began) / calls * 1e6


def _measure_sync(port: int) -> dict[str, float]:
    import penstock  # noqa: PLC0415 - of the checkout that this process is told.

    body, found = os.urandom(256), {}
    with penstock.connect(f"http://127.0.0.1:{port}") as client:
        queue = client.queue("orders")

        def send(calls: int) -> None:
            for _ in range(calls):
                queue.send(body)

        def receive_and_ack(calls: int) -> None:
            for _ in range(calls):
                message = queue.receive()
                assert message is not None
                assert len(message.body) == 256
                message.ack()

        for name, work, share in (("sync send", send, 1), ("sync receive, or ack", receive_and_ack, 2)):
            work(300)
            found[name] = min(_spent(CALLS, work) for _ in range(3)) / share
    return found


async def _measure_async(port: int, kind: str) -> dict[str, float]:
    import penstock  # noqa: PLC0415

    body, found = os.urandom(256), {}
    async with penstock.connect(f"http://127.0.0.1:{port}") as client:
        queue = client.queue("orders")

        async def send() -> None:
            await queue.send(body)

        async def receive_and_ack() -> None:
            message = await queue.receive()
            assert message is not None
            assert len(message.body) == 256
            await message.ack()

        for name, work, share in (("send", send, 1), ("receive, or ack", receive_and_ack, 2)):
            costs = []
            for calls in (300, CALLS, CALLS, CALLS):
                began = process_time()
                for _ in range(calls):
                    await work()
                costs.append((process_time() - began) / calls * 1e6)
            found[f"{kind} {name}"] = min(costs[1:]) / share
    return found


def _be_the_client(port: int) -> None:
    found = _measure_sync(port)
    found |= asyncio.run(_measure_async(port, "asyncio"))
    found |= uvloop.run(_measure_async(port, "uvloop"))
    for name, microseconds in found.items():
        print(f"{name}\t{microseconds}", flush=True)


def _client(folder: Path, port: str) -> dict[str, float]:
    told = subprocess.run(
        [sys.executable, "-m", "bench.client_calls", "--client", port],
        cwd=_ROOT,
        env=environment() | {"PYTHONPATH": os.pathsep.join([str(folder / "src"), str(_ROOT)])},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    return {name: float(value) for name, _, value in (line.partition("\t") for line in told.splitlines())}


def main() -> None:
    checkouts = [_ROOT, *map(Path, sys.argv[1:])]
    best: list[dict[str, float]] = [{} for _ in checkouts]
    with processes.started([sys.executable, "-m", "bench.client_calls", "--stub"], Path("/tmp"), "listens on") as (
        line,
        _,
    ):
        for _ in range(ROUNDS):
            for checkout, found in zip(checkouts, best, strict=True):
                for name, cost in _client(checkout, line.split()[-1]).items():
                    found[name] = min(found.get(name, cost), cost)
    for name in best[0]:
        print(f"{name:22}", *[f"{found[name]:8.1f} µs" for found in best])


if __name__ == "__main__":
    if sys.argv[1:] == ["--stub"]:
        uvloop.run(_serve())
    elif sys.argv[1:2] == ["--client"]:
        _be_the_client(int(sys.argv[2]))
    else:
        main()
