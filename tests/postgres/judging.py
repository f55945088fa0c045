"""The core judges what stores answered that worked on one queue at once.

A call that took from one moment to another did what it did at some instant between them. So answers are legal if
there is an order of the calls in which no call comes before one that had ended when it began, and in which
`core.Queue`, asked the same, answers the same. Such an order is looked for.

What a queue does with one message says nothing about the next, apart from the order inside a FIFO group and from ids
that repeat. So the calls are taken apart, into what each did to such a *strand* of messages, and each strand is judged
by itself in a queue of its own: a queue is right if all its strands are (linearizability is local). Which of many
messages a lease takes is not judged here, nor that it took none: `Nothing` says when there must be none.

When what is spent is buried, a store decides by itself: both is tried, that it was and that it was not.
"""

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import Acked, Extended, Released, Returned
from penstock.core.queue.message import Drafts, Receipt
from penstock.core.queue.queries import look
from penstock.core.queue.queue import Queue
from penstock.core.queue.snapshot import freeze
from penstock.store.interface import Outcome
from tests.core.queue.life import Lease, Life

_GRAVE = 2
# What of a queue says how it shares and how quick it is, and nothing about its messages.
_OF_NO_ACCOUNT = {"shares", "drained", "started", "audit"}


class Judge:
    """A queue of the core with one strand in it, and how the stores call what it has."""

    def __init__(self, settings: QueueSettings) -> None:
        self.life = Life(settings)
        # By the ids that stores gave: the core's keys.
        self.keys: dict[str, int] = {}
        self.leases: dict[int, Lease] = {}
        # By key, after how many deliveries.
        self.buried: dict[int, int] = {}

    @property
    def queue(self) -> Queue:
        return self.life.queue

    def likeness(self) -> str:
        """The same for judges that would judge alike."""
        frozen = {name: value for name, value in freeze(self.life.state).items() if name not in _OF_NO_ACCOUNT}
        return repr((frozen, sorted(self.keys.items()), sorted(self.leases.items()), sorted(self.buried.items())))

    def come_to(self, at_ms: int) -> None:
        self.life.now_ms = max(self.life.now_ms, at_ms)
        self.queue.advance(self.life.now_ms)

    def spent(self) -> dict[int, int]:
        """The deliveries of what waits to be buried, by key."""
        found = [look(self.life.state, key) for key in self.keys.values()]
        return {seen.message: seen.deliveries for seen in found if seen is not None and seen.place == "spent"}

    def bury(self) -> None:
        self.buried.update(self.spent())
        self.life.happen(self.queue.bury(into=_GRAVE, room=1_000, now_ms=self.life.now_ms))


class Answer(Protocol):
    def is_legal(self, judge: Judge) -> bool:
        """Let the core do it, and return whether it gives this answer."""
        ...


@dataclass(frozen=True, slots=True)
class Call:
    """What a call did to one strand. Its two moments are places in one order of all beginnings and endings."""

    began: int
    ended: int
    at_ms: int
    answer: Answer

    def after(self, judge: Judge, *, is_sure: bool) -> Iterator[Judge]:
        """Return the judge after this call, once for each way in which it is legal; a copy unless it is next."""
        if not is_sure:
            judge = copy.deepcopy(judge)
        judge.come_to(self.at_ms)
        buried = copy.deepcopy(judge) if judge.spent() else None
        if self.answer.is_legal(judge):
            yield judge
        if buried is not None:
            buried.bury()
            if self.answer.is_legal(buried):
                yield buried


@dataclass
class Strand:
    settings: QueueSettings
    calls: list[Call] = field(default_factory=list)

    def has_legal_order(self) -> bool:
        return _has_order(Judge(self.settings), tuple(sorted(self.calls, key=lambda call: call.ended)), set())


def _has_order(judge: Judge, calls: tuple[Call, ...], vain: set[tuple[object, ...]]) -> bool:
    """Whether these calls, sorted by their endings, are legal in some order after what the judge has seen.

    ``vain`` remembers from where there is none, so that orders that come to the same are not tried twice.
    """
    if not calls:
        return True
    # Whatever began before the first ending may be first.
    choices = [place for place, call in enumerate(calls) if call.began < calls[0].ended]
    here = (tuple(call.ended for call in calls), judge.likeness()) if len(choices) > 1 else ()
    if here in vain:
        return False
    for place in choices:
        for after in calls[place].after(judge, is_sure=len(choices) == 1):
            if _has_order(after, calls[:place] + calls[place + 1 :], vain):
                return True
    if here:
        vain.add(here)
    return False


@dataclass(frozen=True, slots=True)
class Sent:
    drafts: Drafts
    ids: tuple[str, ...]

    def is_legal(self, judge: Judge) -> bool:
        accepted = judge.queue.send(self.drafts, now_ms=judge.life.now_ms)
        judge.life.happen(accepted.event)
        for name, key in zip(self.ids, accepted.messages, strict=True):
            # An id is that of one message, and a message has one id: a send that repeats another is given its id.
            if judge.keys.setdefault(name, key) != key:
                return False
        return len(set(judge.keys.values())) == len(judge.keys)


@dataclass(frozen=True, slots=True)
class Leased:
    lease: int
    lease_ms: int
    ids: tuple[str, ...]
    deliveries: tuple[int, ...]

    def is_legal(self, judge: Judge) -> bool:
        found = judge.life.lease(len(self.ids), self.lease_ms)
        if found is None or any(name not in judge.keys for name in self.ids):
            return False
        judge.leases[self.lease] = found
        wanted = list(zip([judge.keys[name] for name in self.ids], self.deliveries, strict=True))
        return list(zip(found.messages, found.deliveries, strict=True)) == wanted


@dataclass(frozen=True, slots=True)
class Settled:
    """An ack, a release or an extension, of receipts that may be stale."""

    verb: str
    receipts: tuple[Receipt, ...]
    ids: tuple[str, ...]
    outcomes: tuple[Outcome, ...]
    lease_ms: int = 0
    delay_ms: int | None = None

    def is_legal(self, judge: Judge) -> bool:
        done: set[Receipt] = set()
        masks: dict[int, int] = {}
        bits: dict[Receipt, int] = {}
        for receipt, name in zip(self.receipts, self.ids, strict=True):
            lease = judge.leases.get(receipt.lease)
            if lease is None:
                return False
            bits[receipt] = 1 << lease.messages.index(judge.keys[name])
            masks[receipt.lease] = masks.get(receipt.lease, 0) | bits[receipt]
        for number, mask in masks.items():
            event = self._decide(judge, judge.leases[number], mask)
            judge.life.happen(event)
            good = 0 if event is None else event.mask
            done |= {receipt for receipt in self.receipts if receipt.lease == number and good & bits[receipt]}
        return all(
            (outcome is Outcome.DONE) == (each in done)
            for each, outcome in zip(self.receipts, self.outcomes, strict=True)
        )

    def _decide(self, judge: Judge, lease: Lease, mask: int) -> Acked | Extended | Released | Returned | None:
        queue, held, now_ms = judge.queue, (lease.id, lease.token, mask), judge.life.now_ms
        if self.verb == "ack":
            return queue.ack(*held, now_ms=now_ms)
        if self.verb == "extend":
            return queue.extend(*held, now_ms=now_ms, lease_ms=self.lease_ms)
        if self.verb == "give back":
            return queue.give_back(*held, now_ms=now_ms)
        return queue.release(
            *held, now_ms=now_ms, roll=1.0 - 2**-53, delay_ms=self.delay_ms, is_rejected=self.verb == "reject"
        )


@dataclass(frozen=True, slots=True)
class Escalated:
    id: str
    tier: int
    outcome: Outcome

    def is_legal(self, judge: Judge) -> bool:
        key = judge.keys.get(self.id)
        seen = None if key is None else look(judge.life.state, key)
        if seen is None:
            return self.outcome is Outcome.UNKNOWN
        if seen.place in {"leased", "spent"}:
            return self.outcome is Outcome.NOT_PENDING
        assert key is not None
        has_moved = judge.life.escalate([key], self.tier)
        return self.outcome is (Outcome.DONE if has_moved else Outcome.UNCHANGED)


@dataclass(frozen=True, slots=True)
class Purged:
    def is_legal(self, judge: Judge) -> bool:
        judge.life.happen(judge.queue.purge(now_ms=judge.life.now_ms))
        return True


@dataclass(frozen=True, slots=True)
class Nothing:
    """A lease of everything found nothing more, with no other client at work."""

    def is_legal(self, judge: Judge) -> bool:
        return judge.queue.lease(1, now_ms=judge.life.now_ms, token=0) is None


@dataclass(frozen=True, slots=True)
class Left:
    """What there is in the end, by id: place, tier and deliveries of each message; and of the dead ones the latter."""

    live: dict[str, tuple[str, int, int]]
    dead: dict[str, int]

    def is_legal(self, judge: Judge) -> bool:
        found = {name: look(judge.life.state, key) for name, key in judge.keys.items()}
        live = {name: (seen.place, seen.tier, seen.deliveries) for name, seen in found.items() if seen is not None}
        dead = {name: judge.buried[key] for name, key in judge.keys.items() if key in judge.buried}
        return (live, dead) == (
            {name: seen for name, seen in self.live.items() if name in judge.keys},
            {name: count for name, count in self.dead.items() if name in judge.keys},
        )
