"""What a connection says by itself, before or instead of the application: RFC 9457 problems, whole as bytes."""

from http import HTTPStatus

import msgspec

from penstock.listening.limits import Patience
from penstock.wire.problems import CODES, PROBLEM_TYPE, Problem

_encode = msgspec.json.Encoder().encode


def refusal(code: str, detail: str, *, limit: int | None = None) -> bytes:
    """Return a whole answer that ends its connection."""
    _, status, title, *_ = CODES[code]
    body = _encode(
        Problem(title=title, status=status, code=code, detail=detail, limit=msgspec.UNSET if limit is None else limit)
    )
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {PROBLEM_TYPE}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def malformed() -> bytes:
    return refusal("bad_request", "this is not HTTP/1.1 as RFC 9112 has it")


def too_late(what: str, limit_s: float) -> bytes:
    detail = f"{what} did not arrive within {limit_s:g} s"
    return refusal("request_timeout", detail)


def head_too_large(patience: Patience) -> bytes:
    most = patience.head_bytes_max
    detail = f"the request line and the headers have more than {most} bytes, or there are over {patience.headers_max}"
    return refusal("headers_too_large", detail, limit=most)


def framing_too_large(limit_bytes: int) -> bytes:
    detail = f"the trailers, or the chunk sizes and extensions, of the body have more than {limit_bytes} bytes"
    return refusal("headers_too_large", detail, limit=limit_bytes)


def too_many_connections(most: int) -> bytes:
    detail = f"{most} connections are open already"
    return refusal("too_many_connections", detail, limit=most)


def failed() -> bytes:
    detail = "the server made a mistake; its notes say which"
    return refusal("internal", detail)
