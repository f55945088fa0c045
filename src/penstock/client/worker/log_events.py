"""What a worker says in the log: each line a name and fields, as the server's are.

The logger is `penstock.worker`. A record has the name as `event` and the fields as `fields`, for those who write JSON.
"""

import logging

logger = logging.getLogger("penstock.worker")

STARTED = "worker_started"
STOPPING = "worker_stopping"
HURRIED = "worker_hurried"
STOPPED = "worker_stopped"
SERVER_LOST = "worker_server_lost"
QUEUE_NOT_FOUND = "worker_queue_not_found"
SERVER_FOUND = "worker_server_found"
LEASE_LOST = "worker_lease_lost"
SETTLING_FAILED = "worker_settling_failed"
THREAD_ABANDONED = "worker_thread_abandoned"
IDEMPOTENCY_FAILED = "worker_idempotency_failed"
MESSAGE_WORKED = "message_worked"


def log_event(name: str, /, level: int = logging.INFO, **fields: object) -> None:
    if logger.isEnabledFor(level):
        details = " ".join(f"{field}={value}" for field, value in fields.items())
        logger.log(level, "%s %s", name, details, extra={"event": name, "fields": fields})
