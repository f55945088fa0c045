"""Look at dead letters by their error, send back what can work now, drop the rest.

It prints:

    3 x TimeoutError: the printer does not answer
    1 x ValueError: order without an item
    would go back: 3
    went back: 3
    printed: teapot, lamp, kettle
    dropped: 1
"""

import time
from collections import Counter

import penstock
from penstock.client import SyncQueue

ORDERS = [{"item": "teapot"}, {"item": "lamp"}, {"colour": "green"}, {"item": "kettle"}]


def print_label(order: dict[str, str], *, is_printer_on: bool) -> str:
    if "item" not in order:
        raise ValueError("order without an item")
    if not is_printer_on:
        raise TimeoutError("the printer does not answer")
    return order["item"]


def work(orders: SyncQueue, *, is_printer_on: bool) -> list[str]:
    """Work on all that is there; what fails is given back, and here that was its last chance."""
    printed = []
    for message in orders.receive(limit=10):
        try:
            with message:
                printed.append(print_label(message.json(), is_printer_on=is_printer_on))
        except (ValueError, TimeoutError):
            pass
    return printed


def triage(orders: SyncQueue, dead: SyncQueue) -> None:
    for error, count in Counter(seen.last_error for seen in dead.peek(limit=100).messages).most_common():
        print(f"{count} x {error}")

    plan = dead.redrive(filter={"error": "printer"}, dry_run=True)
    print("would go back:", plan.moved_total)
    task = dead.redrive(filter={"error": "printer"})
    while task.state == "running":
        time.sleep(0.05)
        task = dead.redrive_task(task.task_id)
    print("went back:", task.moved_total)

    print("printed:", ", ".join(work(orders, is_printer_on=True)))
    print("dropped:", dead.purge())


def main() -> None:
    with penstock.connect() as client:
        client.create_queue("triage-labels", max_deliveries=1)
        orders, dead = client.queue("triage-labels"), client.queue("triage-labels.dead")
        orders.send_many(ORDERS)
        work(orders, is_printer_on=False)
        # What is spent is buried by the next to ask, or within a second.
        orders.receive()
        triage(orders, dead)
        orders.delete(with_dead_letters=True)


if __name__ == "__main__":
    main()
