"""Every error of the service's model that can happen here, as boto3 raises it: its class, its code, its status."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.server.serving import Running
from tests.sqs.conftest import arn_of, made, name_of, received
from tests.sqs.in_process import open_sqs
from tests.sqs.older import model

OLD = "AWS.SimpleQueueService."
# AWS's IAM is not ours, one error is deprecated, and one needs a full queue: `test_time.py` has it.
ELSEWHERE = {"InvalidSecurity", "InvalidIdFormat", "RequestThrottled"}
# One value for every parameter that some action requires, but for the queue.
GIVEN: dict[str, Any] = {
    "QueueName": "orders",
    "Label": "a",
    "AWSAccountIds": ["123456789012"],
    "Actions": ["SendMessage"],
    "Attributes": {"DelaySeconds": "1"},
    "Tags": {"a": "b"},
    "TagKeys": ["a"],
    "MessageBody": "a",
    "ReceiptHandle": "a",
    "VisibilityTimeout": 1,
    "Entries": [{"Id": "a", "MessageBody": "a"}],
    "SourceArn": "a",
    "TaskHandle": "a",
}


def entries(*ids: str, body: str = "a") -> list[dict[str, str]]:
    return [{"Id": each, "MessageBody": body} for each in ids]


def gone(sqs: Any, url: str) -> None:
    sqs.send_message(QueueUrl=f"{url}-never", MessageBody="a")


def again(sqs: Any, url: str) -> None:
    sqs.create_queue(QueueName=name_of(url), Attributes={"DelaySeconds": "7"})


def too_soon(sqs: Any, url: str) -> None:
    sqs.delete_queue(QueueUrl=url)
    sqs.create_queue(QueueName=name_of(url))


def purge_twice(sqs: Any, url: str) -> None:
    sqs.purge_queue(QueueUrl=url)
    sqs.purge_queue(QueueUrl=url)


def not_in_flight(sqs: Any, url: str) -> None:
    sqs.send_message(QueueUrl=url, MessageBody="a")
    (message,) = received(sqs, url)
    change = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    sqs.change_message_visibility(**change, VisibilityTimeout=0)
    sqs.change_message_visibility(**change, VisibilityTimeout=5)


def cancelled_twice(sqs: Any, url: str) -> None:
    policy = json.dumps({"deadLetterTargetArn": arn_of(url), "maxReceiveCount": 1})
    made(sqs, RedrivePolicy=policy)
    handle = sqs.start_message_move_task(SourceArn=arn_of(url))["TaskHandle"]
    while sqs.list_message_move_tasks(SourceArn=arn_of(url))["Results"][0]["Status"] == "RUNNING":
        pass
    sqs.cancel_message_move_task(TaskHandle=handle)


CASES: list[tuple[str, str, int, Callable[[Any, str], object]]] = [
    (
        "BatchEntryIdsNotDistinct",
        f"{OLD}BatchEntryIdsNotDistinct",
        400,
        lambda sqs, url: sqs.send_message_batch(QueueUrl=url, Entries=entries("a", "a")),
    ),
    (
        "BatchRequestTooLong",
        f"{OLD}BatchRequestTooLong",
        400,
        lambda sqs, url: sqs.send_message_batch(QueueUrl=url, Entries=entries("a", "b", body="x" * 600_000)),
    ),
    (
        "EmptyBatchRequest",
        f"{OLD}EmptyBatchRequest",
        400,
        lambda sqs, url: sqs.delete_message_batch(QueueUrl=url, Entries=[]),
    ),
    ("InvalidAddress", "InvalidAddress", 404, lambda sqs, _: sqs.purge_queue(QueueUrl="http://127.0.0.1/nonsense")),
    (
        "InvalidAttributeName",
        "InvalidAttributeName",
        400,
        lambda sqs, url: sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["Colour"]),
    ),
    (
        "InvalidAttributeValue",
        "InvalidAttributeValue",
        400,
        lambda sqs, url: sqs.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "901"}),
    ),
    (
        "InvalidBatchEntryId",
        f"{OLD}InvalidBatchEntryId",
        400,
        lambda sqs, url: sqs.send_message_batch(QueueUrl=url, Entries=entries("not an id")),
    ),
    (
        "InvalidMessageContents",
        "InvalidMessageContents",
        400,
        lambda sqs, url: sqs.send_message(QueueUrl=url, MessageBody="\x00"),
    ),
    ("MessageNotInflight", f"{OLD}MessageNotInflight", 400, not_in_flight),
    (
        "OverLimit",
        "OverLimit",
        403,
        lambda sqs, url: sqs.add_permission(
            QueueUrl=url, Label="a", AWSAccountIds=["123456789012"], Actions=["SendMessage"] * 8
        ),
    ),
    ("PurgeQueueInProgress", f"{OLD}PurgeQueueInProgress", 403, purge_twice),
    ("QueueDeletedRecently", f"{OLD}QueueDeletedRecently", 400, too_soon),
    ("QueueDoesNotExist", f"{OLD}NonExistentQueue", 400, gone),
    ("QueueNameExists", "QueueAlreadyExists", 400, again),
    (
        "ReceiptHandleIsInvalid",
        "ReceiptHandleIsInvalid",
        404,
        lambda sqs, url: sqs.delete_message(QueueUrl=url, ReceiptHandle="nonsense"),
    ),
    (
        "ResourceNotFoundException",
        "ResourceNotFoundException",
        404,
        lambda sqs, url: sqs.start_message_move_task(SourceArn=f"{arn_of(url)}-never"),
    ),
    (
        "TooManyEntriesInBatchRequest",
        f"{OLD}TooManyEntriesInBatchRequest",
        400,
        lambda sqs, url: sqs.send_message_batch(QueueUrl=url, Entries=entries(*"abcdefghijk")),
    ),
    ("UnsupportedOperation", f"{OLD}UnsupportedOperation", 400, cancelled_twice),
]


@pytest.mark.parametrize(("shape", "code", "status", "call"), CASES, ids=[case[0] for case in CASES])
def test_an_error_is_raised_as_its_own_class_with_the_older_code(
    waiting: Any, shape: str, code: str, status: int, call: Callable[[Any, str], object]
) -> None:
    sqs, queue = waiting, made(waiting)
    with pytest.raises(ClientError) as found:
        call(sqs, queue)
    response = found.value.response
    assert isinstance(found.value, getattr(sqs.exceptions, shape))
    assert (response["Error"]["Code"], response["ResponseMetadata"]["HTTPStatusCode"]) == (code, status)
    assert response["Error"]["Type"] == "Sender"
    assert response["Error"]["Message"]


def test_no_error_of_the_model_is_left_out_of_these_tests() -> None:
    modelled = {name for name, shape in model()["shapes"].items() if shape.get("exception")}
    assert {case[0] for case in CASES} == {name for name in modelled - ELSEWHERE if not name.startswith("Kms")}


async def test_every_parameter_that_the_model_requires_is_asked_for() -> None:
    found = model()
    async with open_sqs() as sqs:
        given = GIVEN | {"QueueUrl": await sqs.make()}
        for action, operation in found["operations"].items():
            required = found["shapes"][operation["input"]["shape"]].get("required", [])
            for lacking in required:
                asked = {name: given[name] for name in required if name != lacking}
                code = "AWS.SimpleQueueService.EmptyBatchRequest" if lacking == "Entries" else "MissingParameter"
                assert await sqs.refused(action, **asked) == code, (action, lacking)


def test_a_queue_of_another_address_form_is_the_same_queue(sqs: Any, running: Running, queue: str) -> None:
    sqs.send_message(QueueUrl=f"{running.url}/queue/{name_of(queue)}", MessageBody="a")
    assert [each["Body"] for each in received(sqs, queue)] == ["a"]
    sqs.send_message(QueueUrl=name_of(queue), MessageBody="b")
    assert [each["Body"] for each in received(sqs, name_of(queue))] == ["b"]
