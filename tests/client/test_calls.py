"""How many Python functions one message goes through, in one process: a guard for the way of a single message.

Calls of functions of Penstock are counted; a coroutine that goes on counts again. Of several messages the cheapest
counts, as a timer may run beside the others. When a change makes a count smaller, make the bound smaller, too.
"""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import penstock

SOURCE = str(Path(penstock.__file__).parent)
MESSAGES = 10
# Calls and modules, at most. One call of each is the queue's step into a millisecond that has begun since the last one.
# One module of an ack is what counts acks for the golden signals.
BOUNDS = {"send": (209, 42), "receive": (187, 46), "ack": (184, 41)}
SYNCHRONOUS_BOUNDS = {"send": (217, 43), "receive": (196, 47), "ack": (195, 42)}

Counts = dict[str, tuple[int, int]]


@contextmanager
def counting() -> Iterator[tuple[Callable[[str], None], Counts]]:
    """Yield a function that counts what was called until now, by its verb, and the smallest counts."""
    seen: list[str] = []
    least: Counts = {}

    def hear(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(SOURCE):
            seen.append(frame.f_code.co_filename)

    def count(verb: str) -> None:
        found = len(seen), len(set(seen))
        least[verb] = min(least.get(verb, found), found)
        seen.clear()

    before = sys.getprofile()
    # The synchronous API has a thread of its own.
    threading.setprofile(hear)
    sys.setprofile(hear)
    try:
        yield count, least
    finally:
        sys.setprofile(before)
        threading.setprofile(None)


def beyond(counts: Counts, bounds: Counts) -> Counts:
    """Return the counts of which one is larger than its bound."""
    return {verb: found for verb, found in counts.items() if found[0] > bounds[verb][0] or found[1] > bounds[verb][1]}


def test_one_message_goes_through_no_more_functions_and_modules_than_it_did() -> None:
    async def run() -> Counts:
        async with penstock.connect("memory:") as client:
            await client.create_queue("calls")
            queue = client.queue("calls")
            with counting() as (count, least):
                for _ in range(MESSAGES):
                    await queue.send(b"a teapot")
                    count("send")
                    message = await queue.receive()
                    count("receive")
                    assert message is not None
                    await message.ack()
                    count("ack")
        return least

    assert not beyond(asyncio.run(run()), BOUNDS)


def test_one_message_of_the_synchronous_api_goes_through_no_more_functions_and_modules_than_it_did() -> None:
    with counting() as (count, least), penstock.connect("memory:") as client:
        client.create_queue("calls")
        queue = client.queue("calls")
        for _ in range(MESSAGES):
            count("")
            queue.send(b"a teapot")
            count("send")
            message = queue.receive()
            count("receive")
            assert message is not None
            message.ack()
            count("ack")
    del least[""]
    assert not beyond(least, SYNCHRONOUS_BOUNDS)
