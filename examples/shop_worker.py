"""A worker: functions that are called with the messages of queues, and retries by the kind of failure.

In earnest it would run until it is told to stop, with `penstock work shop_worker:worker`.
Here it ends when there is nothing left to do.

It prints:

    order 1: label printed
    order 2: the printer is busy, once more
    order 2: label printed
    mail about order 1
    mail about order 2
    rejected: {'item': 'lamp'}, an order needs a number
"""

import asyncio

import penstock
from penstock.client import Message
from penstock.client.worker import Reject, Worker

client = penstock.connect()
worker = Worker(client)


# One at a time and in order, so that it always prints the same; 20 at once would be usual.
@worker.handler("shop-orders", concurrency=1, time_limit_s=30, retry={TimeoutError: 0})
async def ship(message: Message) -> None:
    order = message.json()
    if "number" not in order:
        # Another delivery would be no use: straight to the dead letters.
        raise Reject("an order needs a number")
    if order["number"] == 2 and message.delivery_count == 1:
        print(f"order {order['number']}: the printer is busy, once more")
        raise TimeoutError("the printer is busy")
    print(f"order {order['number']}: label printed")
    # A repeated delivery sends no second mail.
    await client.queue("shop-mails").send(order, dedup_id=f"shipped {order['number']}")


async def main() -> None:
    async with client:
        for name in ("shop-orders", "shop-mails"):
            await client.create_queue(name, dedup="window")
        await client.queue("shop-orders").send_many([{"number": 1}, {"number": 2}, {"item": "lamp"}])
        await worker.run(until_idle=True)

        for message in await client.queue("shop-mails").receive(limit=10):
            async with message:
                print("mail about order", message.json()["number"])
        dead = client.queue("shop-orders.dead")
        for seen in (await dead.peek()).messages:
            print(f"rejected: {seen.data}, {seen.last_error}")
        await client.queue("shop-orders").delete(with_dead_letters=True)
        await client.queue("shop-mails").delete()


if __name__ == "__main__":
    asyncio.run(main())
