"""The history as a whole, for whoever reads all of it: its shards, where to cut them, and letting go of what was read.

Rows of all queues are in it, deleted ones too, so a key has to be good for all queues.
"""

from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from penstock.api.rest.calling import Answer, Call
from penstock.api.rest.errors import bad_field
from penstock.api.rest.formats import Decoder
from penstock.api.rest.history import since_ms
from penstock.broker.access import Role
from penstock.wire.operating import HistoryOffset, HistoryShard, HistoryShards, Offset, Shard, TrimHistory, Trimmed

_read_trim = Decoder(TrimHistory)


class OffsetQuery(Struct, forbid_unknown_fields=True, kw_only=True):
    shard: Shard
    since: Annotated[str, Meta(max_length=64)] | UnsetType = UNSET
    offset: Offset | UnsetType = UNSET
    rows: Annotated[int, Meta(ge=1, le=2**53)] | UnsetType = UNSET


async def shards(call: Call) -> Answer:
    call.caller.check_everywhere(Role.READ)
    return Answer(HistoryShards([HistoryShard(*each) for each in await call.queues.store.history_shards()]))


async def find_offset(call: Call) -> Answer:
    """Answer where a time begins, or where so many rows from an offset on end."""
    call.caller.check_everywhere(Role.READ)
    asked: OffsetQuery = call.query(OffsetQuery)
    store = call.queues.store
    if not isinstance(asked.since, UnsetType):
        if not isinstance(asked.rows, UnsetType) or not isinstance(asked.offset, UnsetType):
            raise bad_field("since is a question of its own; offset and rows are another", "since")
        return Answer(HistoryOffset(await store.history_offset_at(asked.shard, since_ms(asked.since))))
    if isinstance(asked.rows, UnsetType):
        raise bad_field("what is sought? give since, or rows from an offset on", "rows")
    offset = 0 if isinstance(asked.offset, UnsetType) else asked.offset
    return Answer(HistoryOffset(await store.history_offset_after(asked.shard, offset, rows=asked.rows)))


async def trim(call: Call) -> Answer:
    call.caller.check_everywhere(Role.ADMIN)
    asked: TrimHistory = await call.body(_read_trim)
    first_kept = await call.queues.store.trim_history(asked.shard, before=asked.before)
    await call.did("history.trim", f"shard {asked.shard}", detail=f"kept from {first_kept}")
    return Answer(Trimmed(asked.shard, first_kept))
