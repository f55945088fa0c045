"""What SQS knows of a queue and Penstock does not: tags, policies and the like, in the labels of its settings.

They are stored and given back. Policies are not enforced and nothing is encrypted; the
reference says so for each attribute.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import msgspec

from penstock.contract.queue_settings import QueueSettings


class Kept(msgspec.Struct, omit_defaults=True, frozen=True):
    tags: dict[str, str] = {}
    # As they were set, by their names.
    attributes: dict[str, str] = {}
    modified_at_s: int = 0
    # A second purge has to wait, whatever happens to the server meanwhile.
    purged_at_ms: int = 0


class _Labels(msgspec.Struct, omit_defaults=True):
    """One place for each front end."""

    sqs: Kept = Kept()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Labels).decode


@lru_cache(maxsize=1_024)
def _read(labels: str) -> Kept:
    try:
        return _decode(labels).sqs
    except ValueError:
        # Somebody else's; there is nothing of ours in it.
        return Kept()


def kept_of(settings: QueueSettings) -> Kept:
    """Return what is kept with a queue. Nobody changes it: it is shared."""
    return _read(settings.labels) if settings.labels else Kept()


def with_kept(settings: QueueSettings, kept: Kept) -> QueueSettings:
    return replace(settings, labels=_encode(_Labels(kept)).decode())


def with_attribute(settings: QueueSettings, name: str, value: str) -> QueueSettings:
    """Return settings that keep one attribute with this value, or without it if that is empty."""
    kept = kept_of(settings)
    others = {other: said for other, said in kept.attributes.items() if other != name}
    attributes = {**others, name: value} if value else others
    return with_kept(settings, msgspec.structs.replace(kept, attributes=attributes))


def changing(change: Callable[[Kept], Kept]) -> Callable[[QueueSettings], QueueSettings]:
    """Return a change of settings that changes only what is kept."""
    return lambda settings: with_kept(settings, change(kept_of(settings)))
