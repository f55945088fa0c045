"""A node's place in the cluster: what it knows of the others, and they of it.

    announce ──▶ (a controller fences the node) ──▶ granted: a broker epoch ──▶ leads or follows
        ▲                                                                          │
        └──────────── every few seconds, or the lease runs out ◀───────────────────┘

Until it is granted an epoch, a node takes no part: whatever an earlier process
of the same node promised is void by then (F1).
"""

import asyncio

from penstock.cluster.meta import NO_INCARNATION, NOT_GRANTED, Conflict, MetaStore, OutcomeUnknown, View
from penstock.cluster.settings import ClusterSettings
from penstock.runtime.interface import Clock, Dice


class Membership:
    def __init__(
        self, node: int, *, log_id: int, meta: MetaStore, clock: Clock, dice: Dice, settings: ClusterSettings
    ) -> None:
        self.node = node
        self.broker_epoch = NOT_GRANTED
        self.meta = meta
        self.clock = clock
        self.settings = settings
        self._log_id = log_id
        self._dice = dice
        self._incarnation = dice.token()
        self._replaces = NO_INCARNATION
        self._lease_until_ms = 0
        # The newest record ever read; those of the brokers are hints.
        self._view: View | None = None
        self._news = asyncio.Event()

    @property
    def view(self) -> View:
        assert self._view is not None, "nothing has been read yet"
        return self._view

    @property
    def epoch(self) -> int:
        """The newest leadership this node has heard of."""
        return self.view.record.leader_epoch

    @property
    def has_lease(self) -> bool:
        """Whether nobody can have been elected in this node's place without its knowing (R6).

        It trusts that clocks run at about the same rate, and nothing else does.
        """
        return self.clock.now_ms() < self._lease_until_ms

    async def run(self) -> None:
        """Stay known to the others and keep up with them, until cancelled.

        Raises `Conflict` when another process has taken this node's name.
        """
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_announcing())
            tasks.create_task(self._keep_reading())

    async def changed(self) -> View:
        """Return what the next read finds."""
        await self._news.wait()
        return self.view

    async def granted(self) -> None:
        while self.broker_epoch == NOT_GRANTED:
            await self.changed()

    async def epoch_over(self, epoch: int) -> None:
        """Return when a newer leadership than ``epoch`` is known."""
        while self.epoch <= epoch:
            await self.changed()

    async def refresh(self) -> View:
        """Return the facts as they are at some moment during this call, however long that takes."""
        while True:
            try:
                view = await self.meta.read()
            except OutcomeUnknown:
                await asyncio.sleep(self.settings.retry_ms / 1_000)
            else:
                self._learn(view)
                return self.view

    def _learn(self, view: View) -> None:
        # Two reads may overtake each other on the way.
        if self._view is not None and view.revision < self._view.revision:
            return
        self._view = view
        broker = view.brokers.get(self.node)
        if broker is not None and broker.incarnation == self._incarnation:
            self.broker_epoch = broker.epoch
        self._news.set()
        self._news = asyncio.Event()

    async def _keep_reading(self) -> None:
        while True:
            await self.refresh()
            # Some spread, so that the nodes do not act on every change all at once.
            await asyncio.sleep(self.settings.read_every_ms * (0.5 + self._dice.roll()) / 1_000)

    async def _keep_announcing(self) -> None:
        while True:
            sent_at_ms = self.clock.now_ms()
            try:
                await self.meta.announce(
                    self.node, incarnation=self._incarnation, replaces=self._replaces, log_id=self._log_id
                )
            except OutcomeUnknown:
                pass
            except Conflict:
                await self._find_predecessor()
                continue
            else:
                # The lease may have run out and be a new one: who was elected meanwhile must be known before it counts.
                await self.refresh()
                # Counted from before it was sent, so it ends here before it ends there.
                self._lease_until_ms = sent_at_ms + self.settings.lease_ms * 8 // 10
            await asyncio.sleep(self.settings.announce_every_ms / 1_000)

    async def _find_predecessor(self) -> None:
        if self.broker_epoch != NOT_GRANTED:
            raise Conflict(f"another process runs as node {self.node}")
        broker = (await self.refresh()).brokers.get(self.node)
        self._replaces = NO_INCARNATION if broker is None else broker.incarnation
