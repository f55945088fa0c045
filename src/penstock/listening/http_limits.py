"""Limits of an HTTP connection, and the answers to clients that exceed them: RFC 9457 problems, whole as bytes."""

from dataclasses import dataclass
from http import HTTPStatus

import msgspec

from penstock.contract.limits import KIB, MIB
from penstock.wire.problems import CODES, PROBLEM_TYPE, Problem

_encode = msgspec.json.Encoder().encode
# When there may be room again: requests are answered, or given up, within seconds.
_RETRY_AFTER_S = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """Deadlines in seconds, and sizes in bytes, of one connection."""

    # From the first byte of a request until its headers are complete.
    head_s: float = 10.0
    # A client that sends less than `body_bytes_min` of a body in this time is refused; a smaller body has this time.
    body_s: float = 30.0
    body_bytes_min: int = 64 * KIB
    # From connecting to the first byte.
    first_byte_s: float = 30.0
    # Between two requests.
    idle_s: float = 75.0
    # A client that takes less than `answer_bytes_min` of its answer in this time is dropped.
    answer_s: float = 30.0
    answer_bytes_min: int = 64 * KIB
    # For the client to hear the last answer of a connection, and to close it too.
    farewell_s: float = 5.0
    # The request line and all headers together; as much again of trailers, or of anything else around a body.
    head_bytes_max: int = 64 * KIB
    # Each header is two objects of Python, however short it is.
    headers_max: int = 256
    # A request up to this size is not counted in the budget that all connections share: small ones always get through.
    uncounted_bytes_max: int = 8 * KIB
    # What has arrived of a body before the application reads it; then nothing more is read from the socket.
    ahead_bytes_max: int = 256 * KIB
    # What is read and thrown away after an answer that came before the end of the request.
    discarded_bytes_max: int = 64 * MIB
    # Requests that wait behind the one that is being answered.
    pipelined_max: int = 64
    # Connections beyond the limit that get a reason at the same time; more are closed without one.
    refused_max: int = 32
    # For a TLS handshake.
    handshake_s: float = 10.0
    # How long idle connections stay open when the server stops: a client that sends just then gets an answer.
    grace_s: float = 0.2
    # How often deadlines are checked.
    sweep_s: float = 1.0


USUAL = ConnectionLimits()


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


def head_too_late(limits: ConnectionLimits) -> bytes:
    return refusal("request_timeout", f"the head did not arrive within {limits.head_s:g} s")


def body_too_late(limits: ConnectionLimits) -> bytes:
    least, limit_s = limits.body_bytes_min, limits.body_s
    return refusal("request_timeout", f"neither the body nor {least} more bytes of it arrived within {limit_s:g} s")


def no_room(limit_bytes: int) -> bytes:
    detail = f"requests that are not answered yet hold {limit_bytes} bytes"
    return refusal("no_room", detail, limit=limit_bytes, retry_after_s=_RETRY_AFTER_S)


def head_too_large(limits: ConnectionLimits) -> bytes:
    most = limits.head_bytes_max
    detail = f"the request line and the headers have more than {most} bytes, or there are over {limits.headers_max}"
    return refusal("headers_too_large", detail, limit=most)


def framing_too_large(limit_bytes: int) -> bytes:
    detail = f"the trailers, or the chunk sizes and extensions, of the body have more than {limit_bytes} bytes"
    return refusal("headers_too_large", detail, limit=limit_bytes)


def too_many_connections(most: int) -> bytes:
    detail = f"{most} connections are open already"
    return refusal("too_many_connections", detail, limit=most, retry_after_s=_RETRY_AFTER_S)


def server_failed() -> bytes:
    detail = "the server made a mistake; its log says which"
    return refusal("internal", detail)
