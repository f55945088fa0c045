"""JSON and MessagePack, chosen by `Content-Type` and `Accept`; the same types in both."""

from collections.abc import Callable
from enum import Enum
from functools import lru_cache
from typing import Any

import msgspec

from penstock.api.rest.errors import Refused
from penstock.api.values import has_more_in_json, has_more_in_msgpack
from penstock.contract.limits import BODY_VALUES_MAX, MIB
from penstock.wire.frames import FRAME_TYPE

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
# Names that are in use for the same thing.
_MSGPACK_NAMES = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")


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
    if name == "application/json":
        return Format.JSON
    if name == FRAME_TYPE:
        return Format.FRAME
    if name == BATCHES_TYPE:
        return Format.BATCHES
    if name in _MSGPACK_NAMES:
        return Format.MSGPACK
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
        if name == FRAME_TYPE:
            return Format.FRAME
        if name == ARROW_TYPE:
            return Format.ARROW
        if name == BATCHES_TYPE:
            return Format.BATCHES
        if name in _MSGPACK_NAMES:
            return Format.MSGPACK
        if name in {"application/json", "*/*", "application/*"}:
            return Format.JSON
    # Browsers and curious people get JSON, too: it is text.
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
