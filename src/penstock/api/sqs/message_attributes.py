"""Message attributes: their values, their size, how they are kept beside the body, and their digests.

Inside, the attributes of a message are one JSON object of plain values, which REST shows as
it is. A String is kept as text, a Number as a number where that keeps its text, bytes as
base64. What a plain value cannot express goes into one more attribute, `penstock.sqs`:

    {"color": "red", "count": 3, "raw": "AAE=", "penstock.sqs": "{\\"types\\":{\\"raw\\":\\"Binary\\"}}"}

Reading gives back exactly what was sent, so digests agree. What REST sent is read too:
text is a String, a number a Number.

SDKs compare the MD5 of what they sent and received. The digest of attributes covers, by name:

    length name  length type  1 or 2  length value       lengths in 4 bytes, the highest first

1 stands for text (String, Number), 2 for bytes (Binary). The type is complete,
`Number.java.lang.Long` for example. MD5 protects nothing here: it finds broken wires.
"""

import re
from base64 import b64decode, b64encode
from collections.abc import Mapping
from hashlib import md5
from struct import pack
from typing import Any

import msgspec

from penstock.api.sqs.errors import INVALID_PARAMETER_VALUE, Refused
from penstock.api.sqs.shapes import Attributes, MessageAttributeValue

ATTRIBUTES_MAX = 10
TRACE = "AWSTraceHeader"
PRIORITY = "penstock.priority"
_OURS = "penstock.sqs"
_EVERYTHING = {"All", ".*", "*"}
# Letters and digits of any script: AWS takes more than it documents.
_NAME = re.compile(r"[\w-]+(\.[\w-]+)*")
_NAME_CHARACTERS_MAX = _TYPE_CHARACTERS_MAX = 256
_TYPE = re.compile(r"(String|Number|Binary)(\.[^\x00-\x1f]+)?")
_NUMBER = re.compile(r"[+-]?([0-9]{1,64}(\.[0-9]{0,64})?|\.[0-9]{1,64})([eE][+-]?[0-9]{1,3})?")
_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,14}")
NOT_ALLOWED = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class SqsMetadata(msgspec.Struct, omit_defaults=True):
    """What is kept of a message beside its attributes."""

    # By attribute: its type, where the value alone would be taken for another.
    types: dict[str, str] = {}
    trace: str = ""
    dedup_id: str = ""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, Any]).decode
_read_beside = msgspec.json.Decoder(SqsMetadata).decode


def check(attributes: Attributes) -> int:
    """Return how many bytes of a message these attributes are; refuse what may not be sent."""
    if not attributes:
        return 0
    if len(attributes) > ATTRIBUTES_MAX:
        raise _refused(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{ATTRIBUTES_MAX}]."
        )
    return sum(_check_one(name, value) for name, value in attributes.items())


def check_system(attributes: Attributes) -> str:
    """Return the trace header among the system attributes, "" if there is none."""
    for name, value in attributes.items():
        if name != TRACE:
            raise _refused(f"Message system attribute name '{name[:100]}' is invalid.")
        if value.data_type != "String" or not value.string_value:
            raise _refused(f"Message system attribute '{TRACE}' must contain a non-empty value of type 'String'.")
        _check_text(value.string_value, name)
    return (attributes[TRACE].string_value or "") if attributes else ""


def keep(attributes: Attributes, *, trace: str = "", dedup_id: str = "") -> bytes:
    """Return what is kept of attributes that were checked: JSON, or nothing."""
    if not attributes and not trace and not dedup_id:
        return b""
    values: dict[str, str | int] = {}
    types: dict[str, str] = {}
    for name, each in attributes.items():
        values[name], usual = _plain(each)
        if usual != each.data_type:
            types[name] = each.data_type
    beside = SqsMetadata(types, trace, dedup_id)
    return _encode({**values, _OURS: _encode(beside).decode()} if types or trace or dedup_id else values)


def recall(kept: bytes | memoryview) -> tuple[Attributes, SqsMetadata]:
    """Return attributes as they were sent, and what is kept beside them."""
    if not len(kept):
        return {}, SqsMetadata()
    values = _decode(kept)
    beside = _beside(values.pop(_OURS, None))
    return {name: _as_sent(value, beside.types.get(name)) for name, value in values.items()}, beside


def chosen(attributes: Attributes, names: list[str]) -> Attributes:
    """Return the attributes that a receive asks for: by name, by `prefix.*`, or all.

    >>> given = {name: MessageAttributeValue(data_type="String", string_value="x") for name in ("a", "a.b", "c")}
    >>> [sorted(chosen(given, names)) for names in (["All"], ["a.*"], ["c", "d"], [])]
    [['a', 'a.b', 'c'], ['a', 'a.b'], ['c'], []]
    """
    if not names or not attributes:
        return {}
    # AWS describes the first two; it takes the third for the same.
    if not _EVERYTHING.isdisjoint(names):
        return attributes
    prefixes = tuple(name[:-2] for name in names if name.endswith(".*"))
    return {
        name: value for name, value in attributes.items() if name in names or (prefixes and name.startswith(prefixes))
    }


def check_text_bytes(text: str) -> bytes | None:
    """Return a text as bytes, None if it has characters that no message may have."""
    return text.encode() if is_allowed(text) else None


def is_allowed(text: str) -> bool:
    """Whether a text has only characters that a message may have."""
    # Most texts are plain, and that is the quicker check.
    return (text.isascii() and text.isprintable()) or NOT_ALLOWED.search(text) is None


def _check_one(name: str, value: MessageAttributeValue) -> int:
    is_ours = name.lower().startswith(("aws.", "amazon.")) or name == _OURS
    if len(name) > _NAME_CHARACTERS_MAX or not _NAME.fullmatch(name) or is_ours:
        raise _refused(
            f"The message attribute name '{name[:100]}' is invalid. Attribute name can contain letters, digits, "
            "underscore (_), hyphen (-), and period (.) characters."
        )
    if not value.data_type:
        raise _refused(f"The message attribute '{name}' must contain a non-empty attribute type.")
    kind = _TYPE.fullmatch(value.data_type)
    if kind is None or len(value.data_type) > _TYPE_CHARACTERS_MAX:
        raise _refused(
            f"The type of message (user) attribute '{name}' is invalid. You must use only the following supported "
            "type prefixes: Binary, Number, String."
        )
    return len(name.encode()) + len(value.data_type.encode()) + _check_value(name, kind[1], value)


def _check_value(name: str, kind: str, value: MessageAttributeValue) -> int:
    if value.string_list_values or value.binary_list_values:
        raise _refused(f"Message (user) attribute '{name}' is a list; lists are not supported by the service.")
    if kind == "Binary":
        if not value.binary_value or value.string_value is not None:
            raise _refused(f"Message (user) attribute '{name}' must contain a non-empty value of type 'Binary'.")
        return len(value.binary_value)
    if not value.string_value or value.binary_value is not None:
        raise _refused(f"Message (user) attribute '{name}' must contain a non-empty value of type 'String'.")
    _check_text(value.string_value, name)
    if kind == "Number" and not _NUMBER.fullmatch(value.string_value):
        raise _refused(f"Can't cast the value of message (user) attribute '{name}' to a number.")
    return len(value.string_value.encode())


def _check_text(text: str, name: str) -> None:
    if NOT_ALLOWED.search(text):
        raise _refused(f"Invalid binary character was found in the value of message attribute '{name}'.")


def _plain(value: MessageAttributeValue) -> tuple[str | int, str]:
    """Return a value as it is kept, and the type that it would be taken for without more."""
    if value.binary_value is not None:
        return b64encode(value.binary_value).decode(), "String"
    text = value.string_value or ""
    if value.data_type.startswith("Number") and _WHOLE.fullmatch(text):
        return int(text), "Number"
    return text, "String"


def _as_sent(value: Any, kind: str | None) -> MessageAttributeValue:
    if isinstance(value, bool):
        return MessageAttributeValue(data_type=kind or "String", string_value="true" if value else "false")
    if isinstance(value, int | float):
        return MessageAttributeValue(data_type=kind or "Number", string_value=str(value))
    text = value if isinstance(value, str) else _encode(value).decode()
    if kind is not None and kind.startswith("Binary"):
        try:
            return MessageAttributeValue(data_type=kind, binary_value=b64decode(text, validate=True))
        except ValueError:
            # REST has sent an attribute with the name of ours, and no valid value.
            return MessageAttributeValue(data_type="String", string_value=text)
    return MessageAttributeValue(data_type=kind or "String", string_value=text)


def _beside(text: Any) -> SqsMetadata:
    try:
        return _read_beside(text) if isinstance(text, str) else SqsMetadata()
    except (msgspec.DecodeError, ValueError):
        return SqsMetadata()


def _refused(message: str) -> Refused:
    return Refused(INVALID_PARAMETER_VALUE, message)


_TEXT, _BYTES = b"\x01", b"\x02"


def md5_of_body(body: bytes | memoryview) -> str:
    """Return the digest of a body.

    >>> of_body(b"hello")
    '5d41402abc4b2a76b9719d911017c592'
    """
    return md5(body, usedforsecurity=False).hexdigest()


def md5_of_attributes(attributes: Mapping[str, MessageAttributeValue]) -> str:
    """Return the digest of attributes, "" if there are none: AWS leaves it out then.

    >>> of_attributes({"Foo": MessageAttributeValue(data_type="String", string_value="Bar")})
    'ae7155c6026991b6d54b11589678bf9c'
    """
    if not attributes:
        return ""
    found = md5(usedforsecurity=False)
    for name in sorted(attributes):
        each = attributes[name]
        is_text = each.binary_value is None
        value = (each.string_value or "").encode() if each.binary_value is None else each.binary_value
        for part in (name.encode(), each.data_type.encode()):
            found.update(pack(">I", len(part)) + part)
        found.update((_TEXT if is_text else _BYTES) + pack(">I", len(value)) + value)
    return found.hexdigest()
