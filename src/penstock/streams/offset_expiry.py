"""Which committed offsets have had their time. What members read stays, however old it is.

| the group                         | an offset is kept for the retention after          |
|-----------------------------------|----------------------------------------------------|
| has no members, and had some      | the last one left, or the commit if that was later |
| never had any                     | the commit                                         |
| is stable, and reads the topic    | nothing: it stays                                  |
| is stable, and does not read it   | the commit                                         |
| is between two generations        | nothing: it stays, until they know what they read  |

A commit that says itself how long it is to be kept is taken at its word.
"""

from collections.abc import Iterator, Mapping

from penstock.core.consumer_group.group import Group
from penstock.core.consumer_group.requests import GroupState
from penstock.streams.offset_records import Kept, Place


def expired(group: Group, offsets: Mapping[Place, Kept], *, now_ms: int, retention_ms: int) -> Iterator[Place]:
    if group.state not in {GroupState.EMPTY, GroupState.STABLE}:
        return
    is_left = group.state is GroupState.EMPTY and bool(group.protocol_type)
    since_ms = group.empty_since_ms if is_left else 0
    read: dict[str, bool] = {}
    for place, kept in offsets.items():
        until_ms = kept.expires_at_ms
        if until_ms is None:
            until_ms = max(since_ms, kept.committed_at_ms) + retention_ms
        if until_ms > now_ms:
            continue
        topic, _ = place
        if topic not in read:
            read[topic] = group.reads(topic)
        if not read[topic]:
            yield place
