"""Requests and how their answers are read: values in, values out, and no I/O.

`wire/operations.py` says where a request goes and what it carries. Messages travel as frames, everything else as JSON.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.client.caller import Answer, Call, Headers
from penstock.client.drafts import Drafts, instant_ms, is_number
from penstock.client.errors import ServerError, bad_field
from penstock.contract.limits import REQUEST_MESSAGES_MAX
from penstock.frame import BadFrame
from penstock.wire.frames import (
    FRAME_TYPE,
    Held,
    Ids,
    LeasedFrame,
    Sender,
    SettleFrame,
    decode_both,
    decode_leased,
    decode_sent,
    decode_settled,
    encode_settle,
)
from penstock.wire.operations import ACK_MESSAGES, EXTEND_MESSAGES, RELEASE_MESSAGES, Operation
from penstock.wire.words import rule_of

T = TypeVar("T")

Instant = str | float | datetime
# How many rows of a list one request asks for.
PAGE_MAX = 1_000

_FRAMES: Headers = (("content-type", FRAME_TYPE), ("accept", FRAME_TYPE))
_WANTS_FRAME: Headers = (("accept", FRAME_TYPE),)
_JSON: Headers = (("content-type", "application/json"),)
# To reject and to return are releases that say so.
_SETTLE = {
    "ack": ACK_MESSAGES,
    "extend": EXTEND_MESSAGES,
    "release": RELEASE_MESSAGES,
    "reject": RELEASE_MESSAGES,
    "return": RELEASE_MESSAGES,
}


def ask(
    operation: Operation[T],
    names: Mapping[str, str] | None = None,
    *,
    query: Mapping[str, str | float | bool | None] | None = None,
    body: Mapping[str, Any] | None = None,
    also_read: int = 0,
) -> Call[T]:
    """Return the request of an operation on what ``names`` says. What is None in a ``query`` is left out."""
    path = path_of(operation, **names) if names else operation.path
    call = Call(operation.method, path, _reader(operation.answer), operation.is_repeatable, also_read=also_read)
    said = {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in (query or {}).items()
        if value is not None
    }
    if said:
        call.path += "?" + urlencode(said)
    if body is not None:
        assert operation.body is not None
        call.headers, call.body = _JSON, msgspec.json.encode(_checked(body, operation.body))
    return call


def path_of(operation: Operation[Any], **names: str) -> str:
    """Return the path of an operation.

    >>> from penstock.wire.operations import GET_QUEUE
    >>> path_of(GET_QUEUE, queue="a/b")
    '/api/queues/a%2Fb'
    """
    return operation.path.format_map({name: quote(value, safe="") for name, value in names.items()})


def send(path: str, drafts: Drafts, sender: Sender) -> Call[Ids]:
    """A send that may be repeated: the server knows it by its sender."""
    return Call("POST", path, _read_sent, True, _FRAMES, drafts.encode(sender))


def lease(path: str, *, limit: int, wait_s: float, visibility_timeout: float | None) -> Call[LeasedFrame | None]:
    if not is_number(limit, int) or not 1 <= limit <= REQUEST_MESSAGES_MAX:
        raise bad_field(
            "limit", f"limit is {limit!r}; allowed are 1 to {REQUEST_MESSAGES_MAX:,}", limit=REQUEST_MESSAGES_MAX
        )
    path = f"{path}?limit={limit}&wait_s={wait_s:g}"
    if visibility_timeout is not None:
        path += f"&visibility_timeout={visibility_timeout:g}"
    return Call("POST", path, _read_leased, True, _WANTS_FRAME, b"", wait_s)


def ack_and_lease(
    path: str, held: list[Held], *, limit: int, wait_s: float, visibility_timeout: float | None
) -> Call[tuple[list[int], LeasedFrame | None]]:
    """Ack, and lease what there is then. As with `settle`, the caller has to know whether it repeats one."""
    call = lease(path, limit=limit, wait_s=wait_s, visibility_timeout=visibility_timeout)
    return Call("POST", call.path, _read_both, False, _FRAMES, encode_settle(SettleFrame(held)), wait_s)


@lru_cache(maxsize=1_024)
def settle_path(queue: str, verb: str) -> str:
    return path_of(_SETTLE[verb], queue=queue)


def settle(path: str, verb: str, held: list[Held], *, time_ms: int | None, text: str) -> Call[list[int]]:
    """Ack, extend, release, reject or return. The caller has to know whether it repeats one: `batching.py` says why."""
    frame = encode_settle(SettleFrame(held, time_ms, text, verb == "reject", verb == "return"))
    return Call("POST", path, _read_settled, False, _FRAMES, frame)


def given(**values: Any) -> dict[str, Any]:
    """Return what is not None."""
    return {name: value for name, value in values.items() if value is not None}


def instant_text(instant: Instant | None, *, field: str) -> str | None:
    """Return an instant as the REST API writes it."""
    if instant is None:
        return None
    return datetime.fromtimestamp(instant_ms(instant, field=field) / 1_000, UTC).isoformat(timespec="milliseconds")


def not_ours(error: Exception | str) -> ServerError:
    """The error for an answer that our server would not give."""
    return ServerError(f"the answer cannot be read; is this a Penstock server of another version? {error}")


def _reader(kind: type[T]) -> Callable[[Answer], T]:
    """Return a reader of JSON answers of one type. It ignores unknown fields: servers may be newer."""
    reader = _readers.get(kind)
    if reader is None:
        decode: Callable[[bytes], T] = msgspec.json.Decoder(kind).decode

        def read(answer: Answer) -> T:
            try:
                return decode(answer.body)
            except msgspec.MsgspecError as error:
                raise not_ours(error) from error

        reader = _readers[kind] = read
    return reader


_readers: dict[Any, Any] = {}


def _checked(values: Mapping[str, Any], kind: type[msgspec.Struct]) -> msgspec.Struct:
    """Check a request against the type that the server reads it with."""
    try:
        return msgspec.convert(msgspec.to_builtins(values), kind)
    except msgspec.ValidationError as error:
        rule = rule_of(str(error))
        raise bad_field(rule.field, str(rule), limit=rule.limit) from None


def _read_sent(answer: Answer) -> Ids:
    try:
        return decode_sent(answer.body)
    except BadFrame as error:
        raise not_ours(error) from error


def _read_leased(answer: Answer) -> LeasedFrame | None:
    if answer.status == 204:
        return None
    try:
        frame = decode_leased(answer.body)
    except BadFrame as error:
        raise not_ours(error) from error
    return frame if len(frame.deliveries) else None


def _read_both(answer: Answer) -> tuple[list[int], LeasedFrame | None]:
    try:
        return decode_both(answer.body)
    except BadFrame as error:
        raise not_ours(error) from error


def _read_settled(answer: Answer) -> list[int]:
    try:
        return decode_settled(answer.body)
    except BadFrame as error:
        raise not_ours(error) from error
