"""What a job must know of a queue, or of a topic, before it sends: that it is there, and what it takes."""

from dataclasses import dataclass
from urllib.parse import quote

from penstock.contract.limits import DURATION_MS_MAX
from penstock.contract.names import BadName, check_name
from penstock.pipeline.http import TRIES_BY_HAND, Asking, ServerRefused, ServerUnreachable
from penstock.pipeline.job import JobFailed
from penstock.pipeline.sink.options import BadOption, check_server
from penstock.pipeline.staging import Target

TOPIC = "topic:"


@dataclass(frozen=True, slots=True)
class QueueFacts:
    name: str
    body_bytes_max: int
    delay_s_max: float


@dataclass(frozen=True, slots=True)
class TopicFacts:
    name: str
    partitions: int
    batch_bytes_max: int
    is_compacted: bool


def check_target(queue: str) -> None:
    if queue.startswith(TOPIC):
        raise JobFailed(f"{queue} is a topic, not a queue: name it with --topic {queue.removeprefix(TOPIC)}")
    try:
        check_name(queue)
    except BadName as error:
        raise JobFailed(str(error)) from None


def ask_queue(target: Target, queue: str) -> QueueFacts:
    check_target(queue)
    found = _ask(target, f"/api/queues/{queue}")
    retention_s = float(str(found.get("retention_s") or 0))
    delay_s_max = DURATION_MS_MAX / 1_000
    return QueueFacts(
        queue,
        int(str(found["max_message_bytes"])),
        min(delay_s_max, retention_s) if retention_s else delay_s_max,
    )


def ask_topic(target: Target, topic: str) -> TopicFacts:
    found = _ask(target, f"/api/topics/{quote(topic, safe='')}")
    return TopicFacts(
        topic,
        int(str(found["partition_count"])),
        int(str(found["max_message_bytes"])),
        is_compacted="compact" in str(found["cleanup"]),
    )


def _ask(target: Target, path: str) -> dict[str, object]:
    try:
        check_server(target.url, target.key)
        with Asking(target.url, target.key, tries_max=TRIES_BY_HAND) as asking:
            found: dict[str, object] = asking.json(path)
    except (BadOption, ServerRefused) as error:
        raise JobFailed(str(error)) from None
    except ServerUnreachable as error:
        raise JobFailed(f"{error}. If it is another server, name it with --url or in PENSTOCK_URL") from None
    return found
