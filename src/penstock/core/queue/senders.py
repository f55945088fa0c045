"""Senders that may repeat themselves: what each has sent, so that a retry is harmless.

A sender has an id, an epoch and, for each send, a sequence. The first send of a
sequence is remembered with the messages it made; the same sequence again answers
with them and adds nothing.

Decided here:
- **Sequences need not be without gaps**, nor arrive in order: a client with several
  requests on their way, or a task that numbers by partition, is no error. A
  sequence is a key, not a counter.
- Of a sender the highest so many sequences are remembered. One at or below the
  highest that was forgotten cannot be told from a repeat, so it is refused
  (`SendForgotten`), never accepted twice.
- A higher epoch starts anew; a lower one is fenced (`SenderFenced`): its process
  has been replaced.
- A sender unheard of for days is forgotten, and so is the longest unheard of when
  there are too many.
"""

from array import array
from collections.abc import Sequence

from penstock.contract.limits import (
    SENDER_EPOCH_MAX,
    SENDER_ID_MAX,
    SENDER_MS,
    SENDER_SENDS_MAX,
    SENDER_SEQUENCE_MAX,
    SENDERS_MAX,
)
from penstock.core.queue.message import Sender
from penstock.core.queue.timer_wheel import NEVER


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
