"""One call on its way: who serves it, what queue it is about, and what is remembered between calls.

AWS lets a change of a queue take a minute to be seen everywhere. Here it is seen at once
if it came through SQS, and within a second if it came another way: what a queue is like
is remembered that long, so that a send or a receive asks the store once, not twice.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass, field

from penstock.api.front import Departure
from penstock.api.sqs.attempts import Attempts
from penstock.api.sqs.errors import invalid, missing
from penstock.api.sqs.receipts import queue_number
from penstock.api.sqs.signature import Credentials
from penstock.api.sqs.urls import Account
from penstock.broker.access import Access, Caller, Role
from penstock.broker.queues import Queues
from penstock.contract.queue_settings import QueueSettings
from penstock.store.interface import Description

KNOWN_MS = 1_000
KNOWN_MAX = 1_000
RECENT_MAX = 10_000
_ID = re.compile(r"[!-~]{1,128}")


class Recent:
    """What happened within a certain time, by name; only as long as the server runs."""

    __slots__ = ("_at_ms", "_within_ms")

    def __init__(self, within_ms: int) -> None:
        self._within_ms = within_ms
        self._at_ms: OrderedDict[str, int] = OrderedDict()

    def has(self, name: str, now_ms: int) -> bool:
        at_ms = self._at_ms.get(name)
        return at_ms is not None and now_ms < at_ms + self._within_ms

    def note(self, name: str, now_ms: int) -> None:
        self._at_ms.pop(name, None)
        self._at_ms[name] = now_ms
        oldest = next(iter(self._at_ms))
        while len(self._at_ms) > RECENT_MAX or now_ms >= self._at_ms[oldest] + self._within_ms:
            del self._at_ms[oldest]
            oldest = next(iter(self._at_ms))


@dataclass(frozen=True, slots=True)
class Known:
    """A queue as it was a moment ago."""

    name: str
    # In its id, and of no other queue.
    number: int
    settings: QueueSettings
    seen_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What every call is served with."""

    queues: Queues
    access: Access
    account: Account
    # None lets in whoever reaches the server, as long as it has no keys.
    credentials: Credentials | None = None
    request_bytes_max: int
    is_behind_proxy: bool = False
    # Whether a name is free, and a queue purged again, only after a minute.
    waits: bool = False
    known: OrderedDict[str, Known] = field(default_factory=OrderedDict)
    attempts: Attempts = field(default_factory=Attempts)
    deletions: Recent = field(default_factory=lambda: Recent(60_000))

    async def queue(self, name: str) -> Known:
        """Return what a queue is like; raises `QueueNotFound`."""
        now_ms = self.queues.now_ms()
        found = self.known.get(name)
        if found is not None and now_ms < found.seen_at_ms + KNOWN_MS:
            return found
        self.known.pop(name, None)
        description = await self.queues.store.describe(name)
        found = self.known[name] = Known(name, queue_number(description.id), description.settings, now_ms)
        if len(self.known) > KNOWN_MAX:
            self.known.popitem(last=False)
        return found

    def forget(self, name: str) -> None:
        self.known.pop(name, None)


class Call:
    """One request: what stands before the URLs of its client's queues, and whether that client is still there."""

    __slots__ = ("service", "caller", "role", "front", "trace", "_absence")

    def __init__(
        self, service: Service, caller: Caller, role: Role, *, front: str, absence: Departure, trace: str = ""
    ) -> None:
        self.service = service
        self.caller = caller
        # What the action needs on the queues that it is about.
        self.role = role
        self.front = front
        # The trace header of messages that have none of their own.
        self.trace = trace
        self._absence = absence

    @property
    def queues(self) -> Queues:
        return self.service.queues

    @property
    def account(self) -> Account:
        return self.service.account

    @property
    def absence(self) -> Departure:
        return self._absence

    async def did(self, action: str, queue: str, *, detail: str = "") -> None:
        """Write down what was done, before it is answered."""
        await self.queues.activity.record(self.caller, action, queue, via="sqs", detail=detail)

    def name(self, queue_url: str) -> str:
        """Return the name of the queue that a call is about, if its caller may do this to it."""
        if not queue_url:
            raise missing("QueueUrl")
        name = self.account.queue_of_url(queue_url)
        self.caller.check(self.role, name)
        return name

    async def queue(self, queue_url: str) -> Known:
        """Return the queue that a call is about. Raises `QueueNotFound`."""
        return await self.service.queue(self.name(queue_url))

    async def describe(self, queue_url: str) -> Description:
        """Return the queue that a call is about as it is at this moment."""
        return await self.queues.store.describe(self.name(queue_url))

    def url(self, queue: str) -> str:
        return self.account.url(self.front, queue)

    def arn(self, queue: str) -> str:
        return self.account.arn(queue)


def check_name(parameter: str, name: str) -> None:
    """Refuse an id that is empty or long, or has more than letters, digits and punctuation."""
    if not _ID.fullmatch(name):
        reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise invalid(parameter, name, reason)


def check_between(parameter: str, value: int | None, least: int, most: int, *, reason: str = "") -> int | None:
    """Return a number that is within its bounds, or was not said."""
    if value is not None and not least <= value <= most:
        raise invalid(parameter, value, reason or f"Must be between {least} and {most}, if provided.")
    return value
