"""SaslHandshake and SaslAuthenticate: who a client is, by the same keys as for REST.

The user is the id or the name of a key, the password the whole key, `pk_…`.

PLAIN (RFC 4616) says the key itself, so it is offered only where nobody on the way can
read it: over TLS, or on the machine itself. SCRAM-SHA-256 proves the key without saying
it; keys from before it was spoken here know only PLAIN.

Who somebody is is looked up for each request: a key may be revoked at any time.
"""

import secrets
from collections.abc import Callable

from kio.schema.errors import ErrorCode

from penstock.api.kafka.calling import Values
from penstock.api.kafka.scram import BadScram, Exchange
from penstock.broker.access import ANONYMOUS_ADMIN, Access, Caller, KeyNeeded, KeyUnknown, Scram

PLAIN, SCRAM = "PLAIN", "SCRAM-SHA-256"
_NONCE_BYTES = 18
_FAILED = (
    "the user or the key is not one of this server's; the user is the id or the name of a key, the password the key"
)


class Login:
    def __init__(self, access: Access, *, is_private: bool) -> None:
        self._access = access
        self._mechanisms = [PLAIN, SCRAM] if is_private else [SCRAM]
        self._mechanism: str | None = None
        self._exchange: tuple[Exchange, str, tuple[Scram, ...]] | None = None
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
            exchange = Exchange(said, secrets.token_urlsafe(_NONCE_BYTES))
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
