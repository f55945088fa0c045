"""One event for several readers, each customer's in order, with several workers.

The publisher sends to the queue of each reader. (With a topic the readers would share one log.)
The queues are FIFO and the customer is the group: what one customer does is worked on in
order, by one worker at a time, while the workers share the customers between them.

It prints:

    ledger anna: opens, pays, closes
    ledger ben: opens, pays, closes
    ledger carl: opens, pays, closes
    mailer anna: opens, pays, closes
    mailer ben: opens, pays, closes
    mailer carl: opens, pays, closes
"""

import asyncio
from collections import defaultdict

import penstock
from penstock import Draft

READERS = ("ledger", "mailer")
CUSTOMERS = ("anna", "ben", "carl")
DEEDS = ("opens", "pays", "closes")
WORKERS = 3

Seen = defaultdict[tuple[str, str], list[str]]


async def publish(client: penstock.Client) -> None:
    events = [Draft(data=deed, group=customer) for deed in DEEDS for customer in CUSTOMERS]
    for reader in READERS:
        await client.queue(f"fan-out-{reader}").send_many(events)


async def work(client: penstock.Client, reader: str, seen: Seen) -> None:
    """Work until nothing has come for a while."""
    queue = client.queue(f"fan-out-{reader}")
    while batch := await queue.receive(limit=2, wait_s=1):
        for message in batch:
            # Something takes its time here; another worker must not overtake.
            await asyncio.sleep(0.01)
            seen[reader, message.group or ""].append(message.text)
        await batch.ack()


async def main() -> None:
    async with penstock.connect() as client:
        for reader in READERS:
            await client.create_queue(f"fan-out-{reader}", fifo=True)
        seen: Seen = defaultdict(list)
        await publish(client)
        async with asyncio.TaskGroup() as tasks:
            for reader in READERS:
                for _ in range(WORKERS):
                    tasks.create_task(work(client, reader, seen))
        for (reader, customer), deeds in sorted(seen.items()):
            print(f"{reader} {customer}: {', '.join(deeds)}")
        for reader in READERS:
            await client.queue(f"fan-out-{reader}").delete()


if __name__ == "__main__":
    asyncio.run(main())
