"""Every log event and every metric, by name; no I/O.

A log event has fields, not a sentence with holes: `log.tail_cut` with a file, a position
and a count of bytes can be searched, counted and alerted on. Nothing is logged or shown
that is not declared here, so this file is the reference.
"""

from dataclasses import dataclass
from typing import Literal

Level = Literal["info", "warning", "error"]


@dataclass(frozen=True, slots=True)
class LogEvent:
    """One kind of log event: its name, its level, and what it tells an operator."""

    name: str
    level: Level
    meaning: str


# Under this key of its ASGI scope a request has its id, for its answer and for events of the log.
REQUEST_ID = "penstock.request_id"

LOG_OPENED = LogEvent(
    "log.opened",
    "info",
    "A log is open: its first and last offset, and whether the last stop was clean.",
)
LOG_TAIL_CUT = LogEvent(
    "log.tail_cut",
    "warning",
    "The last stop left unsynced bytes behind, and they were cut off. They held nothing confirmed, unless the disk "
    "damaged the very last commit, which looks the same.",
)
LOG_INDEX_REBUILT = LogEvent(
    "log.index_rebuilt",
    "info",
    "An index was missing or wrong, and was rebuilt from its segment.",
)
LOG_ROLLED = LogEvent(
    "log.rolled",
    "info",
    "A segment was closed, and the next one started.",
)
LOG_ROLL_DEFERRED = LogEvent(
    "log.roll_deferred",
    "warning",
    "There is no space for a new segment. The current one grows beyond its size.",
)
LOG_SEGMENT_DROPPED = LogEvent(
    "log.segment_dropped",
    "info",
    "A segment was deleted, because none of its records is needed any more.",
)
LOG_FAILED = LogEvent(
    "log.failed",
    "error",
    "A write or an fsync failed. The process stops at once and confirms nothing after it.",
)
LOG_TAKEN_AWAY = LogEvent(
    "log.taken_away",
    "error",
    "A file of a log, or its folder, was removed, renamed or replaced. The process stops at once, with exit code 72.",
)
STORE_CLOCK_DOUBTED = LogEvent(
    "store.clock_doubted",
    "warning",
    "The clock is hours ahead of the newest entry in the journals. Time continues from that entry, and nothing "
    "expires by the clock, until the clock is right or the server is started with `--trust-clock`.",
)
STORE_CLOCK_TRUSTED = LogEvent(
    "store.clock_trusted",
    "info",
    "A doubted clock is right again, and is used.",
)
STORE_SNAPSHOT_MADE = LogEvent(
    "store.snapshot_made",
    "info",
    "A snapshot of a shard was written. The next start reads it, and the journal from there on.",
)
STORE_SNAPSHOT_DAMAGED = LogEvent(
    "store.snapshot_damaged",
    "error",
    "A snapshot cannot be read. The one before it is used, if there is one.",
)
STORE_SNAPSHOT_FAILED = LogEvent(
    "store.snapshot_failed",
    "warning",
    "A snapshot could not be written, and is tried again. Until then the journal grows.",
)
STORE_UPKEEP_FAILED = LogEvent(
    "store.upkeep_failed",
    "error",
    "Compacting a journal failed, and is tried again. Until then the journal grows.",
)
DEAD_LETTERS_FULL = LogEvent(
    "store.dead_letters_full",
    "warning",
    "A dead-letter queue is full. Messages without deliveries left are stuck in their queue and count there. "
    "Redrive or purge the dead letters, or raise the `queue_size` of the dead-letter queue.",
)
HISTORY_STALLED = LogEvent(
    "history.stalled",
    "warning",
    "There is no space for the history of settled messages. Queues continue, and the journal keeps what is not "
    "written yet.",
)
HISTORY_RESUMED = LogEvent(
    "history.resumed",
    "info",
    "There is space again, and the history is written.",
)
HISTORY_AHEAD_OF_JOURNAL = LogEvent(
    "history.ahead_of_journal",
    "warning",
    "The history has events that the journal lost, because of the sync policy or of an older copy of the journal. "
    "It continues where the journal ends.",
)
STREAMS_UPKEEP_FAILED = LogEvent(
    "streams.upkeep_failed",
    "error",
    "Maintenance of a partition failed, and is tried again. Until then old records stay, and the partition grows.",
)
STREAMS_CLEANED = LogEvent(
    "streams.cleaned",
    "info",
    "Segments of a compacted partition were rewritten: their size before and after.",
)
REST_FAILED = LogEvent(
    "rest.failed",
    "error",
    "A request got 500, because of a bug in Penstock. It has the traceback, and the `x-request-id` of the answer.",
)
SQS_FAILED = LogEvent(
    "sqs.failed",
    "error",
    "An SQS request got 500, because of a bug in Penstock. It has the traceback, and the `x-request-id` of the answer.",
)
KAFKA_FAILED = LogEvent(
    "kafka.failed",
    "error",
    "A request of a Kafka client ended its connection, because of a bug in Penstock. The event has the traceback.",
)
KEYS_CHANGED = LogEvent(
    "keys.changed",
    "info",
    "Keys were created, rotated or revoked, and the new set is in force.",
)
KEYS_DAMAGED = LogEvent(
    "keys.damaged",
    "error",
    "The keys cannot be read. The last readable set stays in force. Repair their file or table.",
)
AUDIT_UNWRITTEN = LogEvent(
    "audit.unwritten",
    "error",
    "An action could not be written to the audit log, because its disk or database failed. This event has the "
    "action instead.",
)
SERVER_STARTED = LogEvent(
    "server.started",
    "info",
    "The server listens: at which address, and where its data is.",
)
NODE_NAME_TAKEN = LogEvent(
    "node.name_taken",
    "error",
    "Another server of this database has the same name, by the setting `node`. Both serve, and the first is shown.",
)
SERVER_STOPPING = LogEvent(
    "server.stopping",
    "info",
    "The server takes no new work. It answers long polls and finishes running requests.",
)
SERVER_REQUESTS_ABORTED = LogEvent(
    "server.requests_aborted",
    "warning",
    "Requests were still running at the stop timeout or a second signal. They got no answer and may have taken effect.",
)
SERVER_STOPPED = LogEvent(
    "server.stopped",
    "info",
    "Everything is closed, and the journal is clean.",
)
STORE_DURABILITY_WARNING = LogEvent(
    "store.durability_warning",
    "warning",
    "A crash of the database can lose confirmed messages, because of the setting that the event names; or a "
    "database has queues that the map assigns to another. `--allow-unsafe-durability` accepts the first.",
)
SERVER_MAY_LOSE = LogEvent(
    "server.may_lose",
    "warning",
    "The setting `fsync` is not `batch`: what a power cut may lose of confirmed messages.",
)
SERVER_STALLED = LogEvent(
    "server.stalled",
    "warning",
    "The event loop did not respond for longer than `stall_ms`: for how long, how much of that its thread had a "
    "processor (little: others had it), and which task was running where. Logged at most once a second.",
)
STORE_UNCONFIRMED = LogEvent(
    "store.unconfirmed",
    "error",
    "The database cannot make commits durable as it should, so requests that change something are refused. The reason "
    "says what is missing, such as a synchronous standby.",
)
STORE_CONFIRMS = LogEvent(
    "store.confirms",
    "info",
    "The database makes commits durable again, and requests are served.",
)
STORE_WAITS = LogEvent(
    "store.waits",
    "warning",
    "Opening the store waits for a lock in the database: on which table, and which process holds it since when, "
    "with its pid, role and application.",
)
KAFKA_PORT_IN_USE = LogEvent(
    "kafka.port_in_use",
    "warning",
    "The default port for Kafka clients is in use, so they are not served. Choose another with `--kafka-port`, or "
    "turn Kafka off with `--no-kafka`.",
)
SERVER_FILES_LIMITED = LogEvent(
    "server.files_limited",
    "warning",
    "The operating system allows this process fewer open files than `connections_max` needs: how many, and how many "
    "connections are accepted. Raise the limit with `ulimit -n`, or `LimitNOFILE` of a service.",
)

LOG_EVENTS = tuple(each for each in list(globals().values()) if isinstance(each, LogEvent))


@dataclass(frozen=True, slots=True)
class Metric:
    """One family of numbers: its name, kind and labels, and what it tells an operator."""

    name: str
    kind: Literal["gauge", "counter", "histogram"]
    labels: tuple[str, ...]
    meaning: str


QUEUE_MESSAGES = Metric(
    "penstock_queue_messages",
    "gauge",
    ("queue", "state", "tier"),
    "Messages in a queue: `ready` by tier; `in_flight`, `delayed` and `stuck` have no tier. Stuck ones are to be "
    "buried, and the dead-letter queue is full.",
)
QUEUE_OLDEST_AGE = Metric(
    "penstock_queue_oldest_age_seconds",
    "gauge",
    ("queue", "tier"),
    "Age of the oldest ready message of a tier, since it was sent. Absent if the tier has none.",
)
QUEUE_STUCK_AGE = Metric(
    "penstock_queue_stuck_age_seconds",
    "gauge",
    ("queue",),
    "How long the first stuck message has been stuck: it has no deliveries left, and the dead-letter queue is full. "
    "Absent if none is stuck.",
)
QUEUE_SIZE = Metric(
    "penstock_queue_size",
    "gauge",
    ("queue",),
    "How many messages the queue may have: its setting `queue_size`; not there without one.",
)
QUEUE_DEAD_LETTERS = Metric(
    "penstock_queue_dead_letters", "gauge", ("queue",), "Messages in the dead-letter queue that this queue names."
)
QUEUE_ALERT_DEAD_LETTERS = Metric(
    "penstock_queue_alert_dead_letters",
    "gauge",
    ("queue",),
    "How many dead letters call an operator: the setting `alert_dead_letters`; not there if none does.",
)
QUEUE_WAIT_BOUND = Metric(
    "penstock_queue_wait_bound_seconds",
    "gauge",
    ("queue", "tier"),
    "Upper bound of the wait of a message sent now, at the current rate of receives. Absent while the rate is unknown.",
)
QUEUE_NOISY_GROUPS = Metric(
    "penstock_queue_noisy_groups",
    "gauge",
    ("queue",),
    "Groups of a standard queue that exceed their share, and are served only when no quiet group waits.",
)
QUEUE_NOISY_MESSAGES = Metric(
    "penstock_queue_noisy_messages",
    "gauge",
    ("queue", "state"),
    "Messages of noisy groups, `ready` and `in_flight`. All others are in quiet groups.",
)
QUEUE_SENT = Metric("penstock_queue_sent_total", "counter", ("queue",), "Messages sent since the server started.")
QUEUE_RECEIVED = Metric(
    "penstock_queue_received_total",
    "counter",
    ("queue",),
    "Deliveries since the server started. A message that is delivered twice counts twice.",
)
QUEUE_ACKED = Metric(
    "penstock_queue_acked_total",
    "counter",
    ("queue",),
    "Messages acked since the server started.",
)
QUEUE_RELEASED = Metric(
    "penstock_queue_released_total",
    "counter",
    ("queue",),
    "Messages released by their consumers since the server started.",
)
QUEUE_LAPSED = Metric(
    "penstock_queue_lapsed_total", "counter", ("queue",), "Messages whose lease ended before they were settled."
)
QUEUE_BURIED = Metric("penstock_queue_buried_total", "counter", ("queue",), "Messages moved to the dead letters.")
QUEUE_REDRIVEN = Metric(
    "penstock_queue_redriven_total",
    "counter",
    ("queue",),
    "Messages that left this queue of dead letters by a redrive or a requeue.",
)
QUEUE_REQUEUED = Metric(
    "penstock_queue_requeued_total", "counter", ("queue",), "Of the redriven messages, those that were requeued by id."
)
QUEUE_EXPIRED = Metric(
    "penstock_queue_expired_total",
    "counter",
    ("queue",),
    "Messages removed because they were older than `retention_s`.",
)
QUEUE_PURGED = Metric("penstock_queue_purged_total", "counter", ("queue",), "Messages removed by a purge.")
QUEUE_CANCELLED = Metric(
    "penstock_queue_cancelled_total", "counter", ("queue",), "Messages that were taken back before they were due."
)
QUEUE_ESCALATED = Metric(
    "penstock_queue_escalated_total", "counter", ("queue",), "Messages moved to another tier by an operator."
)
QUEUE_PROMOTED = Metric(
    "penstock_queue_promoted_total",
    "counter",
    ("queue",),
    "Messages moved to a more urgent tier because they had waited for long: one for each tier.",
)
QUEUE_SENT_BYTES = Metric(
    "penstock_queue_sent_bytes_total", "counter", ("queue",), "Bytes of the bodies that were sent."
)
QUEUE_RECEIVED_BYTES = Metric(
    "penstock_queue_received_bytes_total", "counter", ("queue",), "Bytes of the bodies that were delivered."
)
QUEUE_WAITED = Metric(
    "penstock_queue_waited_seconds_total",
    "counter",
    ("queue",),
    "How long messages had waited when they were first delivered, all together. Divide it by "
    "`penstock_queue_first_received_total` for the mean.",
)
QUEUE_FIRST_RECEIVED = Metric(
    "penstock_queue_first_received_total", "counter", ("queue",), "Messages that were delivered for the first time."
)
QUEUE_OPERATIONS = Metric(
    "penstock_queue_operations_total",
    "counter",
    ("queue", "operation", "outcome"),
    "What was asked of a queue, by operation and outcome: `success`, `stale_receipt`, `queue_full` or another code of "
    "a problem. Messages of a batch count one by one. Of a queue that does not exist the label `queue` is empty.",
)
QUEUE_UNSETTLED_AGE = Metric(
    "penstock_queue_oldest_unsettled_age_seconds",
    "gauge",
    ("queue",),
    "Age of the oldest message that is ready or in flight, since it was sent; of those in flight, the one that has "
    "been leased for longest. Absent if there is none.",
)
QUEUE_PRESSURE = Metric(
    "penstock_queue_pressure_ratio",
    "gauge",
    ("queue",),
    "The share of `queue_size` that is taken; sends are refused at 1. Absent without `queue_size`.",
)
QUEUE_WAIT = Metric(
    "penstock_queue_wait_seconds",
    "histogram",
    ("tier",),
    "How long messages of a tier had waited when they were first delivered, of all queues.",
)
HANDLING = Metric(
    "penstock_handling_seconds",
    "histogram",
    (),
    "From the lease of a message to its ack, of all queues. On PostgreSQL, of leases that this server made.",
)
QUEUES = Metric(
    "penstock_queues",
    "gauge",
    (),
    "Queues on this server.",
)
QUEUES_OMITTED = Metric(
    "penstock_queues_omitted",
    "gauge",
    (),
    "Queues that have no samples of their own, because there are too many. They are the last by name.",
)
REQUESTS = Metric(
    "penstock_requests_total",
    "counter",
    ("operation", "status"),
    "Requests answered. Status 499 counts clients that left before the answer.",
)
REQUEST_SECONDS = Metric(
    "penstock_request_duration_seconds",
    "histogram",
    ("operation",),
    "From the head of a request to the end of its answer. Long polls include their wait.",
)
POLL_WAIT = Metric(
    "penstock_long_poll_wait_seconds",
    "histogram",
    (),
    "How long requests waited for messages that were not there yet. It is part of the duration of a request.",
)
POLL_WORK = Metric(
    "penstock_receive_seconds",
    "histogram",
    (),
    "From a request for messages to its delivery, without the time that it waited for messages to come.",
)
FAILED_LOGINS = Metric(
    "penstock_failed_logins_total",
    "counter",
    ("via",),
    "Requests and connections with a key, or a password, that does not exist: by `rest`, `sqs`, `kafka` or `metrics`.",
)
LONG_POLLS = Metric(
    "penstock_long_polls_waiting",
    "gauge",
    (),
    "Requests that wait for messages.",
)
CONNECTIONS = Metric(
    "penstock_connections",
    "gauge",
    (),
    "Open connections.",
)
CONNECTIONS_MAX = Metric(
    "penstock_connections_max",
    "gauge",
    (),
    "How many connections can be open: `connections_max`, or fewer if the system allows the process fewer files.",
)
CONNECTIONS_ACCEPTED = Metric(
    "penstock_connections_accepted_total",
    "counter",
    (),
    "Connections accepted.",
)
CONNECTIONS_REFUSED = Metric(
    "penstock_connections_refused_total",
    "counter",
    (),
    "Connections refused, because too many were open.",
)
CONNECTIONS_TIMED_OUT = Metric(
    "penstock_connections_timed_out_total",
    "counter",
    (),
    "Connections closed, because the client did not send a request, or read an answer, in time.",
)
BUFFERED_BYTES = Metric(
    "penstock_buffered_bytes",
    "gauge",
    (),
    "Memory of unanswered requests, over HTTP and Kafka.",
)
REQUESTS_SHED = Metric(
    "penstock_requests_shed_total",
    "counter",
    (),
    "Requests refused while they arrived, because `buffered_bytes_max` was reached.",
)
JOURNAL_BYTES = Metric(
    "penstock_journal_bytes",
    "gauge",
    ("journal",),
    "Size of a journal on disk.",
)
JOURNAL_RECORDS = Metric("penstock_journal_records_total", "counter", ("journal",), "Records ever appended.")
CLOCK_DOUBTED = Metric(
    "penstock_clock_doubted",
    "gauge",
    (),
    "1 while the clock is hours ahead of the journals, and nothing expires by it; see `--trust-clock`.",
)
JOURNAL_LAG = Metric(
    "penstock_journal_lag_records",
    "gauge",
    ("journal",),
    "Records appended but not yet on disk.",
)
FSYNC = Metric(
    "penstock_fsync_seconds",
    "histogram",
    ("log",),
    "How long the disk took for each fsync: of the journals of `queues` and of the partitions of `topics`.",
)
COMMIT = Metric(
    "penstock_commit_seconds",
    "histogram",
    ("log",),
    "From the oldest event of a commit to the moment at which all of it is durable: how long a send waits for the "
    "disk.",
)
DISK_FREE = Metric("penstock_disk_free_bytes", "gauge", (), "Free space of the file system that holds the data.")
DISK_SIZE = Metric("penstock_disk_size_bytes", "gauge", (), "Size of the file system that holds the data.")
HISTORY_LAG = Metric(
    "penstock_history_lag_records",
    "gauge",
    ("journal",),
    "Records of a journal whose settled messages are not in the history yet.",
)
MAY_LOSE = Metric(
    "penstock_fsync_may_lose",
    "gauge",
    ("fsync",),
    "1 on a server that answers before the fsync, by its setting `fsync`: a power cut may lose what was answered.",
)
LOOP_LAG = Metric(
    "penstock_loop_lag_seconds",
    "histogram",
    (),
    "How long the event loop took to give a sign that it was asked for; only with the setting `stall_ms`.",
)
LOOP_LAG_MAX = Metric(
    "penstock_loop_lag_max_seconds", "gauge", (), "The longest that it took since the server was started."
)
LOOP_CPU_MAX = Metric(
    "penstock_loop_cpu_max_seconds", "gauge", (), "The most processor time that the loop took before it gave a sign."
)
LOOP_STALLS = Metric(
    "penstock_loop_stalls_total",
    "counter",
    ("function",),
    "How often it took longer than `stall_ms`, by the function of Penstock that was running; empty where none was.",
)
POSTGRES_ROWS = Metric(
    "penstock_postgres_rows",
    "gauge",
    ("database", "table", "kind"),
    "Rows in the tables of a store in PostgreSQL, by its statistics: `live` ones, and `dead` ones that VACUUM clears.",
)
POSTGRES_ANSWERING = Metric(
    "penstock_postgres_answering",
    "gauge",
    ("database",),
    "Whether a database that queues are kept in answers: 1 or 0. The label has the patterns of its queues.",
)
POSTGRES_CONFIRMING = Metric(
    "penstock_postgres_confirming",
    "gauge",
    ("database",),
    "0 while requests that change something are refused, because nothing would confirm their commits, else 1.",
)
POSTGRES_STANDBYS = Metric(
    "penstock_postgres_standbys",
    "gauge",
    ("database",),
    "Synchronous standbys that are connected; not there if the role of the server may not see them (pg_monitor).",
)
POSTGRES_STANDBYS_NEEDED = Metric(
    "penstock_postgres_standbys_needed",
    "gauge",
    ("database",),
    "Standbys that a commit waits for, by synchronous_standby_names; 0 is the durability of one machine.",
)
POSTGRES_UNCONFIRMED = Metric(
    "penstock_postgres_commits_unconfirmed_total",
    "counter",
    ("database",),
    "Commits that no standby confirmed within `postgres_commit_timeout_ms`: their outcome is unknown.",
)
POSTGRES_OLDEST_SNAPSHOT = Metric(
    "penstock_postgres_oldest_snapshot_transactions",
    "gauge",
    ("database", "pid", "holder"),
    "How many transactions ago the oldest snapshot of the database was taken: VACUUM clears nothing younger. The "
    "labels say who holds it.",
)
POSTGRES_OLDEST_SNAPSHOT_AGE = Metric(
    "penstock_postgres_oldest_snapshot_seconds",
    "gauge",
    ("database", "pid", "holder"),
    "For how long the transaction that holds the oldest snapshot has been open.",
)
TOPIC_PARTITIONS = Metric("kafka_topic_partitions", "gauge", ("topic",), "Partitions of a topic.")
PARTITION_CURRENT = Metric(
    "kafka_topic_partition_current_offset",
    "gauge",
    ("topic", "partition"),
    "The high watermark: the offset that the next record to be read will have.",
)
PARTITION_OLDEST = Metric(
    "kafka_topic_partition_oldest_offset", "gauge", ("topic", "partition"), "The first offset that is kept."
)
TOPIC_RECORDS_IN = Metric(
    "penstock_topic_records_in_total", "counter", ("topic",), "Records written to a topic since the server started."
)
TOPIC_RECORDS_OUT = Metric(
    "penstock_topic_records_out_total", "counter", ("topic",), "Records of a topic that were read, in whole batches."
)
TOPIC_BYTES_IN = Metric(
    "penstock_topic_bytes_in_total", "counter", ("topic",), "Bytes of the batches written to a topic."
)
TOPIC_BYTES_OUT = Metric(
    "penstock_topic_bytes_out_total", "counter", ("topic",), "Bytes of the batches that were read."
)
GROUP_MEMBERS = Metric("kafka_consumergroup_members", "gauge", ("consumergroup",), "Members of a consumer group.")
GROUP_CURRENT = Metric(
    "kafka_consumergroup_current_offset",
    "gauge",
    ("consumergroup", "topic", "partition"),
    "What a group has committed; not there where it has committed nothing.",
)
GROUP_LAG = Metric(
    "kafka_consumergroup_lag",
    "gauge",
    ("consumergroup", "topic", "partition"),
    "Records that are kept and that a group has still to read.",
)
KAFKA_CONNECTIONS = Metric("penstock_kafka_connections", "gauge", (), "Connections of Kafka clients that are open.")
KAFKA_REQUESTS = Metric("penstock_kafka_requests_total", "counter", (), "Requests of Kafka clients that were answered.")
KAFKA_SECONDS = Metric(
    "penstock_kafka_request_duration_seconds",
    "histogram",
    ("api",),
    "From a request of a Kafka client to its answer. Fetches include their wait.",
)
KAFKA_ERRORS = Metric(
    "penstock_kafka_errors_total",
    "counter",
    ("error",),
    "Errors in answers to Kafka clients, by Kafka's name; each topic, partition and group of a request counts.",
)
KAFKA_REFUSED = Metric(
    "penstock_kafka_connections_refused_total",
    "counter",
    (),
    "Connections of Kafka clients turned away, because too many were open.",
)
KAFKA_TIMED_OUT = Metric(
    "penstock_kafka_connections_timed_out_total",
    "counter",
    (),
    "Connections of Kafka clients ended because they did not ask, say who they are, or read an answer, in time.",
)
KAFKA_METRICS = (KAFKA_CONNECTIONS, KAFKA_REQUESTS, KAFKA_SECONDS, KAFKA_ERRORS, KAFKA_REFUSED, KAFKA_TIMED_OUT)
STREAM_METRICS = (
    TOPIC_RECORDS_IN,
    TOPIC_RECORDS_OUT,
    TOPIC_BYTES_IN,
    TOPIC_BYTES_OUT,
    TOPIC_PARTITIONS,
    PARTITION_CURRENT,
    PARTITION_OLDEST,
    GROUP_MEMBERS,
    GROUP_CURRENT,
    GROUP_LAG,
)
READY = Metric("penstock_ready", "gauge", (), "1 if `/health/ready` says so, else 0.")

PROBE_SUCCESS = Metric("penstock_probe_success", "gauge", ("probe",), "1 if the last run of a probe worked, else 0.")
PROBE_DURATION = Metric("penstock_probe_duration_seconds", "gauge", ("probe",), "How long the last run took.")
PROBE_STEP_DURATION = Metric(
    "penstock_probe_step_duration_seconds", "gauge", ("probe", "step"), "How long each step of the last run took."
)
PROBE_LAST_SUCCESS = Metric(
    "penstock_probe_last_success_timestamp_seconds", "gauge", ("probe",), "When a run last worked, as a Unix time."
)
PROBE_RUNS = Metric("penstock_probe_runs_total", "counter", ("probe", "result"), "Runs: `success` or `failure`.")
# What `penstock probe` tells, not the server.
PROBE_METRICS = (PROBE_SUCCESS, PROBE_DURATION, PROBE_STEP_DURATION, PROBE_LAST_SUCCESS, PROBE_RUNS)

METRICS = tuple(each for each in list(globals().values()) if isinstance(each, Metric) and each not in PROBE_METRICS)
