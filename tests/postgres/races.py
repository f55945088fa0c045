"""Several stores at work on one queue at once, by random commands: what they answered is written down, to be judged.

The clock stands while they work, and moves when all of them are done: so each call has one time. They share the
receipts that were given out, also those that are used already, so that two often want the same.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.core.queue.message import Drafts, Receipt
from penstock.core.queue.rows import STATES
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Delivery, EscalationOrder, Release
from penstock.store.pages import LivePage
from penstock.store.postgres.database import PostgresSettings
from penstock.store.postgres.store import PostgresStore
from tests.postgres.judging import Answer, Call, Escalated, Leased, Left, Nothing, Purged, Sent, Settled, Strand
from tests.simulation.clock import SimClock, SimDice
from tests.waiting import let_others_run

# When a call began and ended, in the order of all that happened, and at what time of the clock.
Took = tuple[int, int, int]

QUEUE = "orders"
STORES = 3
WORKERS = 6
GROUPS = (b"a", b"b", b"c", b"d")


@dataclass(frozen=True, slots=True)
class Held:
    id: str
    receipt: Receipt


def settings_of(dice: random.Random) -> QueueSettings:
    is_fifo = dice.random() < 0.5
    return QueueSettings(
        is_fifo=is_fifo,
        dedup_scope=DedupScope.WINDOW if is_fifo else DedupScope.LIVE,
        deliveries_max=dice.choice((0, 2, 3)),
        back_after_deliveries=0,
        backoff_ms_base=200,
        backoff_ms_max=1_000,
        has_jitter=False,
        aging_ms=dice.choice(((0, 0, 0, 0, 0), (0, 0, 900, 0, 700))),
    )


@dataclass
class Race:
    """What was asked and answered so far."""

    stores: Sequence[PostgresStore]
    clock: SimClock
    dice: random.Random
    settings: QueueSettings
    strands: dict[bytes, Strand] = field(default_factory=dict)
    strand_of: dict[str, bytes] = field(default_factory=dict)
    held: list[Held] = field(default_factory=list)
    ids: list[str] = field(default_factory=list)
    ticks: Iterator[int] = field(default_factory=count)
    # What was answered, to be taken apart when all of it is known: a lease may be answered before the send of it.
    log: list[Callable[[], None]] = field(default_factory=list)

    def note(self, strand: bytes, took: Took, answer: Answer) -> None:
        found = self.strands.setdefault(strand, Strand(self.settings))
        found.calls.append(Call(*took, answer))

    def took(self, began: int) -> Took:
        return began, next(self.ticks), self.clock.now_ms()

    async def run(self, *, rounds: int, each: int, held_min: int) -> None:
        """Race for so many rounds, and on until so many messages were leased: what is done is chance."""
        while rounds > 0 or len(self.held) < held_min:
            rounds -= 1
            async with asyncio.TaskGroup() as tasks:
                for number in range(WORKERS):
                    tasks.create_task(self.work(self.stores[number % STORES], each))
            self.clock.advance_ms(self.dice.choice((1, 300, 900, 2_500)))
        await self.end()

    async def work(self, store: PostgresStore, commands: int) -> None:
        for _ in range(commands):
            await self.dice.choice(self.verbs())(store)
            # The others go on if they can.
            await let_others_run()

    def verbs(self) -> Sequence[Callable[[PostgresStore], Coroutine[Any, Any, None]]]:
        verbs = [self.send] * 4 + [self.lease] * 5 + [self.escalate]
        verbs += [self.purge] if self.dice.random() < 0.02 else []
        return verbs + ([self.ack] * 4 + [self.release] * 3 + [self.extend] * 2 if self.held else [])

    async def send(self, store: PostgresStore) -> None:
        dice, rows = self.dice, self.dice.choice((1, 2, 4))
        names = [b"%d" % dice.randrange(5) if dice.random() < 0.3 else b"" for _ in range(rows)]
        is_live = self.settings.dedup_scope is DedupScope.LIVE
        now_ms = self.clock.now_ms()
        drafts = Drafts(
            bodies=[b""] * rows,
            tiers=bytes(dice.choices(range(5), k=rows)),
            groups=dice.choices(GROUPS, k=rows) if self.settings.is_fifo or dice.random() < 0.4 else None,
            dedup_ids=names if is_live and any(names) else None,
            visible_at_ms=[dice.choice((0, now_ms + 500)) for _ in range(rows)] if dice.random() < 0.2 else None,
        )
        began = next(self.ticks)
        ids = await store.send(QUEUE, drafts)
        self.ids += ids
        self.sent(drafts, list(ids), self.took(began))

    def sent(self, drafts: Drafts, ids: list[str], took: Took) -> None:
        parts: dict[bytes, list[int]] = {}
        for row, each in enumerate(ids):
            name = drafts.dedup_ids[row] if drafts.dedup_ids else b""
            group = bytes(drafts.groups[row]) if drafts.groups and self.settings.is_fifo else b""
            strand = group or (b"id " + bytes(name) if name else each.encode())
            parts.setdefault(strand, []).append(row)
            self.strand_of[each] = strand
        for strand, rows in parts.items():
            part = Drafts(
                bodies=[b""] * len(rows),
                tiers=bytes((drafts.tiers or b"")[row] for row in rows),
                groups=[drafts.groups[row] for row in rows] if drafts.groups else None,
                dedup_ids=[drafts.dedup_ids[row] for row in rows] if drafts.dedup_ids else None,
                visible_at_ms=[drafts.visible_at_ms[row] for row in rows] if drafts.visible_at_ms else None,
            )
            self.note(strand, took, Sent(part, tuple(ids[row] for row in rows)))

    async def lease(self, store: PostgresStore) -> None:
        want, lease_ms = self.dice.choice((1, 3, 10)), self.dice.choice((200, 1_000, 20_000))
        began = next(self.ticks)
        delivery = await store.lease(QUEUE, want=want, lease_ms=lease_ms)
        self.leased(delivery, lease_ms, self.took(began))

    def leased(self, delivery: Delivery | None, lease_ms: int, took: Took) -> None:
        if delivery is None:
            return
        self.held += map(Held, delivery.ids, delivery.receipts())

        def told() -> None:
            for strand, rows in self.parts(delivery.ids).items():
                ids = tuple(delivery.ids[row] for row in rows)
                deliveries = tuple(delivery.deliveries[row] for row in rows)
                self.note(strand, took, Leased(delivery.lease, lease_ms, ids, deliveries))

        self.log.append(told)

    def parts(self, ids: Sequence[str]) -> dict[bytes, list[int]]:
        """The rows of each strand."""
        parts: dict[bytes, list[int]] = {}
        for row, each in enumerate(ids):
            parts.setdefault(self.strand_of[each], []).append(row)
        return parts

    async def ack(self, store: PostgresStore) -> None:
        await self.settle("ack", lambda receipts: store.ack(QUEUE, receipts))

    async def extend(self, store: PostgresStore) -> None:
        lease_ms = self.dice.choice((300, 5_000))
        await self.settle("extend", lambda receipts: store.extend(QUEUE, receipts, lease_ms=lease_ms), lease_ms)

    async def release(self, store: PostgresStore) -> None:
        verb, delay_ms = self.dice.choice(("release", "give back", "reject")), self.dice.choice((None, 0, 700))
        await self.settle(
            verb,
            lambda receipts: store.release(
                QUEUE,
                receipts,
                Release(delay_ms=delay_ms, is_rejected=verb == "reject", is_untouched=verb == "give back"),
            ),
            delay_ms=delay_ms,
        )

    async def settle(self, verb: str, call: Any, lease_ms: int = 0, delay_ms: int | None = None) -> None:
        # Mostly of what was leased last, and now and then something that is long over.
        recent = self.held[-12:] if self.dice.random() < 0.8 else self.held
        chosen = self.dice.sample(recent, k=min(len(recent), self.dice.choice((1, 2, 5))))
        began = next(self.ticks)
        outcomes = await call([each.receipt for each in chosen])
        took = self.took(began)

        def told() -> None:
            for strand, rows in self.parts([each.id for each in chosen]).items():
                receipts, ids = [chosen[row].receipt for row in rows], [chosen[row].id for row in rows]
                found = [outcomes[row] for row in rows]
                self.note(strand, took, Settled(verb, tuple(receipts), tuple(ids), tuple(found), lease_ms, delay_ms))

        self.log.append(told)

    async def escalate(self, store: PostgresStore) -> None:
        ids = sorted(set(self.dice.choices(self.ids[-20:], k=2))) if self.ids else []
        tier = self.dice.randrange(5)
        began = next(self.ticks)
        outcomes = await store.escalate(QUEUE, ids, EscalationOrder(tier=tier, actor="ada", reason=""))
        took = self.took(began)

        def told() -> None:
            for each, outcome in zip(ids, outcomes, strict=True):
                self.note(self.strand_of[each], took, Escalated(each, tier, outcome))

        self.log.append(told)

    async def purge(self, store: PostgresStore) -> None:
        began = next(self.ticks)
        await store.purge(QUEUE)
        took = self.took(began)

        def told() -> None:
            for strand in set(self.strand_of.values()):
                self.note(strand, took, Purged())

        self.log.append(told)

    async def end(self) -> None:
        """Take whatever can be had, then look at what is left, with no other client at work."""
        store = self.stores[0]
        self.clock.advance_ms(2_000)
        while True:
            began = next(self.ticks)
            delivery = await store.lease(QUEUE, want=1_000, lease_ms=60_000)
            self.leased(delivery, 60_000, self.took(began))
            if delivery is None:
                break
        await store.tidy()
        left = Left(rows(await store.live(QUEUE, most=1_000)), {})
        try:
            dead = await store.live(f"{QUEUE}.dead", most=1_000)
            left.dead.update({each: deliveries for each, (_, _, deliveries) in rows(dead).items()})
        except QueueNotFound:
            pass
        for told in self.log:
            told()
        for strand in self.strands:
            for answer in (Nothing(), left):
                self.note(strand, self.took(next(self.ticks)), answer)

    def illegal(self) -> list[Strand]:
        return [strand for strand in self.strands.values() if not strand.has_legal_order()]


def rows(page: LivePage) -> dict[str, tuple[str, int, int]]:
    places = [STATES[place] for place in page.place]
    return dict(zip(page.ids, zip(places, page.tier, page.deliveries, strict=True), strict=True))


async def raced(settings: PostgresSettings, seed: int, *, rounds: int = 8, each: int = 5, held_min: int = 0) -> Race:
    """Race some stores from a seed. The same seed gives the same commands, not the same answers."""
    # The judge knows of no answer that was lost, so no call is hung up: only a busy machine is silent here.
    settings = replace(settings, silence_s=60)
    dice, clock = random.Random(f"race/{seed}"), SimClock()
    stores = [
        await PostgresStore.open(settings, clock=clock, dice=SimDice(number), may_migrate=False, has_upkeep=False)
        for number in range(STORES)
    ]
    race = Race(stores, clock, dice, settings_of(dice))
    try:
        await stores[0].create(QUEUE, race.settings)
        await race.run(rounds=rounds, each=each, held_min=held_min)
    finally:
        for store in stores:
            await store.close()
    return race
