"""Random commands, one at a time, to PostgreSQL and to the core: the same answers, and the same queue in the end.

The core is asked through the embedded store in memory, which is the core and a journal. A
lease always takes whatever is visible: which of many messages come first, and in what
order, is a promise that other tests look at; here it would let the two drift apart.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.message import BadDraft, Drafts, Receipt, Sender
from penstock.core.queue.queue import QueueFull
from penstock.runtime.memory import memory_runtime
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import (
    Delivery,
    EscalationOrder,
    Message,
    MessageFilter,
    QueueStore,
    RedriveOrder,
    Release,
)
from penstock.store.pages import LivePage
from penstock.store.postgres.store import PostgresStore
from tests.postgres.rooms import wrong_held, wrong_rooms
from tests.postgres.schemas import empty_schema
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import let_others_run

pytestmark = pytest.mark.real_time

# The last two found what the ten first ones had missed.
SEEDS = (0, 1, 2, 3, 4, 5, 6, 8, 48, 52)
STEPS = 70
GROUPS = (b"", b"", b"a", b"b")
NAMES = (b"", b"", b"", b"1", b"2", b"3")


@dataclass
class Both:
    """Two stores with the same past. What they hold out is remembered by the place of each message."""

    ours: QueueStore
    core: QueueStore
    clock: SimClock
    dice: random.Random
    settings: QueueSettings
    # Ids are the same in both: the same queues were made, and the same messages sent to them.
    ids: list[str] = field(default_factory=list)
    # By id: the receipt of each store.
    held: dict[str, tuple[Receipt, Receipt]] = field(default_factory=dict)
    sends: int = 0
    # Dice for what came later, so that a seed finds again whatever it found before.
    rest: random.Random = field(default_factory=lambda: random.Random("rest"))
    has_sizes: bool = False

    async def send(self) -> None:
        dice, count = self.dice, self.dice.choice((1, 1, 2, 5))
        now_ms = self.clock.now_ms()
        drafts = Drafts(
            bodies=[b"%d/%d" % (self.sends, row) for row in range(count)],
            tiers=bytes(dice.choices(range(5), k=count)),
            groups=dice.choices(GROUPS, k=count) if dice.random() < 0.6 else None,
            dedup_ids=dice.choices(NAMES, k=count) if dice.random() < 0.4 else None,
            visible_at_ms=[dice.choice((0, now_ms + 500, now_ms + 3_000)) for _ in range(count)]
            if dice.random() < 0.3
            else None,
            deliveries_max=dice.choices((0, 1, 4), k=count) if dice.random() < 0.2 else None,
        )
        self.sends += 1
        sender = Sender(dice.randrange(2), 0, dice.randrange(6)) if dice.random() < 0.3 else None
        ours, core = [await sent(store, drafts, sender) for store in (self.ours, self.core)]
        assert ours == core
        self.ids += ours or ()

    async def lease(self) -> None:
        lease_ms = self.dice.choice((400, 2_000, 20_000))
        ours = await self.ours.lease("orders", want=1_000, lease_ms=lease_ms)
        core = await self.core.lease("orders", want=1_000, lease_ms=lease_ms)
        assert (ours is None) == (core is None), (seen(ours), seen(core))
        if ours is None or core is None:
            return
        assert seen(ours) == seen(core)
        mine = dict(zip(ours.ids, ours.receipts(), strict=True))
        theirs = dict(zip(core.ids, core.receipts(), strict=True))
        for each, receipt in mine.items():
            self.held[each] = (receipt, theirs[each])

    def some(self) -> tuple[list[Receipt], list[Receipt]]:
        chosen = self.dice.sample(sorted(self.held), k=min(len(self.held), self.dice.randrange(1, 6)))
        if self.dice.random() < 0.8:
            pairs = [self.held.pop(each) for each in chosen]
        else:
            pairs = [self.held[each] for each in chosen]
        return [mine for mine, _ in pairs], [theirs for _, theirs in pairs]

    async def ack(self) -> None:
        mine, theirs = self.some()
        outlives = self.dice.random() < 0.3
        assert await self.ours.ack("orders", mine, outlives=outlives) == await self.core.ack(
            "orders", theirs, outlives=outlives
        )

    async def release(self) -> None:
        mine, theirs = self.some()
        how = Release(
            delay_ms=self.dice.choice((None, 0, 700)),
            error=self.dice.choice(("", "boom", "größer")),
            is_rejected=self.dice.random() < 0.1,
            is_untouched=self.dice.random() < 0.2,
        )
        assert await self.ours.release("orders", mine, how) == await self.core.release("orders", theirs, how)

    async def extend(self) -> None:
        mine, theirs = self.some()
        how: dict[str, Any] = {"lease_ms": self.dice.choice((300, 5_000)), "outlives": self.rest.random() < 0.5}
        assert await self.ours.extend("orders", mine, **how) == await self.core.extend("orders", theirs, **how)

    async def extend_late(self) -> None:
        """By whatever receipts there are for some messages, though others may hold them."""
        ids = self.rest.sample(self.ids, k=min(3, len(self.ids)))
        ours, core = [await store.receipts("orders", ids, outlives=True) for store in (self.ours, self.core)]
        assert [each is None for each in ours] == [each is None for each in core]
        mine, theirs = [[each for each in found if each is not None] for found in (ours, core)]
        assert await self.ours.extend("orders", mine, lease_ms=900, outlives=True) == await self.core.extend(
            "orders", theirs, lease_ms=900, outlives=True
        )

    async def pass_time(self) -> None:
        self.clock.advance_ms(self.dice.choice((1, 100, 500, 1_500, 6_000)))

    async def escalate(self) -> None:
        ids = self.dice.choices(self.ids, k=3) if self.ids else []
        tier, until_ms = self.dice.randrange(5), self.dice.choice((0, self.clock.now_ms() + 2_000))
        ours, core = [
            await store.escalate("orders", ids, EscalationOrder(tier=tier, actor="ada", reason="", until_ms=until_ms))
            for store in (self.ours, self.core)
        ]
        assert ours == core

    async def cancel(self) -> None:
        message_id = self.dice.choice(self.ids) if self.ids else "1-1"
        assert await self.ours.cancel("orders", message_id) == await self.core.cancel("orders", message_id)

    async def tidy(self) -> None:
        await self.ours.tidy()
        await self.core.tidy()

    async def redrive(self) -> None:
        await self.tidy()
        if "orders.dead" in await self.core.queues():
            ours, core = [
                await store.redrive("orders.dead", RedriveOrder(most=1_000)) for store in (self.ours, self.core)
            ]
            assert {name: sorted(ids) for name, ids in ours.moved.items()} == {
                name: sorted(ids) for name, ids in core.moved.items()
            }
            assert ours.remaining == core.remaining

    async def purge(self) -> None:
        assert await self.ours.purge("orders") == await self.core.purge("orders")

    async def step(self) -> None:
        verbs = (
            [self.send] * 5
            + [self.lease] * 4
            + [self.pass_time] * 4
            + [self.tidy, self.escalate, self.redrive, self.cancel]
        )
        verbs += ([self.ack] * 3 + [self.release] * 3 + [self.extend]) if self.held else []
        verbs += [self.purge] if self.dice.random() < 0.1 else []
        verbs += [self.resize] if self.has_sizes else []
        if self.rest.random() < 0.1:
            await self.extend_late()
        await self.dice.choice(verbs)()

    async def resize(self) -> None:
        """Give the queue another size, lower than what it holds now and then."""
        self.settings = replace(self.settings, size_max=self.dice.choice((0, 3, 10, 20)))
        for store in (self.ours, self.core):
            await store.change("orders", self.settings)

    async def compare(self) -> None:
        ours, core = [await store.counts("orders") for store in (self.ours, self.core)]
        assert (ours.ready, ours.leased, ours.delayed) == (core.ready, core.leased, core.delayed)
        assert ours.noisy_groups == core.noisy_groups
        assert (ours.noisy_ready, ours.noisy_leased) == (core.noisy_ready, core.noisy_leased)

    async def compare_messages(self) -> None:
        """Every store says the same of a message, whichever way it is asked for."""
        pages = [rows(await store.live("orders", most=1_000)) for store in (self.ours, self.core)]
        assert pages[0] == pages[1]
        shown = [told((await store.peek("orders", most=1_000)).messages) for store in (self.ours, self.core)]
        assert shown[0] == shown[1]
        for tier in range(5):
            held = [
                await store.peek("orders", MessageFilter(place="leased", tier=tier), most=1_000)
                for store in (self.ours, self.core)
            ]
            assert told(held[0].messages) == told(held[1].messages)
        for name in self.dice.sample(self.ids, k=min(5, len(self.ids))):
            one = [await store.look("orders", name) for store in (self.ours, self.core)]
            assert told([one[0]]) == told([one[1]])


async def sent(store: QueueStore, drafts: Drafts, sender: Sender | None) -> list[str] | None:
    """The ids of what was sent; None if the queue had no room."""
    try:
        return list(await store.send("orders", drafts, sender=sender))
    except (QueueFull, BadDraft):
        return None


def told(messages: Sequence[Message | None]) -> list[tuple[object, ...]]:
    return sorted(
        (each.id, each.place, each.tier, each.deliveries, each.is_escalated, each.visible_at_ms or 0)
        for each in messages
        if each is not None
    )


def seen(delivery: Delivery | None) -> list[tuple[object, ...]]:
    if delivery is None:
        return []
    count = len(delivery)
    rows = zip(
        delivery.ids,
        map(bytes, delivery.bodies),
        delivery.deliveries,
        delivery.sent_at_ms,
        delivery.groups or [b""] * count,
        delivery.errors or [""] * count,
        [None if past is None else past.deliveries for past in delivery.pasts or [None] * count],
        strict=True,
    )
    return sorted(rows)


def rows(page: LivePage) -> list[tuple[object, ...]]:
    def word(column: Sequence[memoryview] | None, row: int) -> bytes:
        return b"" if column is None else bytes(column[row])

    assert page.body is not None
    # A moved message has another number here, given in the order of its coming; of those that came at one instant the
    # order is not promised.
    found = [
        (
            name,
            page.place[row],
            page.tier[row],
            page.sent_at_ms[row],
            page.deliveries[row],
            b"" if page.group is None else bytes(page.group[row]),
            b"" if page.error is None else bytes(page.error[row]),
            word(page.body, row),
        )
        for row, name in enumerate(page.ids)
    ]
    return sorted(found)


def settings_of(dice: random.Random, seed: int) -> QueueSettings:
    # Of dice of their own, so that whatever a seed has found before it finds again.
    tenants = random.Random(f"tenants/{seed}")
    return QueueSettings(
        is_fifo=dice.random() < 0.4,
        opens_early=random.Random(f"early/{seed}").random() < 0.5,
        dedup_scope=dice.choice(list(DedupScope)),
        dedup_window_ms=2_000,
        delay_ms=dice.choice((0, 0, 300)),
        retention_ms=dice.choice((0, 30_000)),
        deliveries_max=dice.choice((0, 2, 3)),
        back_after_deliveries=dice.choice((0, 1, 2)),
        backoff_ms_base=200,
        backoff_ms_max=1_000,
        has_jitter=False,
        aging_ms=dice.choice(((0, 0, 0, 0, 0), (0, 0, 900, 0, 700))),
        noisy_percent=tenants.choice((10, 40, 100)),
        noisy_leased_min=tenants.choice((1, 3)),
        noisy_time_percent=tenants.choice((10, 60, 100)),
    )


@pytest.mark.parametrize("has_sizes", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
async def test_the_store_answers_as_the_core_does_whatever_is_asked(seed: int, has_sizes: bool) -> None:
    dice, clock, database = random.Random(f"model/{seed}"), SimClock(), empty_schema()
    ours = await PostgresStore.open(database, clock=clock, dice=SimDice(), may_migrate=False, has_upkeep=False)
    core = await EmbeddedStore.in_memory(memory_runtime(clock))
    both = Both(ours, core, clock, dice, settings_of(dice, seed), has_sizes=has_sizes)
    try:
        for store in (ours, core):
            await store.create("orders", both.settings)
        for _ in range(STEPS):
            await both.step()
            await both.compare()
            await let_others_run()
        await both.compare_messages()
        assert await wrong_rooms(database) == []
        assert await wrong_held(database) == []
    finally:
        await ours.close()
        await core.close()
