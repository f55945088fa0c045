"""Sending twice is sending once: by the ids of messages, and by senders that number their sends.

In the scope `live` an id is free again when its message is settled. In the
scopes `window` and `content` it is free a fixed time after the first send,
whatever became of the message: that is what a sender that lost an answer needs.

A sender has an id, an epoch and, for each send, a sequence. The first send of a
sequence is remembered with the messages it made; the same sequence again answers
with them and adds nothing.

Rules of senders
----------------
- **Sequences may have gaps** and may arrive in any order: a client with several
  requests on their way, or a task that numbers by partition, is no error. A
  sequence is a key, not a counter.
- A queue remembers the highest sequences of a sender, up to a limit. One at or below the
  highest that was forgotten cannot be told from a repeat, so it is refused
  (`SendForgotten`), never accepted twice.
- A higher epoch forgets the sends of the lower one; a lower epoch is fenced
  (`SenderFenced`): its process has been replaced.
- A sender is forgotten after days without a send. When there are too many senders,
  the one that has been silent for longest is forgotten.
"""

from array import array
from collections import deque
from collections.abc import Sequence

from penstock.contract.limits import (
    SENDER_EPOCH_MAX,
    SENDER_ID_MAX,
    SENDER_MS,
    SENDER_SENDS_MAX,
    SENDER_SEQUENCE_MAX,
    SENDERS_MAX,
    TURN_ROWS,
)
from penstock.core.queue.message import Sender
from penstock.core.queue.timer_wheel import NEVER


class Dedup:
    """Ids and the message each one stands for, as the key of its lane and number."""

    __slots__ = ("live", "window", "order")

    def __init__(self) -> None:
        self.live: dict[bytes, int] = {}
        self.window: dict[bytes, tuple[int, int]] = {}
        # In the order of forgetting, as long as the window is not changed.
        self.order: deque[tuple[int, bytes]] = deque()

    def __len__(self) -> int:
        return len(self.live) + len(self.window)

    def taken(self, names: Sequence[bytes], now_ms: int) -> dict[int, int]:
        """The rows whose ids are taken, each with the message it repeats, or with -1 - row of an earlier row."""
        live, window = self.live, self.window
        taken: dict[int, int] = {}
        here: dict[bytes, int] = {}
        for row, name in enumerate(names):
            if not name:
                continue
            if name in live:
                taken[row] = live[name]
            elif name in window and window[name][1] > now_ms:
                taken[row] = window[name][0]
            elif name in here:
                taken[row] = -1 - here[name]
            else:
                here[name] = row
        return taken

    def remember(self, name: bytes, message: int, until_ms: int) -> None:
        """Take an id for a while."""
        self.window[name] = (message, until_ms)
        self.order.append((until_ms, name))

    def forget(self, now_ms: int) -> None:
        """Forget some of the ids whose time has come. The others are free as well, and go the next time."""
        order = self.order
        for _ in range(TURN_ROWS):
            if self.next_ms() > now_ms:
                return
            until_ms, name = order.popleft()
            remembered = self.window.get(name)
            # An id may have been taken again since.
            if remembered is not None and remembered[1] <= until_ms:
                del self.window[name]

    def next_ms(self) -> int:
        return self.order[0][0] if self.order else NEVER


class BadSender(ValueError):
    """A number of a sender is out of bounds; the message names it and its limit."""


class SenderFenced(Exception):
    """A newer process has taken over this sender's id."""


class SendForgotten(Exception):
    """This sequence was used too long ago to say what came of it."""


class Remembered:
    """What is known of one sender."""

    __slots__ = ("epoch", "seen_at_ms", "floor", "sends")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.seen_at_ms = 0
        # No sequence up to this one is known any more.
        self.floor = -1
        # The messages of each sequence, as runs of keys: the first of each run, and how many.
        self.sends: dict[int, array[int]] = {}


class Senders:
    __slots__ = ("known",)

    def __init__(self) -> None:
        # The longest unheard of first.
        self.known: dict[int, Remembered] = {}

    def __len__(self) -> int:
        return len(self.known)

    def find(self, sender: Sender) -> Sequence[int] | None:
        """The messages of this very send, if it was made before."""
        _check(sender)
        known = self.known.get(sender.id)
        if known is None or sender.epoch > known.epoch:
            return None
        if sender.epoch < known.epoch:
            raise SenderFenced(f"sender {sender.id} is at epoch {known.epoch}, not {sender.epoch}")
        found = known.sends.get(sender.sequence)
        if found is None and sender.sequence <= known.floor:
            raise SendForgotten(f"sequence {sender.sequence} of sender {sender.id} is no longer remembered")
        return None if found is None else _messages(found)

    def remember(self, sender: Sender, messages: Sequence[int], now_ms: int) -> None:
        known = self.known.pop(sender.id, None)
        if known is None or known.epoch < sender.epoch:
            known = Remembered(sender.epoch)
        known.seen_at_ms = now_ms
        known.sends[sender.sequence] = _runs(messages)
        if len(known.sends) > SENDER_SENDS_MAX:
            known.floor = min(known.sends)
            del known.sends[known.floor]
        self.known[sender.id] = known
        if len(self.known) > SENDERS_MAX:
            del self.known[next(iter(self.known))]

    def forget(self, now_ms: int) -> None:
        """Forget the senders that have been silent for long."""
        while self.next_ms() <= now_ms:
            del self.known[next(iter(self.known))]

    def next_ms(self) -> int:
        for known in self.known.values():
            return known.seen_at_ms + SENDER_MS
        return NEVER


def _check(sender: Sender) -> None:
    if not 0 <= sender.id <= SENDER_ID_MAX:
        raise BadSender(f"id of the sender is {sender.id}; it is between 0 and SENDER_ID_MAX ({SENDER_ID_MAX})")
    if not 0 <= sender.epoch <= SENDER_EPOCH_MAX:
        raise BadSender(f"epoch is {sender.epoch}; it is between 0 and SENDER_EPOCH_MAX ({SENDER_EPOCH_MAX})")
    if not 0 <= sender.sequence <= SENDER_SEQUENCE_MAX:
        raise BadSender(
            f"sequence is {sender.sequence}; it is between 0 and SENDER_SEQUENCE_MAX ({SENDER_SEQUENCE_MAX})"
        )


def _runs(messages: Sequence[int]) -> "array[int]":
    """Keys as runs: numbers of one lane that follow each other are 8 apart.

    >>> _runs([16, 24, 32, 17, 25]).tolist()
    [16, 3, 17, 2]
    """
    if messages and list(messages) == list(range(messages[0], messages[-1] + 1, 8)):
        # The way of most sends: one run.
        return array("Q", (messages[0], len(messages)))
    runs = array("Q")
    for message in messages:
        if runs and runs[-2] + 8 * runs[-1] == message:
            runs[-1] += 1
        else:
            runs.extend((message, 1))
    return runs


def _messages(runs: "array[int]") -> list[int]:
    pairs = iter(runs)
    return [key for first, count in zip(pairs, pairs, strict=True) for key in range(first, first + 8 * count, 8)]
