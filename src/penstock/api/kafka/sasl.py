"""SaslHandshake and SaslAuthenticate: who a client is, by the same keys as for REST.

PLAIN (RFC 4616): the user is the id or the name of a key, the password the whole key,
`pk_…`. A server that others can reach has TLS, so it is not read on the way.
"""

from kio.schema.errors import ErrorCode

from penstock.api.kafka.calling import Values
from penstock.broker.access import EVERYBODY, Access, Caller, KeyNeeded, KeyUnknown

PLAIN = "PLAIN"
MECHANISMS = (PLAIN,)
_FAILED = (
    "the user or the key is not one of this server's; the user is the id or the name of a key, the password the key"
)


class Login:
    def __init__(self, access: Access) -> None:
        self._access = access
        self._mechanism: str | None = None
        self._shown: str | None = None
        self.has_failed = False

    @property
    def caller(self) -> Caller | None:
        """Who asks, as of now; None for a stranger. An open server knows everybody."""
        if self._access.is_open:
            return EVERYBODY
        if self._shown is None:
            return None
        try:
            return self._access.authenticate(self._shown)
        except (KeyNeeded, KeyUnknown):
            return None

    def begin(self, mechanism: str) -> Values:
        is_known = mechanism in MECHANISMS
        self._mechanism = mechanism if is_known else None
        error = 0 if is_known else ErrorCode.unsupported_sasl_mechanism
        return {"error_code": error, "mechanisms": list(MECHANISMS)}

    def go_on(self, said: bytes) -> Values:
        if self._mechanism is None:
            return self._refused(ErrorCode.illegal_sasl_state, "a SaslHandshake comes first")
        if not self._is_shown(said):
            return self._refused(ErrorCode.sasl_authentication_failed, _FAILED)
        return {"error_code": 0, "error_message": None, "auth_bytes": b"", "session_lifetime": 0}

    def _is_shown(self, said: bytes) -> bool:
        """Look at `authorization NUL user NUL password`."""
        try:
            _, user, key = said.decode().split("\0")
            shown = f"Bearer {key}"
            caller = self._access.authenticate(shown)
        except (ValueError, KeyNeeded, KeyUnknown):
            return False
        if self._access.is_open or user in (caller.name, key.split("_")[1]):
            self._shown = shown
            return True
        return False

    def _refused(self, error: int, message: str) -> Values:
        self.has_failed = True
        return {"error_code": error, "error_message": message, "auth_bytes": b"", "session_lifetime": 0}
