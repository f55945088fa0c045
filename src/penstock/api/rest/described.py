"""What is true of the API and no type says: parameters of paths, headers, formats, what excludes what."""

from typing import Any

from penstock.wire.queues import PRIORITIES

Schema = dict[str, Any]

TAGS = {
    "queues": "Queues: made, listed, described, changed, emptied, deleted.",
    "messages": "Messages: sent, received, acked, given back, held for longer.",
}

STATUSES = {200: "Done.", 201: "Made, and on the disk.", 202: "Begun.", 204: "Done; there is nothing to say."}

FRAMED = frozenset(
    {"send_messages", "receive_messages", "lease_messages", "ack_messages", "release_messages", "extend_messages"}
)
LEASES = frozenset({"receive_messages", "lease_messages"})
ARROWED: frozenset[str] = frozenset()
BODY_OPTIONAL = frozenset({"lease_messages"})

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
    "task_id": {
        "description": "The id of a task, as starting it answered.",
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "pattern": "^[0-9A-Za-z_-]+$",
    },
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
    "Cache-Control": {"description": "Never kept by anybody on the way.", "schema": {"const": "no-store"}},
}

ANSWER_HEADERS: dict[str, tuple[str, ...]] = {
    "create_queue": ("Location",),
    "receive_messages": ("Cache-Control",),
    "lease_messages": ("Cache-Control",),
}


def _any_case(word: str) -> str:
    """Return a pattern for a word in any case; JSON Schema has no flag for it."""
    return "".join(f"[{letter}{letter.lower()}]" for letter in word)


PRIORITY: list[Schema] = [
    {"type": "string", "pattern": f"^({'|'.join([*map(_any_case, PRIORITIES), '[0-4]'])})$"},
    {"type": "integer", "minimum": 0, "maximum": 4},
]

# What is true of a type, and its fields one by one do not say.
TYPES: dict[str, Schema] = {
    "Draft": {
        "oneOf": [{"required": ["data"]}, {"required": ["data_base64"]}],
        "not": {"required": ["delay_s", "scheduled_at"]},
    },
    "Nothing": {"required": ["message"], "additionalProperties": False},
}
