"""`penstock demo`: a server with something going on, to look at in the console.

    producers ──▶ orders, mails, thumbnails, invoices, reports ──▶ workers, some of which fail
    clicks, payments (topics) ──▶ a reader of each, one of which is slow

The server is a process of its own, with an empty folder that goes when the command ends. All that calls it is in this
process, by the SDK and by REST, as any program would.
"""

import asyncio
import itertools
import json
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Callable, Coroutine
from typing import Annotated, Any
from urllib.request import Request, urlopen

import typer

from penstock.cli.output import ExitCode, refuse, say
from penstock.client import Client
from penstock.connect import connect

DEFAULT_PORT = 8080
_START_S = 30.0
_CUSTOMERS = ("ada", "grace", "edsger", "barbara", "donald", "radia")
_QUEUES: dict[str, dict[str, Any]] = {
    "orders": {"max_deliveries": 3, "visibility_timeout": 20, "retry": {"min_backoff_s": 1, "max_backoff_s": 4}},
    "mails": {"max_deliveries": 2, "retry": {"min_backoff_s": 1, "max_backoff_s": 2}},
    "thumbnails": {"max_deliveries": 2, "queue_size": 5_000, "history": "full"},
    "invoices": {"fifo": True, "max_deliveries": 4},
    "reports.nightly": {"paused": True},
}
_PRIORITIES = ("CRITICAL", "HIGH", "NORMAL", "NORMAL", "NORMAL", "LOW", "BACKGROUND")


def _payment_error(roll: random.Random) -> str:
    return (
        f"ConnectionError: 10.0.{roll.randrange(9)}.{roll.randrange(99)}:5432 refused order {roll.randrange(9999)}\n"
        "  shop/orders.py:88 in save: db.insert(row)"
    )


def _card_error(roll: random.Random) -> str:
    return f"CardDeclined: card ending {roll.randrange(1000, 9999)} of {roll.choice(_CUSTOMERS)}@example.com"


def _mail_error(roll: random.Random) -> str:
    return f"SMTPRecipientsRefused: 550 mailbox {roll.choice(_CUSTOMERS)}{roll.randrange(99)}@example.org not found"


def _picture_error(roll: random.Random) -> str:
    return f"ValueError: cannot read image file '/srv/upload/{roll.randrange(99999):05}.jpg': broken data stream"


# By queue: how many are sent and handled in a second, how many of a hundred fail, and with what.
_TRAFFIC: dict[str, tuple[float, float, int, tuple[Callable[[random.Random], str], ...]]] = {
    "orders": (24, 22, 7, (_payment_error, _payment_error, _card_error)),
    "mails": (12, 14, 4, (_mail_error,)),
    "thumbnails": (8, 9, 5, (_picture_error,)),
    "invoices": (4, 5, 2, (_payment_error,)),
    "reports.nightly": (0.5, 1, 0, ()),
}

# By topic: how many records come in a second or so, and how many of each partition are read.
_RECORDS = {"clicks": (20, 6), "payments": (6, 2)}
_READ_EVERY = 30


def demo(
    *,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="The port; 0 takes a free one.")] = DEFAULT_PORT,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the console in a browser.")] = True,
    for_s: Annotated[float | None, typer.Option("--for", min=0.1, help="End after so many seconds.")] = None,
) -> None:
    """Run a server with producers, workers and failures, and open its console. Ctrl-C ends all of it.

    What it stores is in a temporary folder, which is removed at the end.

    [bold]Examples:[/]

    penstock demo
    penstock demo --port 0 --no-browser --for 60
    """
    # A shell starts what runs in the background deaf to Ctrl-C, and `kill` must not leave the server behind.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    port = _free(port)
    url = f"http://127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="penstock-demo-") as folder:
        command = [sys.executable, "-m", "penstock", "serve", "--port", str(port), "--kafka-port", str(_free(0))]
        with subprocess.Popen(
            [*command, "--data", folder, "--log-level", "error"], stdout=subprocess.DEVNULL
        ) as server:
            try:
                _until_ready(server, port)
                say(f"The console: {url}/")
                say("Ctrl-C ends the server, its producers and its workers.")
                if browser:
                    webbrowser.open(url)
                asyncio.run(_run(url, for_s))
            except KeyboardInterrupt:
                say("Ended.")
            finally:
                server.terminate()


def _free(port: int) -> int:
    """Return the port, or a free one if it is 0 or in use."""
    with socket.socket() as door:
        door.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            door.bind(("127.0.0.1", port))
        except OSError:
            door.bind(("127.0.0.1", 0))
        return int(door.getsockname()[1])


def _until_ready(server: subprocess.Popen[bytes], port: int) -> None:
    until = time.monotonic() + _START_S
    while server.poll() is None and time.monotonic() < until:
        with socket.socket() as door:
            if door.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    refuse("The server of the demo did not start; `penstock serve` says why.", ExitCode.UNREACHABLE)


async def _run(url: str, for_s: float | None) -> None:
    roll = random.Random(7)
    async with connect(url) as client:
        for name, settings in _QUEUES.items():
            await client.create_queue(name, **settings)
        for topic in _RECORDS:
            await client.create_topic(topic, partitions=3)
        jobs: list[Coroutine[Any, Any, None]] = [_operate(client, roll)]
        for name in _QUEUES:
            jobs += [_produce(client, name, roll), _work(client, name, roll)]
        jobs += [_records(client, url, topic, roll) for topic in _RECORDS]
        try:
            async with asyncio.timeout(for_s), asyncio.TaskGroup() as tasks:
                for job in jobs:
                    tasks.create_task(job)
        except TimeoutError:
            pass


def _draft(queue: str, roll: random.Random) -> dict[str, Any]:
    customer = roll.choice(_CUSTOMERS)
    bodies: dict[str, Any] = {
        "orders": {"order": roll.randrange(10_000), "customer": customer, "total": round(roll.uniform(4, 400), 2)},
        "mails": {"to": f"{customer}@example.com", "template": roll.choice(("welcome", "receipt", "reset"))},
        "thumbnails": {"picture": f"/srv/upload/{roll.randrange(99999):05}.jpg", "sizes": [64, 256, 1024]},
        "invoices": {"invoice": roll.randrange(10_000), "customer": customer},
        "reports.nightly": {"day": "2027-01-31", "region": roll.choice(("emea", "apac", "amer"))},
    }
    return {
        "data": bodies[queue],
        "priority": roll.choice(_PRIORITIES),
        "attributes": {"source": roll.choice(("web", "app", "import"))},
        **({"group": customer} if queue in {"invoices", "orders"} else {}),
    }


async def _produce(client: Client, name: str, roll: random.Random) -> None:
    queue, (per_s, *_) = client.queue(name), _TRAFFIC[name]
    while True:
        for _ in range(max(1, round(per_s))):
            draft = _draft(name, roll)
            await queue.send(draft.pop("data"), **draft, delay_s=60 if roll.random() < 0.02 else 0)
        # Traffic comes in waves.
        await asyncio.sleep(max(1.0, 1 / per_s) * roll.uniform(0.6, 1.4))


async def _work(client: Client, name: str, roll: random.Random) -> None:
    queue, (_, per_s, failing, errors) = client.queue(name), _TRAFFIC[name]
    while True:
        for message in await queue.receive(limit=max(1, round(per_s / 4)), wait_s=5):
            await asyncio.sleep(roll.uniform(0.2, 1.4) / per_s)
            if roll.randrange(100) < failing or (errors and message.delivery_count > 1 and roll.random() < 0.6):
                await queue.release(message, error=roll.choice(errors)(roll))
            else:
                await queue.ack(message)


async def _records(client: Client, url: str, name: str, roll: random.Random) -> None:
    """Produce records, and read them as a group that cannot quite keep up."""
    topic, (per_s, read_s) = client.topic(name), _RECORDS[name]
    for second in itertools.count():
        rows = [{"page": roll.choice(("/", "/cart", "/pay")), "ms": roll.randrange(900)} for _ in range(per_s)]
        await topic.add(rows, key=roll.choice(_CUSTOMERS))
        if second % _READ_EVERY == 0:
            read = {"topic": name, "to": "shift", "value": read_s * _READ_EVERY, "dry_run": False}
            await asyncio.to_thread(_post, f"{url}/api/console/offsets", {"group": f"{name}-reader", **read})
        await asyncio.sleep(roll.uniform(0.6, 1.4))


def _post(url: str, body: dict[str, Any]) -> None:
    request = Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    with urlopen(request, timeout=10) as answer:
        answer.read()


async def _operate(client: Client, roll: random.Random) -> None:
    """Do now and then what an operator does, for the audit log."""
    while True:
        await asyncio.sleep(15)
        found = await client.queue("orders").peek(limit=5)
        ids = [message.message_id for message in found.messages if message.state == "ready"]
        if ids:
            reason = f"customer {roll.choice(_CUSTOMERS)} called"
            await client.queue("orders").escalate(ids[:2], priority="HIGH", actor="demo", reason=reason)
