"""The life of messages in one queue: a pure state machine.

    send ──▶ READY ──lease──▶ LEASED ──ack──▶ settled
               ▲                 │
               ├── lease lapses ─┤   at once, the run intact
               ├──── release ────┤   after a backoff
               │                 └─ deliveries spent ─▶ buried
        (rests until visible)

Rules of this file
------------------
1. Every transition of a message is decided here and nowhere else.
2. Nothing here reads a clock, rolls a die or does I/O: time and chance are
   arguments. A queue is therefore a function of its events.
3. The public methods *decide* and return events; `apply` is the only code that
   changes state (`apply.py`). A method that decides nothing returns None.
4. A message nothing has happened to is a number in a run, not an object.
5. A decision is about the present: each begins by moving the queue to its
   ``now_ms``. At the instant a lease ends, it has ended. A queue that `catch_up`
   has put behind its time is moved only by that.

Invariant: in every lane, each number below `next` is on a shelf, a row, in a
lease, or settled by exactly one fact.

Beside this file: `state.py` has the places a message can be in, `lease_selection.py`
which messages a lease takes, `queries.py` and `explain.py` what can be asked.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple, TypeVar

from penstock.contract.limits import (
    DURATION_MS_MAX,
    ERROR_CHARACTERS_MAX,
    EVENT_RUNS_MAX,
    EXPIRED_MAX,
    LEASE_MESSAGES_MAX,
    LEASE_MS_MAX,
    REASON_CHARACTERS_MAX,
    RETRY_AFTER_MS_MAX,
    RETRY_AFTER_MS_MIN,
    RETRY_AFTER_MS_UNKNOWN,
    SWEEP_ROWS,
)
from penstock.contract.messages import TIERS, Tier
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.core.queue import moves
from penstock.core.queue.apply import CHANGES
from penstock.core.queue.events import (
    Acked,
    Arrived,
    Buried,
    Cancelled,
    CaughtUp,
    Escalated,
    Event,
    Expired,
    Extended,
    Leased,
    Moved,
    Moving,
    Opened,
    Purged,
    QueueChanged,
    QueueCreated,
    Redriven,
    Released,
    Returned,
    Sent,
)
from penstock.core.queue.lease_selection import choose
from penstock.core.queue.message import BadDraft, Drafts, Origin, Run, Sender, as_runs, check, check_bodies, keys_of
from penstock.core.queue.retry import backoff_ms
from penstock.core.queue.rows import FREE, LEASED, MOVING, RESTING, WAITING
from penstock.core.queue.state import State
from penstock.core.queue.timer_wheel import NEVER

__all__ = ["SendDecision", "BadDraft", "Queue", "QueueFull", "ExpirySweep"]

# Consecutive multiples of it, modulo 1, lie as far apart as so many numbers can.
_GOLDEN_RATIO = 0.618_033_988_749_895
_NORMAL = bytes((Tier.NORMAL,))

_T = TypeVar("_T")


class QueueFull(Exception):
    """The queue has no room for these messages now; ``retry_after_ms`` says when it may."""

    def __init__(self, retry_after_ms: int) -> None:
        super().__init__(f"the queue is full; try again in {retry_after_ms} ms")
        self.retry_after_ms = retry_after_ms

    @classmethod
    def of(cls, drained_in_ms: int | None) -> "QueueFull":
        """Return the refusal by a queue that has room in so many ms at its present rate; None if it has no rate."""
        if drained_in_ms is None:
            return cls(RETRY_AFTER_MS_UNKNOWN)
        return cls(max(RETRY_AFTER_MS_MIN, min(drained_in_ms, RETRY_AFTER_MS_MAX)))


@dataclass(slots=True)
class SendDecision:
    """What a send comes to: the event, if anything is new, and the key of each draft's message."""

    event: Sent | None
    messages: Sequence[int]


class ExpirySweep(NamedTuple):
    """What a search for old messages found, and where the next one begins: 0 if there is nothing left to search."""

    event: Expired | None
    cursor: int
    # When the oldest message was sent that was found where it can expire; `NEVER` if there is none.
    oldest_ms: int


class Queue:
    """One queue. Its number is that of the queue in its shard, for good."""

    __slots__ = ("state",)

    def __init__(self, queue: int, settings: QueueSettings | None = None) -> None:
        self.state = State(queue, settings or QueueSettings())

    @classmethod
    def replay(cls, events: Iterable[Event]) -> "Queue":
        """Make a queue from its history, which begins with `QueueCreated`."""
        history = iter(events)
        created = next(history)
        assert isinstance(created, QueueCreated)
        queue = cls(created.queue)
        queue.apply(created)
        for event in history:
            queue.apply(event)
        return queue

    def apply(self, event: Event) -> None:
        """Move the queue to the event's time, and change it as the event says. Events come in the order of deciding."""
        state, kind, at_ms = self.state, type(event), event.at_ms
        # An opening moves time itself, after it has started the leases again; and so does what moves it in parts.
        if (at_ms > state.now_ms or at_ms >= state.due_ms) and kind is not Opened and kind is not CaughtUp:
            state.advance(at_ms)
        CHANGES[kind](state, event)

    def advance(self, now_ms: int) -> None:
        self.state.advance(now_ms)

    def is_overdue(self, now_ms: int, most: int) -> bool:
        """Whether moving the queue to the present would touch more than ``most`` messages: then `catch_up` in parts."""
        return self.state.is_overdue(now_ms, most)

    def catch_up(self, *, now_ms: int, most: int) -> CaughtUp:
        """Do a part of what is due; with 0 for ``most``, put off all of it."""
        return CaughtUp(self.state.queue, now_ms, self.state.now_ms, most)

    def send(self, drafts: Drafts, *, now_ms: int, sender: Sender | None = None) -> SendDecision:
        """Number the drafts, except those whose id is taken.

        Raises `QueueFull`, `BadDraft`, `SenderFenced` or `SendForgotten`; then
        nothing of the batch is accepted.
        """
        state = self.state
        if now_ms > state.now_ms or now_ms >= state.due_ms:
            state.advance(now_ms)
        if sender is not None:
            found = state.senders.find(sender)
            if found is not None:
                return SendDecision(None, found)
        settings, count, is_plain = state.settings, len(drafts.bodies), _is_plain(drafts)
        if not is_plain or drafts.tiers is not None or drafts.attributes is not None or not count:
            check(drafts, now_ms, settings.retention_ms)
        check_bodies(drafts.bodies, settings.body_bytes_max)
        tiers = drafts.tiers or _NORMAL * count
        taken = state.dedup.taken(drafts.dedup_ids, now_ms) if drafts.dedup_ids is not None else None
        if taken:
            return self._send_some(drafts, tiers, taken, now_ms=now_ms, sender=sender)
        if settings.size_max:
            self._check_room(tiers, now_ms)
        messages = _number(tiers, state)
        if is_plain and not settings.delay_ms:
            return SendDecision(Sent(state.queue, now_ms, tiers, sender), messages)
        return SendDecision(_sent(state, drafts, tiers, range(count), now_ms=now_ms, sender=sender), messages)

    def _send_some(
        self, drafts: Drafts, tiers: bytes, taken: dict[int, int], *, now_ms: int, sender: Sender | None
    ) -> SendDecision:
        """Number those drafts whose ids are free, and answer for the others with the messages they repeat."""
        fresh = [row for row in range(len(drafts)) if row not in taken]
        tiers = bytes([tiers[row] for row in fresh])
        if self.state.settings.size_max and fresh:
            self._check_room(tiers, now_ms)
        messages = _answers(_number(tiers, self.state), taken, len(drafts))
        if not fresh and sender is None:
            return SendDecision(None, messages)
        event = _sent(self.state, drafts, tiers, fresh, now_ms=now_ms, sender=sender)
        if sender is not None:
            event = replace(event, repeats=tuple((row, messages[row]) for row in sorted(taken)))
        return SendDecision(event, messages)

    def _check_room(self, tiers: bytes, now_ms: int) -> None:
        room = min(self.state.settings.room(tier) for tier in set(tiers))
        if len(tiers) > room:
            raise BadDraft(f"{len(tiers)} messages; by its size_max the queue never has room for more than {room}")
        excess = self.state.live + len(tiers) - room
        if excess > 0:
            raise QueueFull.of(self.state.drained.ms_for(excess, now_ms))

    def lease(self, want: int, *, now_ms: int, token: int, lease_ms: int | None = None) -> Leased | None:
        """Hand out at most ``want`` visible messages, or return None if there are none."""
        assert 1 <= want <= LEASE_MESSAGES_MAX
        state = self.state
        if now_ms >= state.due_ms or now_ms > state.now_ms:
            state.advance(now_ms)
        if state.settings.is_paused:
            return None
        choice = choose(state, want)
        if choice is None:
            return None
        length_ms = state.settings.lease_ms if lease_ms is None else lease_ms
        assert 0 < length_ms <= LEASE_MS_MAX
        return Leased(state.queue, now_ms, state.leases.next_id(), token, length_ms, choice[0], choice[1])

    def ack(self, lease: int, token: int, mask: int, *, now_ms: int, outlives: bool = False) -> Acked | None:
        """Settle the messages of a lease whose bits are set in ``mask``.

        Bits no longer held are ignored: acking twice is acking once. With
        ``outlives``, and on a standard queue only, a receipt is good until the
        message is leased again, as AWS has it.
        """
        state = self.state
        if now_ms > state.now_ms or now_ms >= state.due_ms:
            state.advance(now_ms)
        leases = state.leases
        slot = leases.find(lease)
        if slot < 0 or leases.token[slot] != token:
            return None
        good = leases.held[slot]
        if outlives and not state.settings.is_fifo:
            good |= leases.late.get(slot, 0)
        good &= mask
        return Acked(state.queue, now_ms, lease, good) if good else None

    def release(  # noqa: PLR0913 - a receipt, and what to do with it.
        self,
        lease: int,
        token: int,
        mask: int,
        *,
        now_ms: int,
        roll: float,
        delay_ms: int | None = None,
        error: str = "",
        is_rejected: bool = False,
    ) -> Released | None:
        """Give messages back, each to rest for ``delay_ms`` or, if that is None, for its backoff.

        One ``roll`` in [0, 1) serves the whole batch: it is spread over the
        messages, so that they do not return as a herd. Rejected messages have
        had their last delivery and are to be buried, whatever is left to them;
        where nothing is ever buried, they are released like any others.
        """
        assert delay_ms is None or 0 <= delay_ms <= DURATION_MS_MAX
        held = self._held(lease, token, mask, now_ms)
        if not held:
            return None
        times: tuple[int, ...]
        if is_rejected and self.state.settings.deliveries_max:
            times = ()
        elif delay_ms is None:
            times = tuple(now_ms + rest_ms for rest_ms in self._backoffs(lease, held, roll))
        else:
            times = (now_ms + delay_ms,) * held.bit_count()
        return Released(self.state.queue, now_ms, lease, held, times, error[:ERROR_CHARACTERS_MAX])

    def give_back(self, lease: int, token: int, mask: int, *, now_ms: int) -> Returned | None:
        """Return messages that no worker has begun, as if they had not been delivered."""
        held = self._held(lease, token, mask, now_ms)
        return Returned(self.state.queue, now_ms, lease, held) if held else None

    def _backoffs(self, lease: int, mask: int, roll: float) -> Iterable[int]:
        settings, leases = self.state.settings, self.state.leases
        for part in leases.members(leases.find(lease), mask):
            is_row = isinstance(part, int)
            deliveries = self.state.rows.deliveries[part] if isinstance(part, int) else part[3]
            for _ in range(1 if is_row else part[2]):  # type: ignore[index]
                yield backoff_ms(settings, deliveries, roll)
                roll = (roll + _GOLDEN_RATIO) % 1.0

    def extend(
        self, lease: int, token: int, mask: int, *, now_ms: int, lease_ms: int, outlives: bool = False
    ) -> Extended | None:
        """Hold messages for ``lease_ms`` from now on.

        What has lapsed is held again only with ``outlives``, as AWS has it: until the
        message is leased again, and if it is not about to be buried.
        """
        assert 0 < lease_ms <= LEASE_MS_MAX
        held = self._held(lease, token, mask, now_ms)
        if outlives:
            held |= _late(self.state, lease, token, mask)
        return Extended(self.state.queue, now_ms, lease, held, lease_ms) if held else None

    def _held(self, lease: int, token: int, mask: int, now_ms: int) -> int:
        self.state.advance(now_ms)
        leases = self.state.leases
        slot = leases.find(lease)
        return leases.held[slot] & mask if slot >= 0 and leases.token[slot] == token else 0

    def bury(self, *, into: int, room: int, now_ms: int) -> Buried | None:
        """Move spent messages to another queue, as many as have ``room`` there. The others stay and wait."""
        state = self.state
        assert into != state.queue
        state.advance(now_ms)
        slots = moves.spent(state, room)
        return Buried(state.queue, now_ms, into, *moves.columns(state, slots)) if slots else None

    def redrive(
        self, *, into: int, now_ms: int, most: int, origin: int | None = None, only: Collection[int] | None = None
    ) -> Redriven | None:
        """Send dead letters back, at most ``most``.

        ``origin`` keeps to those that came from one queue, ``only`` to those of
        some keys. To see what would go, do not apply the event.
        """
        state = self.state
        assert into != state.queue
        state.advance(now_ms)
        slots = moves.dead_letters(state, most, origin, only)
        return Redriven(state.queue, now_ms, into, *moves.columns(state, slots)) if slots else None

    def start_move(
        self,
        *,
        into: int,
        most: int,
        now_ms: int,
        is_redrive: bool,
        origin: int | None = None,
        only: Collection[int] | None = None,
    ) -> Moving | None:
        """Begin what `bury`, or `redrive`, does at once, for a queue of another shard. One move at a time."""
        state = self.state
        state.advance(now_ms)
        if state.moves.pending is not None:
            return None
        slots = moves.dead_letters(state, most, origin, only) if is_redrive else moves.spent(state, most)
        if not slots:
            return None
        return Moving(state.queue, now_ms, into, state.moves.started + 1, is_redrive, moves.runs_of(state, slots))

    def end_move(self, *, is_done: bool, now_ms: int) -> Moved | None:
        """Settle what is on its way, once the other queue has it; or put it back, if there is no such queue."""
        self.state.advance(now_ms)
        pending = self.state.moves.pending
        return None if pending is None else Moved(self.state.queue, now_ms, pending.sequence, is_done)

    def arrive(  # noqa: PLR0913, PLR0917 - the columns of a move, its source and its number.
        self,
        source: int,
        sequence: int,
        tiers: bytes,
        origins: tuple[Origin, ...],
        groups: tuple[bytes, ...],
        errors: tuple[str, ...],
        now_ms: int,
    ) -> Arrived | None:
        """Number messages that were moved here from another shard, or return None if they came before."""
        self.state.advance(now_ms)
        if sequence <= self.state.moves.arrived.get(source, 0):
            return None
        return Arrived(self.state.queue, now_ms, source, sequence, tiers, origins, groups, errors)

    def expire(self, *, now_ms: int, cursor: int = 0) -> ExpirySweep:
        """Drop messages older than the queue keeps them, except those that are leased or on a move.

        At most some hundred go at once, and rows are searched some thousand at a time, from
        ``cursor`` on: call it with the cursor it returned until that is 0.
        """
        state = self.state
        state.advance(now_ms)
        if not state.settings.retention_ms:
            return ExpirySweep(None, 0, NEVER)
        sent_until_ms, oldest_ms = now_ms - state.settings.retention_ms, self._oldest_run_ms()
        runs = tuple(islice(self._old_runs(sent_until_ms), EXPIRED_MAX))
        if len(runs) == EXPIRED_MAX:
            # Slot 0 is no row, so a search from 1 on misses none.
            return ExpirySweep(Expired(state.queue, now_ms, runs), max(1, cursor), oldest_ms)
        rows = state.rows
        end = min(len(rows.state), cursor + SWEEP_ROWS)
        there = [slot for slot in range(cursor, end) if rows.state[slot] not in {FREE, LEASED, MOVING}]
        oldest_ms = min([oldest_ms, *(rows.sent_at_ms[slot] for slot in there)])
        old = list(islice((slot for slot in there if rows.sent_at_ms[slot] <= sent_until_ms), EXPIRED_MAX))
        if len(old) == EXPIRED_MAX:
            end = old[-1] + 1
        runs += moves.runs_of(state, old)
        event = Expired(state.queue, now_ms, runs) if runs else None
        return ExpirySweep(event, end if end < len(rows.state) else 0, oldest_ms)

    def _oldest_run_ms(self) -> int:
        fronts = [
            lane.sent_at_ms(shelf.runs[shelf.head][0])
            for lane in self.state.lanes
            for shelf in lane.shelves
            if shelf.count
        ]
        return min(fronts, default=NEVER)

    def _old_runs(self, sent_until_ms: int) -> Iterable[Run]:
        for lane in self.state.lanes:
            if not any(shelf.count for shelf in lane.shelves):
                continue
            upto = lane.first_sent_after(sent_until_ms)
            for shelf in lane.shelves:
                for stretch in shelf:
                    if stretch[0] >= upto:
                        break
                    yield Run(lane.tier, stretch[0], min(stretch[1], upto) - stretch[0])

    def cancel(self, message: int, *, now_ms: int) -> Cancelled | None:
        """Settle a message that is not due yet. None if it is due, leased, on a move or not there."""
        state = self.state
        state.advance(now_ms)
        slot = state.rows.index.get(message, 0)
        if not slot or state.rows.state[slot] != RESTING:
            return None
        return Cancelled(state.queue, now_ms, moves.runs_of(state, [slot]))

    def purge(self, *, now_ms: int) -> Purged | None:
        """Settle everything, leased or not, except what is on its way to another queue."""
        state = self.state
        state.advance(now_ms)
        return Purged(state.queue, now_ms) if state.live > state.moves.count else None

    def escalate(  # noqa: PLR0913 - which messages, their new tier, and the entry of the audit trail.
        self,
        messages: Iterable[int],
        tier: int,
        *,
        now_ms: int,
        actor: str,
        reason: str,
        until_ms: int = 0,
        lowers: bool = False,
    ) -> Escalated | None:
        """Move pending messages to a more urgent tier, and with ``until_ms`` back when the time has come.

        With ``lowers`` they go to a less urgent one. What is leased, spent or settled is left out, and so is what is
        not on that side of the tier. One that was escalated to this very tier gets its new end.
        """
        assert 0 <= tier < TIERS
        assert until_ms == 0 or until_ms > now_ms
        self.state.advance(now_ms)
        runs = as_runs(message for message in messages if self._moves_to(message, tier, until_ms, lowers=lowers))
        if not runs:
            return None
        texts = actor[:REASON_CHARACTERS_MAX], reason[:REASON_CHARACTERS_MAX]
        return Escalated(self.state.queue, now_ms, runs[:EVENT_RUNS_MAX], tier, until_ms, *texts)

    def _moves_to(self, message: int, tier: int, until_ms: int, *, lowers: bool) -> bool:
        own = self.pending_tier(message)
        if own < 0 or own == tier:
            escalation = self.state.rows.escalations.get(self.state.slot_of(message & 7, message >> 3))
            return own == tier and escalation is not None and escalation.until_ms != until_ms
        return own < tier if lowers else own > tier

    def pending_tier(self, message: int) -> int:
        """Return the tier that a message waits or rests in; -1 if it does neither."""
        lane, number = message & 7, message >> 3
        if lane >= TIERS:
            return -1
        slot = self.state.slot_of(lane, number)
        if slot:
            return self.state.rows.tier[slot] if self.state.rows.state[slot] in {WAITING, RESTING} else -1
        return self.state.shelf_tier(self.state.lanes[lane], number)

    def change(self, settings: QueueSettings, *, now_ms: int) -> QueueChanged | None:
        """Replace the settings. A queue stays FIFO, or stays standard."""
        if settings.is_fifo != self.state.settings.is_fifo:
            raise BadSettings("is_fifo is chosen when a queue is created, and stays")
        if settings == self.state.settings:
            return None
        return QueueChanged(self.state.queue, now_ms, settings.to_json())

    def pause(self, *, now_ms: int) -> QueueChanged | None:
        """Lease nothing any more. What is out may be acked, released and extended; sends are accepted."""
        return self.change(replace(self.state.settings, is_paused=True), now_ms=now_ms)

    def resume(self, *, now_ms: int) -> QueueChanged | None:
        return self.change(replace(self.state.settings, is_paused=False), now_ms=now_ms)


def _late(state: State, lease: int, token: int, mask: int) -> int:
    """Which messages of a lease have lapsed and wait: the others are about to be buried, or on their way elsewhere."""
    leases = state.leases
    slot = leases.find(lease)
    if slot < 0 or leases.token[slot] != token:
        return 0
    found = 0
    for bit, (lane, number, row) in leases.each(slot, mask & leases.late.get(slot, 0)):
        at = row or state.slot_of(lane, number)
        if not at or state.rows.state[at] == WAITING:
            found |= 1 << bit
    return found


def _number(tiers: bytes, state: State) -> Sequence[int]:
    """The keys of new messages; a range if they are of one tier."""
    count = len(tiers)
    if not count:
        return ()
    tier = tiers[0]
    if tiers.count(tier) == count:
        first = state.lanes[tier].next << 3 | tier
        return range(first, first + 8 * count, 8)
    return keys_of(tiers, [lane.next for lane in state.lanes])


def _answers(fresh: Sequence[int], taken: dict[int, int], count: int) -> list[int]:
    """The key of each draft: its own, or that of the message it repeats."""
    own = iter(fresh)
    answers: list[int] = []
    for row in range(count):
        found = taken.get(row)
        if found is None:
            answers.append(next(own))
        else:
            answers.append(found if found >= 0 else answers[-1 - found])
    return answers


def _sent(
    state: State, drafts: Drafts, tiers: bytes, fresh: Sequence[int], *, now_ms: int, sender: Sender | None
) -> Sent:
    if _is_plain(drafts) and not state.settings.delay_ms:
        return Sent(state.queue, now_ms, tiers, sender)
    visible_at_ms = None
    if drafts.visible_at_ms is not None or state.settings.delay_ms:
        delayed = drafts.visible_at_ms or (0,) * len(drafts)
        default = now_ms + state.settings.delay_ms if state.settings.delay_ms else 0
        visible_at_ms = tuple([delayed[row] or default for row in fresh])
    return Sent(
        state.queue,
        now_ms,
        tiers,
        sender,
        visible_at_ms,
        _column(drafts.groups, fresh),
        _column(drafts.dedup_ids, fresh),
        _column(drafts.deliveries_max, fresh),
    )


def _is_plain(drafts: Drafts) -> bool:
    has_names = drafts.groups is not None or drafts.dedup_ids is not None
    return not has_names and drafts.visible_at_ms is None and drafts.deliveries_max is None


def _column(column: Sequence[_T] | None, fresh: Sequence[int]) -> tuple[_T, ...] | None:
    if column is None:
        return None
    return tuple(column) if len(column) == len(fresh) else tuple([column[row] for row in fresh])
