"""Two stages, each with its queue: orders are priced, then shipped.

A stage receives, does its work, sends the result on, and acks. If it dies between the
last two the order comes again, and is sent on again; `dedup_id` makes that harmless.

It prints:

    shipped: order 1, 2 teapots, 24 euros
    shipped: order 2, 1 lamp, 40 euros
    shipped: order 3, 5 kettles, 100 euros
    all is shipped
"""

import asyncio
from typing import Any

import penstock

PRICES = {"teapot": 12, "lamp": 40, "kettle": 20}
ORDERS = [{"number": 1, "item": "teapot", "count": 2}, {"number": 2, "item": "lamp", "count": 1}]
LATE_ORDER = {"number": 3, "item": "kettle", "count": 5}


async def price(client: penstock.Client) -> None:
    """Take orders for ever, and hand each on with what it costs."""
    parcels = client.queue("pipeline-parcels")
    async for message in client.queue("pipeline-orders").consume():
        async with message:
            order: dict[str, Any] = message.json()
            order["euros"] = PRICES[order["item"]] * order["count"]
            await parcels.send(order, dedup_id=f"order {order['number']}")


async def ship(client: penstock.Client, count: int) -> None:
    """Ship so many parcels."""
    async for message in client.queue("pipeline-parcels").consume():
        async with message:
            parcel = message.json()
            what = f"{parcel['count']} {parcel['item']}{'s' if parcel['count'] > 1 else ''}"
            print(f"shipped: order {parcel['number']}, {what}, {parcel['euros']} euros")
        count -= 1
        if not count:
            return


async def main() -> None:
    async with penstock.connect() as client:
        for name in ("pipeline-orders", "pipeline-parcels"):
            await client.create_queue(name, dedup="window")
        orders = client.queue("pipeline-orders")
        async with asyncio.TaskGroup() as tasks:
            pricing = tasks.create_task(price(client))
            shipping = tasks.create_task(ship(client, count=3))
            await orders.send_many(ORDERS)
            # The button was pressed twice.
            await orders.send_many(ORDERS[:1])
            await orders.send(LATE_ORDER)
            await shipping
            pricing.cancel()
        print("all is shipped")
        for name in ("pipeline-orders", "pipeline-parcels"):
            await client.queue(name).delete()


if __name__ == "__main__":
    asyncio.run(main())
