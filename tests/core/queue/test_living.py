"""Which numbers of a queue are live, beside a naive look at every number there ever was."""

import random
from dataclasses import replace

import pytest

from penstock.contract.messages import TIERS, Tier
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import Opened
from penstock.core.queue.listing import live_runs
from penstock.core.queue.message import Drafts
from penstock.core.queue.queries import look
from penstock.core.queue.queue import Queue
from penstock.core.queue.state import State
from tests.core.queue.life import Lease, Life

SETTINGS = QueueSettings(
    deliveries_max=3, retention_ms=5_000, aging_ms=(0, 200, 300, 400, 500), backoff_ms_base=10, backoff_ms_max=100
)
DEAD = 2


def naive(state: State) -> list[list[tuple[int, int]]]:
    """Ask for each number whether it is anywhere, and join neighbours."""
    found: list[list[tuple[int, int]]] = []
    for lane in range(TIERS):
        runs: list[tuple[int, int]] = []
        for number in range(state.lanes[lane].next):
            if look(state, number << 3 | lane) is None:
                continue
            if runs and runs[-1][1] == number:
                runs[-1] = (runs[-1][0], number + 1)
            else:
                runs.append((number, number + 1))
        found.append(runs)
    return found


class RandomLife:
    """Everything that can happen to a queue, by dice."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(f"living/{seed}")
        self.life = Life(replace(SETTINGS, is_fifo=self.dice.random() < 0.3))
        self.dead = Queue(DEAD, QueueSettings(deliveries_max=0))
        self.leases: list[Lease] = []

    def step(self) -> None:
        verbs = [self.send, self.send, self.lease, self.lease, self.settle, self.settle, self.wait, self.operate]
        self.dice.choice(verbs)()

    def send(self) -> None:
        dice, life = self.dice, self.life
        if dice.random() < 0.5:
            life.send(dice.choice([1, 5, 40]), tier=dice.randrange(TIERS))
            return
        count = dice.randint(1, 8)
        drafts = Drafts(
            bodies=[b""] * count,
            tiers=bytes(dice.choices(range(TIERS), k=count)),
            groups=[dice.choice([b"", b"red", b"blue"]) for _ in range(count)],
            visible_at_ms=[life.now_ms + dice.choice([0, 0, 50]) for _ in range(count)],
            deliveries_max=[dice.choice([0, 1]) for _ in range(count)],
        )
        life.happen(life.queue.send(drafts, now_ms=life.now_ms).event)

    def lease(self) -> None:
        lease = self.life.lease(self.dice.choice([1, 7, 90]), lease_ms=self.dice.choice([20, 200]))
        if lease is not None:
            self.leases.append(lease)

    def settle(self) -> None:
        if not self.leases:
            return
        lease = self.dice.choice(self.leases[-6:])
        mask = self.dice.getrandbits(len(lease.messages)) if self.dice.random() < 0.7 else lease.everything
        act = self.dice.randrange(4)
        if act < 2:
            self.life.ack(lease, mask, outlives=self.dice.random() < 0.5)
        elif act == 2:
            self.life.release(lease, mask, delay_ms=self.dice.choice([0, 30]))
        else:
            self.life.extend(lease, 100, mask)

    def wait(self) -> None:
        self.life.wait(self.dice.choice([1, 20, 100, 1_000]))

    def operate(self) -> None:
        life, dice = self.life, self.dice
        act = dice.randrange(12)
        if act < 4:
            moved = life.queue.bury(into=DEAD, room=dice.randint(1, 5), now_ms=life.now_ms)
            if life.happen(moved) and moved is not None:
                self.dead.apply(moved)
        elif act < 6:
            back = self.dead.redrive(into=1, now_ms=life.now_ms, most=3, origin=1)
            if life.happen(back) and back is not None:
                self.dead.apply(back)
        elif act < 8:
            life.happen(life.queue.expire(now_ms=life.now_ms).event)
        elif act < 9:
            life.happen(life.queue.purge(now_ms=life.now_ms))
        elif act < 11:
            messages = [number << 3 | lane for lane in range(TIERS) for number in range(0, 40, 7)]
            life.escalate(messages, dice.randrange(TIERS), until_ms=life.now_ms + 100)
        else:
            life.happen(Opened(life.now_ms))


@pytest.mark.parametrize("seed", range(12))
def test_the_live_numbers_are_those_that_are_somewhere(seed: int) -> None:
    story = RandomLife(seed)
    for _ in range(40):
        for _ in range(3):
            story.step()
        assert live_runs(story.life.state) == naive(story.life.state)
        assert live_runs(story.dead.state) == naive(story.dead.state)


def test_a_queue_in_which_nothing_was_sent_has_no_live_numbers() -> None:
    assert live_runs(Life().state) == [[]] * TIERS


def test_leased_resting_and_spent_messages_are_live() -> None:
    life = Life(replace(SETTINGS, deliveries_max=1))
    life.send(3)
    life.send(1, delay_ms=1_000)
    life.leased(1, lease_ms=10)
    life.wait(10)
    life.leased(1, lease_ms=1_000)
    assert [life.place(number << 3 | Tier.NORMAL) for number in range(4)] == ["spent", "leased", "waiting", "resting"]
    assert live_runs(life.state)[Tier.NORMAL] == [(0, 4)]


def test_settled_messages_are_not_live() -> None:
    life = Life()
    life.send(5)
    lease = life.leased(5)
    life.ack(lease, 0b01010)
    assert live_runs(life.state)[Tier.NORMAL] == [(0, 1), (2, 3), (4, 5)]
    life.ack(lease)
    assert live_runs(life.state)[Tier.NORMAL] == []
