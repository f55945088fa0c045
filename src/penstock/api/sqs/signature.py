"""Signatures of version 4, in the header: who signed a request, and that nobody changed it since.

    Authorization: AWS4-HMAC-SHA256 Credential=<key>/<day>/<region>/sqs/aws4_request,
                   SignedHeaders=<names>, Signature=<64 hexadecimal digits>

The secret never travels: both sides compute the same from it, from the request and from
the time. A request is good for fifteen minutes around the time it says, so one that was
overheard is of no use later. Everything is compared in a time that does not depend on
where it differs. Signatures in the URL (presigned requests) are not taken.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hmac
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from penstock.api.sqs.errors import (
    INCOMPLETE_SIGNATURE,
    INVALID_SIGNATURE,
    MISSING_AUTHENTICATION,
    UNRECOGNIZED_CLIENT,
    Refused,
)

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_MS_MAX = 15 * 60 * 1_000
_HEADER = re.compile(
    ALGORITHM + r" +Credential=([^/,\s]{1,128})/([0-9]{8})/([^/,\s]{1,64})/([^/,\s]{1,64})/aws4_request"
    r",\s*SignedHeaders=([a-z0-9;_-]{1,2000}),\s*Signature=([0-9a-f]{64})\s*"
)
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SPACES = re.compile(r"\s+")


class Credentials(NamedTuple):
    """The one pair that requests are signed with."""

    key_id: str
    secret: str


class Signed(NamedTuple):
    """What of a request is signed."""

    method: str
    # As it came, escapes and all.
    path: str
    query: str
    headers: Sequence[tuple[str, str]]
    body: bytes


def verify(request: Signed, credentials: Credentials, *, region: str, now_ms: int) -> None:
    """Raise `Refused` unless the request was signed with these credentials, lately, for this service."""
    headers = _gathered(request.headers)
    found = _HEADER.fullmatch(headers.get("authorization", ""))
    if "authorization" not in headers:
        raise Refused(MISSING_AUTHENTICATION, "Request is missing Authentication Token")
    if found is None:
        raise Refused(INCOMPLETE_SIGNATURE, "The header Authorization is not a signature of version 4.")
    key_id, day, said_region, service, names, signature = found.groups()
    if not hmac.compare_digest(key_id.encode(), credentials.key_id.encode()):
        raise Refused(UNRECOGNIZED_CLIENT, "The security token included in the request is invalid.")
    at = _check_time(headers.get("x-amz-date", ""), now_ms)
    if (at[:8], said_region, service) != (day, region, "sqs"):
        raise Refused(
            INVALID_SIGNATURE,
            f"Credential should be scoped to {at[:8]}/{region}/sqs, not {day}/{said_region}/{service}.",
        )
    signed_names = names.split(";")
    if "host" not in signed_names or any(name not in headers for name in signed_names):
        raise Refused(INVALID_SIGNATURE, "Host, and every header that is named, has to be signed.")
    wanted = sign(request, credentials, signed_names, at, scope=f"{day}/{region}/sqs/aws4_request")
    if not hmac.compare_digest(wanted.encode(), signature.encode()):
        raise Refused(
            INVALID_SIGNATURE,
            "The request signature we calculated does not match the signature you provided. Check your AWS Secret "
            "Access Key and signing method. Consult the service documentation for details.",
        )


def sign(request: Signed, credentials: Credentials, names: Sequence[str], at: str, *, scope: str) -> str:
    """Return the signature of a request, in hexadecimal."""
    headers = _gathered(request.headers)
    canonical = "\n".join(
        [
            request.method,
            _canonical_path(request.path),
            _canonical_query(request.query),
            *(f"{name}:{headers[name]}" for name in names),
            "",
            ";".join(names),
            sha256(request.body).hexdigest(),
        ]
    )
    text = "\n".join([ALGORITHM, at, scope, sha256(canonical.encode()).hexdigest()])
    key = b"AWS4" + credentials.secret.encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def _check_time(at: str, now_ms: int) -> str:
    try:
        said = datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if _TIME.fullmatch(at) else None
    except ValueError:
        said = None
    if said is None:
        raise Refused(INCOMPLETE_SIGNATURE, "Date must be in ISO-8601 'basic format', in the header X-Amz-Date.")
    if abs(said.timestamp() * 1_000 - now_ms) > SKEW_MS_MAX:
        raise Refused(INVALID_SIGNATURE, f"Signature expired: {at} is more than 15 minutes from the server's time.")
    return at


def _gathered(headers: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """By name in lower case: the values of a header, spaces made one, several joined by commas."""
    found: dict[str, str] = {}
    for name, value in headers:
        trimmed = _SPACES.sub(" ", value.strip())
        found[name] = f"{found[name]},{trimmed}" if name in found else trimmed
    return found


def _canonical_path(path: str) -> str:
    return quote(path or "/", safe="/-_.~")


def _canonical_query(query: str) -> str:
    """The pairs in their order, as the client has escaped them: it has signed what it sent."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    return "&".join(f"{name}={value}" for name, value in sorted((name, value) for name, _, value in pairs))
