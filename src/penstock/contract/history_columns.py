"""What the columns of the history are: one table, for the source, the archive and every transform.

A row of the history is a message that left a queue. The words are those of REST. Its offset says where it is:

    embedded      offset of the frame in its log · 17 bits for the row in the frame
    PostgreSQL    number of the transaction      · 24 bits for the row in it, as in its statements
"""

from collections.abc import Iterable
from typing import NamedTuple

from penstock.contract.limits import HISTORY_ROWS_MAX

FRAME_ROW_BITS = HISTORY_ROWS_MAX.bit_length()
TRANSACTION_ROW_BITS = 24


class Column(NamedTuple):
    name: str
    kind: str
    meaning: str


HISTORY = (
    Column("queue", "STRING", "The queue that the message left, by name."),
    Column("queue_id", "BIGINT", "The number of that queue: of this one and of no other of its name."),
    Column("first_queue", "BIGINT", "The number of the queue it was first sent to; with the next two, its id."),
    Column("sent_tier", "TINYINT", "The tier it was sent at: 0 is the most urgent, 4 the least."),
    Column("number", "BIGINT", "Its number among those sent to that queue at that tier, from 0 on."),
    Column("key", "BIGINT", "Its place in this queue: number · 8 + tier there; a move gives it another one."),
    Column("tier", "TINYINT", "The tier it was received at last, or waited in if it never was."),
    Column("priority", "STRING", "The same as a word: CRITICAL, HIGH, NORMAL, LOW or BACKGROUND."),
    Column("sent_at", "TIMESTAMP", "When it was first sent."),
    Column("first_received_at", "TIMESTAMP", "When it was first received in this queue; null if it never was."),
    Column("last_received_at", "TIMESTAMP", "When it was last received in this queue; null if it never was."),
    Column("settled_at", "TIMESTAMP", "When it left the queue."),
    Column("delivery_count", "INT", "How often it was received, in earlier queues too."),
    Column("outcome", "STRING", "acked, buried, expired, purged, redriven or deleted."),
    Column("group", "STRING", "Its group; null if it has none."),
    Column("error", "STRING", "What its last failure said; null if there was none."),
    Column("data", "BINARY", "Its body; null unless its queue keeps full history."),
    Column("attributes", "STRING", "Its attributes as a JSON object; null as `data`."),
    Column("shard", "INT", "The shard whose history the row is in."),
    Column("offset", "BIGINT", "Where in that history; it rises in steps that mean nothing."),
)

LIVE = (
    Column("queue", "STRING", "The queue that the message is in, by name."),
    Column("queue_id", "BIGINT", "The number of that queue."),
    Column("first_queue", "BIGINT", "The number of the queue it was first sent to; with the next two, its id."),
    Column("sent_tier", "TINYINT", "The tier it was sent at."),
    Column("number", "BIGINT", "Its number among those sent to that queue at that tier, from 0 on."),
    Column("key", "BIGINT", "Its place in this queue: number · 8 + tier there."),
    Column("tier", "TINYINT", "The tier it is in now."),
    Column("priority", "STRING", "The same as a word."),
    Column("state", "STRING", "What it does: waits, rests, is received, is stuck or on its way to another queue."),
    Column("sent_at", "TIMESTAMP", "When it was first sent."),
    Column("delivery_count", "INT", "How often it was received, in earlier queues too."),
    Column("group", "STRING", "Its group; null if it has none."),
    Column("error", "STRING", "What its last failure said; null if there was none."),
    Column("data", "BINARY", "Its body."),
    Column("attributes", "STRING", "Its attributes as a JSON object; null if it has none."),
    Column("seen_at", "TIMESTAMP", "When the server looked. What was settled later may be in the history too."),
)

# As Spark's own source for Kafka has them, with its letters.
TOPIC = (
    Column("key", "BINARY", "The key of the record; null if it has none."),
    Column("value", "BINARY", "Its value; null if it says that its key is gone."),
    Column("topic", "STRING", "The topic."),
    Column("partition", "INT", "The partition."),
    Column("offset", "BIGINT", "Its offset in the partition."),
    Column("timestamp", "TIMESTAMP", "When it was made, as its producer says, or when it arrived."),
    Column("timestampType", "INT", "Which of the two: 0 when it was made, 1 when it arrived."),
    Column("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>", "Its headers in their order; null if it has none."),
)


def columns_of(names: Iterable[str]) -> tuple[Column, ...]:
    """Return columns of the history by their names, in their order."""
    known = {column.name: column for column in HISTORY}
    return tuple(known[name] for name in names)


def ddl(columns: "tuple[Column, ...]") -> str:
    """Return columns as Spark's readers take a schema.

    >>> ddl(HISTORY[:2])
    '`queue` STRING, `queue_id` BIGINT'
    """
    return ", ".join(f"`{column.name}` {column.kind}" for column in columns)
