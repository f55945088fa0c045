"""Dead letters over SQS: when a message becomes one, what it tells, and how it goes back."""

import json
from base64 import b64decode, b64encode
from typing import Any
from uuid import UUID

from tests.sqs.conftest import arn_of, attributes_of, bodies, made, name_of, received
from tests.sqs.in_process import open_sqs
from tests.sqs.test_queues import refusal


def policy(grave: str, count: int) -> str:
    return json.dumps({"deadLetterTargetArn": arn_of(grave), "maxReceiveCount": count})


def buried(sqs: Any, *texts: str) -> tuple[str, str]:
    """Send messages that are received once too often; return the queue and the one they end in."""
    grave = made(sqs)
    url = made(sqs, RedrivePolicy=policy(grave, 1), VisibilityTimeout="0")
    for each in texts:
        sqs.send_message(QueueUrl=url, MessageBody=each)
    seen: list[str] = []
    while len(seen) < len(texts):
        seen += bodies(received(sqs, url))
    assert sorted(seen) == sorted(texts)
    while attributes_of(sqs, grave)["ApproximateNumberOfMessages"] != str(len(texts)):
        assert received(sqs, url) == []
    return url, grave


def test_a_message_received_too_often_is_moved_with_its_id_its_time_and_its_count(sqs: Any) -> None:
    grave = made(sqs)
    url = made(sqs, RedrivePolicy=policy(grave, 2), VisibilityTimeout="0")
    attributes = {"k": {"DataType": "Number.int", "StringValue": "1"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    seen: list[dict[str, Any]] = []
    while len(seen) < 2:
        seen += received(sqs, url)
    while not (found := received(sqs, grave)):
        assert received(sqs, url) == []
    (dead,) = found
    assert (dead["MessageId"], dead["Body"], dead["MessageAttributes"]) == (sent["MessageId"], "a", attributes)
    assert dead["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(url)
    assert dead["Attributes"]["SentTimestamp"] == seen[0]["Attributes"]["SentTimestamp"]
    assert dead["Attributes"]["ApproximateReceiveCount"] == "3"
    assert "DeadLetterQueueSourceArn" not in seen[0]["Attributes"]


def test_the_sources_of_a_dead_letter_queue_are_listed_in_pages(sqs: Any) -> None:
    grave = made(sqs)
    urls = [made(sqs, RedrivePolicy=policy(grave, 5)) for _ in range(3)]
    assert sorted(sqs.list_dead_letter_source_queues(QueueUrl=grave)["queueUrls"]) == sorted(urls)
    first = sqs.list_dead_letter_source_queues(QueueUrl=grave, MaxResults=2)
    assert len(first["queueUrls"]) == 2
    rest = sqs.list_dead_letter_source_queues(QueueUrl=grave, MaxResults=2, NextToken=first["NextToken"])
    assert sorted(first["queueUrls"] + rest["queueUrls"]) == sorted(urls)
    assert "NextToken" not in sqs.list_dead_letter_source_queues(QueueUrl=grave, MaxResults=3)
    assert sqs.list_dead_letter_source_queues(QueueUrl=urls[0])["queueUrls"] == []


def test_a_move_task_sends_dead_letters_back_where_they_came_from(sqs: Any) -> None:
    url, grave = buried(sqs, "a", "b")
    assert sqs.start_message_move_task(SourceArn=arn_of(grave))["TaskHandle"]
    while (task := sqs.list_message_move_tasks(SourceArn=arn_of(grave))["Results"][0])["Status"] == "RUNNING":
        assert task["TaskHandle"]
    assert (task["Status"], task["SourceArn"]) == ("COMPLETED", arn_of(grave))
    assert task["ApproximateNumberOfMessagesMoved"] == task["ApproximateNumberOfMessagesToMove"] == 2
    assert not {"TaskHandle", "DestinationArn", "FailureReason", "MaxNumberOfMessagesPerSecond"} & task.keys()
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "30"})
    found = received(sqs, url)
    assert sorted(bodies(found)) == ["a", "b"]
    # They start again in their own queue.
    assert {each["Attributes"]["ApproximateReceiveCount"] for each in found} == {"1"}
    assert not any("DeadLetterQueueSourceArn" in each["Attributes"] for each in found)


def test_a_move_task_may_have_a_destination_a_rate_and_an_end(sqs: Any) -> None:
    # At this rate it takes a minute, and is asked about meanwhile.
    _, grave = buried(sqs, *map(str, range(60)))
    other = made(sqs)
    task = {"SourceArn": arn_of(grave), "DestinationArn": arn_of(other), "MaxNumberOfMessagesPerSecond": 1}
    handle = sqs.start_message_move_task(**task)["TaskHandle"]
    said = json.loads(b64decode(handle))
    assert said == {"taskId": str(UUID(said["taskId"])), "sourceArn": arn_of(grave)}
    (running,) = sqs.list_message_move_tasks(SourceArn=arn_of(grave), MaxResults=10)["Results"]
    assert (running["Status"], running["TaskHandle"]) == ("RUNNING", handle)
    assert (running["DestinationArn"], running["MaxNumberOfMessagesPerSecond"]) == (arn_of(other), 1)
    code, message, _ = refusal(sqs.start_message_move_task, SourceArn=arn_of(grave))
    assert (code, message[:31]) == ("InvalidParameterValue", "There is already a task running")
    moved = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert 1 <= moved < 60
    assert sqs.list_message_move_tasks(SourceArn=arn_of(grave))["Results"][0]["Status"] == "CANCELLED"
    assert int(attributes_of(sqs, other)["ApproximateNumberOfMessages"]) == moved
    unsupported = "AWS.SimpleQueueService.UnsupportedOperation"
    assert refusal(sqs.cancel_message_move_task, TaskHandle=handle)[0] == unsupported


def test_a_move_task_that_cannot_be_is_refused_with_its_reason(sqs: Any, queue: str) -> None:
    _, grave = buried(sqs, "a")
    nowhere = arn_of(queue).replace(name_of(queue), "nobody")
    gone = "The resource that you specified for the {} parameter doesn't exist."
    for call, asked, refused in (
        (
            sqs.start_message_move_task,
            {"SourceArn": arn_of(queue)},
            ("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.", 400),
        ),
        (
            sqs.start_message_move_task,
            {"SourceArn": nowhere},
            ("ResourceNotFoundException", gone.format("SourceArn"), 404),
        ),
        (
            sqs.start_message_move_task,
            {"SourceArn": arn_of(grave), "DestinationArn": nowhere},
            ("ResourceNotFoundException", gone.format("DestinationArn"), 404),
        ),
        (
            sqs.list_message_move_tasks,
            {"SourceArn": nowhere},
            ("ResourceNotFoundException", gone.format("SourceArn"), 404),
        ),
        (
            sqs.cancel_message_move_task,
            {"TaskHandle": "nonsense"},
            ("InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400),
        ),
        (
            sqs.cancel_message_move_task,
            {"TaskHandle": b64encode(json.dumps({"taskId": "x", "sourceArn": arn_of(grave)}).encode()).decode()},
            ("ResourceNotFoundException", "Task does not exist.", 404),
        ),
    ):
        assert refusal(call, **asked) == refused
    start = {"SourceArn": arn_of(grave)}
    for more in ({"MaxNumberOfMessagesPerSecond": 501}, {"DestinationArn": arn_of(grave)}):
        assert refusal(sqs.start_message_move_task, **start, **more)[0] == "InvalidParameterValue"
    assert refusal(sqs.start_message_move_task)[0] == "MissingParameter"


async def test_a_task_whose_destination_is_deleted_has_failed() -> None:
    async with open_sqs() as sqs:
        grave, other = await sqs.make("grave"), await sqs.make("other")
        url = await sqs.make("orders", RedrivePolicy=policy(grave, 1), VisibilityTimeout="0")
        for body in "abc":
            await sqs("SendMessage", QueueUrl=url, MessageBody=body)
        while (await sqs.queues.placement.of("grave").counts("grave")).live < 3:
            await sqs.receive(url)
        task = {"SourceArn": arn_of(grave), "DestinationArn": arn_of(other), "MaxNumberOfMessagesPerSecond": 1}
        await sqs("StartMessageMoveTask", **task)
        await sqs("DeleteQueue", QueueUrl=other)
        (running,) = sqs.queues.redrives.of("grave")
        assert running.running is not None
        await running.running
        (told,) = (await sqs("ListMessageMoveTasks", SourceArn=arn_of(grave)))["Results"]
        assert told["Status"] == "FAILED"
        assert told["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"


async def test_a_task_that_leaves_messages_without_a_queue_to_go_back_to_has_failed() -> None:
    async with open_sqs() as sqs:
        grave, kept = await sqs.make("grave"), {"VisibilityTimeout": "0"}
        gone = await sqs.make("gone", RedrivePolicy=policy(grave, 1), **kept)
        await sqs.make("orders", RedrivePolicy=policy(grave, 1), **kept)
        await sqs("SendMessage", QueueUrl=gone, MessageBody="a")
        while (await sqs.queues.placement.of("grave").counts("grave")).live < 1:
            await sqs.receive(gone)
        await sqs("DeleteQueue", QueueUrl=gone)
        assert await sqs("ListMessageMoveTasks", SourceArn=arn_of(grave)) == {"Results": []}
        await sqs("StartMessageMoveTask", SourceArn=arn_of(grave))
        (task,) = sqs.queues.redrives.of("grave")
        assert task.running is not None
        await task.running
        (told,) = (await sqs("ListMessageMoveTasks", SourceArn=arn_of(grave)))["Results"]
        assert (told["Status"], told["ApproximateNumberOfMessagesMoved"]) == ("FAILED", 0)
        assert told["FailureReason"] == "AWS.SimpleQueueService.NonExistentQueue"
