"""The ids of messages that are told apart by their content: a digest of the body."""

from dataclasses import replace
from hashlib import blake2b

from penstock.core.queue.message import Drafts

_PREFIX = b"content:"
_DIGEST_BYTES = 32


def with_digests(drafts: Drafts) -> Drafts:
    """Return drafts in which each message that has no id of its own has one made of its body.

    The attributes are not part of it, as with others: a trace differs from send to send.

    >>> given = Drafts(bodies=[b"a", b"a", b"b"], dedup_ids=[b"", b"mine", b""])
    >>> first, second, third = with_digests(given).dedup_ids
    >>> second, first == third, len(first)
    (b'mine', False, 40)
    """
    names = drafts.dedup_ids or [b""] * len(drafts)
    made = [name or _digest(body) for name, body in zip(names, drafts.bodies, strict=True)]
    return replace(drafts, dedup_ids=made)


def _digest(body: bytes | bytearray | memoryview) -> bytes:
    # What a caller says itself cannot be taken for one of these by chance.
    return _PREFIX + blake2b(body, digest_size=_DIGEST_BYTES).digest()
