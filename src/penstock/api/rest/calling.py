"""One request on its way: what was asked, by whom, and how it is answered.

An `Operation` is a row of the table that the routes and the OpenAPI document are both
made from: the types in it decode the request, so the document cannot say otherwise.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import msgspec

from penstock.api import asgi
from penstock.api.asgi import Departure, Receive, Scope, TooLong
from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.formats import Decoder, Format, sent_format, wanted_format
from penstock.broker.access import Access, Caller, KeyUnknown, Role, key_id_of
from penstock.broker.groups import Groups
from penstock.broker.queues import Queues
from penstock.broker.topics import Topics


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


@dataclass(frozen=True, slots=True)
class Service:
    """What every request is served with."""

    queues: Queues
    access: Access
    request_bytes_max: int
    # None on a server that keeps no topics.
    streams: Streams | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    method: str
    path: str
    role: Role
    # What it is called in the OpenAPI document, and by the SDKs that are made from it.
    name: str
    summary: str
    run: "Callable[[Call], Awaitable[Answer]]"
    # The types of the query and of the body; None where there is none.
    query: type[msgspec.Struct] | None = None
    body: Any = None
    # By status: the type of the answer; None for one without a body.
    answers: dict[int, Any] = field(default_factory=dict)
    problems: tuple[str, ...] = ()
    tag: str = "queues"


class Call:
    """One request, read as far as somebody asked."""

    __slots__ = ("service", "scope", "headers", "caller", "form", "_receive", "_parameters")

    def __init__(self, service: Service, scope: Scope, receive: Receive, parameters: dict[str, str]) -> None:
        self.service = service
        self.scope = scope
        self.headers: dict[bytes, bytes] = dict(scope["headers"])
        shown = self.headers.get(b"authorization")
        try:
            self.caller: Caller = service.access.authenticate(None if shown is None else shown.decode("latin-1"))
        except KeyUnknown:
            said = key_id_of((shown or b"").decode("latin-1"))
            service.queues.activity.failed_login(via="rest", said=said, source=asgi.source_of(scope))
            raise
        if self.caller.rate is not None:
            service.access.admit(self.caller)
        self.form = wanted_format(self.headers.get(b"accept"))
        self._receive = receive
        self._parameters = parameters

    @property
    def queues(self) -> Queues:
        return self.service.queues

    def parameter(self, name: str) -> str:
        return self._parameters[name]

    async def queue(self, role: Role) -> str:
        """Return the name of the queue in the path, if the caller has this role on it."""
        return await self.service.queues.allowed(self.caller, role, self._parameters["queue"])

    @property
    def streams(self) -> Streams:
        if self.service.streams is None:
            raise Refused("no_topics", "this server keeps no topics: it was not started with `kafka`")
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
        """Write down what was done, before it is answered."""
        await self.queues.activity.record(self.caller, action, target, via="rest", label=label, detail=detail)

    def query(self, kind: type[msgspec.Struct]) -> Any:
        return read_query(self.scope["query_string"], kind)

    async def body(self, decoder: Decoder, *, may_be_empty: bool = False) -> Any:
        """Read and decode the body, JSON or MessagePack."""
        raw = await self.bytes()
        if not raw and may_be_empty:
            raw = b"{}"
            return decoder.decode(raw, Format.JSON)
        return decoder.decode(raw, sent_format(self.headers.get(b"content-type")))

    async def bytes(self) -> bytes:
        body = await read_body(self.headers, self._receive, self.service.request_bytes_max)
        if self.caller.rate is not None:
            self.service.access.charge(self.caller, len(body))
        return body

    def absence(self) -> Departure:
        return Departure(self.scope, self._receive, partial(self.service.access.watch, self.caller))


async def read_body(headers: dict[bytes, bytes], receive: Receive, bytes_max: int) -> bytes:
    """Return the whole body; what is too large is refused before it is read, or as soon as it shows."""
    _check_length(headers, bytes_max)
    try:
        return await asgi.read_body(receive, bytes_max)
    except TooLong as error:
        raise _too_large(error.size_bytes, bytes_max) from None


def _check_length(headers: dict[bytes, bytes], bytes_max: int) -> None:
    if headers.get(b"content-encoding", b"identity") != b"identity":
        # What is small on the way could be huge here.
        name = headers[b"content-encoding"][:100].decode("latin-1")
        detail = f"Content-Encoding is {name!r}; bodies are taken as they are, not compressed"
        raise Refused("unsupported_media_type", detail, field="Content-Encoding")
    length = headers.get(b"content-length")
    if length is not None and int(length) > bytes_max:
        raise _too_large(int(length), bytes_max)


def _too_large(size: int, bytes_max: int) -> Refused:
    return Refused("body_too_large", f"a body of {size} bytes or more; the limit is {bytes_max}", limit=bytes_max)


# Those who poll ask the same again and again. Nobody changes what was asked.
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
