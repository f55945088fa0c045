"""Requests as boto3 writes them, recorded once and sent again and again by wrk: what a server can do.

    send 10 ─▶ receive 10 ─▶ delete 10      on every connection, as many at once as there are connections

boto3 takes far longer to write a request than a server to answer it, so a server is measured without it. Recorded are
the headers, the signature among them, and the bodies. In the delete only the handles change: they are those that were
received. Each answer counts as a third of its messages: a slow server would have done a few of one verb more than of
the next when the time is up, and nothing whole.

A receive is asked for only when ten sent messages wait for it, so the backlog stays what it was.
"""

import json
import shutil
import tempfile
from array import array
from typing import Any

from bench import sqs_asking
from bench.processes import Server, ended_children_cpu, spawned
from bench.sqs_requests import BATCH, CALLS, QUEUE, Recorded, record
from bench.traffic import Traffic

NO_WRK = "wrk is not here (apt-get install wrk): asked by a generator in Python instead"
_WARM = "warm"
_WARM_S = 1
_SCRIPT = """
local recorded = {recorded}
local batch = {batch}
local handles, waiting = {{}}, 0
answered, failed = 0, 0

function request()
  if #handles >= batch then
    local body = recorded.delete.body
    for at = 1, batch do body = body:gsub("HANDLE", (table.remove(handles):gsub("%%", "%%%%")), 1) end
    return wrk.format("POST", recorded.delete.path, recorded.delete.headers, body)
  end
  if waiting >= batch then
    waiting = waiting - batch
    return wrk.format("POST", recorded.receive.path, recorded.receive.headers, recorded.receive.body)
  end
  return wrk.format("POST", recorded.send.path, recorded.send.headers, recorded.send.body)
end

function response(status, headers, body)
  if status ~= 200 or body:find('"Failed":%s*%[%s*{{') then
    failed = failed + 1
    return
  end
  answered = answered + 1
  if body:find('"Messages"', 1, true) then
    for handle in body:gmatch('"ReceiptHandle":%s*"([^"]+)"') do table.insert(handles, handle) end
  elseif body:find('"MD5OfMessageBody"', 1, true) then
    waiting = waiting + batch
  end
end

local threads = {{}}
function setup(thread) table.insert(threads, thread) end

function done(summary, latency)
  local all, bad = 0, summary.errors.connect + summary.errors.read + summary.errors.write + summary.errors.timeout
  for _, thread in ipairs(threads) do
    all, bad = all + thread:get("answered"), bad + thread:get("failed")
  end
  local waits = {{}}
  for share = 1, 100 do waits[share] = latency:percentile(share - 0.5) end
  io.write(string.format('{{"calls": %d, "us": %d, "failed": %d, "waits_us": [%s]}}\\n',
    all, summary.duration, bad, table.concat(waits, ",")))
end
"""


def as_lua(request: Recorded) -> str:
    headers = ", ".join(f"[ {_quoted(name)} ] = {_quoted(value)}" for name, value in request.headers.items())
    return f"{{path = {_quoted(request.path)}, headers = {{{headers}}}, body = {_quoted(request.body)}}}"


def _quoted(text: str) -> str:
    return f"[==[{text}]==]"


def has_wrk() -> bool:
    return shutil.which("wrk") is not None


async def replay(server: Server, *, connections: int, seconds: float, warm_s: int = _WARM_S) -> Traffic:
    """Send the requests for some time, after that was done to another queue."""
    send = by_wrk if has_wrk() else sqs_asking.ask
    if warm_s:
        # What is left there would slow down a server that looks at all its messages.
        await send(server, record(server, _WARM), connections=connections, seconds=warm_s)
    return await send(server, record(server, QUEUE), connections=connections, seconds=seconds)


async def by_wrk(server: Server, requests: dict[str, Recorded], *, connections: int, seconds: float) -> Traffic:
    clocks = {"server": server.cpu, "wrk": ended_children_cpu}
    before = {name: clock() for name, clock in clocks.items()}
    told = await _wrk(requests, server, connections, max(1, round(seconds)))
    cpu = {name: clock().since(before[name]) for name, clock in clocks.items()}
    assert not told["failed"], told
    waits_ms = array("d", [wait_us / 1_000 for wait_us in told["waits_us"]])
    return Traffic(told["calls"] * BATCH // CALLS, told["us"] / 1e6, cpu, {"call": waits_ms})


async def _wrk(requests: dict[str, Recorded], server: Server, connections: int, seconds: int) -> Any:
    table = ", ".join(f"{name} = {as_lua(each)}" for name, each in requests.items())
    # It has its ways only from a file, and counts in whole seconds.
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(_SCRIPT.format(recorded=f"{{{table}}}", batch=BATCH))
        script.flush()
        command = ["wrk", "--threads", "1", "--connections", str(connections), "--timeout", "60s"]
        async with spawned([*command, "--script", script.name, "--duration", f"{seconds}s", server.url]) as process:
            told, _ = await process.communicate()
            return json.loads(told.splitlines()[-1])
