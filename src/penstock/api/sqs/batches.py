"""What every batch obeys: how many entries, how they are named, and that each succeeds or fails by itself."""

import re
from collections.abc import Sequence
from typing import Protocol

from penstock.api.sqs.errors import (
    BATCH_ENTRY_IDS_NOT_DISTINCT,
    EMPTY_BATCH_REQUEST,
    INVALID_BATCH_ENTRY_ID,
    TOO_MANY_ENTRIES,
    Refused,
)
from penstock.api.sqs.shapes import BatchResultErrorEntry

ENTRIES_MAX = 10
_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")


class Entry(Protocol):
    id: str


def check(entries: Sequence[Entry], kind: str) -> None:
    """Refuse a whole batch; ``kind`` is what an entry of it is called."""
    if not entries:
        raise Refused(EMPTY_BATCH_REQUEST, f"There should be at least one {kind} in the request.")
    if len(entries) > ENTRIES_MAX:
        raise Refused(
            TOO_MANY_ENTRIES,
            f"Maximum number of entries per request are {ENTRIES_MAX}. You have sent {len(entries)}.",
        )
    seen: set[str] = set()
    for entry in entries:
        if not _ID.fullmatch(entry.id):
            raise Refused(
                INVALID_BATCH_ENTRY_ID,
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if entry.id in seen:
            raise Refused(BATCH_ENTRY_IDS_NOT_DISTINCT, f"Id {entry.id} repeated.")
        seen.add(entry.id)


def failed(entry: Entry, refused: Refused) -> BatchResultErrorEntry:
    return BatchResultErrorEntry(
        id=entry.id, sender_fault=refused.kind.is_sender, code=refused.kind.code, message=refused.message
    )
