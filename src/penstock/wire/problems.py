"""All errors of the REST API: RFC 9457 problem details, and the table of codes.

`docs/reference/errors.md` is made from this table.
"""

from typing import NamedTuple

from msgspec import UNSET, Struct, UnsetType

from penstock.contract.limits import REDRIVES_KEPT_MAX

PROBLEM_TYPE = "application/problem+json"


_TASKS_KEPT = f"The last {REDRIVES_KEPT_MAX:,} are kept; without PostgreSQL, only until the server stops."


class Problem(Struct, kw_only=True):
    """What went wrong. `code` is for programs; `field` and `limit` say where and by how much."""

    type: str = "about:blank"
    title: str
    status: int
    code: str
    detail: str
    field: str | UnsetType = UNSET
    limit: int | float | str | UnsetType = UNSET
    retry_after_s: float | UnsetType = UNSET


class Code(NamedTuple):
    """One kind of error: its status and title, whether trying again may help, and what to do."""

    name: str
    status: int
    title: str
    is_retryable: bool
    remedy: str


CODES: dict[str, Code] = {
    code.name: code
    for code in (
        Code("bad_request", 400, "The request cannot be understood", False, "Correct what `detail` says."),
        Code("bad_field", 400, "A field is wrong", False, "Correct the field that `field` names."),
        Code("unauthorized", 401, "A key is needed", False, "Send `Authorization: Bearer <key>` with a valid key."),
        Code("forbidden", 403, "The key may not do this", False, "Use a key whose role and queues allow it."),
        Code(
            "too_many_queues",
            403,
            "The key may not create more queues",
            False,
            "Delete a queue, or raise the key's limit.",
        ),
        Code(
            "cross_site",
            403,
            "A page of another site may not send requests",
            False,
            "Send it from a program, or from a page of this server.",
        ),
        Code("not_found", 404, "This path does not exist", False, "See /docs for all paths."),
        Code("queue_not_found", 404, "The queue does not exist", False, "Create it, or correct the name."),
        Code("topics_disabled", 404, "This server has no topics", False, "Start it with `kafka`."),
        Code("topic_not_found", 404, "The topic does not exist", False, "Create it, or correct the name."),
        Code("partition_not_found", 404, "The partition does not exist", False, "Partitions are numbered from 0."),
        Code("key_not_found", 404, "The key does not exist", False, "It may have been revoked."),
        Code("group_not_found", 404, "The group does not exist", False, "The first member or commit creates a group."),
        Code("message_not_found", 404, "The message does not exist", False, "It was settled, or is in another queue."),
        Code("task_not_found", 404, "The task does not exist", False, _TASKS_KEPT),
        Code("shard_not_found", 404, "The shard does not exist", False, "`GET /api/history/shards` lists them."),
        Code("method_not_allowed", 405, "This path has other methods", False, "The header `Allow` lists them."),
        Code(
            "not_acceptable", 406, "The server has no format that the client accepts", False, "Accept application/json."
        ),
        Code("request_timeout", 408, "The request did not arrive in time", True, "Send it again, faster."),
        Code(
            "queue_exists", 409, "The queue has other settings", False, "Change it with PATCH, or choose another name."
        ),
        Code(
            "topic_exists", 409, "The topic has other settings", False, "Change it with PATCH, or choose another name."
        ),
        Code("partitions_cannot_shrink", 409, "A topic cannot lose partitions", False, "Create another topic."),
        Code("record_refused", 409, "The topic refuses the records", False, "Give each a key: the topic is compacted."),
        Code(
            "producer_unknown",
            409,
            "The producer is no longer known",
            False,
            "Check whether its batch is stored; continue with a new producer id, from sequence 0.",
        ),
        Code(
            "out_of_order_sequence",
            409,
            "A batch does not follow the last one of its producer",
            False,
            "Send the missing batches first.",
        ),
        Code("producer_fenced", 409, "A newer epoch of the producer has begun", False, "Stop: another has taken over."),
        Code("group_not_empty", 409, "The group has members", False, "Stop its consumers first."),
        Code(
            "not_scheduled", 409, "The message is due already", False, "Let its consumer look whether it still applies."
        ),
        Code("not_leased", 409, "The message is not in flight", False, "Receive it first, or purge the queue."),
        Code(
            "stale_receipt", 409, "The lease has ended", False, "Another consumer may have the message; do not ack it."
        ),
        Code(
            "not_dead_letter",
            409,
            "The message is not a dead letter",
            False,
            "Requeue takes messages from a dead-letter queue.",
        ),
        Code(
            "message_in_flight", 409, "A consumer holds the message", False, "Wait until it is released or timed out."
        ),
        Code(
            "origin_not_found",
            409,
            "The original queue no longer exists",
            False,
            "Name another queue in `target_queue`.",
        ),
        Code(
            "key_reused",
            409,
            "The key was used for another send",
            False,
            "Use a new Idempotency-Key for each new send.",
        ),
        Code(
            "dead_letters_shared",
            409,
            "Other queues share the dead-letter queue",
            False,
            "Delete without the dead letters.",
        ),
        Code(
            "sender_fenced", 409, "A newer sender has taken over", False, "Stop: another process sends under this id."
        ),
        Code(
            "send_expired",
            409,
            "Too old to tell whether it was sent",
            False,
            "Check whether it was; send it with a new key.",
        ),
        Code("body_too_large", 413, "The request is too large", False, "Send fewer messages at once."),
        Code(
            "message_too_large",
            413,
            "A message is too large",
            False,
            "Store large data elsewhere and send where it is.",
        ),
        Code("unsupported_media_type", 415, "This format is not supported", False, "Send application/json."),
        Code(
            "wrong_host",
            421,
            "The host name is not one of this server",
            False,
            "A server answers to the names in its setting `hosts`, and on loopback to localhost and 127.0.0.1.",
        ),
        Code("queue_full", 429, "The queue is full", True, "Wait for `Retry-After` seconds and send again."),
        Code(
            "rate_limited",
            429,
            "The key sends too many requests",
            True,
            "Wait for `Retry-After` seconds and try again.",
        ),
        Code(
            "too_many_waiting",
            429,
            "Too many requests wait for messages",
            True,
            "Wait for `Retry-After` seconds and try again.",
        ),
        Code("too_many_redrives", 429, "Too many redrives are running", True, "Wait until one of them has ended."),
        Code("headers_too_large", 431, "The headers are too large", False, "Send fewer or shorter headers."),
        Code("internal", 500, "The server has a bug", False, "Report it, with the log of the server."),
        Code("journal_busy", 503, "The disk is behind", True, "Wait for `Retry-After` seconds and try again."),
        Code("unreachable", 503, "The database does not answer", True, "Wait for `Retry-After` seconds and try again."),
        Code("starting", 503, "The server is starting", True, "Wait for `Retry-After` seconds and try again."),
        Code("too_many_connections", 503, "Too many connections", True, "Close some, or raise `connections_max`."),
        Code(
            "no_room",
            503,
            "Too much is arriving at once",
            True,
            "Wait for `Retry-After` seconds and send it again, or raise `buffered_bytes_max`.",
        ),
        Code("stopping", 503, "The server is stopping", True, "Try again: another server may be up soon."),
        Code(
            "not_durable",
            503,
            "The database cannot confirm anything",
            True,
            "Nothing was done. Try again; `detail` says what the operator can do.",
        ),
        Code(
            "outcome_unknown",
            504,
            "It is not known whether it was done",
            True,
            "Repeat it with the same `Idempotency-Key`, or look whether it was done.",
        ),
        Code("storage_full", 507, "The disk is full", True, "Ack or purge messages, or give it a larger disk."),
    )
}
