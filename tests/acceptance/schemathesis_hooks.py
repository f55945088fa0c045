"""What schemathesis has to be told about this API; loaded into its process.

MessagePack is a format it does not speak. A long poll may last for 20 seconds: here it
is short. And some rules of the server are beyond a schema: how far the ratios of
weights may go, that a schedule is within a year from now, that a queue is not its own
dead letters and those have no others, that `fifo` stays, that a queue must have room
for a batch, that a group is measured in bytes, and that 2.0 is not written for a whole
number. Values that break only those are mended, and
everything else stays.
"""

from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf
from typing import Any

import msgspec
import schemathesis
from schemathesis import Case, DeserializationContext, HookContext, Response, SerializationContext

WAIT_S = 0.01


@schemathesis.serializer("application/msgpack")
def to_msgpack(context: SerializationContext, value: Any) -> bytes:
    return msgspec.msgpack.encode(_as_msgpack(value))


@schemathesis.deserializer("application/msgpack")
def from_msgpack(context: DeserializationContext, response: Response) -> Any:
    return _as_json(msgspec.msgpack.decode(response.content))


@schemathesis.hook
def before_call(context: HookContext, case: "Case[Any]", kwargs: dict[str, Any]) -> None:
    for place in (case.query, case.body):
        if isinstance(place, dict | list):
            _mend(place)
    if isinstance(case.body, dict):
        names = (case.body.get("queue_name"), (case.path_parameters or {}).get("queue"))
        if any(str(name).endswith(".dead") for name in names) and isinstance(case.body.get("max_deliveries"), int):
            case.body["max_deliveries"] = 0
        if case.method.upper() == "PATCH" and isinstance(case.body.get("fifo"), bool):
            del case.body["fifo"]
        if case.body.get("dead_letter_queue") in names:
            case.body.pop("dead_letter_queue", None)


def _mend(place: Any) -> None:
    """Make of what fits the schema something that the server can take as well; leave alone what does not fit."""
    for name, value in list(place.items() if isinstance(place, dict) else enumerate(place)):
        if name in MENDED and MENDED[name][0](value):
            place[name] = MENDED[name][1]()
        elif isinstance(value, float) and value.is_integer():
            place[name] = int(value)
        elif isinstance(value, dict | list):
            _mend(value)


def _is_between(value: object, least: float, most: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def _is_instant(value: object) -> bool:
    try:
        return isinstance(value, str) and datetime.fromisoformat(value).tzinfo is not None
    except ValueError:
        return False


def _is_wait(value: object) -> bool:
    # In a query everything is text.
    try:
        return _is_between(float(value) if isinstance(value, str) else value, WAIT_S, 20)
    except ValueError:
        return False


def _are_weights(value: object) -> bool:
    return isinstance(value, list) and len(value) == 5 and all(_is_between(each, 0.001, 1_000) for each in value)


def _is_text_of_many_bytes(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 128 < len(value.encode(errors="replace"))


def _an_hour_from_now() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


# By the name of a field: which values are mended, and into what.
MENDED: dict[object, tuple[Callable[[object], bool], Callable[[], Any]]] = {
    "wait_s": (_is_wait, lambda: WAIT_S),
    "weights": (_are_weights, lambda: [8, 4, 2, 1, 0.5]),
    "scheduled_at": (lambda value: _is_between(value, -inf, inf) or _is_instant(value), _an_hour_from_now),
    "group": (_is_text_of_many_bytes, lambda: "group"),
    "dedup_id": (_is_text_of_many_bytes, lambda: "id"),
    "queue_size": (lambda value: _is_between(value, 1, 1_000), lambda: 1_000),
}


def _as_msgpack(value: Any) -> Any:
    """MessagePack has whole numbers of 64 bits, and no larger ones."""
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return str(value)
    if isinstance(value, dict):
        return {key: _as_msgpack(each) for key, each in value.items()}
    return [_as_msgpack(each) for each in value] if isinstance(value, list) else value


def _as_json(value: Any) -> Any:
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, dict):
        return {key: _as_json(each) for key, each in value.items()}
    return [_as_json(each) for each in value] if isinstance(value, list) else value
