"""What a connection says by itself, before or instead of the application: RFC 9457 problems, whole as bytes."""

from http import HTTPStatus

import msgspec

from penstock.listening.limits import Patience
from penstock.wire.problems import CODES, PROBLEM_TYPE, Problem

_encode = msgspec.json.Encoder().encode


# When there may be room again: requests are answered, or given up, within seconds.
_RETRY_AFTER_S = 1


def refusal(code: str, detail: str, *, limit: int | None = None, retry_after_s: int | None = None) -> bytes:
    """Return a whole answer that ends its connection."""
    _, status, title, *_ = CODES[code]
    body = _encode(
        Problem(
            title=title,
            status=status,
            code=code,
            detail=detail,
            limit=msgspec.UNSET if limit is None else limit,
            retry_after_s=msgspec.UNSET if retry_after_s is None else retry_after_s,
        )
    )
    again = "" if retry_after_s is None else f"retry-after: {retry_after_s}\r\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\ncontent-type: {PROBLEM_TYPE}\r\n"
        f"content-length: {len(body)}\r\n{again}connection: close\r\n\r\n"
    )
    return head.encode("ascii") + body


def malformed() -> bytes:
    return refusal("bad_request", "this is not HTTP/1.1 as RFC 9112 has it")


def head_too_late(patience: Patience) -> bytes:
    return refusal("request_timeout", f"the head did not arrive within {patience.head_s:g} s")


def body_too_late(patience: Patience) -> bytes:
    least, limit_s = patience.body_bytes_min, patience.body_s
    return refusal("request_timeout", f"neither the body nor {least} more bytes of it arrived within {limit_s:g} s")


def no_room(limit_bytes: int) -> bytes:
    detail = f"requests that are not answered yet hold {limit_bytes} bytes"
    return refusal("no_room", detail, limit=limit_bytes, retry_after_s=_RETRY_AFTER_S)


def head_too_large(patience: Patience) -> bytes:
    most = patience.head_bytes_max
    detail = f"the request line and the headers have more than {most} bytes, or there are over {patience.headers_max}"
    return refusal("headers_too_large", detail, limit=most)


def framing_too_large(limit_bytes: int) -> bytes:
    detail = f"the trailers, or the chunk sizes and extensions, of the body have more than {limit_bytes} bytes"
    return refusal("headers_too_large", detail, limit=limit_bytes)


def too_many_connections(most: int) -> bytes:
    detail = f"{most} connections are open already"
    return refusal("too_many_connections", detail, limit=most, retry_after_s=_RETRY_AFTER_S)


def failed() -> bytes:
    detail = "the server made a mistake; its notes say which"
    return refusal("internal", detail)
