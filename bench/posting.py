"""Plain POSTs of one message each, by wrk: what anything that speaks HTTP gets, without a client of ours.

Each connection sends the next message when the one before is answered. Where wrk is not installed a small generator
in Python does the same, and the row says so: it takes about as much CPU time as the server, on the same cores.
"""

import json
import shutil
import tempfile
from array import array
from dataclasses import dataclass, replace
from typing import Any

from bench import Bench, Row, processes, sdk, sides, traffic
from bench.asking import connections
from bench.peer import Window
from bench.processes import Server, ended_children_cpu, own_cpu, spawned
from bench.sdk import SdkQueue
from bench.sides import ROUNDS, Side
from bench.traffic import MESSAGE_BYTES, Traffic

NO_WRK = "wrk is not here (apt-get install wrk): asked by a generator in Python instead"
_WARM_S = 1
_PATH = f"/api/queues/{sdk.QUEUE}/messages"
_BODY = json.dumps({"data": "x" * MESSAGE_BYTES})
_SCRIPT = f"""
wrk.method = "POST"
wrk.body = '{_BODY}'
wrk.headers["Content-Type"] = "application/json"
done = function(summary, latency)
  local failed = summary.errors
  local waits = {{}}
  for share = 1, 100 do waits[share] = latency:percentile(share - 0.5) end
  io.write(string.format('{{"messages": %d, "us": %d, "failed": %d, "waits_us": [%s]}}\\n',
    summary.requests, summary.duration, failed.connect + failed.read + failed.write + failed.status + failed.timeout,
    table.concat(waits, ",")))
end
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Posts:
    name: str
    connections: int
    target: float
    steps: int = ROUNDS
    is_long: bool = False

    def run(self, bench: Bench) -> list[Row]:
        has_wrk = shutil.which("wrk") is not None
        post = _post_by_wrk if has_wrk else _post_from_here

        async def measure(_queue: SdkQueue, server: Server) -> Traffic:
            return await post(server, self.connections, bench.seconds)

        (ours,) = sides.rounds(bench, [Side(processes.penstock, sdk.opened)], measure)
        row = sides.row(self.name, ours, target=self.target, verb="send")
        by = f"wrk, {self.connections} connections" if has_wrk else NO_WRK
        return [replace(row, remark=f"{row.remark}; {by}")]


async def _post_by_wrk(server: Server, connections_open: int, seconds: float) -> Traffic:
    # It has its ways only from a file, and counts in whole seconds.
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT)
        script.flush()
        command = ["wrk", "--threads", "1", "--connections", str(connections_open), "--script", script.name]
        await _wrk([*command, "--duration", f"{_WARM_S}s", server.url + _PATH])
        clocks = {"server": server.cpu, "wrk": ended_children_cpu}
        before = {name: clock() for name, clock in clocks.items()}
        told = await _wrk([*command, "--duration", f"{max(1, round(seconds))}s", server.url + _PATH])
        cpu = {name: clock().since(before[name]) for name, clock in clocks.items()}
    assert not told["failed"], told
    waits_ms = array("d", [wait_us / 1_000 for wait_us in told["waits_us"]])
    return Traffic(told["messages"], told["us"] / 1e6, cpu, {"send": waits_ms})


async def _wrk(command: list[str]) -> Any:
    async with spawned(command) as process:
        told, _ = await process.communicate()
        return json.loads(told.splitlines()[-1])


async def _post_from_here(server: Server, connections_open: int, seconds: float) -> Traffic:
    request = (
        f"POST {_PATH} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        f"content-length: {len(_BODY)}\r\n\r\n{_BODY}"
    ).encode()
    async with connections(server.port, request, connections_open) as tally:
        window, clocks = Window.lasting(seconds), {"server": server.cpu, "generator": own_cpu}
        found = await traffic.measured(window, lambda: tally.answers, clocks, {"send": tally.waits_ms})
    assert not tally.failures
    return found
