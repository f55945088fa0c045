"""Queues over SQS: made, found, listed, emptied and deleted, as AWS does it."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.server.serving import Running
from tests.sqs.conftest import ACCOUNT, arn_of, attributes_of, bodies, made, name_of, new_name, received


def refusal(call: Any, **asked: Any) -> tuple[str, str, int]:
    """Return the code, the message and the status that a call is refused with."""
    with pytest.raises(ClientError) as found:
        call(**asked)
    response = found.value.response
    return response["Error"]["Code"], response["Error"]["Message"], response["ResponseMetadata"]["HTTPStatusCode"]


def test_a_queue_is_called_by_the_address_that_its_maker_has_reached(sqs: Any, running: Running) -> None:
    name = new_name()
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    assert url == f"{running.url}/{ACCOUNT}/{name}"
    assert sqs.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=ACCOUNT)["QueueUrl"] == url


def test_a_new_queue_has_the_attributes_that_aws_gives_it(sqs: Any, queue: str) -> None:
    found = attributes_of(sqs, queue)
    assert int(found.pop("CreatedTimestamp")) == int(found.pop("LastModifiedTimestamp")) > 1_600_000_000
    assert found == {
        "QueueArn": arn_of(queue),
        "ApproximateNumberOfMessages": "0",
        "ApproximateNumberOfMessagesNotVisible": "0",
        "ApproximateNumberOfMessagesDelayed": "0",
        "VisibilityTimeout": "30",
        "DelaySeconds": "0",
        "MessageRetentionPeriod": "345600",
        "MaximumMessageSize": "1048576",
        "ReceiveMessageWaitTimeSeconds": "0",
        "SqsManagedSseEnabled": "true",
    }


def test_making_a_queue_again_compares_only_what_is_said(sqs: Any) -> None:
    name = new_name()
    url = sqs.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "5", "DelaySeconds": "1"})["QueueUrl"]
    for attributes in ({}, {"DelaySeconds": "1"}, {"VisibilityTimeout": "5", "DelaySeconds": "1"}):
        assert sqs.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"] == url
    code, message, _ = refusal(sqs.create_queue, QueueName=name, Attributes={"DelaySeconds": "2"})
    assert code == "QueueAlreadyExists"
    assert message == "A queue already exists with the same name and a different value for attribute DelaySeconds"
    with pytest.raises(sqs.exceptions.QueueNameExists):
        sqs.create_queue(QueueName=name, Attributes={"MaximumMessageSize": "2048"})


def test_a_policy_is_compared_by_what_it_says(sqs: Any, queue: str) -> None:
    name = new_name()
    said = f'{{"maxReceiveCount":"3", "deadLetterTargetArn":"{arn_of(queue)}"}}'
    url = sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": said})["QueueUrl"]
    for same in (said, said.replace('"3"', "3")):
        assert sqs.create_queue(QueueName=name, Attributes={"RedrivePolicy": same})["QueueUrl"] == url
    other = said.replace('"3"', "4")
    assert refusal(sqs.create_queue, QueueName=name, Attributes={"RedrivePolicy": other})[0] == "QueueAlreadyExists"


@pytest.mark.parametrize("name", ["a.b", "a b", "x" * 81, "ü", "orders.fifo"])
def test_a_name_that_aws_refuses_is_refused(sqs: Any, name: str) -> None:
    code, message, status = refusal(sqs.create_queue, QueueName=name)
    assert (code, status) == ("InvalidParameterValue", 400)
    assert message == "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"


def test_a_fifo_queue_is_told_by_its_attribute_and_its_name(sqs: Any) -> None:
    code, message, _ = refusal(sqs.create_queue, QueueName=new_name(), Attributes={"FifoQueue": "true"})
    assert code == "InvalidParameterValue"
    assert "must end with .fifo suffix" in message
    found = attributes_of(sqs, made(sqs, suffix=".fifo", FifoQueue="true"))
    assert (found["FifoQueue"], found["ContentBasedDeduplication"]) == ("true", "false")
    assert (found["DeduplicationScope"], found["FifoThroughputLimit"]) == ("queue", "perQueue")


def test_queues_are_listed_by_prefix_and_in_pages(sqs: Any) -> None:
    urls = [sqs.create_queue(QueueName=f"listed-{letter}")["QueueUrl"] for letter in "abcde"]
    assert sqs.list_queues(QueueNamePrefix="listed-")["QueueUrls"] == urls
    first = sqs.list_queues(QueueNamePrefix="listed-", MaxResults=2)
    assert first["QueueUrls"] == urls[:2]
    pages = sqs.get_paginator("list_queues").paginate(
        QueueNamePrefix="listed-", PaginationConfig={"PageSize": 2, "StartingToken": first["NextToken"]}
    )
    assert [url for page in pages for url in page.get("QueueUrls", [])] == urls[2:]
    whole = sqs.list_queues(QueueNamePrefix="listed-", MaxResults=5)
    assert (whole["QueueUrls"], whole.get("NextToken")) == (urls, None)
    assert "QueueUrls" not in sqs.list_queues(QueueNamePrefix="nobody-")
    assert refusal(sqs.list_queues, MaxResults=1_001)[0] == "InvalidParameterValue"
    assert refusal(sqs.list_queues, NextToken="?")[0] == "InvalidParameterValue"


def test_a_queue_that_is_not_there_is_an_error_of_its_own_everywhere(sqs: Any, queue: str) -> None:
    gone = queue.replace(name_of(queue), "never-made")
    entries = [{"Id": "a", "MessageBody": "x"}]
    for call, asked in (
        (sqs.send_message, {"MessageBody": "x"}),
        (sqs.send_message_batch, {"Entries": entries}),
        (sqs.receive_message, {}),
        (sqs.delete_message, {"ReceiptHandle": "x"}),
        (sqs.change_message_visibility, {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
        (sqs.get_queue_attributes, {"AttributeNames": ["All"]}),
        (sqs.set_queue_attributes, {"Attributes": {"DelaySeconds": "1"}}),
        (sqs.purge_queue, {}),
        (sqs.delete_queue, {}),
        (sqs.list_queue_tags, {}),
        (sqs.tag_queue, {"Tags": {"a": "b"}}),
        (sqs.untag_queue, {"TagKeys": ["a"]}),
        (sqs.list_dead_letter_source_queues, {}),
        (sqs.add_permission, {"Label": "a", "AWSAccountIds": [ACCOUNT], "Actions": ["SendMessage"]}),
        (sqs.remove_permission, {"Label": "a"}),
    ):
        code, message, status = refusal(call, QueueUrl=gone, **asked)
        assert (code, status) == ("AWS.SimpleQueueService.NonExistentQueue", 400), call
        assert message == "The specified queue does not exist."
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="never-made")
    assert refusal(sqs.get_queue_url, QueueName=name_of(queue), QueueOwnerAWSAccountId="123456789012")[2] == 400


def test_an_address_that_is_no_queue_is_told_from_a_queue_that_is_not_there(sqs: Any, queue: str) -> None:
    assert refusal(sqs.purge_queue, QueueUrl="http://127.0.0.1/nonsense")[0] == "InvalidAddress"
    other = queue.replace(ACCOUNT, "123456789012")
    assert refusal(sqs.purge_queue, QueueUrl=other)[0] == "AWS.SimpleQueueService.NonExistentQueue"
    assert refusal(sqs.purge_queue, QueueUrl="")[:2] == (
        "MissingParameter",
        "The request must contain the parameter QueueUrl.",
    )
    sqs.purge_queue(QueueUrl=f"http://another-name/queue/{name_of(queue)}")


def test_a_purge_removes_everything_and_may_be_repeated_at_once(sqs: Any, queue: str) -> None:
    for _ in range(2):
        for body in "abc":
            sqs.send_message(QueueUrl=queue, MessageBody=body)
        received(sqs, queue, 1)
        sqs.purge_queue(QueueUrl=queue)
        assert attributes_of(sqs, queue)["ApproximateNumberOfMessages"] == "0"
        assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_deleted_queue_is_gone_and_its_name_is_free_at_once(sqs: Any, queue: str) -> None:
    for _ in range(2):
        sqs.send_message(QueueUrl=queue, MessageBody="x")
        sqs.delete_queue(QueueUrl=queue)
        with pytest.raises(sqs.exceptions.QueueDoesNotExist):
            sqs.send_message(QueueUrl=queue, MessageBody="x")
        assert sqs.create_queue(QueueName=name_of(queue), Attributes={"DelaySeconds": "1"})["QueueUrl"] == queue
        assert attributes_of(sqs, queue)["ApproximateNumberOfMessages"] == "0"


def test_counts_tell_where_messages_are(sqs: Any, queue: str) -> None:
    for delay in (0, 0, 0, 900):
        sqs.send_message(QueueUrl=queue, MessageBody="x", DelaySeconds=delay)
    assert bodies(received(sqs, queue, 1)) == ["x"]
    found = attributes_of(sqs, queue)
    assert found["ApproximateNumberOfMessages"] == "2"
    assert found["ApproximateNumberOfMessagesNotVisible"] == "1"
    assert found["ApproximateNumberOfMessagesDelayed"] == "1"
