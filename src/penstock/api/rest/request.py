"""One request: its operation, its caller, its body and query, and the words of JSON that all operations share.

An `Operation` is a row of the table that the routes and the OpenAPI document are both
made from: its types decode the request, so the document cannot differ from the server.

- Bodies are JSON or MessagePack, chosen by `Content-Type` and `Accept`; the types are the same in both.
- Times are seconds and RFC 3339 outside, whole milliseconds inside.
- A cursor of a list holds the last name of the page before, which its caller has already seen.
  A forged cursor is harmless: it says where to begin, and the caller sees no more than it may.
"""

from base64 import b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from penstock.api import front
from penstock.api.front import ClientPresence, Receive, Scope, TooLong, has_more_in_json, has_more_in_msgpack
from penstock.api.rest.errors import Refused, bad_field
from penstock.broker.access import Access, Caller, KeyUnknown, Role, key_id_of
from penstock.broker.consumer_groups import Groups
from penstock.broker.queues import Queues
from penstock.broker.sessions import Sessions
from penstock.broker.topics import Topics
from penstock.contract.limits import BODY_VALUES_MAX, DURATION_MS_MAX, LEASE_MS_MAX, MIB
from penstock.streams.interface import Brokers
from penstock.wire.frames import FRAME_TYPE


class Answer(NamedTuple):
    """What goes back: a value to be encoded, or bytes with a content type."""

    value: object
    status: int = 200
    headers: tuple[tuple[bytes, bytes], ...] = ()
    content_type: bytes | None = None


@dataclass(frozen=True, slots=True)
class Streams:
    """Topics and groups, and where Kafka clients find them as HOST:PORT."""

    topics: Topics
    groups: Groups
    kafka: str | None = None
    # The other servers, where there may be some.
    brokers: Brokers | None = None


@dataclass(frozen=True, slots=True)
class Service:
    """What every request is served with."""

    queues: Queues
    access: Access
    request_bytes_max: int
    # None on a server that keeps no topics.
    streams: Streams | None = None
    # Logins of browsers; None where there is no console.
    sessions: Sessions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    role: Role
    # What it is called in the OpenAPI document, and by the SDKs that are made from it.
    name: str
    summary: str
    run: "Callable[[Request], Awaitable[Answer]]"
    # The types of the query and of the body; None where there is none.
    query: type[msgspec.Struct] | None = None
    body: Any = None
    # By status: the type of the answer; None for one without a body.
    answers: dict[int, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    tag: str = "queues"


class Request:
    """One request. Its query and body are read on demand."""

    __slots__ = (
        "service",
        "queues",
        "scope",
        "headers",
        "caller",
        "via",
        "form",
        "messages",
        "_receive",
        "_parameters",
    )

    def __init__(self, service: Service, scope: Scope, receive: Receive, parameters: dict[str, str]) -> None:
        self.service = service
        self.queues = service.queues
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        self.via = "rest"
        shown = self.headers.get(b"authorization")
        try:
            self.caller: Caller = self._signed_in(shown) or service.access.authenticate(
                None if shown is None else shown.decode("latin-1")
            )
        except KeyUnknown:
            said = key_id_of((shown or b"").decode("latin-1"))
            service.queues.activity.failed_login(via="rest", said=said, source=front.source_of(scope))
            raise
        if self.caller.rate is not None:
            service.access.admit(self.caller)
        self.form = wanted_format(self.headers.get(b"accept"))
        # How many messages it is about, where that is known: they count one by one if it is refused.
        self.messages = 1
        self._receive = receive
        self._parameters = parameters

    def _signed_in(self, shown: bytes | None) -> Caller | None:
        """Return who has logged in with the browser that asks; None if none has, or a key is shown."""
        if shown is not None or b"cookie" not in self.headers or self.service.sessions is None:
            return None
        caller = self.service.sessions.caller_of(self.headers)
        if caller is not None:
            self.via = "console"
        return caller

    def parameter(self, name: str) -> str:
        return self._parameters[name]

    async def queue(self, role: Role) -> str:
        """Return the name of the queue in the path, if the caller has this role on it."""
        return await self.service.queues.allowed(self.caller, role, self._parameters["queue"])

    @property
    def streams(self) -> Streams:
        if self.service.streams is None:
            raise Refused("topics_disabled", "this server keeps no topics: it was not started with `kafka`")
        return self.service.streams

    def topic(self, role: Role) -> str:
        """Return the name of the topic in the path, if the caller has this role on it."""
        return self._named("topic", role)

    def group(self, role: Role) -> str:
        """Return the name of the consumer group in the path, if the caller has this role on it."""
        return self._named("group", role)

    def _named(self, parameter: str, role: Role) -> str:
        name = self._parameters[parameter]
        self.caller.check(role, name)
        return name

    async def did(self, action: str, target: str, *, label: str = "", detail: str = "") -> None:
        """Record the action in the audit log, before the answer."""
        await self.queues.activity.record(self.caller, action, target, via=self.via, label=label, detail=detail)

    def query(self, kind: type[msgspec.Struct]) -> Any:
        return read_query(self.scope["query_string"], kind)

    async def body(self, decoder: "Decoder", *, may_be_empty: bool = False) -> Any:
        """Read and decode the body, JSON or MessagePack."""
        raw = await self.bytes()
        if not raw and may_be_empty:
            raw = b"{}"
            return decoder.decode(raw, Format.JSON)
        return decoder.decode(raw, sent_format(self.headers.get(b"content-type")))

    async def bytes(self) -> bytes:
        """Return the whole body; what is too large is refused before it is read, or as soon as it shows."""
        bytes_max = self.service.request_bytes_max
        if self.headers.get(b"content-encoding", b"identity") != b"identity":
            # What is small on the way could be huge here.
            name = self.headers[b"content-encoding"][:100].decode("latin-1")
            detail = f"Content-Encoding is {name!r}; bodies are taken as they are, not compressed"
            raise Refused("unsupported_media_type", detail, field="Content-Encoding")
        length = int(self.headers.get(b"content-length", 0))
        if length > bytes_max:
            raise _too_large(length, bytes_max)
        try:
            body = await front.read_body(self._receive, bytes_max)
        except TooLong as error:
            raise _too_large(error.size_bytes, bytes_max) from None
        if self.caller.rate is not None:
            self.service.access.charge(self.caller, len(body))
        return body

    def presence(self) -> ClientPresence:
        return ClientPresence(self.scope, self._receive, partial(self.service.access.watch, self.caller))


def _too_large(size: int, bytes_max: int) -> Refused:
    return Refused("body_too_large", f"a body of {size} bytes or more; the limit is {bytes_max}", limit=bytes_max)


# Pollers send the same query again and again. The cached value is shared, and no one changes it.
@lru_cache(maxsize=1_024)
def read_query(query: bytes, kind: type[msgspec.Struct]) -> Any:
    """Read the query into a type; a name that is not known, or there twice, is refused."""
    try:
        pairs = parse_qsl(query.decode("ascii"), keep_blank_values=True, max_num_fields=50, errors="strict")
    except ValueError as error:
        raise Refused("bad_request", f"the query cannot be read: {error}") from None
    values: dict[str, str] = {}
    for name, value in pairs:
        if name in values:
            raise bad_field(f"{name[:100]!r} is given twice", name[:100])
        values[name] = value
    return msgspec.convert(values, kind, strict=False)


ARROW_TYPE = "application/vnd.apache.arrow.stream"
# Record batches of a topic, one after the other, as they are stored: Kafka's of version 2.
BATCHES_TYPE = "application/vnd.penstock.record-batches"


class Format(Enum):
    JSON = "application/json"
    MSGPACK = "application/msgpack"
    FRAME = FRAME_TYPE
    ARROW = ARROW_TYPE
    BATCHES = BATCHES_TYPE


_encode_json = msgspec.json.Encoder().encode
_encode_msgpack = msgspec.msgpack.Encoder().encode
# What such a body can hold in JSON is decoded in a tenth of a second or so. In MessagePack a value may be one byte.
_UNCOUNTED_BYTES = MIB
_NAMES = {form.value: form for form in Format}
# Names that are in use for the same thing.
_NAMES |= dict.fromkeys(("application/x-msgpack", "application/vnd.msgpack"), Format.MSGPACK)


# Clients say the same again and again.
@lru_cache(maxsize=256)
def sent_format(content_type: bytes | None, *, has_body: bool = True) -> Format:
    """Return the format of a request's body.

    A body has to say that it is JSON: a page in a browser cannot say so without being
    asked, and thus cannot send messages to a server on its visitor's machine.
    """
    if content_type is None:
        if not has_body:
            return Format.JSON
        raise Refused("unsupported_media_type", "the body has no Content-Type; add: Content-Type: application/json")
    name = content_type.split(b";", 1)[0].strip().lower().decode("latin-1")
    form = _NAMES.get(name)
    if form is not None and form is not Format.ARROW:
        return form
    raise Refused(
        "unsupported_media_type",
        f"Content-Type is {name[:100]!r}; this API takes application/json and application/msgpack",
        field="Content-Type",
    )


@lru_cache(maxsize=256)
def wanted_format(accept: bytes | None) -> Format:
    """Return the first format we speak that a client accepts; JSON if it does not say."""
    if accept in {None, b"*/*", b"application/json"}:
        return Format.JSON
    assert accept is not None
    text = accept.decode("latin-1").lower()
    for part in text.split(","):
        name = part.split(";", 1)[0].strip()
        if name in _NAMES:
            return _NAMES[name]
        if name in {"*/*", "application/*"}:
            return Format.JSON
    # Browsers get JSON, too: it is text.
    return Format.JSON


def encode(value: object, form: Format) -> tuple[bytes, bytes]:
    """Return the body of an answer and its content type."""
    if form is Format.MSGPACK:
        return _encode_msgpack(value), b"application/msgpack"
    return _encode_json(value), b"application/json"


class Decoder:
    """Reads one type from JSON or MessagePack."""

    __slots__ = ("_json", "_msgpack")

    def __init__(self, kind: Any) -> None:
        self._json: Callable[[bytes], Any] = msgspec.json.Decoder(kind).decode
        self._msgpack: Callable[[bytes], Any] = msgspec.msgpack.Decoder(kind).decode

    def decode(self, body: bytes, form: Format) -> Any:
        if form is Format.JSON:
            if len(body) > _UNCOUNTED_BYTES and has_more_in_json(body, BODY_VALUES_MAX):
                raise _too_many_values()
            return self._json(body)
        if form is Format.MSGPACK:
            if len(body) > _UNCOUNTED_BYTES // 2 and has_more_in_msgpack(body, BODY_VALUES_MAX):
                raise _too_many_values()
            return self._msgpack(body)
        raise Refused("unsupported_media_type", f"{form.value} is not for this request", field="Content-Type")


def _too_many_values() -> Refused:
    detail = f"the body holds more than {BODY_VALUES_MAX} values; a text is one, however long"
    return Refused("body_too_large", detail, limit=BODY_VALUES_MAX)


_MS_MAX = 253_402_300_799_999


@lru_cache(maxsize=4_096)
def instant(at_ms: int) -> str:
    """Return an instant as text. Messages of a batch share their times, so the text is made once.

    >>> instant(1_000_000_000_123)
    '2001-09-09T01:46:40.123Z'
    """
    # Not from a float, which is not exact to the millisecond.
    seconds, ms = divmod(at_ms, 1_000)
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S") + f".{ms:03}Z"


def maybe_instant(at_ms: int | None) -> str | None:
    return None if not at_ms else instant(at_ms)


def read_instant(value: str | float, field: str) -> int:
    """Return the milliseconds of an instant: RFC 3339, or seconds since 1970.

    >>> read_instant("2001-09-09T01:46:40.123Z", "at"), read_instant(1.5, "at")
    (1000000000123, 1500)
    """
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value)
        except ValueError:
            raise bad_field(f"{value[:100]!r} is not an RFC 3339 time such as 2027-01-31T12:00:00Z", field) from None
        if found.tzinfo is None:
            raise bad_field(f"{value!r} does not say its time zone; end it with Z or an offset", field)
        at_ms = round(found.timestamp() * 1_000)
    else:
        at_ms = round(value * 1_000) if abs(value) < _MS_MAX else -1
    if not 0 <= at_ms <= _MS_MAX:
        raise bad_field(f"{field} is outside the years 1970 to 9999", field)
    return at_ms


def read_query_instant(text: str, field: str) -> int:
    """Return the milliseconds of an instant in a query, where a number of seconds is text as well."""
    try:
        return read_instant(float(text), field)
    except ValueError:
        return read_instant(text, field)


def milliseconds(seconds: float) -> int:
    """Return seconds that were checked already as milliseconds; more than nothing is not nothing."""
    ms = round(seconds * 1_000)
    return 1 if not ms and seconds > 0 else min(ms, DURATION_MS_MAX)


def lease_ms(visibility_timeout: float) -> int:
    """Return the length of a lease. REST allows a lease of no length; it lasts 1 ms, and so ends at once."""
    return max(1, min(LEASE_MS_MAX, milliseconds(visibility_timeout)))


def seconds(ms: int) -> float:
    """Return milliseconds as seconds, whole where they are.

    >>> seconds(30_000), seconds(1_500)
    (30, 1.5)
    """
    return ms // 1_000 if ms % 1_000 == 0 else ms / 1_000


# A name has up to 255 bytes.
CURSOR_CHARACTERS_MAX = 340


def cursor_after(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> str:
    """Return the name that a page begins after; "" for the first page.

    >>> read_cursor(cursor_after("orders"))
    'orders'
    """
    try:
        return b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True).decode()
    except ValueError:
        raise bad_field("this is no cursor; give back `next_cursor` of the page before", "cursor") from None
