"""One request: its caller, its queue, the names of queues in URLs and ARNs, and the rules of a batch.

    http://127.0.0.1:8080/000000000000/orders        arn:aws:sqs:us-east-1:000000000000:orders

A URL is built from the `Host` of the request, so that it leads back to this server under any name.
Of a URL that a client sends, only the path is read: another name of the same server may stand in it.

AWS may take a minute to show a change of a queue everywhere. Here a change through SQS is seen at
once, and a change through another API within a second: the settings of a queue are cached that long,
so that a send or a receive asks the store once, not twice.
"""

import re
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import unquote, urlsplit

from penstock.api.front import ClientPresence
from penstock.api.sqs.errors import (
    BATCH_ENTRY_IDS_NOT_DISTINCT,
    EMPTY_BATCH_REQUEST,
    INVALID_ADDRESS,
    INVALID_BATCH_ENTRY_ID,
    TOO_MANY_ENTRIES,
    Refused,
    invalid,
    missing,
    no_queue,
)
from penstock.api.sqs.receipt_handles import queue_number
from penstock.api.sqs.shapes import BatchResultErrorEntry, Message
from penstock.api.sqs.signature import Credentials
from penstock.broker.access import Access, Caller, Role
from penstock.broker.queues import Queues
from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Receipts
from penstock.store.interface import Description

KNOWN_MS = 1_000
KNOWN_MAX = 1_000
RECENT_MAX = 10_000
_ID = re.compile(r"[!-~]{1,128}")
ENTRIES_MAX = 10
_BATCH_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
# Other emulators and old clients write `queue` in the place of the account.
_ANY_ACCOUNT = "queue"
_HOST = re.compile(r"[A-Za-z0-9._\[\]:-]{1,300}")
_PATH = re.compile(r"/([0-9]{12}|queue)/([^/]+)/?")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}(\.fifo)?")
_ARN = re.compile(r"arn:([a-z-]+):sqs:([a-z0-9-]*):([0-9]{12}):([^:/]+)")


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


REMEMBERED_MS = 5 * 60 * 1_000
REMEMBERED_BYTES_MAX = 16 * 1_024 * 1_024


class Answered(NamedTuple):
    receipts: Receipts
    messages: list[Message]
    size_bytes: int
    at_ms: int


class Attempts:
    """Answers to receives by queue and `ReceiveRequestAttemptId`, the oldest first.

    They are remembered in this process only, and within a limit. After a restart the messages of a lost answer
    return when their visibility timeout ends.
    """

    __slots__ = ("answers", "size_bytes")

    def __init__(self) -> None:
        self.answers: OrderedDict[tuple[int, str], Answered] = OrderedDict()
        self.size_bytes = 0

    def forget(self, key: tuple[int, str]) -> None:
        known = self.answers.pop(key, None)
        if known is not None:
            self.size_bytes -= known.size_bytes

    def remember(self, key: tuple[int, str], answered: Answered) -> None:
        self.forget(key)
        self.answers[key] = answered
        self.size_bytes += answered.size_bytes
        oldest = next(iter(self.answers))
        while self.size_bytes > REMEMBERED_BYTES_MAX or self.answers[oldest].at_ms + REMEMBERED_MS <= answered.at_ms:
            self.forget(oldest)
            if not self.answers:
                return
            oldest = next(iter(self.answers))


@dataclass(frozen=True, slots=True)
class Account:
    """Whose queues these are, as far as names go."""

    id: str = "000000000000"
    region: str = "us-east-1"

    def arn(self, queue: str) -> str:
        return f"arn:aws:sqs:{self.region}:{self.id}:{queue}"

    def queue_of_arn(self, arn: str) -> str | None:
        """Return the name of the queue with this ARN, None if none of ours has it.

        >>> Account().queue_of_arn("arn:aws:sqs:us-east-1:000000000000:orders")
        'orders'
        """
        found = _ARN.fullmatch(arn)
        return found[4] if found and (found[2], found[3]) == (self.region, self.id) else None

    def url(self, front: str, queue: str) -> str:
        return f"{front}/{self.id}/{queue}"

    def queue_of_url(self, url: str) -> str:
        """Return the name of the queue with this URL, path or name; another account has no queues here."""
        if _NAME.fullmatch(url):
            # AWS wants a URL, and takes a name.
            return url
        try:
            path = urlsplit(url).path
        except ValueError:
            path = ""
        found = _PATH.fullmatch(path)
        if found is None:
            raise Refused(INVALID_ADDRESS, f"The address {url[:200]} is not valid for this endpoint.")
        if found[1] not in {self.id, _ANY_ACCOUNT}:
            raise no_queue()
        return unquote(found[2])


@dataclass(frozen=True, slots=True)
class CachedQueue:
    """A queue as it was at most a second ago."""

    name: str
    # In its id, and of no other queue.
    number: int
    settings: QueueSettings
    seen_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """What every request is served with."""

    queues: Queues
    access: Access
    account: Account
    # None: as long as the server has no keys, it accepts every request.
    credentials: Credentials | None = None
    request_bytes_max: int
    is_behind_proxy: bool = False
    # Whether a name is free, and a queue purged again, only after a minute.
    has_cooldowns: bool = False
    known: OrderedDict[str, CachedQueue] = field(default_factory=OrderedDict)
    attempts: Attempts = field(default_factory=Attempts)
    deletions: Recent = field(default_factory=lambda: Recent(60_000))

    async def queue(self, name: str) -> CachedQueue:
        """Return what a queue is like; raises `QueueNotFound`."""
        now_ms = self.queues.now_ms()
        found = self.known.get(name)
        if found is not None and now_ms < found.seen_at_ms + KNOWN_MS:
            return found
        self.known.pop(name, None)
        description = await self.queues.placement.of(name).describe(name)
        found = self.known[name] = CachedQueue(name, queue_number(description.id), description.settings, now_ms)
        if len(self.known) > KNOWN_MAX:
            self.known.popitem(last=False)
        return found

    def forget(self, name: str) -> None:
        self.known.pop(name, None)


class Request:
    """One request: its caller, the start of the URLs of its queues, and whether its client is still connected."""

    __slots__ = ("service", "caller", "role", "front", "trace", "_presence")

    def __init__(
        self, service: Service, caller: Caller, role: Role, *, front: str, presence: ClientPresence, trace: str = ""
    ) -> None:
        self.service = service
        self.caller = caller
        # What the action needs on the queues that it is about.
        self.role = role
        self.front = front
        # The trace header of messages that have none of their own.
        self.trace = trace
        self._presence = presence

    @property
    def queues(self) -> Queues:
        return self.service.queues

    @property
    def account(self) -> Account:
        return self.service.account

    @property
    def presence(self) -> ClientPresence:
        return self._presence

    async def did(self, action: str, queue: str, *, detail: str = "") -> None:
        """Record the action in the audit log, before the answer."""
        await self.queues.activity.record(self.caller, action, queue, via="sqs", detail=detail)

    def name(self, queue_url: str) -> str:
        """Return the name of the queue that a call is about, if its caller may do this to it."""
        if not queue_url:
            raise missing("QueueUrl")
        name = self.account.queue_of_url(queue_url)
        self.caller.check(self.role, name)
        return name

    async def queue(self, queue_url: str) -> CachedQueue:
        """Return the queue that a call is about. Raises `QueueNotFound`."""
        return await self.service.queue(self.name(queue_url))

    async def describe(self, queue_url: str) -> Description:
        """Return the queue that a call is about as it is at this moment."""
        return await self.queues.placement.of(self.name(queue_url)).describe(self.name(queue_url))

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


def is_queue_path(path: str) -> bool:
    """Whether a path is that of a queue.

    >>> [is_queue_path(path) for path in ("/000000000000/orders", "/queue/orders", "/api/queues", "/")]
    [True, True, False, False]
    """
    return _PATH.fullmatch(path) is not None


def front_of(scheme: str, host: str) -> str:
    """Return what the URLs of a client's queues begin with; a `Host` that is no name of a host is not repeated.

    >>> front_of("http", "127.0.0.1:8080"), front_of("https", 'x"><script>')
    ('http://127.0.0.1:8080', 'https://localhost')
    """
    return f"{scheme}://{host}" if _HOST.fullmatch(host) else f"{scheme}://localhost"


class BatchEntry(Protocol):
    id: str


def check_batch(entries: Sequence[BatchEntry], kind: str) -> None:
    """Refuse a whole batch; ``kind`` is what an entry of it is called."""
    if not entries:
        raise Refused(EMPTY_BATCH_REQUEST, f"There should be at least one {kind} in the request.")
    if len(entries) > ENTRIES_MAX:
        raise Refused(
            TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    seen: set[str] = set()
    for entry in entries:
        if not _BATCH_ID.fullmatch(entry.id):
            raise Refused(
                INVALID_BATCH_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if entry.id in seen:
            raise Refused(BATCH_ENTRY_IDS_NOT_DISTINCT, f"Id {entry.id} repeated.")
        seen.add(entry.id)


def failed_entry(entry: BatchEntry, refused: Refused) -> BatchResultErrorEntry:
    return BatchResultErrorEntry(
        id=entry.id, sender_fault=refused.kind.is_sender, code=refused.kind.code, message=refused.message
    )
