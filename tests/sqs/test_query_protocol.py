"""The query protocol: forms in, XML out, as SDKs spoke it for ten years and some still do."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from tests.server.serving import Answer, Running
from tests.sqs.conftest import ACCOUNT, arn_of, attributes_of, bodies, made, name_of, new_name, received
from tests.sqs.older import older_client
from tests.sqs.test_queues import refusal
from tests.sqs.test_send import TRACE, text

SPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
NAMESPACE = {"s": SPACE}


@pytest.fixture(scope="module")
def older(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    client = older_client(running.url, Path(tmp_path_factory.mktemp("model")))
    yield client
    client.close()


def ask(running: Running, method: str, path: str, form: dict[str, str]) -> Answer:
    """Send a form as it is: in the URL of a GET, in the body of a POST."""
    with running.client() as client:
        said = urlencode(form).encode()
        head = f"{method} {path}{'?' + said.decode() if method == 'GET' else ''} HTTP/1.1\r\nhost: localhost\r\n"
        if method == "POST":
            head += f"content-type: application/x-www-form-urlencoded\r\ncontent-length: {len(said)}\r\n"
        client.send(head.encode() + b"\r\n" + (said if method == "POST" else b""))
        return client.answer()


def test_the_whole_life_of_a_message_in_the_older_protocol(older: Any) -> None:
    name = new_name()
    url = older.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "300"}, tags={"a": "b", "c": ""})[
        "QueueUrl"
    ]
    assert older.get_queue_url(QueueName=name)["QueueUrl"] == url
    assert url in older.list_queues(QueueNamePrefix=name)["QueueUrls"]
    assert older.list_queue_tags(QueueUrl=url)["Tags"] == {"a": "b", "c": ""}
    given = {"s": text("<größe> & \r\n"), "n": text("3.0", "Number"), "b": {"DataType": "Binary", "BinaryValue": b"\0"}}
    body = '<a> & "b"\r\n\tü𝄞 ]]>'
    sent = older.send_message(
        QueueUrl=url, MessageBody=body, MessageAttributes=given, MessageSystemAttributes=TRACE, DelaySeconds=0
    )
    (message,) = received(older, url)
    assert (message["Body"], message["MessageAttributes"]) == (body, given)
    assert (message["MD5OfBody"], message["MD5OfMessageAttributes"], message["MessageId"]) == (
        sent["MD5OfMessageBody"],
        sent["MD5OfMessageAttributes"],
        sent["MessageId"],
    )
    assert message["Attributes"]["AWSTraceHeader"] == TRACE["AWSTraceHeader"]["StringValue"]
    handle = {"QueueUrl": url, "ReceiptHandle": message["ReceiptHandle"]}
    older.change_message_visibility(**handle, VisibilityTimeout=60)
    older.delete_message(**handle)
    older.set_queue_attributes(QueueUrl=url, Attributes={"DelaySeconds": "1"})
    found = attributes_of(older, url)
    assert (found["VisibilityTimeout"], found["DelaySeconds"], found["QueueArn"]) == ("300", "1", arn_of(url))
    older.untag_queue(QueueUrl=url, TagKeys=["a"])
    older.tag_queue(QueueUrl=url, Tags={"d": "e"})
    assert older.list_queue_tags(QueueUrl=url)["Tags"] == {"c": "", "d": "e"}
    older.add_permission(QueueUrl=url, Label="l", AWSAccountIds=[ACCOUNT], Actions=["SendMessage"])
    older.remove_permission(QueueUrl=url, Label="l")
    older.purge_queue(QueueUrl=url)
    older.delete_queue(QueueUrl=url)


def test_batches_in_the_older_protocol_answer_for_each_entry(older: Any, queue: str) -> None:
    entries = [{"Id": f"e{at}", "MessageBody": f"m{at}", "MessageAttributes": {"k": text("v")}} for at in range(9)]
    result = older.send_message_batch(
        QueueUrl=queue, Entries=[*entries, {"Id": "late", "MessageBody": "x", "DelaySeconds": 901}]
    )
    assert [each["Id"] for each in result["Successful"]] == [each["Id"] for each in entries]
    (failed,) = result["Failed"]
    assert (failed["Id"], failed["SenderFault"], failed["Code"]) == ("late", True, "InvalidParameterValue")
    found = received(older, queue)
    assert bodies(found) == [each["MessageBody"] for each in entries]
    assert {each["MessageAttributes"]["k"]["StringValue"] for each in found} == {"v"}
    changes = [{"Id": "c", "ReceiptHandle": found[0]["ReceiptHandle"], "VisibilityTimeout": 0}]
    assert older.change_message_visibility_batch(QueueUrl=queue, Entries=changes)["Successful"] == [{"Id": "c"}]
    deletes = [{"Id": each["Body"], "ReceiptHandle": each["ReceiptHandle"]} for each in found[1:]]
    assert len(older.delete_message_batch(QueueUrl=queue, Entries=deletes)["Successful"]) == 8
    assert bodies(received(older, queue)) == ["m0"]


def test_dead_letters_in_the_older_protocol(older: Any) -> None:
    grave = made(older)
    policy = json.dumps({"deadLetterTargetArn": arn_of(grave), "maxReceiveCount": 1})
    url = made(older, RedrivePolicy=policy)
    assert json.loads(attributes_of(older, url)["RedrivePolicy"])["maxReceiveCount"] == 1
    assert older.list_dead_letter_source_queues(QueueUrl=grave)["queueUrls"] == [url]
    handle = older.start_message_move_task(SourceArn=arn_of(grave))["TaskHandle"]
    assert handle
    (task,) = older.list_message_move_tasks(SourceArn=arn_of(grave))["Results"]
    assert task["SourceArn"] == arn_of(grave)
    assert task["StartedTimestamp"] > 1_600_000_000_000


def test_errors_in_the_older_protocol_have_the_older_codes(older: Any, queue: str) -> None:
    gone = queue.replace(name_of(queue), "never-made")
    code, message, status = refusal(older.purge_queue, QueueUrl=gone)
    assert (code, status) == ("AWS.SimpleQueueService.NonExistentQueue", 400)
    assert message == "The specified queue does not exist for this wsdl version."
    assert refusal(older.send_message, QueueUrl=queue)[0] == "MissingParameter"
    assert refusal(older.receive_message, QueueUrl=queue, MaxNumberOfMessages=11)[0] == "InvalidParameterValue"
    assert refusal(older.receive_message, QueueUrl=queue, MaxNumberOfMessages="many")[0] == "InvalidParameterValue"
    assert refusal(older.delete_message, QueueUrl=queue, ReceiptHandle="<&>")[2] == 404


def test_both_generations_of_sdk_see_the_same_queue(sqs: Any, older: Any, queue: str) -> None:
    older.send_message(QueueUrl=queue, MessageBody="older", MessageAttributes={"k": text("v", "String.x")})
    sqs.send_message(QueueUrl=queue, MessageBody="newer", MessageAttributes={"k": text("v", "String.x")})
    (first,) = received(sqs, queue, 1)
    (second,) = received(older, queue, 1)
    assert (first["Body"], second["Body"]) == ("older", "newer")
    assert first["MD5OfMessageAttributes"] == second["MD5OfMessageAttributes"]
    older.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"])


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_the_path_of_a_queue_names_it_in_a_form(running: Running, queue: str, method: str) -> None:
    path = f"/{ACCOUNT}/{name_of(queue)}"
    sent = ask(running, method, path, {"Action": "SendMessage", "MessageBody": "by hand", "Version": "2012-11-05"})
    assert (sent.status, sent.headers["content-type"]) == (200, "text/xml")
    answer = ElementTree.fromstring(sent.body)
    assert answer.tag == f"{{{SPACE}}}SendMessageResponse"
    told = answer.find("s:ResponseMetadata/s:RequestId", NAMESPACE)
    assert told is not None
    assert told.text == sent.headers["x-amzn-requestid"]
    found = ask(running, method, path, {"Action": "ReceiveMessage", "AttributeName.1": "All"})
    answer = ElementTree.fromstring(found.body)
    assert [each.text for each in answer.findall("s:ReceiveMessageResult/s:Message/s:Body", NAMESPACE)] == ["by hand"]
    empty = ask(running, method, f"/queue/{name_of(queue)}", {"Action": "ReceiveMessage"})
    assert b"<ReceiveMessageResult/>" in empty.body


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_list_or_a_map_of_one_may_be_without_its_number(running: Running, queue: str, method: str) -> None:
    path = f"/{ACCOUNT}/{name_of(queue)}"
    change = {"Action": "SetQueueAttributes", "Attribute.Name": "VisibilityTimeout", "Attribute.Value": "7"}
    assert ask(running, method, path, change).status == 200
    told = ask(running, method, path, {"Action": "GetQueueAttributes", "AttributeName": "VisibilityTimeout"})
    assert b"<Attribute><Name>VisibilityTimeout</Name><Value>7</Value></Attribute>" in told.body


def test_an_action_that_is_none_is_told_in_the_protocol_of_the_request(running: Running) -> None:
    answer = ask(running, "POST", "/", {"Action": "Fly"})
    assert answer.status == 400
    assert b"<Code>InvalidAction</Code><Message>The action Fly is not valid for this endpoint.</Message>" in answer.body
    assert b"<Type>Sender</Type>" in answer.body
    assert ask(running, "POST", "/", {}).status == 400


def test_what_is_not_for_sqs_goes_to_rest(running: Running) -> None:
    with running.client() as client:
        assert client.ask("GET", "/").json()["name"] == "penstock"
        assert client.ask("GET", "/api/queues").status == 200
        assert client.ask("DELETE", f"/{ACCOUNT}/orders").json()["code"] == "not_found"


def test_the_golden_form_of_a_batch_is_read_as_it_was_recorded(running: Running, sqs: Any, queue: str) -> None:
    form = (
        "Action=SendMessageBatch&Version=2012-11-05&SendMessageBatchRequestEntry.1.Id=msg_001"
        "&SendMessageBatchRequestEntry.1.MessageBody=test%20message%20body%201"
        "&SendMessageBatchRequestEntry.10.Id=msg_003&SendMessageBatchRequestEntry.10.MessageBody=last"
        "&SendMessageBatchRequestEntry.2.Id=msg_002&SendMessageBatchRequestEntry.2.MessageBody=test+message+body+2"
        "&SendMessageBatchRequestEntry.2.DelaySeconds=0"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Name=test_attribute_name_1"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.StringValue=test_attribute_value_1"
        "&SendMessageBatchRequestEntry.2.MessageAttribute.1.Value.DataType=String"
    )
    with running.client() as client:
        head = f"POST /{ACCOUNT}/{name_of(queue)} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(form)}\r\n"
        client.send(f"{head}content-type: application/x-www-form-urlencoded; charset=utf-8\r\n\r\n{form}".encode())
        answer = client.answer()
    assert re.findall(rb"<Id>(.*?)</Id>", answer.body) == [b"msg_001", b"msg_002", b"msg_003"]
    found = received(sqs, queue)
    assert bodies(found) == ["test message body 1", "test message body 2", "last"]
    assert found[1]["MessageAttributes"] == {"test_attribute_name_1": text("test_attribute_value_1")}
