"""What a job must know of a queue before it sends: that it is there, and what it takes."""

from dataclasses import dataclass

from penstock.core.limits import DURATION_MS_MAX
from penstock.core.names import BadName, check_name
from penstock.pipeline.asking import TRIES_BY_HAND, Asking, ServerRefused, ServerUnreachable
from penstock.pipeline.jobs.staging import Target
from penstock.pipeline.outcome import JobFailed
from penstock.pipeline.sink.options import BadOption, check_server

TOPIC = "topic:"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    name: str
    body_bytes_max: int
    delay_s_max: float


def check_target(queue: str) -> None:
    if queue.startswith(TOPIC):
        raise JobFailed(f"{queue}: topics are read and not yet written; this version sends to queues")
    try:
        check_name(queue)
    except BadName as error:
        raise JobFailed(str(error)) from None


def ask_queue(target: Target, queue: str) -> QueueFacts:
    check_target(queue)
    try:
        check_server(target.url, target.key)
        with Asking(target.url, target.key, tries_max=TRIES_BY_HAND) as asking:
            found = asking.json(f"/api/queues/{queue}")
    except (BadOption, ServerRefused, ServerUnreachable) as error:
        raise JobFailed(str(error)) from None
    retention_s = float(str(found.get("retention_s") or 0))
    delay_s_max = DURATION_MS_MAX / 1_000
    return QueueFacts(
        queue,
        int(str(found["message_bytes_max"])),
        min(delay_s_max, retention_s) if retention_s else delay_s_max,
    )
