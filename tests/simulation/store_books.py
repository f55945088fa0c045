"""What the clients of a store were told, and whether what they are told next can be true.

Nothing here looks into the store. A call is an interval between two steps: its
decision fell somewhere in it. A call that a crash cut off ended with the crash,
and may have happened or not.

What must hold for every delivery
---------------------------------
1. Its body was sent to that queue, or to the one whose dead letters these are,
   with this group, these attributes and no tier more urgent. A body has one id
   for ever, and an id one body.
2. The message was not acked, purged or deleted before the lease was asked for.
3. It counts more deliveries, those before its burials included, than each delivery
   told before, and as many as no other.
4. It is not leased: no lease told before runs on. A restart begins leases again.
5. In a FIFO queue nothing that was sent before, in its group, comes after it.
6. It was not delivered from dead letters that were deleted since, unless it can
   have been redriven before.

And for every message at the end: it is drained, or something the clients did, or
its age, can have settled it.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.contract.messages import Tier
from penstock.core.queue.message import Drafts, Receipt, Sender
from penstock.store.interface import Delivery

NEVER = 1 << 62


@dataclass
class Call:
    """One use of a verb, from its first step to its last."""

    queue: str
    begun: int
    begun_at_ms: int
    ended: int = NEVER
    # Refused by the store: it did not happen.
    is_void: bool = False
    # Cut off by a crash: it may have happened.
    is_unknown: bool = False


@dataclass
class Send(Call):
    drafts: Drafts = field(default_factory=lambda: Drafts(bodies=[]))
    sender: Sender | None = None
    ids: list[str] | None = None


@dataclass
class Draft:
    send: Send
    row: int
    body: bytes
    # Known once it was delivered.
    message: "Message | None" = None
    # The step at which a later one of its group was delivered without it.
    passed: int = NEVER

    @property
    def group(self) -> bytes:
        return b"" if self.send.drafts.groups is None else self.send.drafts.groups[self.row]

    @property
    def dedup_id(self) -> bytes:
        return b"" if self.send.drafts.dedup_ids is None else self.send.drafts.dedup_ids[self.row]

    @property
    def attributes(self) -> bytes:
        return bytes(b"" if self.send.drafts.attributes is None else self.send.drafts.attributes[self.row])

    @property
    def tier(self) -> int:
        return Tier.NORMAL if self.send.drafts.tiers is None else self.send.drafts.tiers[self.row]

    def is_before(self, other: "Draft") -> bool:
        if self.send is other.send:
            return self.row < other.row
        return self.send.ended < other.send.begun


@dataclass
class Hold:
    """A lease on one message, as its holder knows it. Times are the least they can be."""

    queue: str
    begun: int
    told: int
    until_ms: int
    lease_ms: int
    deliveries: int
    is_certain: bool = True


@dataclass
class Message:
    id: str
    queue: str
    # Not sent before this step and this time.
    begun: int
    sent_from_ms: int
    # The step at which a client first knew of it.
    known: int
    # The body, once it was delivered.
    draft: Draft | None = None
    told_drafts: list[Draft] = field(default_factory=list)
    gone: int = NEVER
    # The row that was acked, if its holder knows.
    acked: "Held | None" = None
    acks_unknown: int = 0
    # The step and the count of each delivery told, in whatever queue.
    deliveries: list[tuple[int, int]] = field(default_factory=list)
    # The step at which it was last told from the dead letters.
    buried: int = NEVER
    hold: Hold | None = None


@dataclass
class Held:
    """One row of a delivery, in the hands of a client."""

    message: Message
    queue: str
    deliveries: int
    receipt: Receipt

    @property
    def hold(self) -> Hold | None:
        """What is known of this lease, unless a later one has followed."""
        hold = self.message.hold
        return hold if hold and (hold.queue, hold.deliveries) == (self.queue, self.deliveries) else None


class Books:
    def __init__(
        self,
        retention_ms: dict[str, int],
        fifo: frozenset[str],
        dedup_window_ms: dict[str, int],
        redriven: frozenset[str],
    ) -> None:
        self._retention_ms = retention_ms
        self._fifo = fifo
        self._dedup_window_ms = dedup_window_ms
        # Queues whose dead letters may come back.
        self._redriven = redriven
        self._steps = 0
        # The store's time is between these: its clock never goes back, also if the machine's was set back.
        self.low_ms = self.high_ms = 0
        self._ahead_ms = (0, 0)
        self._newest_told_ms = 0
        self._died_at_ms = 0
        self.drafts: dict[bytes, Draft] = {}
        self.messages: dict[str, Message] = {}
        self._open: list[Call] = []
        # Purges and deletions, by the queue they emptied.
        self._emptied: dict[str, list[Call]] = defaultdict(list)
        self._by_group: dict[tuple[str, bytes], list[Draft]] = defaultdict(list)
        self._by_dedup_id: dict[tuple[str, bytes], list[Draft]] = defaultdict(list)

    def _step(self) -> int:
        self._steps += 1
        return self._steps

    def tick(self, clock_ms: int) -> None:
        """Know what the machine's clock says."""
        low_ms, high_ms = self._ahead_ms
        self.low_ms, self.high_ms = max(self._newest_told_ms, clock_ms + low_ms), clock_ms + high_ms

    # Calls.

    def begin(self, queue: str) -> Call:
        call = Call(queue, self._step(), self.low_ms)
        self._open.append(call)
        return call

    def begin_emptying(self, queue: str) -> Call:
        call = self.begin(queue)
        self._emptied[queue].append(call)
        return call

    def end(self, call: Call, *, is_void: bool = False) -> None:
        # What was cut off before may have happened then, even if it is refused now.
        call.ended, call.is_void = self._step(), is_void and not call.is_unknown
        self._open.remove(call)

    def died(self) -> None:
        """What was under way has ended, one way or the other."""
        for call in self._open:
            call.ended, call.is_unknown = self._step(), True
        self._open.clear()
        self._died_at_ms = self.high_ms

    def restart(self, clock_ms: int) -> None:
        """Leases begin again, however long the store was closed, unless they may have ended before."""
        self._ahead_ms = 0, max(0, self._died_at_ms - clock_ms)
        self.tick(clock_ms)
        for message in self.messages.values():
            hold = message.hold
            if hold is not None:
                hold.is_certain &= hold.until_ms > self._died_at_ms
                hold.until_ms = self.low_ms + hold.lease_ms

    def opened(self, clock_ms: int) -> None:
        """Replay is over, and from here on the store's time moves with the clock."""
        self._ahead_ms = max(0, self._newest_told_ms - clock_ms), self._ahead_ms[1]
        self.tick(clock_ms)

    def begin_send(self, queue: str, drafts: Drafts, sender: Sender | None) -> Send:
        send = Send(queue, self._step(), self.low_ms, drafts=drafts, sender=sender)
        self._open.append(send)
        for row, body in enumerate(map(bytes, drafts.bodies)):
            assert body not in self.drafts, "a life sends no body twice"
            draft = self.drafts[body] = Draft(send, row, body)
            if draft.group:
                self._by_group[queue, draft.group].append(draft)
            if draft.dedup_id:
                self._by_dedup_id[queue, draft.dedup_id].append(draft)
        return send

    def repeat_send(self, send: Send) -> None:
        send.ended, send.is_void = NEVER, False
        # Earlier than before, if the clock was set back and the journal never saw the first time.
        send.begun_at_ms = min(send.begun_at_ms, self.low_ms)
        self._open.append(send)
        for body in send.drafts.bodies if send.ids is None else []:
            # It may be sent only now, after what overtook it.
            self.drafts[bytes(body)].passed = NEVER

    def tell_ids(self, send: Send, ids: list[str]) -> None:
        """One of the answers to a send, which may have been made several times at once."""
        assert len(ids) == len(send.drafts), "an id for each draft"
        assert send.ids in (None, ids), "a repeated send has the ids of the first"
        is_first, send.ids = send.ids is None, ids
        self._step()
        for body, name in zip(send.drafts.bodies, ids, strict=True):
            draft = self.drafts[bytes(body)]
            message = self._message(name, draft)
            assert draft.message in (None, message), f"{draft.body[:40]!r} has two ids: {name} is the second"
            if is_first:
                message.told_drafts.append(draft)
                self._judge_bodies(message)
                self._judge_dedup(message, draft)

    def _message(self, name: str, draft: Draft) -> Message:
        if name not in self.messages:
            send = draft.send
            self.messages[name] = Message(name, send.queue, send.begun, send.begun_at_ms, self._steps)
        message = self.messages[name]
        assert message.queue == draft.send.queue, f"{name} is of two queues"
        message.begun = min(message.begun, draft.send.begun)
        message.sent_from_ms = min(message.sent_from_ms, draft.send.begun_at_ms)
        return message

    def _judge_bodies(self, message: Message) -> None:
        """All drafts that were told one id are one message: the same draft, or one dedup id."""
        drafts = message.told_drafts if message.draft is None else [message.draft, *message.told_drafts]
        for draft in drafts[1:]:
            is_repeat = draft is drafts[0] or (draft.dedup_id and draft.dedup_id == drafts[0].dedup_id)
            assert is_repeat, f"{draft.body[:40]!r} and {drafts[0].body[:40]!r} are both {message.id}"

    def _judge_dedup(self, message: Message, draft: Draft) -> None:
        """Within the window, an id that was taken is taken."""
        window_ms = self._dedup_window_ms.get(draft.send.queue, 0)
        others = self._by_dedup_id[draft.send.queue, draft.dedup_id] if draft.dedup_id and window_ms else []
        unknown = [other.send.begun_at_ms for other in others if other.send.ids is None and not other.send.is_void]
        for other in others:
            if other.send.ids is not None and other.send.ended < draft.send.begun:
                first = self.messages[other.send.ids[other.row]]
                if self.high_ms < min([first.sent_from_ms, *unknown]) + window_ms:
                    assert first is message, f"{draft.dedup_id!r} was taken by {first.id}, and again by {message.id}"

    # Deliveries.

    def end_lease(self, call: Call, delivery: Delivery, lease_ms: int) -> list[Held]:
        """Judge what was handed out, and remember it."""
        self.end(call)
        at_ms = delivery.until_ms - lease_ms
        assert call.begun_at_ms <= at_ms <= self.high_ms, "a lease begins when it is asked for"
        self._newest_told_ms = max(self._newest_told_ms, at_ms)
        drafts = [self._delivered(call.queue, delivery, row) for row in range(len(delivery))]
        assert len({draft.body for draft in drafts}) == len(drafts), "a message is once in a lease"
        held = []
        for row, draft in enumerate(drafts):
            message = draft.message
            assert message is not None
            past = None if delivery.pasts is None else delivery.pasts[row]
            self._judge_settled(message, call, is_moved=past is not None)
            self._judge_hold(message, call, at_ms)
            before, count = message.hold, delivery.deliveries[row] + (0 if past is None else past.deliveries)
            self._count(message, call, count)
            if call.queue != message.queue:
                message.buried = call.ended
            if before is None or before.deliveries < count:
                message.hold = Hold(call.queue, call.begun, call.ended, delivery.until_ms, lease_ms, count)
            held.append(Held(message, call.queue, count, Receipt(delivery.lease, delivery.token, row)))
        if call.queue in self._fifo:
            self._judge_order(call, drafts)
        return held

    def _delivered(self, queue: str, delivery: Delivery, row: int) -> Draft:
        body, name = bytes(delivery.bodies[row]), delivery.ids[row]
        draft = self.drafts.get(body)
        assert draft is not None, f"{name}: no client sent {body[:40]!r}"
        assert queue in (draft.send.queue, f"{draft.send.queue}.dead"), (
            f"{name} of {draft.send.queue} came from {queue}"
        )
        assert not draft.send.is_void, f"{name} was refused, and delivered"
        assert draft.attributes == (b"" if delivery.attributes is None else bytes(delivery.attributes[row]))
        assert draft.group == (b"" if delivery.groups is None else delivery.groups[row]), f"{name}: not its group"
        assert 0 <= delivery.tiers[row] <= draft.tier, f"{name} fell to tier {delivery.tiers[row]}"
        if queue == draft.send.queue:
            assert draft.send.begun_at_ms <= delivery.sent_at_ms[row] <= self.high_ms, f"{name}: not its time"
        message = self._message(name, draft)
        assert draft.message in (None, message), f"{body[:40]!r} has two ids: {name} is the second"
        assert message.draft in (None, draft), f"{name} has two bodies"
        told = draft.send.ids
        assert told is None or told[draft.row] == name, f"{body[:40]!r} was told another id than {name}"
        draft.message, message.draft = message, draft
        self._judge_bodies(message)
        return draft

    def _judge_settled(self, message: Message, call: Call, *, is_moved: bool) -> None:
        assert message.gone > call.begun, f"{message.id} was acked, and came back"
        # One that has moved may have been in the other queue then.
        for emptied in self._emptied[call.queue] if call.queue == message.queue and not is_moved else []:
            if emptied.ended < call.begun and not emptied.is_void and not emptied.is_unknown:
                assert message.known > emptied.begun, f"{message.id} was purged, and came back"
        for emptied in self._emptied[f"{message.queue}.dead"] if message.queue not in self._redriven else []:
            if emptied.ended < call.begun and not emptied.is_void and not emptied.is_unknown:
                assert message.buried >= emptied.begun, f"{message.id} was deleted as a dead letter, and came back"

    def _judge_hold(self, message: Message, call: Call, at_ms: int) -> None:
        hold = message.hold
        if hold is not None and hold.told < call.begun and self._is_certain(hold):
            assert at_ms >= hold.until_ms, f"{message.id} is held until {hold.until_ms}, and leased at {at_ms}"

    def _is_certain(self, hold: Hold) -> bool:
        return hold.is_certain and not any(call.ended > hold.begun for call in self._emptied[hold.queue])

    def _count(self, message: Message, call: Call, deliveries: int) -> None:
        for told, count in message.deliveries:
            assert count != deliveries, f"{message.id} was delivered for the {count}. time twice"
            assert told > call.begun or count < deliveries, f"{message.id}: {deliveries} deliveries, {count} before"
        message.deliveries.append((call.ended, deliveries))

    def _judge_order(self, call: Call, drafts: Sequence[Draft]) -> None:
        for nth, draft in enumerate(drafts):
            assert draft.passed > call.begun, f"{draft.body[:40]!r} comes after what was sent after it"
            for later in drafts[nth + 1 :] if draft.group else []:
                is_late = later.group == draft.group and later.is_before(draft)
                assert not is_late, f"{later.body[:40]!r} comes after {draft.body[:40]!r} in one lease"
        here = {draft.body for draft in drafts}
        for group in {draft.group for draft in drafts if draft.group}:
            last = [draft for draft in drafts if draft.group == group][-1]
            for other in self._by_group[call.queue, group]:
                if other.body not in here and other.is_before(last):
                    other.passed = min(other.passed, call.ended)

    # What clients do with what they hold.

    def is_good(self, held: Held) -> bool:
        """Whether the receipt must be good, if the store decides now."""
        return held.hold is not None and self._is_certain(held.hold) and self.high_ms < held.hold.until_ms

    def let_go(self, held: Held, *, is_ack: bool) -> None:
        """Its holder is about to ack or release it."""
        held.message.acks_unknown += is_ack
        if held.hold is not None:
            held.hold.is_certain = False

    def answered(self, held: Held, *, is_done: bool) -> None:
        """An ack is no longer unknown."""
        held.message.acks_unknown -= 1
        if is_done:
            assert held.message.gone == NEVER, f"{held.message.id} was acked twice"
            held.message.gone, held.message.acked = self._step(), held

    def extend(self, held: Held, *, from_ms: int, lease_ms: int, is_done: bool) -> None:
        """Until it is done, the lease may be the old one or the new one."""
        hold = held.hold
        if hold is not None:
            hold.until_ms = from_ms + lease_ms if is_done else min(hold.until_ms, from_ms + lease_ms)
            hold.lease_ms = lease_ms if is_done else min(hold.lease_ms, lease_ms)

    # The books as a whole.

    def certain(self, queue: str) -> int:
        """How many messages of a queue, its dead letters included, must be live."""
        return sum(_is_of(queue, message.queue) and not self.may_be_gone(message) for message in self.messages.values())

    def possible(self, queue: str) -> int:
        """How many can be live at most."""
        drafts = [draft for draft in self.drafts.values() if _is_of(queue, draft.send.queue)]
        return sum(not draft.send.is_void and not self._is_gone(draft) for draft in drafts)

    def _is_gone(self, draft: Draft) -> bool:
        return draft.message is not None and draft.message.gone < NEVER

    def may_be_gone(self, message: Message) -> bool:
        if message.gone < NEVER or message.acks_unknown:
            return True
        retention_ms = self._retention_ms.get(message.queue, 0)
        if retention_ms and self.high_ms - message.sent_from_ms >= retention_ms:
            return True
        return any(self.may_be_emptied(queue, message.begun) for queue in (message.queue, f"{message.queue}.dead"))

    def may_be_emptied(self, queue: str, since: int) -> bool:
        """Whether a queue can have been purged or deleted after a step."""
        return any(call.ended > since and not call.is_void for call in self._emptied[queue])


def _is_of(queue: str, name: str) -> bool:
    return name in (queue, f"{queue}.dead")
