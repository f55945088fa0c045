"""The heads of requests and of answers.

    request   api key i16, version i16, correlation i32, client id string, tagged fields from version 2 of it on
    answer    correlation i32, tagged fields from version 1 of it on; ApiVersions has none in any version

ApiVersions is asked before anything is known, so a version that is not offered is no
error of its own here: it is answered in the oldest way (KIP-511).
"""

from struct import Struct
from typing import NamedTuple

from penstock.api.kafka.wire.fields import Malformed, Reader
from penstock.api.kafka.wire.versions import Api, is_flexible, is_offered

_CORRELATION = Struct(">i")
_LENGTH_AND_CORRELATION = Struct(">ii")


class Header(NamedTuple):
    key: int
    version: int
    correlation: int
    client_id: str | None
    # Where the body begins.
    body: int


class NotOffered(Exception):
    """A request that is not taken, or not in this version; the client did not look at ApiVersions."""


def read_header(frame: memoryview) -> Header:
    """Return the head of a request; raises `Malformed` and `NotOffered`."""
    reader = Reader(frame, is_flexible=True)
    key, version, correlation = reader.int16(), reader.int16(), reader.int32()
    if not is_offered(key, version):
        if key == Api.API_VERSIONS and version > 0:
            return Header(key, version, correlation, None, len(frame))
        raise NotOffered(f"request {key} in version {version}")
    client_id = reader.legacy_nullable_string()
    if is_flexible(key, version):
        reader.skip_tags()
    return Header(key, version, correlation, client_id, reader.place)


def framed(header: Header, body: list[bytes | memoryview]) -> list[bytes | memoryview]:
    """Return an answer as the parts that are written one after the other."""
    has_tags = header.key != Api.API_VERSIONS and is_flexible(header.key, header.version)
    size = _CORRELATION.size + has_tags + sum(map(len, body))
    head = _LENGTH_AND_CORRELATION.pack(size, header.correlation)
    return [head + b"\0" if has_tags else head, *body]


__all__ = ["Header", "Malformed", "NotOffered", "framed", "read_header"]
