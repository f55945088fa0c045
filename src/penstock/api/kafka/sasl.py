"""SaslHandshake and SaslAuthenticate: who a client is, by the same keys as for REST.

The user is the id or the name of a key, the password the whole key, `pk_…`.

PLAIN (RFC 4616) says the key itself, so it is offered only where it cannot be read on
the way: over TLS, or on the machine itself. SCRAM-SHA-256 proves the key without saying
it; keys from before it was spoken here know only PLAIN.

Who a client is is looked up for each request: a key may be revoked at any time.

SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side:

    n,,n=USER,r=NONCE                ──▶  r=NONCE+OURS,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+OURS,p=PROOF      ──▶  v=SIGNATURE

Channel binding is not offered. `keys.json` is not enough to log in, as it holds the
hash of what a proof is made of.
"""

import base64
import binascii
import hmac
import secrets
from collections.abc import Callable, Sequence
from hashlib import sha256

from kio.schema.errors import ErrorCode

from penstock.api.kafka.request import Values
from penstock.broker.access import ANONYMOUS_ADMIN, Access, Caller, KeyNeeded, KeyUnknown, Scram

PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
_NONCE_BYTES = 18
# What a client says that does not bind to the channel, and would not have if it could.
_HEADERS = ("n,,", "y,,")
_FAILED = (
    "the user or the key is not one of this server's; the user is the id or the name of a key, the password the key"
)


class Login:
    def __init__(self, access: Access, *, is_private: bool) -> None:
        self._access = access
        self._mechanisms = [PLAIN, SCRAM] if is_private else [SCRAM]
        self._mechanism: str | None = None
        self._exchange: tuple[ScramExchange, str, tuple[Scram, ...]] | None = None
        # Finds who has shown a key, as long as it is good.
        self._find: Callable[[], Caller] | None = None
        self.has_failed = False
        # Who it says it is.
        self.user = ""

    @property
    def caller(self) -> Caller | None:
        """Who asks, as of now; None for a stranger. An open server knows everybody."""
        if self._access.is_open:
            return ANONYMOUS_ADMIN
        if self._find is None:
            return None
        try:
            return self._find()
        except (KeyNeeded, KeyUnknown):
            return None

    def begin(self, mechanism: str) -> Values:
        is_known = mechanism in self._mechanisms
        self._mechanism = mechanism if is_known else None
        self._exchange = None
        error = 0 if is_known else ErrorCode.unsupported_sasl_mechanism
        return {"error_code": error, "mechanisms": self._mechanisms}

    def go_on(self, said: bytes) -> Values:
        if self._mechanism is None:
            return self._refused(ErrorCode.illegal_sasl_state, "a SaslHandshake comes first")
        try:
            answer = self._plain(said) if self._mechanism == PLAIN else self._scram(said)
        except (BadScram, ValueError, KeyNeeded, KeyUnknown):
            # The same words for every reason: a stranger learns nothing about what was nearly right.
            return self._refused(ErrorCode.sasl_authentication_failed, _FAILED)
        return {"error_code": 0, "error_message": None, "auth_bytes": answer, "session_lifetime": 0}

    def _plain(self, said: bytes) -> bytes:
        """Look at `authorization NUL user NUL password`."""
        _, user, key = said.decode().split("\0")
        self.user = user
        shown = f"Bearer {key}"
        caller = self._access.authenticate(shown)
        if not self._access.is_open and user not in (caller.name, key.split("_")[1]):
            raise KeyUnknown("the key is another one's")
        self._find = lambda: self._access.authenticate(shown)
        return b""

    def _scram(self, said: bytes) -> bytes:
        if self._exchange is None:
            exchange = ScramExchange(said, secrets.token_urlsafe(_NONCE_BYTES))
            self.user = exchange.user
            key_id, scrams = self._access.scrams_of(exchange.user)
            self._exchange = exchange, key_id, scrams
            return exchange.challenge(scrams[0])
        exchange, key_id, scrams = self._exchange
        self._exchange = None
        signature, scram = exchange.prove(said, scrams)
        self._find = lambda: self._access.caller_of(key_id, scram)
        return signature

    def _refused(self, error: int, message: str) -> Values:
        self.has_failed = True
        return {"error_code": error, "error_message": message, "auth_bytes": b"", "session_lifetime": 0}


class BadScram(Exception):
    """What a client said is no SCRAM, or proves nothing."""


class ScramExchange:
    """One login; ``ours`` is a nonce that cannot be guessed."""

    def __init__(self, first: bytes, ours: str) -> None:
        """Read the first message; raises `BadScram`."""
        text = _text(first)
        if text[:3] not in _HEADERS:
            raise BadScram("channel binding is not offered")
        self._header, self._bare = text[:3], text[3:]
        fields = _fields(self._bare)
        if "n" not in fields or "r" not in fields or "m" in fields:
            raise BadScram("a user and a nonce come first")
        self.user = fields["n"].replace("=2C", ",").replace("=3D", "=")
        self._nonce = fields["r"] + ours
        self._challenge = ""

    def challenge(self, scram: Scram) -> bytes:
        salt = base64.b64encode(scram.salt).decode()
        self._challenge = f"r={self._nonce},s={salt},i={scram.iterations}"
        return self._challenge.encode()

    def prove(self, last: bytes, scrams: Sequence[Scram]) -> tuple[bytes, Scram]:
        """Return our signature, and which secret the last message proves, of several with one salt; or `BadScram`."""
        text = _text(last)
        fields = _fields(text)
        bound = base64.b64encode(self._header.encode()).decode()
        if fields.get("c") != bound or fields.get("r") != self._nonce or "p" not in fields:
            raise BadScram("this is no answer to what was asked")
        signed = f"{self._bare},{self._challenge},{text.rpartition(',p=')[0]}".encode()
        proof = _decoded(fields["p"])
        if len(proof) != sha256().digest_size:
            raise BadScram("a proof has 32 bytes")
        for scram in scrams:
            client_signature = hmac.digest(scram.stored_key, signed, "sha256")
            client_key = bytes(a ^ b for a, b in zip(proof, client_signature, strict=True))
            if hmac.compare_digest(sha256(client_key).digest(), scram.stored_key):
                return b"v=" + base64.b64encode(hmac.digest(scram.server_key, signed, "sha256")), scram
        raise BadScram("the key is another one")


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise BadScram("this is no text") from None


def _fields(text: str) -> dict[str, str]:
    return {each[0]: each[2:] for each in text.split(",") if each[1:2] == "="}


def _decoded(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadScram("this is no base64") from None
