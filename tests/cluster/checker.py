"""What happened to each message, as its senders and receivers saw it, and what of that a cluster must never do.

A message is known by its body, which no other has. A call is `ok`, or its outcome is unknown: it may be done or not,
now or later. Times are of one clock, so that a call which began after another had ended is later.
"""

from collections import defaultdict
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Received:
    id: str
    began_s: float
    # In the order in which they were received by anybody.
    place: int


@dataclass(slots=True)
class Life:
    """One message."""

    # The group it was sent in, and its place there.
    group: str = ""
    number: int = 0
    is_sent: bool = False
    is_send_unknown: bool = False
    received: list[Received] = field(default_factory=list)
    # When the first call that acked it had its answer; None if none had.
    acked_s: float | None = None


class History:
    def __init__(self) -> None:
        self.lives: dict[bytes, Life] = defaultdict(Life)
        self._places = 0

    def sent(self, body: bytes, *, is_ok: bool, group: str = "", number: int = 0) -> None:
        life = self.lives[body]
        life.group, life.number = group, number
        life.is_sent |= is_ok
        life.is_send_unknown |= not is_ok

    def received(self, body: bytes, message_id: str, began_s: float) -> None:
        self._places += 1
        self.lives[body].received.append(Received(message_id, began_s, self._places))

    def acked(self, body: bytes, ended_s: float) -> None:
        life = self.lives[body]
        life.acked_s = ended_s if life.acked_s is None else min(life.acked_s, ended_s)

    @property
    def acknowledged(self) -> int:
        return sum(life.is_sent for life in self.lives.values())


def faults(history: History) -> list[str]:
    """Return what must not have happened, after every message that was there was received."""
    found: list[str] = []
    for body, life in history.lives.items():
        name, ids = body.decode(), {each.id for each in life.received}
        if life.is_sent and not life.received:
            found.append(f"{name} was lost: its send was acknowledged, and nobody received it")
        if life.received and not (life.is_sent or life.is_send_unknown):
            found.append(f"{name} was invented: nobody sent it")
        if len(ids) > 1:
            found.append(f"{name} was doubled: it was received as {len(ids)} messages")
        if life.acked_s is not None and any(each.began_s > life.acked_s for each in life.received):
            found.append(f"{name} was delivered after its ack was acknowledged")
    return found + _out_of_order(history)


def _out_of_order(history: History) -> list[str]:
    """Within a group messages come in the order in which their sender, one after the other, sent them."""
    groups: dict[str, list[tuple[int, Life]]] = defaultdict(list)
    for life in history.lives.values():
        if life.group and life.received:
            groups[life.group].append((life.received[0].place, life))
    found = []
    for group, lives in groups.items():
        highest = -1
        for _, life in sorted(lives, key=lambda each: each[0]):
            if life.number < highest:
                found.append(f"group {group} is out of order: {life.number} came first after {highest}")
            highest = max(highest, life.number)
    return found
