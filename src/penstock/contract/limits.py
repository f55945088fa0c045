"""Every limit of the system, in one table.

A limit is enforced before memory is spent on what exceeds it, and the error
that follows names it. `docs/reference/limits.md` is made from this file.
"""

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB

BATCH_BYTES_MAX = 16 * MIB
RESERVATION_BYTES_MAX = 32 * MIB
COMMIT_BYTES_MAX = 4 * MIB
BACKLOG_BYTES_MAX = 64 * MIB
SEGMENT_BYTES_MAX = 2 * GIB
SPARE_BYTES = 16 * MIB
OPEN_SEGMENTS_MAX = 64
CLOCK_LEAP_MS_MAX = 6 * 60 * 60 * 1_000

LEASE_MESSAGES_MAX = 10_000
LEASE_BYTES_MAX = 16 * MIB
LEASE_MS_MAX = 12 * 60 * 60 * 1_000
DURATION_MS_MAX = 366 * 24 * 60 * 60 * 1_000
RETENTION_MS_MAX = 366 * 24 * 60 * 60 * 1_000
DELIVERIES_MAX = 10_000
WEIGHT_MAX = 1_000
NOISY_LEASED_MAX = 1_000_000
BODY_BYTES_MAX = 1 * MIB
NAME_BYTES_MAX = 128
LABELS_CHARACTERS_MAX = 65_536
QUEUE_NAME_CHARACTERS_MAX = 80
ERROR_CHARACTERS_MAX = 1_024
REASON_CHARACTERS_MAX = 1_024
SENDERS_MAX = 10_000
SENDER_SENDS_MAX = 64
SENDER_ID_MAX = 2**64 - 1
SENDER_EPOCH_MAX = 2**32 - 1
SENDER_SEQUENCE_MAX = 2**64 - 1
SENDER_MS = 7 * 24 * 60 * 60 * 1_000
AUDIT_MAX = 1_000
AUDIT_TEXT_CHARACTERS_MAX = 1_024
AUDIT_SCANNED_MAX = 10_000
FAILED_LOGINS_PER_HOUR = 60
FAILED_LOGINS_HELD_MAX = 1_000
SWEEP_ROWS = 4_096
EXPIRED_MAX = 500
EVENT_RUNS_MAX = 10_000
IDS_MAX = 10_000
SHARDS_MAX = 256
QUEUES_MADE_MAX = 2**24 - 1
MOVE_MESSAGES_MAX = 100
MOVE_BYTES_MAX = 4 * MIB
PAGE_MAX = 1_000
REQUEST_MESSAGES_MAX = 1_000
ATTRIBUTES_MAX = 100
ATTRIBUTES_BYTES_MAX = 65_536
LONG_POLL_S_MAX = 20
GATHERED_MESSAGES_MAX = 1_000
GATHERED_BYTES_MAX = MIB
KEY_SHARE_PERCENT = 50
REDRIVES_MAX = 100
REDRIVES_KEPT_MAX = 1_000
PEEK_SCANNED_MAX = 10_000
TURN_MESSAGES = 250
TURN_ROWS = 1_000
PEEK_BYTES_MAX = 16 * MIB
COPY_MESSAGES_MAX = 4_096
COPY_BYTES_MAX = 256 * KIB
RETRY_AFTER_MS_MIN = 100
RETRY_AFTER_MS_MAX = 60_000
RETRY_AFTER_MS_UNKNOWN = 3_000

TOPIC_NAME_CHARACTERS_MAX = 249
TOPIC_PARTITIONS_MAX = 1_000
TOPICS_ASKED_FOR_MAX = 100
TOPICS_AUTO_CREATED_MAX = 1_000
PARTITIONS_MAX = 10_000
TOPIC_FILES_MAX = 2_048
UNPACKED_BYTES_MAX = 64 * MIB
PRODUCERS_MAX = 10_000
PRODUCER_BATCHES_MAX = 5
PRODUCER_MS = 24 * 60 * 60 * 1_000
FETCH_BYTES_MAX = 16 * MIB
FETCHES_WAITING_MAX = 16_000
REQUEST_ELEMENTS_MAX = 65_536
BODY_VALUES_MAX = 200_000
SQS_VALUES_MAX = 10_000
CLEANED_KEYS_MAX = 500_000
CLEANINGS_MAX = 64
GROUPS_MAX = 10_000
GROUPS_BYTES_MAX = 256 * MIB
GROUP_NAME_BYTES_MAX = 255
GROUP_MEMBERS_MAX = 1_000
GROUP_BYTES_MAX = 4 * MIB
MEMBER_BYTES_MAX = 512 * KIB
MEMBER_PROTOCOLS_MAX = 64
CLIENT_NAME_CHARACTERS_MAX = 255
OFFSETS_MAX = 1_000_000
OFFSET_METADATA_BYTES_MAX = 4_096
OFFSET_MAX = 2**62

HISTORY_ROWS_MIN = 4_096
HISTORY_WAIT_MS = 1_000
HISTORY_ROWS_MAX = 65_536
HISTORY_TEXT_BYTES_MAX = 4 * MIB
HISTORY_BODY_BYTES_MAX = 4 * MIB
HISTORY_PENDING_MAX = 1_000_000
HISTORY_PAGE_BYTES_MAX = 16 * MIB


@dataclass(frozen=True, slots=True)
class Limit:
    name: str
    value: int
    unit: str
    meaning: str


LIMITS: tuple[Limit, ...] = (
    Limit("BATCH_BYTES_MAX", BATCH_BYTES_MAX, "bytes", "One record batch in a log."),
    Limit("RESERVATION_BYTES_MAX", RESERVATION_BYTES_MAX, "bytes", "What one reservation may set aside in a log."),
    Limit("COMMIT_BYTES_MAX", COMMIT_BYTES_MAX, "bytes", "Gathered for one fsync; a single larger batch goes alone."),
    Limit("BACKLOG_BYTES_MAX", BACKLOG_BYTES_MAX, "bytes", "Waiting in memory for a log's disk; more is turned away."),
    Limit("SEGMENT_BYTES_MAX", SEGMENT_BYTES_MAX, "bytes", "The largest segment size that can be set."),
    Limit("SPARE_BYTES", SPARE_BYTES, "bytes", "Kept in a log for acks and drops, so that a full disk can be emptied."),
    Limit(
        "CLOCK_LEAP_MS_MAX",
        CLOCK_LEAP_MS_MAX,
        "ms",
        "How far ahead of its journals a store believes the clock at a start.",
    ),
    Limit("OPEN_SEGMENTS_MAX", OPEN_SEGMENTS_MAX, "files", "Closed segments of one log kept open for reading."),
    Limit("LEASE_MESSAGES_MAX", LEASE_MESSAGES_MAX, "messages", "Handed out under one lease."),
    Limit(
        "LEASE_BYTES_MAX",
        LEASE_BYTES_MAX,
        "bytes",
        "Of bodies handed out under one lease, by their mean size in a send; one always goes.",
    ),
    Limit("LEASE_MS_MAX", LEASE_MS_MAX, "ms", "How long a lease may last before it is extended."),
    Limit("DURATION_MS_MAX", DURATION_MS_MAX, "ms", "Any delay, backoff, window or aging threshold."),
    Limit("RETENTION_MS_MAX", RETENTION_MS_MAX, "ms", "How long a queue that forgets may keep a message."),
    Limit("DELIVERIES_MAX", DELIVERIES_MAX, "deliveries", "The highest delivery limit of a queue or a message."),
    Limit("WEIGHT_MAX", WEIGHT_MAX, "", "The greatest weight of a tier."),
    Limit("NOISY_LEASED_MAX", NOISY_LEASED_MAX, "messages", "What `noisy_leased_min` of a queue may be."),
    Limit("BODY_BYTES_MAX", BODY_BYTES_MAX, "bytes", "The body of one message; a queue may take less."),
    Limit("REQUEST_MESSAGES_MAX", REQUEST_MESSAGES_MAX, "messages", "Sent, received or settled by one request."),
    Limit("ATTRIBUTES_MAX", ATTRIBUTES_MAX, "attributes", "Of one message."),
    Limit("ATTRIBUTES_BYTES_MAX", ATTRIBUTES_BYTES_MAX, "bytes", "Of the attributes of one message, as JSON."),
    Limit("LONG_POLL_S_MAX", LONG_POLL_S_MAX, "s", "How long a request to receive may wait for a message."),
    Limit("NAME_BYTES_MAX", NAME_BYTES_MAX, "bytes", "A group, or the id a message is deduplicated by."),
    Limit("LABELS_CHARACTERS_MAX", LABELS_CHARACTERS_MAX, "characters", "What a front end keeps with one queue."),
    Limit(
        "QUEUE_NAME_CHARACTERS_MAX",
        QUEUE_NAME_CHARACTERS_MAX,
        "characters",
        "The name of a queue, not counting a last `.dead`: dead letters can be named after every queue.",
    ),
    Limit("ERROR_CHARACTERS_MAX", ERROR_CHARACTERS_MAX, "characters", "Kept of the error of a failed message."),
    Limit("REASON_CHARACTERS_MAX", REASON_CHARACTERS_MAX, "characters", "Kept of who escalated, and of why."),
    Limit("SENDERS_MAX", SENDERS_MAX, "senders", "Remembered by one queue; the longest unheard of goes first."),
    Limit("SENDER_SENDS_MAX", SENDER_SENDS_MAX, "sends", "Remembered of one sender; the lowest sequences go first."),
    Limit("SENDER_ID_MAX", SENDER_ID_MAX, "", "The greatest id of a sender."),
    Limit("SENDER_EPOCH_MAX", SENDER_EPOCH_MAX, "", "The greatest epoch of a sender."),
    Limit("SENDER_SEQUENCE_MAX", SENDER_SEQUENCE_MAX, "", "The greatest sequence of a sender."),
    Limit("SENDER_MS", SENDER_MS, "ms", "How long a silent sender is remembered."),
    Limit("AUDIT_MAX", AUDIT_MAX, "escalations", "Kept for reading back in a queue; the journal has them all."),
    Limit(
        "AUDIT_TEXT_CHARACTERS_MAX",
        AUDIT_TEXT_CHARACTERS_MAX,
        "characters",
        "Kept of a target, a label or a detail in the audit log.",
    ),
    Limit("AUDIT_SCANNED_MAX", AUDIT_SCANNED_MAX, "entries", "Looked at for one page of the audit log."),
    Limit(
        "FAILED_LOGINS_PER_HOUR",
        FAILED_LOGINS_PER_HOUR,
        "entries",
        "Of failed logins in the audit log; the others are counted together.",
    ),
    Limit(
        "FAILED_LOGINS_HELD_MAX",
        FAILED_LOGINS_HELD_MAX,
        "logins",
        "That failed and are not in the audit log yet, by user and address; more are counted as others.",
    ),
    Limit("SWEEP_ROWS", SWEEP_ROWS, "rows", "Looked at by one search for messages past their retention."),
    Limit("EXPIRED_MAX", EXPIRED_MAX, "runs", "Let go of by one such search in the embedded store; rows are as many."),
    Limit("EVENT_RUNS_MAX", EVENT_RUNS_MAX, "runs", "In one event; what is more takes another."),
    Limit("IDS_MAX", IDS_MAX, "ids", "Messages named in one call."),
    Limit("SHARDS_MAX", SHARDS_MAX, "shards", "Of one store, each with a journal."),
    Limit("QUEUES_MADE_MAX", QUEUES_MADE_MAX, "queues", "Made in one shard in all its time, those deleted included."),
    Limit("MOVE_MESSAGES_MAX", MOVE_MESSAGES_MAX, "messages", "Buried, or moved to another shard, in one step."),
    Limit("MOVE_BYTES_MAX", MOVE_BYTES_MAX, "bytes", "Of bodies moved in one step to another shard; one always goes."),
    Limit("GATHERED_MESSAGES_MAX", GATHERED_MESSAGES_MAX, "messages", "Of small sends that are written together."),
    Limit("GATHERED_BYTES_MAX", GATHERED_BYTES_MAX, "bytes", "Of bodies of small sends that are written together."),
    Limit(
        "KEY_SHARE_PERCENT",
        KEY_SHARE_PERCENT,
        "%",
        "Of long polls, waiting fetches, redrives, groups and partitions for one key, by default.",
    ),
    Limit("REDRIVES_MAX", REDRIVES_MAX, "redrives", "Running at once."),
    Limit("REDRIVES_KEPT_MAX", REDRIVES_KEPT_MAX, "redrives", "Remembered after they have ended; the oldest go first."),
    Limit(
        "PAGE_MAX",
        PAGE_MAX,
        "rows",
        "Queues, messages or escalations in one answer; moved by a redrive; searched by a peek.",
    ),
    Limit("TURN_MESSAGES", TURN_MESSAGES, "messages", "Looked at by a search, before others have their turn."),
    Limit(
        "TURN_ROWS", TURN_ROWS, "messages", "Settled, woken or taken back by the store, before others have their turn."
    ),
    Limit("PEEK_SCANNED_MAX", PEEK_SCANNED_MAX, "messages", "Looked at for one page of a peek."),
    Limit("PEEK_BYTES_MAX", PEEK_BYTES_MAX, "bytes", "Of bodies read for one page of a peek; the last may exceed it."),
    Limit("COPY_MESSAGES_MAX", COPY_MESSAGES_MAX, "messages", "Copied forward in a journal in one step."),
    Limit("COPY_BYTES_MAX", COPY_BYTES_MAX, "bytes", "Copied forward in one step, by the mean size of a body."),
    Limit("RETRY_AFTER_MS_MIN", RETRY_AFTER_MS_MIN, "ms", "The shortest wait asked of a sender to a full queue."),
    Limit("RETRY_AFTER_MS_MAX", RETRY_AFTER_MS_MAX, "ms", "The longest wait asked of a sender to a full queue."),
    Limit(
        "RETRY_AFTER_MS_UNKNOWN",
        RETRY_AFTER_MS_UNKNOWN,
        "ms",
        "The wait asked of a sender to a full queue from which nothing has gone lately.",
    ),
    Limit("GROUPS_MAX", GROUPS_MAX, "groups", "Of consumers, those that only keep offsets included."),
    Limit("GROUPS_BYTES_MAX", GROUPS_BYTES_MAX, "bytes", "Said by the members of all groups, and assigned to them."),
    Limit("GROUP_NAME_BYTES_MAX", GROUP_NAME_BYTES_MAX, "bytes", "The name of a consumer group, or of an instance."),
    Limit("GROUP_MEMBERS_MAX", GROUP_MEMBERS_MAX, "members", "In one consumer group, those about to join included."),
    Limit("GROUP_BYTES_MAX", GROUP_BYTES_MAX, "bytes", "Said by all members of a group, and as much assigned to them."),
    Limit("MEMBER_BYTES_MAX", MEMBER_BYTES_MAX, "bytes", "Said by one member of a group when it joins."),
    Limit("MEMBER_PROTOCOLS_MAX", MEMBER_PROTOCOLS_MAX, "protocols", "Offered by one member of a group."),
    Limit(
        "CLIENT_NAME_CHARACTERS_MAX", CLIENT_NAME_CHARACTERS_MAX, "characters", "Kept of a member's client and host."
    ),
    Limit("OFFSETS_MAX", OFFSETS_MAX, "offsets", "Committed by all consumer groups together."),
    Limit("OFFSET_MAX", OFFSET_MAX, "", "The largest offset that can be committed."),
    Limit("OFFSET_METADATA_BYTES_MAX", OFFSET_METADATA_BYTES_MAX, "bytes", "Kept with a committed offset."),
    Limit("HISTORY_ROWS_MIN", HISTORY_ROWS_MIN, "rows", "Settled messages that a frame of the history waits for."),
    Limit("HISTORY_WAIT_MS", HISTORY_WAIT_MS, "ms", "How long a frame of the history waits for them."),
    Limit("HISTORY_ROWS_MAX", HISTORY_ROWS_MAX, "rows", "In one frame of the history, or in one page."),
    Limit("HISTORY_TEXT_BYTES_MAX", HISTORY_TEXT_BYTES_MAX, "bytes", "Groups, errors and queue names in one frame."),
    Limit("HISTORY_BODY_BYTES_MAX", HISTORY_BODY_BYTES_MAX, "bytes", "Bodies in one frame; a larger one goes alone."),
    Limit("HISTORY_PAGE_BYTES_MAX", HISTORY_PAGE_BYTES_MAX, "bytes", "Of frames read for one page of the history."),
    Limit(
        "HISTORY_PENDING_MAX", HISTORY_PENDING_MAX, "settlements", "Waiting for the history; more, and it is behind."
    ),
    Limit("TOPIC_NAME_CHARACTERS_MAX", TOPIC_NAME_CHARACTERS_MAX, "characters", "The name of a topic."),
    Limit("TOPIC_PARTITIONS_MAX", TOPIC_PARTITIONS_MAX, "partitions", "Of one topic."),
    Limit(
        "TOPICS_ASKED_FOR_MAX", TOPICS_ASKED_FOR_MAX, "topics", "Made by one Metadata request that asks for new names."
    ),
    Limit(
        "TOPICS_AUTO_CREATED_MAX",
        TOPICS_AUTO_CREATED_MAX,
        "topics",
        "From this number on a topic is not made because it is asked for, only by CreateTopics or REST.",
    ),
    Limit("PARTITIONS_MAX", PARTITIONS_MAX, "partitions", "Of all topics together."),
    Limit(
        "TOPIC_FILES_MAX",
        TOPIC_FILES_MAX,
        "files",
        "Kept open by all partitions together, and at most a quarter of what the process may open.",
    ),
    Limit("UNPACKED_BYTES_MAX", UNPACKED_BYTES_MAX, "bytes", "The most that can be allowed to a batch when unpacked."),
    Limit("PRODUCERS_MAX", PRODUCERS_MAX, "producers", "Remembered by one partition; the longest unheard of go first."),
    Limit("PRODUCER_BATCHES_MAX", PRODUCER_BATCHES_MAX, "batches", "Remembered of one producer in one partition."),
    Limit("PRODUCER_MS", PRODUCER_MS, "ms", "How long a silent producer is remembered."),
    Limit("FETCH_BYTES_MAX", FETCH_BYTES_MAX, "bytes", "In the answer to one fetch; a first larger batch goes alone."),
    Limit(
        "BODY_VALUES_MAX", BODY_VALUES_MAX, "values", "In the body of one request of REST; a text is one, however long."
    ),
    Limit("SQS_VALUES_MAX", SQS_VALUES_MAX, "values", "In the body of one request of SQS."),
    Limit("REQUEST_ELEMENTS_MAX", REQUEST_ELEMENTS_MAX, "elements", "Of all arrays in one request of a Kafka client."),
    Limit("FETCHES_WAITING_MAX", FETCHES_WAITING_MAX, "fetches", "Waiting for records at once."),
    Limit("CLEANED_KEYS_MAX", CLEANED_KEYS_MAX, "keys", "New ones that one cleaning of a partition looks at."),
    Limit("CLEANINGS_MAX", CLEANINGS_MAX, "cleanings", "Whose times are known, until tombstones may go."),
)
