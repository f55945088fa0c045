"""What schemathesis has to be told about this API; loaded into its process.

MessagePack is a format it does not speak. A long poll may last for 20 seconds: here it
is short. And some rules of the server are beyond a schema: how far the ratios of
weights may go, that a schedule is within a year from now, that a queue is not its own
dead letters and those have no others, that `fifo` stays, that a queue must have room
for a batch, that a group is measured in bytes, that a cursor is one that was given, that
a page of history in JSON has at most 1,000 rows and all its columns, and that 2.0 is not written for a whole
number. Values that break only those are mended, and
everything else stays.
"""

import re
from base64 import b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from math import inf, ulp
from typing import Any

import msgspec
import schemathesis
from schemathesis import Case, DeserializationContext, HookContext, Response, SerializationContext
from schemathesis.generation.meta import TestPhase

from penstock.api.rest.request import CURSOR_CHARACTERS_MAX

WAIT_S = 0.01
# What `test_schemathesis` has put on the server.
KNOWN_QUEUE = "known"
KNOWN_MESSAGES = 400
QUEUE_PATH = "/api/queues/{queue}"
# Where a list goes on with a cursor, and how long one may be.
CURSORS = {
    "/peek": 128,
    "/audit-log": 20,
    **dict.fromkeys(("/api/queues", "/api/topics", "/api/groups"), CURSOR_CHARACTERS_MAX),
}
QUEUE_PATTERN = r"[A-Za-z0-9_-][A-Za-z0-9_.-]*"


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
    # In a chain of requests it matters that the next is about what the one before has made.
    is_in_chain = case.meta is not None and case.meta.phase.name is TestPhase.STATEFUL
    if case.path_parameters and not is_in_chain:
        _aim(case)
    if isinstance(case.query, dict):
        _mend_query(case.path, case.query)
    if isinstance(case.body, dict):
        _mend_body(case, case.body)


def _aim(case: "Case[Any]") -> None:
    """Let every second request that could be about a queue or a message be about one that is there."""
    queue, message_id = case.path_parameters.get("queue"), case.path_parameters.get("message_id")
    if (case.method.upper() == "DELETE" and case.path == QUEUE_PATH) or case.path.endswith("/purge"):
        # It is to stay there.
        case.path_parameters["queue"] = "unknown" if queue in {KNOWN_QUEUE, "q_1"} else queue
        return
    is_about_messages = case.path.count("/") > QUEUE_PATH.count("/")
    if is_about_messages and re.fullmatch(QUEUE_PATTERN, str(queue)) and len(str(queue)) % 2:
        case.path_parameters["queue"] = KNOWN_QUEUE
        if re.fullmatch(r"[0-9a-f]+-[0-9a-f]+", str(message_id)):
            case.path_parameters["message_id"] = known_message_id(int(str(message_id).partition("-")[2], 16))


def known_message_id(number: int) -> str:
    return f"1-{number % KNOWN_MESSAGES << 3 | 2:x}"


def _mend_query(path: str, query: dict[str, Any]) -> None:
    if path.endswith(("/history", "/live")) and _is_between(_number(query.get("limit")), 1_001, 65_536):
        query["limit"] = 1_000
    if path.endswith("/live") and len(str(query.get("cursor", ""))) <= 19:
        query.pop("cursor", None)
    if path.endswith(("/history", "/live")):
        # Of a stream in Arrow; the requests here are for JSON.
        query.pop("columns", None)
    if path.endswith("/history/offset"):
        _mend_offset(query)
    if path.endswith("/records") and len(str(query.get("since", "x" * 65))) <= 64:
        # Two ways to say where to begin.
        query.pop("offset", None)
    if path.endswith("/audit-log") and len(str(query.get("until", "x" * 65))) <= 64:
        query["until"] = _an_hour_from_now()
    _mend_cursor(path, query)


def _mend_cursor(path: str, query: dict[str, Any]) -> None:
    for ending, characters_max in CURSORS.items():
        if path.endswith(ending) and len(str(query.get("cursor", ""))) <= characters_max:
            query.pop("cursor", None)


def _mend_offset(query: dict[str, Any]) -> None:
    """Ask one of two questions: after a time, or after so many rows."""
    if len(str(query.get("since", "x" * 65))) <= 64:
        for other in ("offset", "rows"):
            query.pop(other, None)
    elif "since" not in query:
        query.setdefault("rows", 1)


def _mend_body(case: "Case[Any]", body: dict[str, Any]) -> None:
    names = (body.get("queue_name"), (case.path_parameters or {}).get("queue"))
    if any(str(name).endswith(".dead") for name in names) and isinstance(body.get("max_deliveries"), int):
        body["max_deliveries"] = 0
    if case.method.upper() == "PATCH" and isinstance(body.get("fifo"), bool):
        del body["fifo"]
    if case.path.endswith("/trim") and _is_between(body.get("before"), 0, 2**63 - 1):
        body["before"] = 0
    for other in ("dead_letter_queue", "target_queue"):
        if body.get(other) in names:
            body.pop(other, None)


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


def _number(value: object) -> object:
    """In a query everything is text."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _are_weights(value: object) -> bool:
    return isinstance(value, list) and len(value) == 5 and all(_is_between(each, 5e-324, 1_000) for each in value)


def _is_text_of_many_bytes(value: object) -> bool:
    return isinstance(value, str) and len(value) <= 128 < len(value.encode(errors="replace"))


def _an_hour_from_now() -> str:
    return (datetime.now(UTC) + timedelta(hours=1)).isoformat()


# By the name of a field: which values are mended, and into what.
MENDED: dict[object, tuple[Callable[[object], bool], Callable[[], Any]]] = {
    "wait_s": (lambda value: _is_between(_number(value), WAIT_S, 20), lambda: WAIT_S),
    "weights": (_are_weights, lambda: [8, 4, 2, 1, 0.5]),
    "scheduled_at": (lambda value: _is_between(value, -inf, inf) or _is_instant(value), _an_hour_from_now),
    "until": (lambda value: _is_between(value, -inf, inf) or _is_instant(value), _an_hour_from_now),
    "since": (lambda value: isinstance(value, str) and len(value) <= 64, _an_hour_from_now),
    "group": (_is_text_of_many_bytes, lambda: "group"),
    "dedup_id": (_is_text_of_many_bytes, lambda: "id"),
    # One that is not there would be a 404, which looks like that of the queue in the path.
    "target_queue": (
        lambda value: isinstance(value, str) and re.fullmatch(QUEUE_PATTERN, value) is not None,
        lambda: KNOWN_QUEUE,
    ),
    "queue_size": (lambda value: _is_between(value, 1, 1_000), lambda: 1_000),
    # What is due after its queue lets go of it is refused.
    "delay_s": (lambda value: _is_between(value, 60, 366 * 86_400), lambda: 60),
    "retention_s": (lambda value: _is_between(value, ulp(0.0), 7_200), lambda: 7_200),
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
