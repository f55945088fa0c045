"""What a store of queues promises: the verbs of a queue, in batches, and nothing of how.

Laws for every store
--------------------
1. An answer comes only after what it says is durable; also an answer that wrote
   nothing, such as "already acked".
2. A verb does all of its batch or, where it says so, answers row by row. Nothing
   is half done.
3. No verb waits for messages: that is the broker's business, with the help of
   `watch` and `wakes_at_ms`.
4. Queues are named; an unknown name raises `QueueNotFound`.
5. Messages are named by their ids, which they keep wherever they are moved. A
   text that is no id, and an id of a message that is elsewhere, are unknown: an
   answer, never an error.
6. What is asked for beyond a limit raises `ValueError`, which names the limit.

SQL, files and wire formats stay on their own sides of this line. What the core
raises (`QueueFull`, `BadDraft`, `BadName`, `BadSettings`, `BadSender`,
`SenderFenced`, `SendForgotten`) passes through, and so do `LogFull` and `LogBusy`
of a store that has a log, and `StoreUnreachable` of one that is elsewhere.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol

from penstock.contract.limits import DURATION_MS_MAX, IDS_MAX, PAGE_MAX
from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.events import Tally
from penstock.core.queue.explain import Explanation
from penstock.core.queue.listing import PLACES
from penstock.core.queue.message import Drafts, Receipt, Receipts, Sender
from penstock.store.pages import HistoryPage, HistoryRange, HistorySpan, LivePage


class Outcome(Enum):
    """What became of one receipt, or of one id."""

    DONE = "done"
    # The lease has ended, or the message was settled: the receipt is worth nothing any more.
    STALE = "stale"
    # The message is leased, its deliveries are spent, or it is on its way to another queue.
    NOT_PENDING = "not pending"
    # The message is at that tier already, or would have to go the other way.
    UNCHANGED = "unchanged"
    # No message of this id is in the queue: it is settled, elsewhere, or never was.
    UNKNOWN = "unknown"


class Past(NamedTuple):
    """The life of a moved message before it came to its queue."""

    # The queue it was first sent to: its name, None if that queue is deleted, and its id.
    queue: str | None
    queue_id: str
    sent_at_ms: int
    # In all the queues it was in before.
    deliveries: int


# Not frozen, as events are not: it is made for every lease, and a frozen one takes five times as long.
@dataclass(slots=True)
class Delivery:
    """Messages handed out under one lease, as columns with one row for each; None where no message has any."""

    lease: int
    token: int
    ids: Sequence[str]
    bodies: Sequence[memoryview]
    attributes: Sequence[memoryview] | None
    tiers: bytes
    deliveries: Sequence[int]
    sent_at_ms: Sequence[int]
    groups: Sequence[bytes] | None
    until_ms: int
    # What its last failure said; "" for a message that has not failed.
    errors: Sequence[str] | None = None
    # None for a message that was sent to this very queue.
    pasts: Sequence[Past | None] | None = None
    # When each was first leased in this queue; None if for all of them that is this very lease.
    first_leased_at_ms: Sequence[int] | None = None

    def __len__(self) -> int:
        return len(self.bodies)

    def receipts(self) -> Receipts:
        return Receipts(self.lease, self.token, len(self.bodies))


@dataclass(frozen=True, slots=True)
class Counts:
    """How many messages a queue holds; a tuple has one number for each tier."""

    ready: tuple[int, ...]
    leased: int
    delayed: int
    oldest_sent_at_ms: tuple[int | None, ...]
    # Deliveries are spent, and the dead-letter queue has no room; and since when the first of them is.
    stuck: int = 0
    stuck_since_ms: int | None = None
    # Groups of a standard queue that take more than their share, and how many of their messages are ready and leased.
    noisy_groups: int = 0
    noisy_ready: int = 0
    noisy_leased: int = 0
    # When the message was sent whose lease is the oldest, or one of its lease; None if none is leased.
    leased_sent_at_ms: int | None = None

    @property
    def live(self) -> int:
        return sum(self.ready) + self.leased + self.delayed + self.stuck


class Bound(NamedTuple):
    """What a message may have to wait at the worst: in leased messages, and in ms if they go on at their rate."""

    leases: int
    wait_ms: int | None


@dataclass(frozen=True, slots=True)
class Description:
    """One queue, as it is now."""

    queue: str
    # Of this queue and no other of its name, before or after.
    id: str
    settings: QueueSettings
    # None where a store does not know.
    created_at_ms: int | None
    # Where it buries, by name and by id; None until that queue exists.
    dead_letters: str | None
    dead_letters_id: str | None
    # By tier, for a message sent now, without a group, while the queue is not paused.
    bounds: tuple[Bound, ...]


@dataclass(frozen=True, slots=True)
class Remains:
    """What becomes of the dead letters of a deleted queue."""

    # Their queue; None if there is none.
    dead_letters: str | None
    # How many messages are in it, from whatever queue.
    count: int
    # Whether it is deleted, too.
    is_deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message, as it is now."""

    id: str
    body: memoryview
    # Empty if it has none.
    attributes: memoryview
    # waiting, resting, leased, spent or moving
    place: str
    tier: int
    sent_tier: int
    # When it was sent to this queue, or came to it.
    sent_at_ms: int
    deliveries: int
    # When a resting message wakes.
    visible_at_ms: int | None
    group: bytes
    error: str
    past: Past | None
    is_escalated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageFilter:
    """Messages that fit everything that is given; None fits all. A state or tier that does not exist is a `ValueError`.

    A filter for ``group`` b"" finds messages without a group. ``text`` is anywhere in the body, ``error`` anywhere in
    the last error. ``origin`` is the first queue of a moved message, by name or id.
    """

    # One of `Message.place`.
    place: str | None = None
    tier: int | None = None
    group: bytes | None = None
    text: bytes | None = None
    error: str | None = None
    origin: str | None = None

    def __post_init__(self) -> None:
        if self.place is not None and self.place not in PLACES:
            raise ValueError(f"place is {self.place!r}; it is one of {', '.join(PLACES)}")
        if self.tier is not None and not 0 <= self.tier < TIERS:
            raise ValueError(f"tier is {self.tier}; it must be from 0 to {TIERS - 1}")

    @property
    def is_search(self) -> bool:
        """Return whether messages have to be read to tell which fit."""
        return bool(self.text) or self.error is not None or self.origin is not None

    def fits_story(self, message: Message) -> bool:
        """Return whether the last error and the first queue of a message fit."""
        if self.error is not None and self.error not in message.error:
            return False
        return self.origin is None or (message.past is not None and self.origin in message.past[:2])


EVERY_MESSAGE = MessageFilter()


@dataclass(frozen=True, slots=True)
class Page:
    """Some messages, and what to ask for the following ones with; "" when there are none."""

    messages: list[Message]
    next: str


class Explained(NamedTuple):
    """Why a message has not been delivered yet, or that it was."""

    id: str
    explanation: Explanation
    # Until it is leased; None where nothing is promised: in a group that keeps its order, or on a paused queue.
    bound: Bound | None


def check_most(most: int) -> None:
    if not 1 <= most <= PAGE_MAX:
        raise ValueError(f"most is {most}; it must be from 1 to PAGE_MAX ({PAGE_MAX})")


def check_ids(ids: Sequence[str]) -> None:
    if len(ids) > IDS_MAX:
        raise ValueError(f"{len(ids)} ids; there may be IDS_MAX ({IDS_MAX})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Release:
    """How messages are given back."""

    # How long they rest; None for the queue's backoff.
    delay_ms: int | None = None
    error: str = ""
    # This was their last delivery, and they are buried soon. A queue that never buries releases them like any others.
    is_rejected: bool = False
    # They go back at once, and their delivery does not count.
    is_untouched: bool = False

    def __post_init__(self) -> None:
        if self.delay_ms is not None and not 0 <= self.delay_ms <= DURATION_MS_MAX:
            raise ValueError(f"delay_ms is {self.delay_ms}; it must be from 0 to DURATION_MS_MAX ({DURATION_MS_MAX})")


RELEASE = Release()
UNTOUCHED = Release(is_untouched=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationOrder:
    """Where messages are escalated to, until when, by whom and why."""

    tier: int
    actor: str
    reason: str
    # When they fall back; 0 for never.
    until_ms: int = 0
    # They go to a less urgent tier. Without it, only to a more urgent one.
    lowers: bool = False

    def __post_init__(self) -> None:
        if not 0 <= self.tier < TIERS:
            raise ValueError(f"tier is {self.tier}; it must be from 0 to {TIERS - 1}")


@dataclass(frozen=True, slots=True)
class Escalation:
    """One escalation, as it is read back."""

    at_ms: int
    actor: str
    reason: str
    tier: int
    # When the messages fall back; 0 for never.
    until_ms: int
    ids: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class RedriveOrder:
    """How many dead letters go, which, and where."""

    most: int
    # None for each to the queue that it came from.
    into: str | None = None
    # None for all.
    ids: Sequence[str] | None = None
    is_dry_run: bool = False

    def __post_init__(self) -> None:
        check_most(self.most)
        check_ids(self.ids or ())


@dataclass(frozen=True, slots=True)
class Redrive:
    """What a redrive came to."""

    # The ids of what went back, or in a dry run would, by the name of the queue it goes to.
    moved: Mapping[str, Sequence[str]]
    # The ids of what was asked for and stays, because the queue it came from is gone; no more than were asked for.
    without_origin: Sequence[str]
    # How many dead letters are there still, of whatever origin; in a dry run, would be.
    remaining: int
    # The names of queues that have no room for what would go there.
    full: Sequence[str] = ()


class QueueAdmin(Protocol):
    """Which queues there are, and what is true of each."""

    async def create(self, queue: str, settings: QueueSettings) -> None:
        """Make a queue; again with equal settings changes nothing; with others raises `QueueExists`.

        `contract/names.py` says what it may be called; anything else raises `BadName`.
        A queue whose name ends with ".dead" is for dead letters: it buries only
        where its settings name the queue to bury in.
        """
        ...

    async def change(self, queue: str, settings: QueueSettings) -> None:
        """Replace the settings of a queue."""
        ...

    async def delete(self, queue: str, *, with_dead_letters: bool = False) -> Remains:
        """Remove a queue and every message in it, and say what becomes of its dead letters.

        They are a queue of their own and stay, unless ``with_dead_letters``: then
        that queue goes in the same decision, whatever is in it. If another queue
        buries there, this raises `DeadLettersShared` and removes nothing.
        """
        ...

    async def queues(self, *, prefix: str = "", after: str = "", most: int = PAGE_MAX) -> list[str]:
        """Return the names of queues, sorted: at most ``most`` of those that follow ``after``."""
        ...

    async def describe(self, queue: str) -> Description: ...

    async def summaries(self, queues: Sequence[str]) -> list[tuple[Description, Counts] | None]:
        """Describe and count queues, all at once; None for each that is not there."""
        ...

    async def counts(self, queue: str) -> Counts: ...

    async def name(self, queue_id: str) -> str:
        """Return the name of the queue with this id; whatever is no such id raises `QueueNotFound`."""
        ...

    def tally(self, queue: str) -> Tally | None:
        """Return what this process has counted in a queue, for metrics; None if it has counted nothing."""
        ...

    async def purge(self, queue: str) -> int:
        """Settle every message in the queue, leased or not, and return how many."""
        ...


class MessageStore(Protocol):
    """The life of a message: sent, leased, settled; and when there may be something to lease."""

    def now_ms(self) -> int:
        """Return the time of the store, by which leases lapse and delays end: the clock's, or ahead of it.

        Time in a store never goes back, also when the clock of its machine was set back.
        """
        ...

    def watch(self, wake: Callable[[str], None]) -> None:
        """From now on, call ``wake`` with the name of a queue when an event may have made something in it leasable.

        Also when a queue was made, changed or deleted: a request that waits learns
        that it is resumed, or gone. There may be nothing to lease all the same, and
        the event is not durable yet: a lease that follows at once is made durable
        together with it. The call comes in the middle of another verb, so
        it makes a note and returns; it raises nothing.

        Time alone causes no call: see `wakes_at_ms`. Waiting itself stays the broker's
        business.
        """
        ...

    def watch_full_dead_letters(self, tell: Callable[[str, str], None]) -> None:
        """From now on, call ``tell`` with a queue and its dead-letter queue when that has no room.

        Only when something is to be buried, and once until something could be again. As for `watch`, it makes a note
        and returns.
        """
        ...

    def has_ready(self, queue: str) -> bool:
        """Whether something in a queue may be visible: a hint for waking long polls.

        A store that does not know says yes.
        """
        ...

    async def wakes_at_ms(self, queue: str) -> int | None:
        """Return when, by the clock alone, something may become leasable next; None if nothing ever does.

        A hint as well, and not bound to be durable.

        A lease lapses, a delay ends, or a resting message wakes. The answer may be too
        early, and never too late, until the next wake or the next lease of the queue:
        when that lapses, its `Delivery` says.
        """
        ...

    async def send(self, queue: str, drafts: Drafts, *, sender: Sender | None = None) -> Sequence[str]:
        """Number the drafts and return their ids; a duplicate gets the id of the first.

        A ``sender`` makes repeating harmless: the same sequence again answers as
        the first time and adds nothing.
        """
        ...

    async def lease(self, queue: str, *, want: int, lease_ms: int | None = None) -> Delivery | None:
        """Hand out at most ``want`` visible messages, hidden from others for ``lease_ms`` or the queue's own time.

        Fewer, if their bodies would be more than LEASE_BYTES_MAX. Returns at once, with
        None if nothing is visible.
        """
        ...

    async def ack(self, queue: str, receipts: Sequence[Receipt], *, outlives: bool = False) -> list[Outcome]:
        """Settle messages for good. Acking twice is acking once: the second is stale.

        With ``outlives``, and not on a FIFO queue, a receipt is good until its
        message is leased again, as AWS has it, even if the lease has ended.
        """
        ...

    async def ack_and_lease(
        self, queue: str, receipts: Sequence[Receipt], *, want: int, lease_ms: int | None = None
    ) -> tuple[list[Outcome], Delivery | None]:
        """Ack, then lease, and answer when both are durable: what the acks let go may be among what is leased."""
        ...

    async def release(self, queue: str, receipts: Sequence[Receipt], how: Release = RELEASE) -> list[Outcome]:
        """Give messages back."""
        ...

    async def extend(
        self, queue: str, receipts: Sequence[Receipt], *, lease_ms: int, outlives: bool = False
    ) -> list[Outcome]:
        """Hold messages for ``lease_ms`` from now on; with ``outlives`` until they are leased again or to be buried."""
        ...

    async def tidy(self) -> None:
        """Do all that is due without anyone asking: bury what is spent, let go of what is too old."""
        ...


class Operations(Protocol):
    """What people and operators ask about messages, and decide about them."""

    async def peek(self, queue: str, sought: MessageFilter = EVERY_MESSAGE, *, most: int, after: str = "") -> Page:
        """Return messages that fit a filter: those that wait first, the most urgent tier first. Nothing is leased.

        ``after`` is the `next` of the page before, anything else raises `ValueError`.

        One call looks at a limited number of messages and bodies, so a page may be
        short, even empty, and have a `next`. Messages that change their place between
        two pages may be seen twice or not at all; those that stay are seen once.
        """
        ...

    async def look(self, queue: str, message_id: str) -> Message | None:
        """Return one message, wherever in the queue it is; None if it is not there any more."""
        ...

    async def explain(self, queue: str, message_id: str) -> Explained | None:
        """Say what a message waits for, and for how long at the worst; None if it is not there any more."""
        ...

    async def receipts(self, queue: str, ids: Sequence[str], *, outlives: bool = False) -> list[Receipt | None]:
        """Return a receipt for each message that is leased right now, None for others.

        With ``outlives`` also for one whose lease has lapsed and that was not leased since.

        An ack with one of them acts for another worker: the message may have been leased
        again since.
        """
        ...

    async def cancel(self, queue: str, message_id: str) -> bool:
        """Settle a message that rests, for good; say whether it did. What is due, leased or not there stays."""
        ...

    async def escalate(self, queue: str, ids: Sequence[str], order: EscalationOrder) -> list[Outcome]:
        """Move waiting and resting messages to another tier, and remember who and why.

        Answers DONE, UNCHANGED, NOT_PENDING or UNKNOWN for each id; only what is DONE is in the audit. A message that
        was escalated to this very tier is DONE if it gets another end by this.
        """
        ...

    async def audit(self, queue: str, *, most: int) -> list[Escalation]:
        """Return the last escalations of a queue, the newest first.

        Of a message that was moved to this queue and is settled by now, the id in
        its first queue may be forgotten; it has one of this queue then.
        """
        ...

    async def redrive(self, dead_letters: str, order: RedriveOrder) -> Redrive:
        """Send dead letters back, to be delivered as if new.

        They go in the order of their burial. What is leased stays, and so does what has no room where it would go.
        What was sent to this queue itself is no dead letter. How fast they go is the broker's business, which calls
        with a small `most`.
        """
        ...


class HistoryStore(Protocol):
    """Settled messages, and all that is in a queue, as columns for programs."""

    async def history(self, queue: str, wanted: HistoryRange) -> HistoryPage:
        """Return some rows of settled messages of this queue, and of no earlier queue of its name.

        An offset below what is kept begins where that begins, and `first_kept_offset` tells; beyond the end there
        are no rows, and `next_offset` is the offset that was asked for.

        A row comes about a second after its message is settled, and none before it is
        durable. One call reads a limited amount, so a page may be short, even empty:
        the end is where `next_offset` is `end_offset`.
        """
        ...

    async def live(
        self, queue: str, *, after: str = "", most: int, with_bodies: bool = True, is_told: bool = False
    ) -> LivePage:
        """Return everything that is in a queue, page by page, as columns: for programs that count, not for people.

        ``after`` is the `next` of the page before, anything else raises `ValueError`. A
        page may be short where bodies are large. With ``is_told`` the history is made to
        tell of what is settled so far first, and the page says up to where.
        """
        ...

    async def history_shards(self) -> list[HistorySpan]:
        """Return what is kept of the history of each shard: queues that share a shard share its history."""
        ...

    async def shard_history(self, shard: int, wanted: HistoryRange) -> HistoryPage:
        """Return rows as `history` does, of all queues of a shard, deleted ones too. Raises `ShardNotFound`."""
        ...

    async def history_offset_at(self, shard: int, at_ms: int) -> int:
        """Return an offset with every row settled at ``at_ms`` or later at or above it; it may be early."""
        ...

    async def history_offset_after(self, shard: int, from_offset: int, *, rows: int) -> int:
        """Return where about so many rows, of whatever queue, end; never beyond the end, and not where it began
        unless that is the end. For readers that divide a history into parts."""
        ...

    async def trim_history(self, shard: int, *, before: int) -> int:
        """Let go of what was read and kept elsewhere: of whole segments in which every row is below an offset.

        Returns what is kept from now on, which may be as much as before. An offset
        beyond the end raises `NotWrittenYet`, and nothing goes.
        """
        ...


class QueueStore(QueueAdmin, MessageStore, Operations, HistoryStore, Protocol):
    """Everything a store does. It is also the `placement.Placement` of all queues, where it is the only store."""

    @property
    def only(self) -> "QueueStore": ...

    @property
    def needs_tasks(self) -> bool:
        """Whether its verbs are to be made in tasks, and not by `runtime.coroutines.drive`."""
        ...

    def of(self, queue: str) -> "QueueStore": ...

    def of_shard(self, shard: int) -> HistoryStore:
        """Return this store, if it has the shard. Raises `ShardNotFound`."""
        ...


# A redrive that was not heard of for so long has lost its server, and another one takes it over.
LOST_MS = 30_000


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRedrive:
    """A redrive that is kept where its queue is, so that every server of a database knows of it.

    Order and progress are texts that the broker writes and reads. One server runs a redrive at a time, its *runner*,
    known by a random number. It is heard of every second.
    """

    id: str
    queue: str
    order: str
    state: str
    progress: str
    started_at_ms: int
    ended_at_ms: int | None = None
    is_to_stop: bool = False


class KeptRedrives(Protocol):
    """Every verb may raise `StoreUnreachable` or `StoreForbids`, and may be made again then."""

    async def begin(self, redrive: KeptRedrive, *, runner: int) -> bool:
        """Keep a new one, and return whether there is room for it: as many run as may."""
        ...

    async def note(self, redrive: KeptRedrive, *, runner: int, now_ms: int) -> bool | None:
        """Note how far it is, and return whether it is to stop; None if it is not this runner's any more."""
        ...

    async def hold(self, *, runner: int, now_ms: int, takes_over: bool) -> list[KeptRedrive]:
        """Be heard, and return what this runner runs: with what it takes over just now, if it does that.

        What is kept in a store that does not answer is left out.
        """
        ...

    async def let_go(self, *, runner: int) -> None:
        """Leave all that this runner runs to others, who need not wait until it is lost."""
        ...

    async def stop(self, queue: str, task_id: str, *, state: str, now_ms: int) -> None:
        """Tell its runner to stop. Without a runner it ends at once, in ``state``."""
        ...

    async def of(self, queue: str) -> list[KeptRedrive]:
        """Return those of a queue, the newest first."""
        ...

    async def find(self, queue: str, task_id: str) -> KeptRedrive | None: ...
