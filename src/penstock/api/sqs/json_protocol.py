"""AWS's JSON 1.0 protocol: bytes to requests, results and errors to bytes. Nothing here reads or writes a wire.

POST /   X-Amz-Target: AmazonSQS.SendMessage   {"QueueUrl": …}      ──▶  200 {"MessageId": …}
                                                                    ──▶  400 {"__type": …, "message": …}
"""

from typing import Any, TypeVar

import msgspec

from penstock.api.front import has_more_in_json
from penstock.api.sqs.errors import SERIALIZATION, TOO_LARGE, Refused
from penstock.api.sqs.shapes import Shape
from penstock.contract.limits import KIB, SQS_VALUES_MAX

CONTENT_TYPE = b"application/x-amz-json-1.0"
TARGET = "AmazonSQS."
# They cannot hold many more values than are allowed.
_UNCOUNTED_BYTES = 64 * KIB

S = TypeVar("S", bound=Shape)

_encode = msgspec.json.Encoder().encode
_decoders: dict[type[Shape], msgspec.json.Decoder[Any]] = {}


def action_of(target: str) -> str:
    """Return the action that a header `X-Amz-Target` names, "" if it is for another service.

    >>> action_of("AmazonSQS.SendMessage"), action_of("DynamoDB_20120810.PutItem")
    ('SendMessage', '')
    """
    return target.removeprefix(TARGET) if target.startswith(TARGET) else ""


def decode(raw: bytes, kind: type[S]) -> S:
    """Read a request; what is no JSON, or of another type, is refused."""
    if len(raw) > _UNCOUNTED_BYTES and has_more_in_json(raw, SQS_VALUES_MAX):
        raise Refused(TOO_LARGE, f"The request holds more than {SQS_VALUES_MAX} values.")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.json.Decoder(kind)
    try:
        found: S = decoder.decode(raw or b"{}")
    except msgspec.ValidationError as error:
        return _decode_with_nulls(raw, kind, error)
    except (ValueError, RecursionError) as error:
        raise _unreadable(error) from None
    return found


def encode(result: Shape) -> bytes:
    return _encode(result)


def encode_error(refused: Refused) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the body of an error, and the header that tells older programs its code."""
    shape, code, _, is_sender = refused.kind
    body = _encode({"__type": f"com.amazonaws.sqs#{shape}", "message": refused.message})
    return body, [(b"x-amzn-query-error", f"{code};{'Sender' if is_sender else 'Receiver'}".encode())]


def _decode_with_nulls(raw: bytes, kind: type[S], first: Exception) -> S:
    """Some clients write null for what they do not say. That is rare, so it is looked at only when reading failed."""
    try:
        return msgspec.convert(_without_nulls(msgspec.json.decode(raw)), kind)
    except (ValueError, RecursionError):
        raise _unreadable(first) from None


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    return value


def _unreadable(error: Exception) -> Refused:
    return Refused(SERIALIZATION, f"The request cannot be read: {error}")
