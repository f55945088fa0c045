"""A file of JSON lines into a queue, as fast as the queue takes them.

The queue holds 2,000 messages at most. When it is full, `send_many` waits for as long as
the server says, so the file is read at the pace of the workers, and never into memory.
Each line is named by its number, so that a load that broke off can be started again.

Give it a file, or it makes one of 10,000 lines.

It prints:

    10000 lines sent
    10000 lines received, none twice
"""

import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import penstock
from penstock import Draft
from penstock.client import Queue

BATCH = 500


def drafts_of(path: Path) -> Iterator[Draft]:
    with path.open() as lines:
        for number, line in enumerate(lines, 1):
            yield Draft(data=json.loads(line), dedup_id=f"{path.name}:{number}")


async def load(queue: Queue, path: Path) -> int:
    drafts, count = drafts_of(path), 0
    while batch := list(islice(drafts, BATCH)):
        count += len(await queue.send_many(batch))
    return count


async def drain(queue: Queue, numbers: list[int], total: asyncio.Future[int]) -> None:
    """Receive until everything that was sent is here."""
    while not (total.done() and len(numbers) >= total.result()):
        batch = await queue.receive(limit=1_000, wait_s=0.5)
        numbers += [message.json()["number"] for message in batch]
        await batch.ack()


async def main(path: Path) -> None:
    async with penstock.connect() as client:
        await client.create_queue("load-lines", queue_size=2_000, dedup="live")
        queue = client.queue("load-lines")
        total: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        numbers: list[int] = []
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(drain(queue, numbers, total))
            total.set_result(await load(queue, path))
            print(total.result(), "lines sent")
        doubled = len(numbers) - len(set(numbers))
        print(len(numbers), "lines received,", "none twice" if not doubled else f"{doubled} twice")
        await queue.delete()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        asyncio.run(main(Path(sys.argv[1])))
    else:
        with tempfile.TemporaryDirectory() as folder:
            made = Path(folder) / "lines.jsonl"
            made.write_text("".join(f'{{"number": {number}}}\n' for number in range(10_000)))
            asyncio.run(main(made))
