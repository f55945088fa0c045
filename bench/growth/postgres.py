"""``python -m bench.growth.postgres``: the PostgreSQL store while one thing grows, as milliseconds and ratios.

Each line has one backlog at three sizes, or at four with `--most 1000000`, and one operation that does not
touch it. What has to touch everything follows: a queue of each size is worked off, and its rate is printed.
The tests count rows instead (`tests/postgres/test_flat.py`, `test_room.py`, `test_purges.py`); this is for the eye.
"""

import argparse
import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.runtime.system import SystemClock, SystemDice
from penstock.store.interface import EscalationOrder, MessageFilter, RedriveOrder, Release
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.servers import Server

SIZES = (1_000, 10_000, 100_000, 1_000_000)
ROUNDS = 15
BATCH = 1_000

Step = Callable[[PostgresStore, int], Awaitable[object]]


@dataclass(frozen=True)
class Line:
    name: str
    settings: QueueSettings
    # Adds a batch to the backlog; makes the operation once. Both are told a number of their own.
    grow: Step
    run: Step


async def _send(store: PostgresStore, first: int, *, count: int = BATCH, groups: bool = False) -> object:
    del first
    names = [b"g%d" % (number % 100) for number in range(count)] if groups else None
    return await store.send("orders", Drafts(bodies=[b"x" * 100] * count, groups=names))


async def _send_named(store: PostgresStore, first: int) -> object:
    names = [b"%d" % (first * BATCH + number) for number in range(BATCH)]
    return await store.send("orders", Drafts(bodies=[b"x"] * BATCH, dedup_ids=names))


async def _bury(store: PostgresStore, first: int) -> None:
    await _send(store, first)
    delivery = await store.lease("orders", want=BATCH)
    assert delivery is not None
    await store.release("orders", delivery.receipts(), Release(is_rejected=True))
    await store.tidy()


async def _lease_one_by_one(store: PostgresStore, first: int) -> object:
    await _send(store, first)
    for _ in range(BATCH):
        await store.lease("orders", want=1, lease_ms=3_600_000)
    return None


async def _lease_groups(store: PostgresStore, first: int) -> None:
    await _send(store, first, groups=True)
    for _ in range(BATCH // 50 - 1):
        await store.lease("orders", want=50, lease_ms=3_600_000)


async def _lease_groups_one_by_one(store: PostgresStore, first: int) -> None:
    await _send(store, first, groups=True)
    for _ in range(BATCH // 10 - 1):
        await asyncio.gather(*(store.lease("orders", want=1, lease_ms=3_600_000) for _ in range(10)))


async def _lease_by_ten(store: PostgresStore, first: int) -> None:
    await _send(store, first)
    for _ in range(BATCH // 10):
        await store.lease("orders", want=10, lease_ms=3_600_000)


async def _lease_several_tiers(store: PostgresStore, first: int) -> None:
    del first
    await store.send("orders", Drafts(bodies=[b"x" * 100] * BATCH, tiers=bytes(number % 5 for number in range(BATCH))))
    for _ in range(BATCH // 10):
        await store.lease("orders", want=10, lease_ms=3_600_000)


async def _make_queues(store: PostgresStore, first: int) -> None:
    # One for each ten of the size.
    for number in range(first * BATCH // 10, (first + 1) * BATCH // 10):
        await store.create(f"queue-{number}", QueueSettings())


async def _look_at_a_leased_one(store: PostgresStore, number: int) -> object:
    del number
    return await store.receipts("orders", ["1-5"])


async def _look_at_a_waiting_one(store: PostgresStore, number: int) -> None:
    del number
    page = await store.peek("orders", most=1)
    await store.look("orders", page.messages[0].id)
    await store.explain("orders", page.messages[0].id)


async def _describe_a_hundred(store: PostgresStore, number: int) -> None:
    del number
    await store.summaries([f"queue-{place}" for place in range(100)])


async def _settle_ten(store: PostgresStore, number: int) -> None:
    await _send(store, number, count=10)
    delivery = await store.lease("orders", want=10)
    assert delivery is not None
    await store.extend("orders", delivery.receipts(), lease_ms=60_000)
    await store.ack("orders", delivery.receipts())


async def _search_waiting(store: PostgresStore, number: int) -> None:
    del number
    await store.peek("orders", MessageFilter(text=b"nothing has this"), most=10)


async def _try_a_redrive(store: PostgresStore, number: int) -> None:
    del number
    await store.redrive("orders.dead", RedriveOrder(most=100, is_dry_run=True))


async def _delete_another(store: PostgresStore, number: int) -> None:
    await store.create(f"other-{number}", QueueSettings())
    await store.delete(f"other-{number}")


async def _ten_live(store: PostgresStore, number: int) -> None:
    del number
    await store.live("orders", most=10)


async def _search_dead_letters(store: PostgresStore, number: int) -> None:
    """A thousand of them; the rest is asked for page by page."""
    del number
    await store.peek("orders.dead", MessageFilter(text=b"nothing has this"), most=10)


async def _lower_a_threshold(store: PostgresStore, number: int) -> None:
    """What follows is done by others: a caller waits for this and for a look at the queue."""
    aging_ms = (0, 0, 10 + number % 2, 0, 0)
    await store.change("orders", QueueSettings(aging_ms=aging_ms))
    await store.summaries(["orders"])


LINES = (
    Line("send one, queue_size set", QueueSettings(size_max=10**9), _send, lambda s, n: _send(s, n, count=1)),
    Line("send 1,000 new dedup ids", QueueSettings(), _send_named, _send_named),
    Line(
        "peek 10 of messages with groups",
        QueueSettings(),
        lambda s, n: _send(s, n, groups=True),
        lambda s, _: s.peek("orders", most=10),
    ),
    Line(
        "peek 10 dead letters",
        QueueSettings(deliveries_max=1),
        _bury,
        lambda s, _: s.peek("orders.dead", most=10),
    ),
    Line(
        "redrive 100 dead letters",
        QueueSettings(deliveries_max=1),
        _bury,
        lambda s, _: s.redrive("orders.dead", RedriveOrder(most=100)),
    ),
    Line("describe a queue", QueueSettings(), _send, lambda s, _: s.summaries(["orders"])),
    Line(
        "describe a queue of groups",
        QueueSettings(),
        lambda s, n: _send(s, n, groups=True),
        lambda s, _: s.summaries(["orders"]),
    ),
    Line("describe 100 queues of a tenth as many", QueueSettings(), _make_queues, _describe_a_hundred),
    Line("tidy a tenth as many queues", QueueSettings(), _make_queues, lambda s, _: s.tidy()),
    Line("get and explain a waiting message", QueueSettings(), _send, _look_at_a_waiting_one),
    Line(
        "get and explain a waiting message of a group",
        QueueSettings(),
        lambda s, n: _send(s, n, groups=True),
        _look_at_a_waiting_one,
    ),
    Line("search 1,000 dead letters for a text", QueueSettings(deliveries_max=1), _bury, _search_dead_letters),
    Line("lower an aging threshold", QueueSettings(aging_ms=(0, 0, 0, 0, 0)), _send, _lower_a_threshold),
    Line(
        "10 rows of /live beside leases of one",
        QueueSettings(),
        _lease_one_by_one,
        _ten_live,
    ),
    Line("10 rows of /live beside leases of ten", QueueSettings(), _lease_by_ten, _ten_live),
    Line("10 rows of /live beside leases of several tiers", QueueSettings(), _lease_several_tiers, _ten_live),
    Line(
        "lease one beside messages of groups that are out",
        QueueSettings(deliveries_max=0),
        _lease_groups,
        lambda s, _: s.lease("orders", want=1, lease_ms=3_600_000),
    ),
    Line(
        "lease one beside leases of one of groups",
        QueueSettings(deliveries_max=0),
        _lease_groups_one_by_one,
        lambda s, _: s.lease("orders", want=1, lease_ms=3_600_000),
    ),
    Line("find a leased message", QueueSettings(), _lease_one_by_one, _look_at_a_leased_one),
    Line("find one leased with others of several tiers", QueueSettings(), _lease_several_tiers, _look_at_a_leased_one),
    Line("lease, ack and extend 10", QueueSettings(), _send, _settle_ten),
    Line("peek with a filter that little matches", QueueSettings(), _send, _search_waiting),
    Line("dry run of a redrive of 100", QueueSettings(deliveries_max=1), _bury, _try_a_redrive),
    Line("tidy when nothing is due", QueueSettings(retention_ms=10**9), _send, lambda s, _: s.tidy()),
    Line("delete a queue beside a large one", QueueSettings(), _send, _delete_another),
)


async def _redrive_all(store: PostgresStore) -> None:
    while (await store.redrive("orders.dead", RedriveOrder(most=100))).remaining:
        pass


async def _escalate_all(store: PostgresStore) -> None:
    """As an escalation by filter does: page after page."""
    order, after = EscalationOrder(tier=1, actor="bench", reason=""), ""
    while True:
        page = await store.peek("orders", MessageFilter(tier=2), most=1_000, after=after)
        await store.escalate("orders", [each.id for each in page.messages], order)
        if not page.next:
            return
        after = page.next


async def _age_all(store: PostgresStore) -> None:
    await store.change("orders", QueueSettings(aging_ms=(0, 0, 1, 0, 0)))
    while sum((await store.counts("orders")).ready[2:]):
        await store.tidy()


@dataclass(frozen=True)
class Rate:
    """An operation on everything there is: it grows with that, and is to take as long for each."""

    name: str
    settings: QueueSettings
    fill: Step
    run: Callable[[PostgresStore], Awaitable[object]]


async def _fill_groups(store: PostgresStore, first: int) -> object:
    return await _send(store, first, groups=True)


RATES = (
    Rate("purge plain messages", QueueSettings(), _send, lambda s: s.purge("orders")),
    Rate("purge messages of groups", QueueSettings(), _fill_groups, lambda s: s.purge("orders")),
    Rate("purge leases of one", QueueSettings(), _lease_one_by_one, lambda s: s.purge("orders")),
    Rate("redrive dead letters, 100 in a step", QueueSettings(deliveries_max=1), _bury, _redrive_all),
    Rate("escalate messages of groups by a filter", QueueSettings(), _fill_groups, _escalate_all),
    Rate("let all age", QueueSettings(), _send, _age_all),
)


async def measure_rate(rate: Rate, url: str, size: int) -> float:
    async with await PostgresStore.open(PostgresSettings(url=url), clock=SystemClock(), dice=SystemDice()) as store:
        await store.create("orders", rate.settings)
        for batch in range(size // BATCH):
            await rate.fill(store, batch)
        began = time.perf_counter()
        await rate.run(store)
        return size / (time.perf_counter() - began)


async def measure(line: Line, url: str, sizes: tuple[int, ...]) -> list[float]:
    found: list[float] = []
    settings = PostgresSettings(url=url)
    # With upkeep, as a server has it: what is much is counted behind those who ask.
    async with await PostgresStore.open(settings, clock=SystemClock(), dice=SystemDice()) as store:
        await store.create("orders", line.settings)
        batches = 0
        for size in sizes:
            while batches * BATCH < size:
                await line.grow(store, batches)
                batches += 1
            taken = []
            for round_ in range(ROUNDS):
                began = time.perf_counter()
                await line.run(store, 1_000_000 + batches * ROUNDS + round_)
                taken.append((time.perf_counter() - began) * 1_000)
            found.append(statistics.median(taken))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--most", type=int, default=SIZES[2], help="leave out sizes above this")
    parser.add_argument("--only", default="", help="lines with this in their name")
    asked = parser.parse_args()
    sizes = tuple(size for size in SIZES if size <= asked.most)
    print(f"{'median ms, and how many times that of the smallest size':58}", *(f"{size:>16,}" for size in sizes))
    with Server() as server:
        for line in (line for line in LINES if asked.only in line.name):
            found = asyncio.run(measure(line, server.new_database(), sizes))
            print(f"{line.name:58}", *(f"{ms:9.1f} {ms / found[0]:5.1f}×" for ms in found))
        print("messages in a second, and how many times longer each takes than at the smallest size")
        for rate in (rate for rate in RATES if asked.only in rate.name):
            rates = [asyncio.run(measure_rate(rate, server.new_database(), size)) for size in sizes]
            print(f"{rate.name:58}", *(f"{each:9,.0f} {rates[0] / each:5.1f}×" for each in rates))


if __name__ == "__main__":
    main()
