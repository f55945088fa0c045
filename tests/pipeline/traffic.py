"""A queue under load, and the client's own record of it: what it sent, received and did, without a look at the server.

Three priorities, retries that succeed in the end, three planted kinds of failure that are
buried, and an escalation. When a message was received follows from the end of its lease,
which the server tells to the millisecond.
"""

from collections import Counter
from dataclasses import dataclass, field

from penstock.client import Draft, SyncClient
from penstock.client.sync import SyncMessage

QUEUE = "orders"
VISIBILITY_S = 300
DELIVERIES_MAX = 3
PRIORITIES = ("CRITICAL", "NORMAL", "BACKGROUND")
# Each text differs from message to message and is the same failure: what triage is to find out.
FAILURES = (
    "ConnectionError: 10.0.7.{octet}:5432 does not answer after {n}.5 s",
    "ValueError: order {n} has no customer '{n:x}af'",
    'Traceback (most recent call last):\n  File "/srv/app/{n}/pay.py", line {n}, in charge\nTimeoutError: card {n}',
)


@dataclass
class Record:
    """What the client knows."""

    sent: dict[str, str] = field(default_factory=dict)
    waits_ms: dict[str, int] = field(default_factory=dict)
    deliveries: Counter[str] = field(default_factory=Counter)
    acked: set[str] = field(default_factory=set)
    buried: dict[str, int] = field(default_factory=dict)
    escalated: set[str] = field(default_factory=set)
    served_at: dict[str, str] = field(default_factory=dict)

    def waits_of(self, priority: str) -> list[int]:
        return sorted(wait for message, wait in self.waits_ms.items() if self.served_at[message] == priority)


def begin(client: SyncClient) -> Record:
    """Make the queue, and open an empty record."""
    client.create_queue(
        QUEUE, max_deliveries=DELIVERIES_MAX, history="full", retry={"min_backoff_s": 0, "max_backoff_s": 0}
    )
    return Record()


def go_on(client: SyncClient, record: Record, *, messages: int) -> None:
    """Send so many more, and work on all of them until each is acked or buried."""
    queue, first = client.queue(QUEUE), len(record.sent)
    drafts = [
        Draft(data={"order": n, "lines": [n]}, priority=PRIORITIES[n % 3], attributes={"tenant": f"t{n % 4}", "n": n})
        for n in range(first, first + messages)
    ]
    ids = queue.send_many(drafts)
    record.sent.update({message: str(draft.priority) for message, draft in zip(ids, drafts, strict=True)})
    late = [message for message in ids if record.sent[message] == "BACKGROUND"][-2:]
    record.escalated.update(queue.escalate(late, priority="CRITICAL", actor="anna", reason="the customer called").moved)
    while batch := queue.receive(limit=50, visibility_timeout=VISIBILITY_S):
        for message in batch:
            _work(record, message)


def _work(record: Record, message: SyncMessage) -> None:
    received_ms = round(message.invisible_until.timestamp() * 1_000) - VISIBILITY_S * 1_000
    record.waits_ms.setdefault(message.id, received_ms - round(message.sent_at.timestamp() * 1_000))
    record.deliveries[message.id] += 1
    record.served_at[message.id] = message.priority
    n = message.attributes["n"]
    if n % 10 == 7:
        # Each tenth fails for good, in one of three ways.
        kind = n // 10 % len(FAILURES)
        message.release(FAILURES[kind].format(n=n, octet=n % 250))
        if record.deliveries[message.id] == DELIVERIES_MAX:
            record.buried[message.id] = kind
    elif n % 10 == 3 and record.deliveries[message.id] == 1:
        message.release(f"BusyError: try {n} again")
    else:
        message.ack()
        record.acked.add(message.id)
