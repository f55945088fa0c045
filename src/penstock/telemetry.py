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


LOG_OPENED = LogEvent(
    "log.opened", "info", "A log is open; says from which offset to which, and whether the last stop was clean."
)
LOG_TAIL_CUT = LogEvent(
    "log.tail_cut",
    "warning",
    "The last stop left unsynced bytes behind; they were cut off. Nothing acknowledged was in them, unless the disk "
    "has damaged the very last commit, which cannot be told apart.",
)
LOG_INDEX_REBUILT = LogEvent(
    "log.index_rebuilt", "info", "An index was missing or wrong and was made anew from its segment."
)
LOG_ROLLED = LogEvent("log.rolled", "info", "A segment was closed and the next one begun.")
LOG_ROLL_DEFERRED = LogEvent(
    "log.roll_deferred", "warning", "No space for a new segment; the old one goes on past its size."
)
LOG_SEGMENT_DROPPED = LogEvent(
    "log.segment_dropped", "info", "A segment went, because nothing in it is needed any more."
)
LOG_FAILED = LogEvent(
    "log.failed", "error", "A write or an fsync failed. The process stops at once; nothing is acknowledged after it."
)
LOG_TAKEN_AWAY = LogEvent(
    "log.taken_away",
    "error",
    "A file of a log, or its folder, was removed, renamed or replaced. The process stops at once, with exit code 72.",
)
STORE_CLOCK_DOUBTED = LogEvent(
    "store.clock_doubted",
    "warning",
    "The clock is hours ahead of all that the journals know. Time goes on from there, and nothing expires by the "
    "clock, until it is right or the server is started with --trust-clock.",
)
STORE_CLOCK_TRUSTED = LogEvent(
    "store.clock_trusted", "info", "A clock that was doubted is right again, and is followed."
)
STORE_SNAPSHOT_MADE = LogEvent(
    "store.snapshot_made", "info", "What a shard is was written down; opening it begins there, not at the beginning."
)
STORE_SNAPSHOT_DAMAGED = LogEvent(
    "store.snapshot_damaged", "error", "A snapshot cannot be read. The one before it is used, if there is one."
)
STORE_SNAPSHOT_FAILED = LogEvent(
    "store.snapshot_failed", "warning", "No snapshot was made; it is tried again. Until then the journal grows."
)
STORE_UPKEEP_FAILED = LogEvent(
    "store.upkeep_failed", "error", "Shortening a journal went wrong; it is tried again. Until then the journal grows."
)
DEAD_LETTERS_FULL = LogEvent(
    "store.dead_letters_full",
    "warning",
    "The dead-letter queue of a queue is full: messages whose deliveries are spent are stuck in their queue, and count "
    "there. Redrive or purge the dead letters, or raise their `queue_size`.",
)
HISTORY_STALLED = LogEvent(
    "history.stalled",
    "warning",
    "No space for the history of settled messages. Queues go on; the journal keeps what the history has not written.",
)
HISTORY_RESUMED = LogEvent("history.resumed", "info", "There is space again, and the history is being written.")
HISTORY_AHEAD_OF_JOURNAL = LogEvent(
    "history.ahead_of_journal",
    "warning",
    "The history tells of events that the journal has lost, by a sync policy that may lose or an older copy of the "
    "journal. It goes on from where the journal ends.",
)
STREAMS_UPKEEP_FAILED = LogEvent(
    "streams.upkeep_failed",
    "error",
    "Looking after a partition went wrong; it is tried again. Until then what is old stays, and the partition grows.",
)
STREAMS_CLEANED = LogEvent(
    "streams.cleaned", "info", "Segments of a compacted partition were rewritten; says how large they were and are."
)
REST_FAILED = LogEvent(
    "rest.failed", "error", "A request was answered with 500: a mistake of ours, with the trace of where it was made."
)
SQS_FAILED = LogEvent(
    "sqs.failed",
    "error",
    "A call of SQS was answered with 500: a mistake of ours, with the trace of where it was made.",
)
KAFKA_FAILED = LogEvent(
    "kafka.failed",
    "error",
    "A request of a Kafka client ended its connection: a mistake of ours, with the trace of where it was made.",
)
KEYS_CHANGED = LogEvent("keys.changed", "info", "Keys were made, rotated or revoked: others are good now.")
KEYS_DAMAGED = LogEvent(
    "keys.damaged",
    "error",
    "The keys cannot be read; those that were good last still are. See to their file or table.",
)
AUDIT_UNWRITTEN = LogEvent(
    "audit.unwritten",
    "error",
    "An action is not in the audit log, because its disk or database did not take it; this event has it instead.",
)
SERVER_STARTED = LogEvent("server.started", "info", "The server listens; says where, and where its data is.")
SERVER_STOPPING = LogEvent(
    "server.stopping", "info", "No new work is taken; long polls are answered and running requests finished."
)
SERVER_REQUESTS_ABORTED = LogEvent(
    "server.requests_aborted",
    "warning",
    "Requests were still running when the time for stopping was over, or somebody was in a hurry; they were not "
    "answered. What they asked for may have been done.",
)
SERVER_STOPPED = LogEvent("server.stopped", "info", "Everything is closed and the journal is clean.")
STORE_DURABILITY_WARNING = LogEvent(
    "store.durability_warning",
    "warning",
    "The database is configured so that a crash may lose what it has confirmed; says by which setting. "
    "`--allow-unsafe-durability` says that you know.",
)
SERVER_MAY_LOSE = LogEvent(
    "server.may_lose",
    "warning",
    "The setting `fsync` is not `batch`: says what a power cut may lose of what was answered.",
)
SERVER_STALLED = LogEvent(
    "server.stalled",
    "warning",
    "The event loop gave no sign for longer than `stall_ms`: says for how long, which task was running when that was "
    "noticed, and where. Logged once a second at most.",
)
STORE_WAITS = LogEvent(
    "store.waits",
    "warning",
    "Opening the store waits for a lock in the database; says on which table, and which process there holds it: its "
    "pid, role and application, and since when.",
)
KAFKA_PORT_IN_USE = LogEvent(
    "kafka.port_in_use",
    "warning",
    "The port for Kafka clients is taken, and nobody has chosen another: they are not served. Say `--kafka-port`, or "
    "`--no-kafka` where that is meant.",
)
SERVER_FILES_LIMITED = LogEvent(
    "server.files_limited",
    "warning",
    "The system lets this process have fewer files than `connections_max` asks for; says how many, and how many "
    "connections are accepted. Raise the limit: `ulimit -n`, or `LimitNOFILE` of a service.",
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
    "How long ago the oldest ready message of a tier was sent; not there for a tier without any.",
)
QUEUE_STUCK_AGE = Metric(
    "penstock_queue_stuck_age_seconds",
    "gauge",
    ("queue",),
    "How long the first of the messages that are stuck has been: its deliveries are spent and the dead-letter queue is "
    "full. Not there while there are none.",
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
    "How long a message sent now waits at the worst, if leasing goes on at its rate; not there while that is unknown.",
)
QUEUE_NOISY_GROUPS = Metric(
    "penstock_queue_noisy_groups",
    "gauge",
    ("queue",),
    "Groups of a standard queue that take more than their share, and are served when nothing quiet waits.",
)
QUEUE_NOISY_MESSAGES = Metric(
    "penstock_queue_noisy_messages",
    "gauge",
    ("queue", "state"),
    "Messages of noisy groups, `ready` and `in_flight`; all others are in quiet groups.",
)
QUEUE_SENT = Metric("penstock_queue_sent_total", "counter", ("queue",), "Messages sent since the server started.")
QUEUE_RECEIVED = Metric("penstock_queue_received_total", "counter", ("queue",), "Messages leased, each time counted.")
QUEUE_ACKED = Metric("penstock_queue_acked_total", "counter", ("queue",), "Messages acked.")
QUEUE_RELEASED = Metric("penstock_queue_released_total", "counter", ("queue",), "Messages given back by their workers.")
QUEUES = Metric("penstock_queues", "gauge", (), "Queues there are.")
QUEUES_OMITTED = Metric(
    "penstock_queues_omitted",
    "gauge",
    (),
    "Queues without numbers of their own here, because there are too many: the last ones by name.",
)
REQUESTS = Metric(
    "penstock_requests_total",
    "counter",
    ("operation", "status"),
    "Requests answered; status 499 for those whose client did not wait for the answer.",
)
REQUEST_SECONDS = Metric(
    "penstock_request_duration_seconds",
    "histogram",
    ("operation",),
    "From the head of a request to the end of its answer; long polls include their waiting.",
)
LONG_POLLS = Metric("penstock_long_polls_waiting", "gauge", (), "Requests that wait for messages.")
CONNECTIONS = Metric("penstock_connections", "gauge", (), "Connections that are open.")
CONNECTIONS_MAX = Metric(
    "penstock_connections_max",
    "gauge",
    (),
    "How many connections can be open: `connections_max`, or fewer if the system allows the process fewer files.",
)
CONNECTIONS_ACCEPTED = Metric("penstock_connections_accepted_total", "counter", (), "Connections that were opened.")
CONNECTIONS_REFUSED = Metric(
    "penstock_connections_refused_total", "counter", (), "Connections turned away, because too many were open."
)
CONNECTIONS_TIMED_OUT = Metric(
    "penstock_connections_timed_out_total",
    "counter",
    (),
    "Connections ended because the client did not send a request, or read an answer, in time.",
)
BUFFERED_BYTES = Metric(
    "penstock_buffered_bytes",
    "gauge",
    (),
    "What requests that are not answered yet hold in memory, over HTTP and Kafka.",
)
REQUESTS_SHED = Metric(
    "penstock_requests_shed_total",
    "counter",
    (),
    "Requests refused while they arrived, for want of `buffered_bytes_max`.",
)
JOURNAL_BYTES = Metric("penstock_journal_bytes", "gauge", ("journal",), "Size of a journal on the disk.")
JOURNAL_RECORDS = Metric("penstock_journal_records_total", "counter", ("journal",), "Records ever appended.")
CLOCK_DOUBTED = Metric(
    "penstock_clock_doubted",
    "gauge",
    (),
    "1 while the clock is hours ahead of the journals, and nothing expires by it; see `--trust-clock`.",
)
JOURNAL_LAG = Metric("penstock_journal_lag_records", "gauge", ("journal",), "Records appended and not on the disk yet.")
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
KAFKA_METRICS = (KAFKA_CONNECTIONS, KAFKA_REQUESTS, KAFKA_REFUSED, KAFKA_TIMED_OUT)
STREAM_METRICS = (
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
