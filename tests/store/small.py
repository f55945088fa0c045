"""A store whose journal has many small segments, and whose upkeep a test starts."""

import dataclasses
from collections.abc import Awaitable, Callable

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Drafts
from penstock.log.interface import LogBusy
from penstock.log.settings import LogSettings
from penstock.runtime.interface import Disk, Runtime
from penstock.store.embedded.snapshot_file import snapshot_offsets
from penstock.store.embedded.store import EmbeddedStore
from penstock.store.interface import Delivery, Outcome
from tests.simulation.world import Machine
from tests.waiting import elapse

FOLDER = "store"
JOURNAL, SNAPSHOTS = f"{FOLDER}/journal", f"{FOLDER}/snapshots"
# Some twenty messages are a segment.
SETTINGS = LogSettings(
    segment_bytes_max=3_000, allocate_bytes=128 * 1024, spare_bytes=16 * 1024, index_every_bytes=1_000
)
NEVER_MS = 10**9
QUEUE = QueueSettings(retention_ms=0, deliveries_max=2, lease_ms=600_000, backoff_ms_base=0, aging_ms=(0,) * 5)

Work = Callable[[Disk, bytes], bytes]
Meanwhile = Callable[[], Awaitable[None]]


class Shop:
    """A store on a simulated machine, from one start to the next."""

    def __init__(self, machine: Machine | None = None, settings: LogSettings = SETTINGS) -> None:
        self.machine = machine or Machine()
        self.settings = settings
        # What happens once the child has made its snapshot and its plan, and before anyone acts on it.
        self.meanwhile: Meanwhile | None = None
        self.sent = 0

    async def open(self, *, upkeep_ms: int = NEVER_MS) -> None:
        await self.machine.run(self.begin(self.start(), upkeep_ms=upkeep_ms))

    async def begin(self, runtime: Runtime, *, upkeep_ms: int = NEVER_MS) -> None:
        self.store = await EmbeddedStore.open(runtime, FOLDER, self.settings, upkeep_ms=upkeep_ms)
        (self.running,) = self.store._shards.running
        self.shard = self.running.shard
        self.log = self.running._log

    def start(self) -> Runtime:
        runtime = self.machine.start()
        self.meanwhile = None
        inner = runtime.aside
        shop = self

        class Slow:
            """The child, with something happening before its answer is heard."""

            async def run(self, work: Work, request: bytes) -> bytes:
                answer = await inner.run(work, request)
                if shop.meanwhile is not None:
                    meanwhile, shop.meanwhile = shop.meanwhile, None
                    await meanwhile()
                return answer

        return dataclasses.replace(runtime, aside=Slow())

    async def close(self) -> None:
        await self.store.close()
        self.machine.kill()

    async def crash(self) -> None:
        """Lose power, and all that was not synced, and start again."""
        self.machine.power_cut(lambda _path, _page: False)
        await self.open()

    async def kill(self) -> None:
        self.machine.kill()
        await self.open()

    # What is done.

    async def upkeep(self) -> bool:
        """Do what is to be done, once the last time is long enough ago."""
        await elapse(10)
        # Segments that the history has not told of yet would stay.
        assert self.shard.history is not None
        await self.shard.history.flush()
        return await self.running._upkeep.run_once()

    async def shorten(self) -> None:
        """Let everything go that can: the segments before the last snapshot but one, at each turn."""
        for _ in range(4):
            await self.churn(10)
            await self.upkeep()

    async def send(self, *bodies: bytes, queue: str = "orders") -> list[str]:
        return list(await self.store.send(queue, Drafts(bodies=bodies)))

    async def churn(self, count: int, *, queue: str = "churn") -> None:
        """Send messages to a queue of their own, and have them done with."""
        await self.store.create(queue, QUEUE)
        for _ in range(count):
            self.sent += 1
            await self.patiently(lambda: self.send(b"%d" % self.sent + bytes(100), queue=queue))
            delivery = await self.lease(1, queue=queue)
            assert await self.store.ack(queue, delivery.receipts()) == [Outcome.DONE]

    async def patiently(self, act: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await act()
            except LogBusy:
                await self.shard.settled()
            else:
                return

    async def lease(self, want: int = 100, *, queue: str = "orders") -> Delivery:
        delivery = await self.store.lease(queue, want=want)
        assert delivery is not None, f"{queue} has nothing to lease"
        return delivery

    async def drain(self, queue: str = "orders") -> list[bytes]:
        found: list[bytes] = []
        while (delivery := await self.store.lease(queue, want=100)) is not None:
            found += map(bytes, delivery.bodies)
            assert await self.store.ack(queue, delivery.receipts()) == [Outcome.DONE] * len(delivery)
        return found

    # What there is.

    def snapshots(self) -> list[int]:
        return snapshot_offsets(self.machine.disk, SNAPSHOTS)

    def journal_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.log.segments)

    def logged(self, name: str) -> int:
        return self.machine.log_events.names().count(name)


async def opened(machine: Machine | None = None, settings: LogSettings = SETTINGS) -> Shop:
    """Return a shop that is open, with one queue: `orders`."""
    shop = Shop(machine, settings)
    await shop.open()
    await shop.store.create("orders", QUEUE)
    return shop
