"""Messages as kio has them, made at random or small, to be compared with what we read and write."""

import dataclasses
import io
from datetime import UTC, datetime, timedelta
from random import Random
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints
from uuid import UUID

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from penstock.api.kafka.wire.schema import OFFERED, OLDER


def versions_of(key: int) -> list[int]:
    """The versions of a request that are offered, and that kio has."""
    offer = OFFERED[key]
    return [version for version in range(offer.least, offer.most + 1) if (key, version) not in OLDER]


EVERY_VERSION = [(key, version) for key in OFFERED for version in versions_of(key)]


def request_type(key: int, version: int) -> Any:
    return load_request_schema(key, version)


def response_type(key: int, version: int) -> Any:
    return load_response_schema(key, version)


def made(kind: Any, values: dict[str, Any]) -> Any:
    """Return a message of kio's from plain values: dicts for what is within it, numbers for times, text for ids."""
    hints = get_type_hints(kind)
    given = {name: _given(hints[name], value) for name, value in values.items()}
    return kind(**{field.name: _least(hints[field.name]) for field in _without_default(kind)} | given)


def _without_default(kind: Any) -> list["dataclasses.Field[Any]"]:
    return [field for field in dataclasses.fields(kind) if field.default is dataclasses.MISSING]


def _kinds(hint: Any) -> list[Any]:
    return [each for each in get_args(hint) if each not in (NoneType, Ellipsis)] if get_args(hint) else [hint]


def _given(hint: Any, value: Any) -> Any:
    if isinstance(value, list):
        return tuple(_given(_kinds(_kinds(hint)[0])[0], each) for each in value)
    if isinstance(value, dict):
        return made(_kinds(hint)[0], value)
    names = str(hint)
    if isinstance(value, int) and "timedelta" in names.lower():
        return timedelta(milliseconds=value)
    return UUID(value) if isinstance(value, str) and "UUID" in names else value


def _least(hint: Any) -> Any:
    """Return the least that a field can be which was not given."""
    if NoneType in get_args(hint):
        return None
    names = str(hint)
    for part, least in (("tuple", ()), ("timedelta", timedelta()), ("bool", False), ("str", ""), ("bytes", b"")):
        if part in names.lower():
            return least
    return "" if "Topic" in names or "Group" in names else 0


def encoded(message: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(message))(out, message)
        return out.getvalue()


def decoded(kind: Any, data: bytes) -> Any:
    found, size = entity_reader(kind)(data, 0)
    assert size == len(data), "bytes are left over"
    return found


def some_messages(kind: Any, count: int = 20) -> list[Any]:
    """Return messages with whatever may be in them, the same ones every time. Hypothesis would take minutes."""
    dice = Random(f"{kind.__name__}-{kind.__version__}")
    return [_message(kind, dice) for _ in range(count)]


def _message(kind: Any, dice: Random) -> Any:
    return kind(**{field.name: _value(field.type, field, dice) for field in dataclasses.fields(kind)})


def _value(kind: Any, field: "dataclasses.Field[Any]", dice: Random) -> Any:
    if get_origin(kind) is UnionType:
        name = field.metadata.get("kafka_type")
        # No id is sixteen zeros for us, no time is -1; a tagged field that is null is left out.
        is_null = name not in {"uuid", "datetime_i64"} and "tag" not in field.metadata and dice.random() < 0.3
        return None if is_null else _value(next(e for e in get_args(kind) if e is not NoneType), field, dice)
    if get_origin(kind) is tuple:
        return tuple(_value(get_args(kind)[0], field, dice) for _ in range(dice.choice([0, 1, 1, 2, 3])))
    if dataclasses.is_dataclass(kind):
        return _message(kind, dice)
    return _KINDS[field.metadata["kafka_type"]](dice)


def _whole(bits: int) -> Any:
    return lambda dice: dice.choice(
        [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1)), dice.randrange(2 ** (bits - 1))]
    )


_KINDS: dict[str, Any] = {
    "int8": _whole(8),
    "int16": _whole(16),
    "int32": _whole(32),
    "int64": _whole(64),
    "uint16": lambda dice: dice.randrange(2**16),
    "float64": lambda dice: dice.random(),
    "bool": lambda dice: dice.random() < 0.5,
    "string": lambda dice: "".join(dice.choices("abc.-_ÄŁ語🙂", k=dice.choice([0, 1, 9, 200]))),
    "bytes": lambda dice: dice.randbytes(dice.choice([0, 1, 9, 300])),
    "records": lambda dice: dice.randbytes(dice.choice([0, 1, 9, 300])),
    "uuid": lambda dice: UUID(bytes=dice.randbytes(16)),
    "error_code": lambda dice: dice.choice([*ErrorCode]),
    "timedelta_i32": lambda dice: timedelta(milliseconds=dice.randrange(2**31)),
    "timedelta_i64": lambda dice: timedelta(milliseconds=dice.randrange(2**40)),
    "datetime_i64": lambda dice: datetime.fromtimestamp(dice.randrange(2**31), UTC),
}


def plain(value: Any) -> Any:
    """Return a message of kio's as dictionaries, lists and numbers: what our side takes and gives."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    if isinstance(value, timedelta):
        return round(value.total_seconds() * 1_000)
    if isinstance(value, datetime):
        return round(value.astimezone(UTC).timestamp() * 1_000)
    if isinstance(value, UUID):
        return value.bytes
    return value


def same(ours: Any, theirs: Any, kind: Any = None) -> bool:
    """Whether what we read is what kio wrote."""
    if isinstance(theirs, dict):
        return all(same(getattr(ours, name), each) for name, each in theirs.items())
    if isinstance(theirs, list):
        return len(ours) == len(theirs) and all(map(same, ours, theirs))
    if theirs is None:
        # An id that is not there is sixteen zeros, a time that is not there is -1.
        return ours is None or ours in (bytes(16), -1)
    if isinstance(theirs, bytes):
        return bytes(ours) == theirs
    return bool(ours == theirs)
