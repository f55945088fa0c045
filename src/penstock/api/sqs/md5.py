"""The digests that SDKs compare with what they sent and received.

    for each attribute, by name:
        length name  length type  1 or 2  length value       lengths in 4 bytes, the highest first

1 stands for text (String, Number), 2 for bytes (Binary). The type is the whole of it,
`Number.java.lang.Long` for example. MD5 protects nothing here: it finds broken wires.
"""

from collections.abc import Mapping
from hashlib import md5
from struct import pack

from penstock.api.sqs.shapes import MessageAttributeValue

_TEXT, _BYTES = b"\x01", b"\x02"


def of_body(body: bytes | memoryview) -> str:
    """Return the digest of a body.

    >>> of_body(b"hello")
    '5d41402abc4b2a76b9719d911017c592'
    """
    return md5(body, usedforsecurity=False).hexdigest()


def of_attributes(attributes: Mapping[str, MessageAttributeValue]) -> str:
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
