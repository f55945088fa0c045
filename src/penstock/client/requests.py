"""Requests and how their answers are read: values in, values out, and no I/O.

A `Call` is everything about one request: where it goes, what it says, whether it may be repeated, and the function
that reads the answer. Messages travel as frames, everything else as JSON. What operators ask is in `operating.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

import msgspec

from penstock.client.drafts import Drafts, is_number
from penstock.client.errors import ServerFailed, bad_field
from penstock.client.transport import Answer, Headers
from penstock.frame import BadFrame, Buffer
from penstock.wire.frames import (
    FRAME_TYPE,
    Held,
    Ids,
    LeasedFrame,
    Sender,
    SettleFrame,
    decode_leased,
    decode_sent,
    decode_settled,
    encode_settle,
)
from penstock.wire.messages import MESSAGES_MAX
from penstock.wire.queue_settings import Settings
from penstock.wire.queues import CreateQueue, Deleted, Purged, QueueList, QueueView
from penstock.wire.words import rule_of

T = TypeVar("T")

_FRAMES: Headers = (("content-type", FRAME_TYPE), ("accept", FRAME_TYPE))
_WANTS_FRAME: Headers = (("accept", FRAME_TYPE),)
_JSON: Headers = (("content-type", "application/json"),)

encode_json = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Call(Generic[T]):
    """One request. ``wait_s`` is how long the server may take on purpose; a status of ``also_read`` is no error."""

    method: str
    path: str
    read: Callable[[Answer], T]
    is_repeatable: bool
    headers: Headers = ()
    body: Buffer = b""
    wait_s: float = 0.0
    also_read: int = 0


def path_of(queue: str) -> str:
    return "/api/queues/" + quote(queue, safe="")


def send(path: str, drafts: Drafts, sender: Sender) -> Call[Ids]:
    """A send that may be repeated: the server knows it by its sender."""
    return Call("POST", path + "/messages", _read_sent, True, _FRAMES, drafts.encode(sender))


def lease(path: str, *, limit: int, wait_s: float, visibility_timeout: float | None) -> Call[LeasedFrame | None]:
    """A lease that is not answered may have taken messages; they come back when it lapses, so it may be repeated."""
    if not is_number(limit, int) or not 1 <= limit <= MESSAGES_MAX:
        raise bad_field("limit", f"limit is {limit!r}; it is between 1 and {MESSAGES_MAX}", limit=MESSAGES_MAX)
    asked = f"{path}/lease?limit={limit}&wait_s={wait_s:g}"
    if visibility_timeout is not None:
        asked += f"&visibility_timeout={visibility_timeout:g}"
    return Call("POST", asked, _read_leased, True, _WANTS_FRAME, b"", wait_s)


def settle(path: str, verb: str, held: list[Held], *, time_ms: int | None, text: str) -> Call[list[int]]:
    """Ack, release, reject or extend. Whoever repeats it has to know that it is a repeat: `settling.py` says why.

    To reject and to give back are releases that say so.
    """
    frame = encode_settle(SettleFrame(held, time_ms, text, verb == "reject", verb == "give_back"))
    return Call(
        "POST", f"{path}/{'release' if verb in ('reject', 'give_back') else verb}", _read_settled, False, _FRAMES, frame
    )


def create_queue(name: str, settings: dict[str, Any]) -> Call[QueueView]:
    asked = convert({"queue_name": name, **settings}, CreateQueue)
    return Call("POST", "/api/queues", read_as(QueueView), True, _JSON, encode_json(asked))


def describe(path: str) -> Call[QueueView]:
    return get(path, QueueView)


def change(path: str, settings: dict[str, Any]) -> Call[QueueView]:
    body = encode_json(convert(settings, Settings))
    return Call("PATCH", path, read_as(QueueView), True, _JSON, body)


def purge(path: str) -> Call[Purged]:
    return post(path + "/purge", None, Purged)


def delete(path: str, *, with_dead_letters: bool) -> Call[Deleted]:
    query = "?with_dead_letters=true" if with_dead_letters else ""
    return Call("DELETE", path + query, read_as(Deleted), False)


def list_queues(prefix: str, cursor: str) -> Call[QueueList]:
    return get("/api/queues" + query_of(prefix=prefix or None, cursor=cursor or None, limit=1_000), QueueList)


def get(path: str, kind: type[T]) -> Call[T]:
    return Call("GET", path, read_as(kind), True)


def post(path: str, value: object, kind: type[T], *, is_repeatable: bool = False) -> Call[T]:
    if value is None:
        return Call("POST", path, read_as(kind), is_repeatable)
    return Call("POST", path, read_as(kind), is_repeatable, _JSON, encode_json(value))


def query_of(**values: str | float | bool | None) -> str:
    """Return a query of what is not None.

    >>> query_of(limit=3, text="a b", group=None, dry_run=True)
    '?limit=3&text=a+b&dry_run=true'
    """
    said = {name: _word(value) for name, value in values.items() if value is not None}
    return "?" + urlencode(said) if said else ""


def read_as(kind: type[T]) -> Callable[[Answer], T]:
    """Return a reader of JSON answers of one type. What the type does not know is left alone: servers may be newer."""
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    decode: Callable[[bytes], T] = decoder.decode

    def read(answer: Answer) -> T:
        try:
            return decode(answer.body)
        except msgspec.MsgspecError as error:
            raise not_ours(error) from error

    return read


_decoders: dict[Any, Any] = {}


def given(**values: Any) -> dict[str, Any]:
    """What is not None."""
    return {name: value for name, value in values.items() if value is not None}


def convert(values: dict[str, Any], kind: type[T]) -> T:
    """Check what a caller says against the type that the server will read it with."""
    try:
        return msgspec.convert(msgspec.to_builtins(values), kind)
    except msgspec.ValidationError as error:
        rule = rule_of(str(error))
        raise bad_field(rule.field, str(rule), limit=rule.limit) from None


def _word(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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


def _read_settled(answer: Answer) -> list[int]:
    try:
        return decode_settled(answer.body)
    except BadFrame as error:
        raise not_ours(error) from error


def not_ours(error: Exception | str) -> ServerFailed:
    """The error for an answer that our server would not give."""
    return ServerFailed(f"the answer cannot be read; is this a Penstock server of another version? {error}")
