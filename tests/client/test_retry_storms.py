"""A server that is busy or gone is not hammered: those it turned away come back late, and not together."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from penstock.client.caller import NotSent
from penstock.client.message import Message
from penstock.client.worker import Worker
from penstock.client.worker.consumer import Shutdown
from tests.client.scripted import ScriptedTransport, problem, raises, scripted
from tests.waiting import elapse

CROWD = 100
SECONDS = 120
TROUBLES = {
    # What a server says, and how many requests a second each worker may make meanwhile.
    "busy, and says for how long": (problem("journal_busy", retry_after_s=2.0), 0.5),
    "busy for longer than a client waits": (problem("no_room", retry_after_s=60), 0.25),
    "busy": (problem("journal_busy"), 1.0),
    "too many are waiting": (problem("too_many_waiting", retry_after_s=1.0), 1.0),
    "gone": (raises(NotSent("no connection")), 1.0),
}


@pytest.mark.parametrize(("trouble", "rate_max"), TROUBLES.values(), ids=TROUBLES.keys())
async def test_a_hundred_workers_leave_a_server_in_trouble_alone(trouble: object, rate_max: float) -> None:
    async with AsyncExitStack() as stack:
        transports: list[ScriptedTransport] = []
        halt = Shutdown(shutdown_timeout_s=0, is_until_idle=False)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        for _ in range(CROWD):
            client, transport = await stack.enter_async_context(scripted(trouble))  # type: ignore[arg-type]
            worker = Worker(client, shutdown_timeout_s=0)
            worker.handler("orders")(work)
            transports.append(transport)
            # Not `run`, which asks for signals: there are none in virtual time.
            tasks.create_task(worker._consume(client, halt))
        await elapse(SECONDS)
        halt.stop()
        times = sorted(request.at_s for transport in transports for request in transport.requests)
        # Beside the first tries, which come quickly.
        assert CROWD <= len(times) <= CROWD * (8 + rate_max * SECONDS)
        late = [at_s for at_s in times if at_s > times[0] + SECONDS / 2]
        most_at_once = max(sum(at_s <= each < at_s + 0.1 for each in late) for at_s in late)
        assert most_at_once < CROWD / 2, (most_at_once, len(late))


async def work(message: Message) -> None:
    raise AssertionError(message)
