"""SCRAM-SHA-256 (RFC 5802, RFC 7677), the server's side: a client proves that it has a key, and never says it.

    n,,n=USER,r=NONCE                ──▶  r=NONCE+OURS,s=SALT,i=ITERATIONS
    c=biws,r=NONCE+OURS,p=PROOF      ──▶  v=SIGNATURE

Channel binding is not offered. Whoever reads `keys.json` cannot log in with what is
there, as it holds the hash of what a proof is made of.
"""

import base64
import binascii
import hmac
from collections.abc import Sequence
from hashlib import sha256

from penstock.broker.access import Scram

# What a client says that does not bind to the channel, and would not have if it could.
_HEADERS = ("n,,", "y,,")


class BadScram(Exception):
    """What a client said is no SCRAM, or proves nothing."""


class Exchange:
    """One login; ``ours`` is a nonce that nobody can guess."""

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
