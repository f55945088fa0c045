"""The history in two tables: the fields that stores keep, and the columns that are made of them for everyone who reads.

A row of the history is a message that left a queue. Everything that has a column of it is derived from here: frames on
disk, pages of both stores, Arrow streams of REST, what Spark reads, and the reference. The names of columns are those
of REST. The offset of a row says where it is:

    embedded      offset of the frame in its log · 17 bits for the row in the frame
    PostgreSQL    number of the transaction      · 24 bits for the row in it, as in its statements
"""

from collections.abc import Iterable
from enum import Enum, IntEnum, auto
from typing import NamedTuple

from penstock.contract.limits import HISTORY_ROWS_MAX
from penstock.contract.messages import OUTCOMES_TEXT

FRAME_ROW_BITS = HISTORY_ROWS_MAX.bit_length()
TRANSACTION_ROW_BITS = 24


class Field(NamedTuple):
    """What a store keeps of each settled message, under the name that frames and pages have for it."""

    name: str
    # Its width on disk: a number as `frame.py` codes it; `i` a place in a table of words; `*` bytes of any size.
    code: str
    # Where PostgreSQL has it: a column of the table `history`, or both numbers of a `home_key`.
    sql: str
    # Whether a frame or a page may leave it out, because no row has one.
    is_optional: bool = False


# In the order in which a frame has them.
FIELDS = (
    Field("queue", "I", "queue"),
    Field("home", "I", "home"),
    Field("sent_tier", "B", "home_key"),
    Field("number", "Q", "home_key"),
    Field("tier", "B", "tier"),
    Field("sent_at_ms", "q", "sent_at_ms"),
    Field("first_leased_ms", "q", "first_leased_ms"),
    Field("last_leased_ms", "q", "last_leased_ms"),
    Field("settled_at_ms", "q", "settled_at_ms"),
    Field("deliveries", "I", "deliveries"),
    Field("ending", "B", "ending"),
    Field("group", "i", "grp", is_optional=True),
    Field("error", "i", "error", is_optional=True),
    Field("body", "*", "body", is_optional=True),
    Field("attributes", "*", "attributes", is_optional=True),
    Field("key", "Q", "key", is_optional=True),
)
# Where a row is in the history: no frame says it, as it follows from where the frame is.
OFFSETS = Field("offsets", "q", "at_offset")
# The numbers that every row has, and their widths.
NUMBERS = {field.name: field.code for field in FIELDS if not field.is_optional}


class BodyState(IntEnum):
    """Whether the body of a row is in the history. The numbers are written to disk."""

    NOT_KEPT = 0
    KEPT = 1
    # It leaves no room in a record for what the history says about it.
    TOO_LARGE = 2


class Form(Enum):
    """How a column is made of a field."""

    PLAIN = auto()
    TIME = auto()
    # Of which 0 means never.
    MAYBE_TIME = auto()
    # A number that stands for a word.
    QUEUE = auto()
    PRIORITY = auto()
    OUTCOME = auto()
    STATE = auto()
    # Bytes, or UTF-8, that are empty where there is none.
    WORD = auto()
    TEXT = auto()


class Column(NamedTuple):
    name: str
    # The type that Spark has it in.
    kind: str
    meaning: str
    # The field that it is made of; empty if it is the same in all rows that are read at once.
    field: str = ""
    form: Form = Form.PLAIN


HISTORY = (
    Column("queue", "STRING", "The queue that the message left, by name.", "queue", Form.QUEUE),
    Column(
        "queue_id",
        "BIGINT",
        "The number of that queue. A queue that is made again under its name has another one.",
        "queue",
    ),
    Column("first_queue", "BIGINT", "The number of the queue it was first sent to; with the next two, its id.", "home"),
    Column("sent_tier", "TINYINT", "The tier it was sent at: 0 is the most urgent, 4 the least.", "sent_tier"),
    Column("number", "BIGINT", "Its number among those sent to that queue at that tier, from 0 on.", "number"),
    Column("key", "BIGINT", "Its position in this queue: number · 8 + tier there. A move gives it a new one.", "key"),
    Column("tier", "TINYINT", "The tier it was received at last, or waited in if it never was.", "tier"),
    Column(
        "priority", "STRING", "The same as a word: CRITICAL, HIGH, NORMAL, LOW or BACKGROUND.", "tier", Form.PRIORITY
    ),
    Column("sent_at", "TIMESTAMP", "When it was first sent.", "sent_at_ms", Form.TIME),
    Column(
        "first_received_at",
        "TIMESTAMP",
        "When it was first received in this queue; null if it never was.",
        "first_leased_ms",
        Form.MAYBE_TIME,
    ),
    Column(
        "last_received_at",
        "TIMESTAMP",
        "When it was last received in this queue; null if it never was.",
        "last_leased_ms",
        Form.MAYBE_TIME,
    ),
    Column("settled_at", "TIMESTAMP", "When it left the queue.", "settled_at_ms", Form.TIME),
    Column("delivery_count", "INT", "How many times it was received, in earlier queues too.", "deliveries"),
    Column("outcome", "STRING", f"{OUTCOMES_TEXT}.", "ending", Form.OUTCOME),
    Column("group", "STRING", "Its group; null if it has none.", "group", Form.WORD),
    Column("error", "STRING", "The error of its last failure; null if there was none.", "error", Form.TEXT),
    Column("data", "BINARY", "Its body; null unless its queue keeps full history.", "body"),
    Column("attributes", "STRING", "Its attributes as a JSON object; null as `data`.", "attributes", Form.TEXT),
    Column("shard", "INT", "The shard whose history the row is in."),
    Column("offset", "BIGINT", "Its position in that history. Offsets rise, but not by one.", "offsets"),
)
# REST has no column for the shard, which a request names, and another one for the tier of the send.
REST_HISTORY = (
    *(column for column in HISTORY if column.field),
    Column("sent_priority", "STRING", "The tier it was sent at as a word.", "sent_tier", Form.PRIORITY),
)

# Of a queue that is read, all messages have its name, its number and the time of the look.
LIVE = (
    Column("queue", "STRING", "The queue that the message is in, by name."),
    Column("queue_id", "BIGINT", "The number of that queue."),
    Column("first_queue", "BIGINT", "The number of the queue it was first sent to; with the next two, its id.", "home"),
    Column("sent_tier", "TINYINT", "The tier it was sent at.", "sent_tier"),
    Column("number", "BIGINT", "Its number among those sent to that queue at that tier, from 0 on.", "number"),
    Column("key", "BIGINT", "Its position in this queue: number · 8 + tier there.", "key"),
    Column("tier", "TINYINT", "The tier it is in now.", "tier"),
    Column("priority", "STRING", "The same as a word.", "tier", Form.PRIORITY),
    Column(
        "state",
        "STRING",
        "ready, delayed, in_flight, stuck (its dead-letter queue is full) or moving (to another queue).",
        "place",
        Form.STATE,
    ),
    Column("sent_at", "TIMESTAMP", "When it was first sent.", "sent_at_ms", Form.TIME),
    Column("delivery_count", "INT", "How many times it was received, in earlier queues too.", "deliveries"),
    Column("group", "STRING", "Its group; null if it has none.", "group", Form.WORD),
    Column("error", "STRING", "The error of its last failure; null if there was none.", "error", Form.TEXT),
    Column("data", "BINARY", "Its body.", "body"),
    Column("attributes", "STRING", "Its attributes as a JSON object; null if it has none.", "attributes", Form.TEXT),
    Column(
        "seen_at", "TIMESTAMP", "When the server read the queue. A message settled later may be in the history too."
    ),
)

# As Spark's own source for Kafka has them, with its letters.
TOPIC = (
    Column("key", "BINARY", "The key of the record; null if it has none."),
    Column("value", "BINARY", "Its value; null for a tombstone, which deletes its key."),
    Column("topic", "STRING", "The topic."),
    Column("partition", "INT", "The partition."),
    Column("offset", "BIGINT", "Its offset in the partition."),
    Column("timestamp", "TIMESTAMP", "When its producer made it, or when it arrived."),
    Column("timestampType", "INT", "0 if `timestamp` is from the producer, 1 if it is the arrival."),
    Column("headers", "ARRAY<STRUCT<key: STRING, value: BINARY>>", "Its headers in their order; null if it has none."),
)


def columns_of(names: Iterable[str]) -> tuple[Column, ...]:
    """Return columns of the history by their names, in their order."""
    known = {column.name: column for column in HISTORY}
    return tuple(known[name] for name in names)


def ddl(columns: Iterable[Column]) -> str:
    """Return columns as Spark's readers take a schema.

    >>> ddl(HISTORY[:2])
    '`queue` STRING, `queue_id` BIGINT'
    """
    return ", ".join(f"`{column.name}` {column.kind}" for column in columns)
