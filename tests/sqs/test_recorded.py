"""What AWS was recorded to do where its documentation says nothing, or something else."""

import json
from typing import Any

import pytest

from tests.server.serving import Answer, Running
from tests.sqs.conftest import arn_of, attributes_of, bodies, made, name_of, received
from tests.sqs.test_queues import refusal
from tests.sqs.test_send import text


def get(running: Running, path: str, accept: str = "*/*") -> Answer:
    with running.client() as client:
        return client.ask("GET", path, accept=accept)


def path_of(url: str) -> str:
    return "/" + "/".join(url.rsplit("/", 2)[1:])


def policy(url: str, count: int = 3) -> str:
    return json.dumps({"deadLetterTargetArn": arn_of(url), "maxReceiveCount": count})


def test_an_empty_redrive_policy_removes_it(sqs: Any, queue: str) -> None:
    url = made(sqs, RedrivePolicy=policy(queue))
    assert "RedrivePolicy" in attributes_of(sqs, url)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in attributes_of(sqs, url)
    assert "RedrivePolicy" not in attributes_of(sqs, made(sqs, RedrivePolicy=""))


def test_a_queue_may_name_itself_as_its_dead_letter_queue_and_keeps_its_messages(sqs: Any) -> None:
    url = made(sqs, VisibilityTimeout="0")
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy(url, 1)})
    assert json.loads(attributes_of(sqs, url)["RedrivePolicy"]) == json.loads(policy(url, 1))
    assert sqs.list_dead_letter_source_queues(QueueUrl=url)["queueUrls"] == [url]
    sqs.send_message(QueueUrl=url, MessageBody="a")
    for _ in range(3):
        assert bodies(received(sqs, url)) == ["a"]
    other = made(sqs)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy(other)})
    assert json.loads(attributes_of(sqs, url)["RedrivePolicy"]) == json.loads(policy(other))
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy(url)})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in attributes_of(sqs, url)


def test_names_of_message_attributes_may_have_letters_of_any_script(sqs: Any, queue: str) -> None:
    given = {"attr.1øßä": text("x"), "名前": text("y"), "цвет-2": text("3", "Number")}
    sent = sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=given)
    (found,) = received(sqs, queue)
    assert found["MessageAttributes"] == given
    assert found["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    for name in ("a§b", "a!b", "a?b", "a b", "(a)"):
        asked = {"QueueUrl": queue, "MessageBody": "x", "MessageAttributes": {name: text("x")}}
        assert refusal(sqs.send_message, **asked)[0] == "InvalidParameterValue"


def test_names_of_message_attributes_count_by_their_bytes(sqs: Any) -> None:
    url = made(sqs, MaximumMessageSize="1024")
    # 4 bytes of the name, 6 of the type, 1 of the value.
    asked: dict[str, Any] = {"QueueUrl": url, "MessageAttributes": {"ßß": text("x")}}
    sqs.send_message(**asked, MessageBody="a" * (1_024 - 11))
    assert refusal(sqs.send_message, **asked, MessageBody="a" * (1_024 - 10))[0] == "InvalidParameterValue"


def test_a_key_ends_the_encryption_of_a_new_queue_and_alone_tells_how_long_it_is_used(sqs: Any, queue: str) -> None:
    assert attributes_of(sqs, queue)["SqsManagedSseEnabled"] == "true"
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"KmsDataKeyReusePeriodSeconds": "600"})
    assert "KmsDataKeyReusePeriodSeconds" not in attributes_of(sqs, queue)
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"KmsMasterKeyId": "alias/mine"})
    found = attributes_of(sqs, queue)
    assert (found["SqsManagedSseEnabled"], found["KmsDataKeyReusePeriodSeconds"]) == ("false", "600")
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"SqsManagedSseEnabled": "true"})
    assert not {"KmsMasterKeyId", "KmsDataKeyReusePeriodSeconds"} & attributes_of(sqs, queue).keys()
    url = made(sqs, KmsDataKeyReusePeriodSeconds="600")
    again = {"KmsDataKeyReusePeriodSeconds": "600"}
    assert sqs.create_queue(QueueName=name_of(url), Attributes=again)["QueueUrl"] == url


@pytest.mark.parametrize("parameter", ["MessageGroupId", "MessageDeduplicationId"])
def test_an_empty_id_of_a_message_is_an_error(sqs: Any, queue: str, fifo: str, parameter: str) -> None:
    reason = f"{parameter} can only include alphanumeric and punctuation characters. 1 to 128 in length."
    refused = ("InvalidParameterValue", f"Value  for parameter {parameter} is invalid. Reason: {reason}", 400)
    assert refusal(sqs.send_message, QueueUrl=queue, MessageBody="x", **{parameter: ""}) == refused
    entry = {"Id": "one", "MessageBody": "x", parameter: ""}
    (failed,) = sqs.send_message_batch(QueueUrl=queue, Entries=[entry])["Failed"]
    assert (failed["Code"], failed["Message"]) == refused[:2]
    if parameter == "MessageDeduplicationId":
        asked = {"QueueUrl": fifo, "MessageBody": "x", "MessageGroupId": "g", parameter: ""}
        assert refusal(sqs.send_message, **asked) == refused
    else:
        found = refusal(sqs.send_message, QueueUrl=fifo, MessageBody="x", MessageGroupId="")
        assert found[:2] == ("MissingParameter", "The request must contain the parameter MessageGroupId.")


@pytest.mark.parametrize("action", ["ListQueues", "CreateQueue"])
def test_what_is_about_no_queue_is_no_action_at_the_url_of_one(running: Running, queue: str, action: str) -> None:
    found = get(running, f"{path_of(queue)}?Action={action}&QueueName=other")
    assert found.status == 400
    assert b"<Code>InvalidAction</Code>" in found.body
    assert f"<Message>The action {action} is not valid for this endpoint.</Message>".encode() in found.body
    found = get(running, f"{path_of(queue)}?Action={action}&QueueName=other", "application/json")
    assert (found.status, found.json()["Error"]["Code"]) == (400, "InvalidAction")
    assert get(running, f"/?Action={action}&QueueName=elsewhere").status == 200


@pytest.mark.parametrize("accept", ["*/*", "application/json"])
def test_a_queue_without_an_action_is_an_unknown_operation_in_xml(running: Running, queue: str, accept: str) -> None:
    found = get(running, path_of(queue), accept)
    assert (found.status, found.body.strip()) == (404, b"<UnknownOperationException/>")
    assert found.headers["content-type"] == "text/xml"


def test_the_query_protocol_answers_in_json_to_those_who_accept_it(running: Running, sqs: Any, queue: str) -> None:
    found = get(running, f"/?Action=ListQueues&QueueNamePrefix={name_of(queue)}", "application/json")
    assert (found.status, found.headers["content-type"]) == (200, "application/json")
    told = found.json()["ListQueuesResponse"]
    assert told["ListQueuesResult"]["queueUrls"][0].endswith(path_of(queue))
    assert told["ResponseMetadata"]["RequestId"] == found.headers["x-amzn-requestid"]
    path = f"{path_of(queue)}?Action=GetQueueAttributes&AttributeName.1=QueueArn"
    told = get(running, path, "application/json").json()["GetQueueAttributesResponse"]
    assert told["GetQueueAttributesResult"] == {"Attributes": [{"Name": "QueueArn", "Value": arn_of(queue)}]}
    sent = get(running, f"{path_of(queue)}?Action=SendMessage&MessageBody=hello", "application/json").json()
    told = get(running, f"{path_of(queue)}?Action=ReceiveMessage", "application/json").json()
    (message,) = told["ReceiveMessageResponse"]["ReceiveMessageResult"]["messages"]
    assert message["MessageId"] == sent["SendMessageResponse"]["SendMessageResult"]["MessageId"]
    assert (message["Body"], message["MD5OfBody"]) == ("hello", "5d41402abc4b2a76b9719d911017c592")
    told = get(running, f"{path_of(queue)}x?Action=PurgeQueue", "application/json").json()
    assert told["Error"]["Code"] == "AWS.SimpleQueueService.NonExistentQueue"
    assert b"<ListQueuesResult" in get(running, "/?Action=ListQueues", "text/xml, application/json").body
