"""What thousands of idle long polls cost a server: CPU of its process, memory, and how soon they all wait.

    python -m bench.idle_polls --polls 10000 --queues 1 --seconds 40

Starts a server of its own in a folder of its own. Each connection asks, waits for its
20 seconds, is answered with nothing and asks again; the load generator's own CPU is
not counted.
"""

import argparse
import asyncio
import contextlib
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import cast

import uvloop

TICKS_PER_S = 100
WAIT_S = 20


class Poll(asyncio.Protocol):
    """One connection that polls again and again."""

    answers = 0

    def __init__(self, queue: str) -> None:
        self._request = f"GET /api/queues/{queue}/messages?wait_s={WAIT_S} HTTP/1.1\r\nhost: x\r\n\r\n".encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transports of uvloop do not inherit from those of asyncio.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        assert data.startswith(b"HTTP/1.1 200"), data
        Poll.answers += 1
        self._transport.write(self._request)


async def poll(port: int, polls: int, queues: int, seconds: float, pid: int) -> None:
    loop = asyncio.get_running_loop()
    begun = time.monotonic()
    for number in range(polls):
        await loop.create_connection(lambda name=f"q{number % queues}": Poll(name), "127.0.0.1", port)  # type: ignore[misc]
    opened_s = time.monotonic() - begun
    print(f"{polls} connections opened in {opened_s:.1f} s")
    # The first answers come all at once, as the connections were opened; after them it is steady.
    await asyncio.sleep(WAIT_S + opened_s)
    Poll.answers = 0
    before, began_at = cpu_s(pid), time.monotonic()
    await asyncio.sleep(seconds)
    spent, passed = cpu_s(pid) - before, time.monotonic() - began_at
    print(f"server CPU {100 * spent / passed:.1f} % of a core; {Poll.answers / passed:.0f} answers/s")
    print(f"{1e6 * spent / max(1, Poll.answers):.0f} µs of CPU for each poll; server memory {memory_mb(pid):.0f} MB")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def memory_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS"))) / 1_024


def create_queues(url: str, count: int) -> None:
    for number in range(count):
        request = urllib.request.Request(
            f"{url}/api/queues", f'{{"queue_name": "q{number}"}}'.encode(), {"content-type": "application/json"}
        )
        urllib.request.urlopen(request).close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--polls", type=int, default=10_000)
    parser.add_argument("--queues", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=40.0)
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        command = [sys.executable, "-m", "penstock", "serve", "--port", "0", "--data", f"{folder}/data"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        stack.callback(server.wait)
        stack.callback(server.terminate)
        assert server.stdout is not None
        url = next(word for line in server.stdout for word in line.split() if word.startswith("http"))
        print(f"an idle server has {memory_mb(server.pid):.0f} MB")
        create_queues(url, options.queues)
        port = int(url.rpartition(":")[2])
        uvloop.run(poll(port, options.polls, options.queues, options.seconds, server.pid))


if __name__ == "__main__":
    main()
