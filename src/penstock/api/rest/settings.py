"""A queue's settings in the words of REST, and back."""

from dataclasses import replace
from typing import Any

import msgspec

from penstock.api.rest.errors import bad_field
from penstock.api.rest.times import milliseconds
from penstock.contract.limits import LEASE_MS_MAX
from penstock.contract.names import dead_letters_of, is_dead_letters
from penstock.contract.queue_settings import DedupScope, QueueSettings, as_said, from_said
from penstock.wire.queue_settings import PART_TYPES, Settings

# REST allows a lease of no length, as others do; ours has one, and ends at once.
_LEASE_MS_MIN = 1


def settings_of(asked: Settings, queue: str, old: QueueSettings | None = None) -> QueueSettings:
    """Return the settings that were asked for; what is left out is as in ``old``, or has its default."""
    found = from_said(msgspec.to_builtins(asked))
    is_live = old is None or old.dedup_scope is DedupScope.LIVE
    if "dedup_window_ms" in found and "dedup_scope" not in found and is_live:
        # Who says how long the window is wants one.
        found["dedup_scope"] = DedupScope.WINDOW
    if "dead_letters" in found:
        found["dead_letters"] = _grave(found["dead_letters"], queue)
    if old is not None:
        if found.get("is_fifo", old.is_fifo) is not old.is_fifo:
            raise bad_field("fifo is chosen when a queue is created, and stays", "fifo")
        return replace(old, **found)
    if is_dead_letters(queue) and not found.get("dead_letters"):
        # What is in the dead letters has nowhere to go.
        found.setdefault("deliveries_max", 0)
    return QueueSettings(**found)


def lease_ms(visibility_timeout: float) -> int:
    return max(_LEASE_MS_MIN, min(LEASE_MS_MAX, milliseconds(visibility_timeout)))


def view_of(settings: QueueSettings, queue: str) -> dict[str, Any]:
    """Return all settings, by the names they have in a `QueueView`."""
    found = as_said(settings)
    default = None if is_dead_letters(queue) else dead_letters_of(queue)
    return (
        found
        | {part: kind(**found[part]) for part, kind in PART_TYPES.items()}
        | {"dead_letter_queue": settings.dead_letters or default}
    )


def _grave(dead_letters: str, queue: str) -> str:
    """The default name is the same as none, so that a view can be sent back as it is."""
    if dead_letters == queue:
        raise bad_field("a queue cannot be its own dead-letter queue", "dead_letter_queue")
    return "" if dead_letters == dead_letters_of(queue) else dead_letters
