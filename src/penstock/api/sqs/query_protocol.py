"""AWS's query protocol: a form to requests, results and errors to XML or JSON. Nothing here reads or writes a wire.

    Action=SendMessageBatch&SendMessageBatchRequestEntry.1.Id=a&SendMessageBatchRequestEntry.1.MessageBody=…

A list has its members numbered from 1, each under the singular of its name; a map has
pairs (`Attribute.1.Name`, `Attribute.1.Value`). In XML the same names are elements, one
after the other without anything around them. Which name is whose is in two tables below.

Who accepts JSON, and not XML, gets the same in JSON, where maps are lists of pairs:

    {"ListQueuesResponse": {"ListQueuesResult": {"queueUrls": […]}, "ResponseMetadata": {"RequestId": …}}}
"""

import re
from base64 import b64encode
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, TypeVar, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl
from xml.sax.saxutils import escape

import msgspec

from penstock.api.sqs.errors import (
    INVALID_PARAMETER_VALUE,
    MALFORMED_QUERY,
    QUEUE_DOES_NOT_EXIST,
    UNKNOWN_OPERATION,
    Refused,
)
from penstock.api.sqs.shapes import Nothing, Shape, names_of

CONTENT_TYPE = b"text/xml"
JSON_TYPE = b"application/json"
FORM_TYPE = b"application/x-www-form-urlencoded"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
FIELDS_MAX = 2_000

# What the members of a list are called; those of `Entries`, `Successful` and the like have the name of their type.
_MEMBERS = {
    "AttributeNames": "AttributeName",
    "MessageSystemAttributeNames": "MessageSystemAttributeName",
    "MessageAttributeNames": "MessageAttributeName",
    "TagKeys": "TagKey",
    "AWSAccountIds": "AWSAccountId",
    "Actions": "ActionName",
    "StringListValues": "StringListValue",
    "BinaryListValues": "BinaryListValue",
    "QueueUrls": "QueueUrl",
    "queueUrls": "QueueUrl",
}
# What the pairs of a map are called, and the two halves of a pair.
_PAIRS = {
    "Attributes": ("Attribute", "Name", "Value"),
    "MessageAttributes": ("MessageAttribute", "Name", "Value"),
    "MessageSystemAttributes": ("MessageSystemAttribute", "Name", "Value"),
    "Tags": ("Tag", "Key", "Value"),
    "tags": ("Tag", "Key", "Value"),
}
# Lists that AWS calls otherwise in JSON.
_IN_JSON = {"QueueUrls": "queueUrls", "Messages": "messages"}
# XML has no way to write these. Bodies may not have them; what REST sent, and names in errors, might.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_NUMBER = re.compile(r"[1-9][0-9]{0,3}")

S = TypeVar("S", bound=Shape)
Form = dict[str, str]


def read_form(raw: bytes) -> Form:
    """Return the fields of a form, or of a query in a URL; of a field that is there twice, the last."""
    try:
        return dict(
            parse_qsl(
                raw.decode("ascii"),
                keep_blank_values=True,
                max_num_fields=FIELDS_MAX,
                errors="strict",
            )
        )
    except ValueError as error:
        raise Refused(MALFORMED_QUERY, f"The form cannot be read: {error}") from None


def decode(form: Form, kind: type[S]) -> S:
    """Read a request from the fields of a form; fields that are not known are ignored."""
    tree = _tree(form)
    try:
        return msgspec.convert(_structure(tree, kind), kind, strict=False)
    except (ValueError, RecursionError) as error:
        raise Refused(INVALID_PARAMETER_VALUE, f"The request cannot be read: {error}") from None


def encode(action: str, result: Shape, request_id: str) -> bytes:
    inside = "" if isinstance(result, Nothing) else _wrapped(f"{action}Result", _members(result))
    return (
        f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">{inside}'
        f"<ResponseMetadata><RequestId>{request_id}</RequestId></ResponseMetadata></{action}Response>"
    ).encode()


def encode_as_json(action: str, result: Shape, request_id: str) -> bytes:
    found: dict[str, Any] = {} if isinstance(result, Nothing) else {f"{action}Result": _pairs(result)}
    metadata = {"RequestId": request_id}
    return msgspec.json.encode({f"{action}Response": {**found, "ResponseMetadata": metadata}})


def is_json_wanted(accept: bytes) -> bool:
    """Whether a client accepts JSON, and has not said that it would take XML as well.

    >>> [is_json_wanted(each) for each in (b"application/json", b"*/*", b"text/xml, application/json", b"")]
    [True, False, False, False]
    """
    return JSON_TYPE in accept and b"xml" not in accept


def encode_error(refused: Refused, request_id: str, *, is_json: bool = False) -> bytes:
    _, code, _, is_sender = refused.kind
    message = refused.message
    if refused.kind is UNKNOWN_OPERATION:
        return b"<UnknownOperationException/>\n"
    if refused.kind is QUEUE_DOES_NOT_EXIST:
        message = "The specified queue does not exist for this wsdl version."
    if is_json:
        error = {"Code": code, "Message": message, "Type": "Sender" if is_sender else "Receiver"}
        return msgspec.json.encode({"Error": error, "RequestId": request_id})
    return (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error>'
        f"<Type>{'Sender' if is_sender else 'Receiver'}</Type><Code>{code}</Code>"
        f"<Message>{_text(message)}</Message><Detail/></Error><RequestId>{request_id}</RequestId></ErrorResponse>"
    ).encode()


def _tree(form: Form) -> dict[str, Any]:
    """Part the names of fields at their dots. A field that is both a value and a branch keeps the branch."""
    root: dict[str, Any] = {}
    for name, value in form.items():
        *branches, leaf = name.split(".", 8)
        place = root
        for branch in branches:
            below = place.get(branch)
            if not isinstance(below, dict):
                below = place[branch] = {}
            place = below
        if not isinstance(place.get(leaf), dict):
            place[leaf] = value
    return root


def _structure(tree: Mapping[str, Any], kind: type[Shape]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, (form, inner) in _fields(kind).items():
        if form is list:
            member = _MEMBERS.get(name) or inner.__name__
            values = [_value(each, inner) for each in _numbered(tree.get(member), inner)]
            if values:
                found[name] = values
        elif form is dict:
            pairs = _map(tree, name, inner)
            if pairs:
                found[name] = pairs
        elif isinstance(tree.get(name), str):
            found[name] = tree[name]
    return found


def _map(tree: Mapping[str, Any], name: str, inner: type) -> dict[str, Any]:
    pair, key, value = _PAIRS[name]
    found: dict[str, Any] = {}
    branch = tree.get(pair)
    # A pair alone may be without a number: `Attribute.Name=…&Attribute.Value=…`.
    for each in _numbered(branch) or [branch]:
        if isinstance(each, dict) and isinstance(each.get(key), str):
            found[each[key]] = _value(each.get(value, ""), inner)
    return found


def _value(value: Any, inner: type) -> Any:
    if issubclass(inner, Shape):
        return _structure(value if isinstance(value, dict) else {}, inner)
    return value


def _numbered(branch: Any, inner: type = Shape) -> list[Any]:
    """The members of a list in the order of their numbers, whatever gaps there are; a text without one is the first."""
    if isinstance(branch, str) and not issubclass(inner, Shape):
        return [branch]
    if not isinstance(branch, dict):
        return []
    numbers = sorted(int(name) for name in branch if _NUMBER.fullmatch(name))
    return [branch[str(number)] for number in numbers]


@cache
def _fields(kind: type[Shape]) -> dict[str, tuple[Any, type]]:
    """By name: list, dict or None for a plain value, and the type of what is inside."""
    hints = get_type_hints(kind)
    found: dict[str, tuple[Any, type]] = {}
    for name, attribute in names_of(kind).items():
        hint = hints[attribute]
        form = get_origin(hint)
        found[name] = (form, get_args(hint)[-1]) if form in {list, dict} else (None, str)
    return found


def _pairs(result: Shape) -> dict[str, Any]:
    """Return a result by the names of its members, as JSON has them."""
    values = {name: getattr(result, attribute) for name, attribute in names_of(type(result)).items()}
    return {
        _IN_JSON.get(name, name): _plain(name, value)
        for name, value in values.items()
        if value is not None and value != ""
    }


def _plain(name: str, value: Any) -> Any:
    if isinstance(value, Shape):
        return _pairs(value)
    if isinstance(value, list):
        return [_plain(name, each) for each in value]
    if isinstance(value, dict):
        _, key, inner = _PAIRS[name]
        return [{key: each, inner: _plain("", value[each])} for each in value]
    return value


def _wrapped(name: str, inside: str) -> str:
    # Some who read with patterns, not with a parser, look for the short form of what is empty.
    return f"<{name}>{inside}</{name}>" if inside else f"<{name}/>"


def _members(result: Shape) -> str:
    return "".join(_elements(result))


def _elements(result: Shape) -> Iterator[str]:
    for name, attribute in names_of(type(result)).items():
        value = getattr(result, attribute)
        if value is None or value == "":
            continue
        if isinstance(value, list):
            yield from (_element(_MEMBERS.get(name) or type(each).__name__, each) for each in value)
        elif isinstance(value, dict):
            pair, key, inner = _PAIRS[name]
            yield from (f"<{pair}>{_element(key, each)}{_element(inner, value[each])}</{pair}>" for each in value)
        else:
            yield _element(name, value)


def _element(name: str, value: Any) -> str:
    if isinstance(value, Shape):
        inside = _members(value)
    elif isinstance(value, bytes):
        inside = b64encode(value).decode()
    elif isinstance(value, bool):
        inside = "true" if value else "false"
    else:
        inside = _text(str(value))
    return f"<{name}>{inside}</{name}>"


def _text(text: str) -> str:
    # A bare carriage return would come out of every parser as a line feed.
    return escape(_NOT_XML.sub("\ufffd", text), {"\r": "&#xD;", '"': "&quot;"})
