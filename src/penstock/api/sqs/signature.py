"""Signatures of version 4, in the header or in the URL: they prove the caller and that the request is unchanged.

    Authorization: AWS4-HMAC-SHA256 Credential=<key>/<day>/<region>/sqs/aws4_request,
                   SignedHeaders=<names>, Signature=<64 hexadecimal digits>
    ?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=…&X-Amz-SignedHeaders=…&X-Amz-Signature=…

The secret is never sent: both sides compute the signature from it, the request and the
time. A request is valid for fifteen minutes around its time, so a recorded request is of no
use later. A request that is signed in its URL (presigned) is valid for as long as its signer
chose, a week at most: it can be given to others, who can send it only unchanged. Comparisons
are in constant time.

https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_sigv-create-signed-request.html
"""

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from hashlib import sha256
from typing import NamedTuple
from urllib.parse import quote

from penstock.api.sqs import query_protocol
from penstock.api.sqs.errors import (
    INCOMPLETE_SIGNATURE,
    INVALID_SIGNATURE,
    MISSING_AUTHENTICATION,
    UNRECOGNIZED_CLIENT,
    Refused,
)

ALGORITHM = "AWS4-HMAC-SHA256"
SKEW_MS_MAX = 15 * 60 * 1_000
EXPIRES_S_MAX = 7 * 24 * 60 * 60
_CREDENTIAL = r"([^/,\s]{1,128})/([0-9]{8})/([^/,\s]{1,64})/([^/,\s]{1,64})/aws4_request"
_HEADER = re.compile(
    ALGORITHM
    + " +Credential="
    + _CREDENTIAL
    + r",\s*SignedHeaders=([a-z0-9;_-]{1,2000}),\s*Signature=([0-9a-f]{64})\s*"
)
# The same in a URL, its fields one after the other, and for how many seconds it is good.
_FIELDS = ("Algorithm", "Credential", "SignedHeaders", "Signature", "Expires")
_URL = re.compile(ALGORITHM + "\n" + _CREDENTIAL + r"\n([a-z0-9;_-]{1,2000})\n([0-9a-f]{64})\n([1-9][0-9]{0,5})")
_SIGNATURE = "X-Amz-Signature"
_SIGNER = re.compile(r"Credential=([A-Za-z0-9_.-]{1,128})(?:/|%2F)")
_TARGET = "x-amz-target"
_TIME = re.compile(r"[0-9]{8}T[0-9]{6}Z")
_SPACES = re.compile(r"\s+")


class Credentials(NamedTuple):
    """A pair that requests are signed with."""

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


class Claim(NamedTuple):
    """What a request says of its own signature."""

    key_id: str
    day: str
    region: str
    service: str
    names: str
    signature: str
    at: str
    # For how long one in a URL is good from that time on; 0 for one in the header, which is good around it.
    expires_s: int


def access_key_of(text: str) -> str:
    """Return who a header or a URL says has signed it; "" if that cannot be read.

    >>> access_key_of("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/sqs/aws4_request, SignedHeaders=host")
    'AKIDEXAMPLE'
    """
    found = _SIGNER.search(text)
    return found[1] if found else ""


def verify(request: Signed, credentials: Credentials, *, region: str, now_ms: int) -> None:
    """Raise `Refused` unless the request was signed with these credentials, lately, for this service."""
    claim = check_claim(request, lambda key_id: key_id == credentials.key_id, region=region, now_ms=now_ms)
    check_signature(request, claim, [credentials.secret])


def check_claim(request: Signed, is_known: Callable[[str], object], *, region: str, now_ms: int) -> Claim:
    """Return what a request says of its signature; raise `Refused` for what is wrong whatever its body is.

    Nothing looks at the body here: a request without a good claim is refused before its body is read.
    """
    headers = _gathered(request.headers)
    claim = _claim(request, headers)
    if not is_known(claim.key_id):
        raise Refused(UNRECOGNIZED_CLIENT, "The security token included in the request is invalid.")
    _check_time(claim, now_ms)
    day = claim.at[:8]
    if (day, region, "sqs") != (claim.day, claim.region, claim.service):
        raise Refused(
            INVALID_SIGNATURE,
            f"Credential should be scoped to {day}/{region}/sqs, not {claim.day}/{claim.region}/{claim.service}.",
        )
    # The header that names the action must be signed, so that a holder of a presigned URL cannot change it.
    needed = {"host"} | ({_TARGET} & headers.keys())
    if not needed <= set(claim.names.split(";")) <= headers.keys():
        raise Refused(
            INVALID_SIGNATURE, "Host, X-Amz-Target where there is one, and every header that is named must be signed."
        )
    return claim


def check_signature(request: Signed, claim: Claim, secrets: Sequence[str]) -> int:
    """Return which of some secrets the whole request, its body included, is signed with; raise `Refused` if none."""
    if claim.expires_s:
        request = request._replace(query=_without_signature(request.query))
    scope = f"{claim.day}/{claim.region}/{claim.service}/aws4_request"
    for place, secret in enumerate(secrets):
        credentials = Credentials(claim.key_id, secret)
        wanted = sign(request, credentials, claim.names.split(";"), claim.at, scope=scope)
        if hmac.compare_digest(wanted.encode(), claim.signature.encode()):
            return place
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
            quote(request.path or "/", safe="/-_.~"),
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


def _claim(request: Signed, headers: Mapping[str, str]) -> Claim:
    if "authorization" in headers:
        found = _HEADER.fullmatch(headers["authorization"])
        if found is None:
            raise Refused(INCOMPLETE_SIGNATURE, "The header Authorization is not a signature of version 4.")
        return Claim._make([*found.groups(), headers.get("x-amz-date", ""), 0])
    form = query_protocol.read_form(request.query.encode("latin-1"))
    if _SIGNATURE not in form:
        raise Refused(MISSING_AUTHENTICATION, "Request is missing Authentication Token")
    found = _URL.fullmatch("\n".join(form.get(f"X-Amz-{name}", "") for name in _FIELDS))
    if found is None or int(found[7]) > EXPIRES_S_MAX:
        raise Refused(INCOMPLETE_SIGNATURE, "The URL has no signature of version 4 that is good for a week or less.")
    return Claim._make([*found.groups()[:6], form.get("X-Amz-Date", ""), int(found[7])])


def _without_signature(query: str) -> str:
    return "&".join(part for part in query.split("&") if not part.startswith(f"{_SIGNATURE}="))


def _check_time(claim: Claim, now_ms: int) -> None:
    at = claim.at
    try:
        said = datetime.strptime(at, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC) if _TIME.fullmatch(at) else None
    except ValueError:
        said = None
    if said is None:
        raise Refused(INCOMPLETE_SIGNATURE, "Date must be in ISO-8601 'basic format', in X-Amz-Date.")
    past_ms = now_ms - said.timestamp() * 1_000
    if past_ms < -SKEW_MS_MAX or past_ms > (1_000 * claim.expires_s or SKEW_MS_MAX):
        most = f"{claim.expires_s} s" if claim.expires_s else "15 minutes"
        raise Refused(INVALID_SIGNATURE, f"Signature expired: {at} is not within {most} of the server's time.")


def _gathered(headers: Sequence[tuple[str, str]]) -> Mapping[str, str]:
    """By name in lower case: the values of a header, spaces made one, several joined by commas."""
    found: dict[str, str] = {}
    for name, value in headers:
        trimmed = _SPACES.sub(" ", value.strip())
        found[name] = f"{found[name]},{trimmed}" if name in found else trimmed
    return found


def _canonical_query(query: str) -> str:
    """The pairs in their order, as the client has escaped them: it has signed what it sent."""
    pairs = [part.partition("=") for part in query.split("&") if part]
    return "&".join(f"{name}={value}" for name, value in sorted((name, value) for name, _, value in pairs))
