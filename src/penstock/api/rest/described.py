"""What is true of the API and no type says: parameters of paths, headers, formats, what excludes what."""

from typing import Any

from penstock.contract.messages import PRIORITIES

Schema = dict[str, Any]

TAGS = {
    "queues": "Queues: made, listed, described, changed, emptied, deleted.",
    "messages": "Messages: sent, received, acked, given back, held for longer, looked at.",
    "operating": "For operators: escalations, dead letters that go back, and the history of settled messages.",
    "topics": "Topics and their consumer groups, for people: programs that produce and consume speak Kafka.",
}

STATUSES = {200: "Done.", 201: "Made, and on the disk.", 202: "Begun.", 204: "Done; there is nothing to say."}

FRAMED = frozenset(
    {"send_messages", "receive_messages", "lease_messages", "ack_messages", "release_messages", "extend_messages"}
)
LEASES = frozenset({"receive_messages", "lease_messages"})
ARROWED = frozenset({"read_history", "read_shard_history", "list_live_messages"})
BATCHED = frozenset({"browse_records"})
# Those that take record batches.
BATCHES_TAKEN = frozenset({"produce_records"})
BODY_OPTIONAL = frozenset({"lease_messages", "requeue_message", "begin_redrive", "create_producers"})

PATH_PARAMETERS: dict[str, Schema] = {
    "queue": {
        "description": "The name of a queue, or its id, which begins with `q_`.",
        "type": "string",
        "minLength": 1,
        "maxLength": 85,
        "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
    },
    "message_id": {
        "description": "The id of a message, as sending or receiving it answered.",
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "pattern": "^[0-9a-f]+-[0-9a-f]+$",
    },
    "topic": {
        "description": "The name of a topic.",
        "type": "string",
        "minLength": 1,
        "maxLength": 249,
        "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._-]+$",
    },
    "group": {
        "description": "The name of a consumer group; one with a slash in it cannot be had here.",
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
    },
    "task_id": {
        "description": "The id of a task, as starting it answered.",
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "pattern": "^r_[0-9a-f]+$",
    },
}

# Parameters of queries whose types do not say it themselves.
QUERY_PARAMETERS: dict[str, str] = {
    "after": "`next` of the page before; without it, the first page.",
    "bodies": "Whether bodies and attributes come with them.",
    "columns": "Of an Arrow stream only these, comma separated, in this order.",
    "cursor": "`next` of the page before; without it, the first page.",
    "group": "Of this group only.",
    "limit": "How many at most.",
    "offset": "`next_offset` of the page before; without it, the first that is kept.",
    "partition": "The number of a partition, from 0 on.",
    "prefix": "Only names that begin with this.",
    "rows": "How many rows, about: whole frames are counted.",
    "since": "Settled at this instant or later: RFC 3339, or seconds since 1970.",
    "told": "Whether the history is to tell first of all that is settled, and the answer up to where.",
    "until": "Only rows below this offset.",
    "visibility_timeout": "Seconds for which they are hidden from others. By default the queue's.",
    "wait_s": "Seconds to wait for a message if there is none.",
    "with_dead_letters": "Whether its dead-letter queue goes with it, if nobody else buries there.",
}

REQUEST_HEADERS: dict[str, dict[str, Schema]] = {
    "send_messages": {
        "Idempotency-Key": {
            "description": "Sent again with the same key, messages are not sent again: the first ids are answered.",
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
        }
    }
}

HEADERS: dict[str, Any] = {
    "Retry-After": {
        "description": "Whole seconds to wait before trying again; `retry_after_s` in the body is exact.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Location": {"description": "Where the queue is.", "schema": {"type": "string"}},
    "Penstock-Next-Offset": {
        "description": "Give it as `offset` to go on. An Arrow stream has no other place for it.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Cache-Control": {"description": "Never kept by anybody on the way.", "schema": {"const": "no-store"}},
}

ANSWER_HEADERS: dict[str, tuple[str, ...]] = {
    "create_queue": ("Location",),
    "receive_messages": ("Cache-Control",),
    "lease_messages": ("Cache-Control",),
    "read_history": ("Penstock-Next-Offset",),
    "read_shard_history": ("Penstock-Next-Offset",),
}


def _any_case(word: str) -> str:
    """Return a pattern for a word in any case; JSON Schema has no flag for it."""
    return "".join(f"[{letter}{letter.lower()}]" for letter in word)


PRIORITY: list[Schema] = [
    {"type": "string", "pattern": f"^({'|'.join([*map(_any_case, PRIORITIES), '[0-4]'])})$"},
    {"type": "integer", "minimum": 0, "maximum": 4},
]

# How the name of a queue looks, by its type and by all its rules: "q_" begins an id, and a last ".dead" is not counted.
NAME_CHARACTERS = r"^[A-Za-z0-9_.-]+$"

# What is true of a type, and its fields one by one do not say.
TYPES: dict[str, Schema] = {
    "Draft": {
        "oneOf": [{"required": ["data"]}, {"required": ["data_base64"]}],
        "not": {"required": ["delay_s", "scheduled_at"]},
    },
    "Escalate": {"oneOf": [{"required": ["message_ids"]}, {"required": ["filter"]}]},
    "NewRecord": {"not": {"anyOf": [{"required": ["key", "key_base64"]}, {"required": ["value", "value_base64"]}]}},
    "Redrive": {"not": {"required": ["message_ids", "filter"]}},
    "Nothing": {"required": ["message"], "additionalProperties": False},
}
