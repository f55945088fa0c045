"""A crash at each step of a short life of a store: append, lease, roll, snapshot, copy forward, drop.

The story is always the same. It is told once for each operation of the disk, and
ends there: the process is killed, or killed and the newest snapshot damaged, or the
power is cut and all that was not synced is lost. What its clients were told must
then be true; also after one more round of upkeep and one more power cut. Random
lives meet each of these steps rarely.

| message  | what happens to it                                              |
|----------|-----------------------------------------------------------------|
| kept     | waits from the beginning, and is copied forward, twice          |
| held     | is leased from the beginning                                    |
| bad      | is buried while the journal is shortened, between plan and copy |
| done     | is acked after it was copied                                    |
| churn    | comes and goes, so that there are segments to drop              |
"""

from dataclasses import replace

from penstock.contract.messages import Tier
from penstock.core.queue.message import Drafts, Receipt
from penstock.log.interface import LogBusy
from penstock.runtime.interface import Runtime
from penstock.store.embedded.snapshot_file import snapshot_name, snapshot_offsets
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Delivery, Outcome, Release
from tests.simulation.disk import SimDisk
from tests.simulation.loop import simulate
from tests.simulation.world import Died, Machine
from tests.store.small import QUEUE, SETTINGS, SNAPSHOTS, Shop

QUEUES = ("orders", "orders.dead", "churn", "churn.dead")
HOUR_MS = 3_600_000
WAYS = ("kill", "power cut", "kill and damage")
# Three or four messages are a segment.
TINY = replace(SETTINGS, segment_bytes_max=1_500)


class Story:
    def __init__(self, step: int | None, seed: int = 0) -> None:
        self.machine = Machine(seed)
        self.machine.disk.crash_after = step
        self.machine.disk.cold = seed % 2 == 1
        self.shop = Shop(self.machine, TINY)
        # What was begun, and what the clients were told.
        self.sent: dict[bytes, bytes] = {}
        self.told: dict[bytes, str] = {}
        self.acking: set[bytes] = set()
        self.acked: set[bytes] = set()

    async def tell(self, runtime: Runtime) -> None:
        shop = self.shop
        await shop.begin(runtime)
        await shop.store.create("orders", replace(QUEUE, deliveries_max=1))
        await shop.store.create("churn", QUEUE)
        await self.send("orders", b"held", b"bad", tiers=bytes([Tier.CRITICAL, Tier.CRITICAL]))
        await shop.lease(1)
        await shop.store.release("orders", (await shop.lease(1)).receipts(), Release(delay_ms=0))
        tiers = bytes([Tier.LOW, Tier.HIGH, Tier.LOW, Tier.NORMAL])
        await self.send("orders", b"kept low", b"done", b"kept too", b"kept", tiers=tiers)
        await self.churn(4)
        await shop.upkeep()
        await self.churn(4)
        # Buried when the plan is made, and before anyone acts on it.
        shop.meanwhile = shop.store.tidy
        await shop.upkeep()
        await self.settle("orders", await shop.lease(1))
        await self.churn(4)
        await shop.upkeep()
        await self.churn(1)

    async def send(self, queue: str, *bodies: bytes, tiers: bytes | None = None) -> None:
        attributes = [b"of " + body if body.startswith(b"kept") else b"" for body in bodies]
        self.sent |= dict(zip(bodies, attributes, strict=True))
        drafts = Drafts(bodies=bodies, tiers=tiers, attributes=attributes if any(attributes) else None)
        self.told |= dict(zip(bodies, await self.shop.store.send(queue, drafts), strict=True))

    async def settle(self, queue: str, delivery: Delivery) -> None:
        bodies = set(map(bytes, delivery.bodies))
        self.acking |= bodies
        assert await self.shop.store.ack(queue, delivery.receipts()) == [Outcome.DONE] * len(bodies)
        self.acked |= bodies

    async def churn(self, count: int) -> None:
        for _ in range(count):
            await self.send("churn", b"churn %d " % len(self.sent) + bytes(300))
            await self.settle("churn", await self.shop.lease(1, queue="churn"))

    # Afterwards.

    async def look(self, runtime: Runtime) -> None:
        """Find what must be there, keep the journal short, and find it again."""
        await self.shop.begin(runtime)
        receipts = await self.find()
        for queue, held in receipts.items():
            # Not to be counted as spent: it is the next process that finds them.
            await self.shop.store.extend(queue, held, lease_ms=HOUR_MS)
        if self.shop.log.end_offset > 3:
            await self.shop.store.create("after", QUEUE)
            await self.shop.churn(12, queue="after")
            await self.shop.upkeep()

    async def empty(self, runtime: Runtime) -> None:
        await self.shop.begin(runtime)
        for queue, receipts in (await self.find()).items():
            assert await self.shop.store.ack(queue, receipts) == [Outcome.DONE] * len(receipts)

    async def find_nothing(self, runtime: Runtime) -> None:
        await self.shop.begin(runtime)
        assert await self.find(least=False) == {}

    async def find(self, *, least: bool = True) -> dict[str, list[Receipt]]:
        """Lease everything and judge it."""
        # All leases have lapsed.
        self.machine.clock.advance_ms(2 * HOUR_MS)
        await self.patient_tidy()
        found: dict[bytes, str] = {}
        receipts: dict[str, list[Receipt]] = {}
        for queue in QUEUES:
            for delivery in await self.lease_all(queue):
                self.judge(delivery, found)
                receipts.setdefault(queue, []).extend(delivery.receipts())
        for body in set(self.told) - self.acking if least else ():
            assert body in found, f"{body[:20]!r} was acknowledged, and is gone"
        return receipts

    async def patient_tidy(self) -> None:
        while True:
            try:
                return await self.shop.store.tidy()
            except LogBusy:
                await self.shop.shard.settled()

    async def lease_all(self, queue: str) -> list[Delivery]:
        found: list[Delivery] = []
        try:
            while (delivery := await self.shop.store.lease(queue, want=3, lease_ms=HOUR_MS)) is not None:
                found.append(delivery)
        except QueueNotFound:
            is_needed = any(body.startswith(b"churn") == (queue == "churn") for body in self.told)
            assert queue.endswith(".dead") or not is_needed, f"{queue} is gone"
        return found

    def judge(self, delivery: Delivery, found: dict[bytes, str]) -> None:
        attributes = delivery.attributes or [memoryview(b"")] * len(delivery)
        for name, body, extra in zip(delivery.ids, map(bytes, delivery.bodies), attributes, strict=True):
            assert body not in found, f"{body[:20]!r} is there twice"
            assert body in self.sent, f"no client sent {body[:20]!r}"
            assert body not in self.acked, f"{body[:20]!r} was acked, and came back"
            assert bytes(extra) == self.sent[body], f"{body[:20]!r} has the attributes {bytes(extra)!r}"
            assert self.told.get(body, name) == name, f"{body[:20]!r} was told another id than {name}"
            found[body] = name


def run(step: int) -> None:
    """Crash at a step, in each way; raises what went wrong."""
    for way in WAYS:
        crash(step, way)


def crash(step: int, way: str) -> None:
    # How much of an operation is done when the power goes is a matter of chance.
    seed = WAYS.index(way)
    story = Story(step, seed)
    simulate(lambda: _live(story, "tell"), seed=seed)
    if way.startswith("kill"):
        story.machine.kill()
    else:
        story.machine.power_cut(lambda _path, _page: False)
    assert "store.snapshot_damaged" not in story.machine.log_events.names()
    if way == "kill and damage":
        damage_newest_snapshot(story.machine.disk)
    for act in ("look", "empty", "find_nothing"):
        try:
            simulate(lambda act=act: _live(story, act), seed=seed)  # type: ignore[misc]
        except Exception as error:
            raise AssertionError(f"after a {way} at step {step}: {error}") from error
        story.machine.power_cut(lambda _path, _page: False)
    names = story.machine.log_events.names()
    assert "store.upkeep_failed" not in names
    assert way == "kill and damage" or "store.snapshot_damaged" not in names


def damage_newest_snapshot(disk: SimDisk) -> None:
    """Any one snapshot may be lost, and nothing with it."""
    for offset in snapshot_offsets(disk, SNAPSHOTS)[-1:]:
        path = f"{SNAPSHOTS}/{snapshot_name(offset)}"
        disk.flip_bit(path, 8 * len(disk.read_bytes(path)) - 1)


async def _live(story: Story, act: str) -> None:
    try:
        runtime = story.shop.start()
        await story.machine.run(getattr(story, act)(runtime))
    except Died:
        assert act == "tell", f"it dies when it should {act}"
    else:
        story.machine.kill()


def steps() -> int:
    """Return how many operations of the disk the story takes: the seeds that are worth running."""
    story = Story(None)
    simulate(lambda: _live(story, "tell"))
    names = story.machine.log_events.names()
    assert names.count("store.snapshot_made") == 3, "there is a snapshot to begin with, and two that let segments go"
    assert story.shop.log.start_offset > 20
    return story.machine.disk.operations
