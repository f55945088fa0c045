"""Sending and receiving over SQS: bodies, attributes and digests come back exactly."""

import hashlib
from typing import Any

import msgspec
import pytest

from tests.sqs.conftest import attributes_of, bodies, made, received
from tests.sqs.in_process import open_sqs
from tests.sqs.test_queues import refusal

TRACE = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}}


def text(value: str, kind: str = "String") -> dict[str, str]:
    return {"DataType": kind, "StringValue": value}


def test_what_was_sent_is_received_with_the_digest_of_its_body(sqs: Any, queue: str) -> None:
    body = "größe: 5 µm\t\r\n𝄞 <&>\"'"
    sent = sqs.send_message(QueueUrl=queue, MessageBody=body)
    digest = hashlib.md5(body.encode()).hexdigest()
    assert sent["MD5OfMessageBody"] == digest
    assert not {"MD5OfMessageAttributes", "MD5OfMessageSystemAttributes", "SequenceNumber"} & sent.keys()
    (message,) = received(sqs, queue)
    assert (message["Body"], message["MD5OfBody"], message["MessageId"]) == (body, digest, sent["MessageId"])
    assert not {"MessageAttributes", "MD5OfMessageAttributes"} & message.keys()


def test_message_attributes_of_every_type_come_back_exactly(sqs: Any, queue: str) -> None:
    given = {
        "string": text("größe"),
        "custom": text("x", "String.my.kind"),
        "whole": text("42", "Number"),
        "long": text("42", "Number.java.lang.Long"),
        "padded": text("007", "Number"),
        "decimal": text("3.140", "Number"),
        "huge": text("123456789012345678901234567890", "Number"),
        "scientific": text("1e10", "Number"),
        "null": text("null"),
        "bytes": {"DataType": "Binary", "BinaryValue": bytes(range(256))},
        # Ten are the most.
    }
    sent = sqs.send_message(QueueUrl=queue, MessageBody="x", MessageAttributes=given, MessageSystemAttributes=TRACE)
    (message,) = received(sqs, queue)
    assert message["MessageAttributes"] == given
    assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
    assert message["Attributes"]["AWSTraceHeader"] == TRACE["AWSTraceHeader"]["StringValue"]
    assert len(sent["MD5OfMessageSystemAttributes"]) == 32


async def test_the_trace_of_a_request_is_that_of_its_messages_unless_they_have_their_own() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make()
        own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-own"}}
        entries = [
            {"Id": "a", "MessageBody": "a"},
            {"Id": "b", "MessageBody": "b", "MessageSystemAttributes": own},
        ]
        headers = {"x-amz-target": "AmazonSQS.SendMessageBatch"}
        for trace in ("Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1", "x" * 513, "größe"):
            said = msgspec.json.encode({"QueueUrl": url, "Entries": entries})
            sent = await sqs.raw("POST", "/", said, headers=headers | {"x-amzn-trace-id": trace})
            # No digest: it is of what the client has sent.
            assert "MD5OfMessageSystemAttributes" not in msgspec.json.decode(sent.body)["Successful"][0]
        told = [each["Attributes"].get("AWSTraceHeader") for each in await sqs.receive(url)]
        assert told == ["Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1", *["Root=1-own", None] * 2, "Root=1-own"]


def test_only_the_message_attributes_that_are_asked_for_are_told(sqs: Any) -> None:
    queue = made(sqs, VisibilityTimeout="0")
    given = {"Hello": text("There"), "General": text("Kenobi"), "Help.Me": text("Me")}
    sent = sqs.send_message(QueueUrl=queue, MessageBody="msg", MessageAttributes=given)
    # The digests are those that AWS gives for the same attributes.
    assert sent["MD5OfMessageAttributes"] == "4c360f3fdafd970e05fae2f149d997f5"
    for names, told, digest in (
        ([], set(), None),
        (["All"], {"Hello", "General", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        ([".*"], {"Hello", "General", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        (["*"], {"Hello", "General", "Help.Me"}, "4c360f3fdafd970e05fae2f149d997f5"),
        (["Hello", "General"], {"Hello", "General"}, "fca026605781cb4126a1e9044df24232"),
        (["Hello", "Nobody"], {"Hello"}, "a311262e065454b75da111d535b8dacd"),
        (["Hel.*"], {"Hello", "Help.Me"}, "83fee93c1bcd8b9a5a923ffacdc636c7"),
        (["Nobody"], set(), None),
    ):
        (message,) = received(sqs, queue, MessageAttributeNames=names)
        assert message.get("MessageAttributes", {}).keys() == told
        assert message.get("MD5OfMessageAttributes") == digest


def test_only_the_system_attributes_that_are_asked_for_are_told(sqs: Any) -> None:
    queue = made(sqs, VisibilityTimeout="0")
    sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="tenant")
    (first,) = received(sqs, queue)
    told = first["Attributes"]
    assert told.keys() == {
        *("SenderId", "SentTimestamp", "ApproximateReceiveCount", "ApproximateFirstReceiveTimestamp", "MessageGroupId")
    }
    assert (told["ApproximateReceiveCount"], told["MessageGroupId"]) == ("1", "tenant")
    assert int(told["ApproximateFirstReceiveTimestamp"]) >= int(told["SentTimestamp"]) > 1_600_000_000_000
    (older,) = received(sqs, queue, MessageSystemAttributeNames=[], AttributeNames=["SenderId", "Policy"])
    assert older["Attributes"].keys() == {"SenderId"}
    (again,) = received(sqs, queue, MessageSystemAttributeNames=["ApproximateReceiveCount"])
    assert again["Attributes"] == {"ApproximateReceiveCount": "3"}
    assert "Attributes" not in received(sqs, queue, MessageSystemAttributeNames=[])[0]
    asked = {"QueueUrl": queue, "MessageSystemAttributeNames": ["Colour"]}
    assert refusal(sqs.receive_message, **asked)[:2] == ("InvalidAttributeName", "Unknown Attribute Colour.")


@pytest.mark.parametrize("character", ["\x00", "\x0b", "\x1f", "\ufffe", "\uffff"])
def test_a_character_that_xml_cannot_carry_is_refused(sqs: Any, queue: str, character: str) -> None:
    assert refusal(sqs.send_message, QueueUrl=queue, MessageBody=f"a{character}b")[0] == "InvalidMessageContents"


def test_a_message_without_a_body_misses_a_parameter(sqs: Any, queue: str) -> None:
    for asked in ({}, {"MessageBody": ""}):
        found = refusal(sqs.send_message, QueueUrl=queue, **asked)
        assert found == ("MissingParameter", "The request must contain the parameter MessageBody.", 400)


def test_body_and_attributes_together_are_within_the_limit_of_the_queue(sqs: Any) -> None:
    queue = made(sqs, MaximumMessageSize="1024")
    attribute = {"a": text("xx")}
    sqs.send_message(QueueUrl=queue, MessageBody="x" * 1_024)
    sqs.send_message(QueueUrl=queue, MessageBody="x" * (1_024 - 9), MessageAttributes=attribute)
    found = refusal(sqs.send_message, QueueUrl=queue, MessageBody="x" * (1_024 - 8), MessageAttributes=attribute)
    reason = "One or more parameters are invalid. Reason: Message must be shorter than 1024 bytes."
    assert found == ("InvalidParameterValue", reason, 400)
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessages"] == "2"


def test_the_largest_message_is_one_mebibyte(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="x" * 1_048_576)
    assert len(received(sqs, queue)[0]["Body"]) == 1_048_576
    code = refusal(sqs.send_message, QueueUrl=queue, MessageBody="ü" * 524_289)[0]
    assert code == "InvalidParameterValue"


@pytest.mark.parametrize(
    "attributes",
    [
        {"": text("x")},
        {".a": text("x")},
        {"a.": text("x")},
        {"a..b": text("x")},
        {"a b": text("x")},
        {"AWS.a": text("x")},
        {"amazon.a": text("x")},
        {"penstock.sqs": text("x")},
        {"x" * 257: text("x")},
        {"a": text("")},
        {"a": text("x", "")},
        {"a": text("x", "Colour")},
        {"a": text("x", "Number")},
        {"a": text("x", "Binary")},
        {"a": text("a\x00b")},
        {"a": {"DataType": "Binary", "BinaryValue": b""}},
        {"a": {"DataType": "String"}},
        {"a": {"DataType": "String", "StringListValues": ["x"]}},
        {"penstock.priority": text("soon")},
        {f"a{number}": text("x") for number in range(11)},
    ],
)
def test_a_message_attribute_that_cannot_be_is_refused(sqs: Any, queue: str, attributes: dict[str, Any]) -> None:
    asked = {"QueueUrl": queue, "MessageBody": "x", "MessageAttributes": attributes}
    assert refusal(sqs.send_message, **asked)[0] == "InvalidParameterValue"


@pytest.mark.parametrize("system", [{"Colour": text("x")}, {"AWSTraceHeader": text("1", "Number")}])
def test_a_system_attribute_that_cannot_be_sent_is_refused(sqs: Any, queue: str, system: dict[str, Any]) -> None:
    asked = {"QueueUrl": queue, "MessageBody": "x", "MessageSystemAttributes": system}
    assert refusal(sqs.send_message, **asked)[0] == "InvalidParameterValue"


def test_numbers_out_of_their_bounds_are_refused_in_the_words_of_aws(sqs: Any, queue: str) -> None:
    for call, asked, message in (
        (sqs.send_message, {"MessageBody": "x", "DelaySeconds": 901}, "DelaySeconds must be >= 0 and <= 900."),
        (sqs.receive_message, {"MaxNumberOfMessages": 11}, "Must be between 1 and 10, if provided."),
        (sqs.receive_message, {"MaxNumberOfMessages": 0}, "Must be between 1 and 10, if provided."),
        (sqs.receive_message, {"WaitTimeSeconds": 21}, "Must be >= 0 and <= 20, if provided."),
        (sqs.receive_message, {"VisibilityTimeout": 43_201}, "Must be between 0 and 43200, if provided."),
    ):
        (name,) = asked.keys() - {"MessageBody"}
        found = refusal(call, QueueUrl=queue, **asked)
        reason = f"Value {asked[name]} for parameter {name} is invalid. Reason: {message}"
        assert found == ("InvalidParameterValue", reason, 400)


def test_what_only_a_fifo_queue_has_is_refused_by_a_standard_one(sqs: Any, queue: str) -> None:
    asked = {"QueueUrl": queue, "MessageBody": "x", "MessageDeduplicationId": "1"}
    assert refusal(sqs.send_message, **asked)[0] == "InvalidParameterValue"
    assert refusal(sqs.receive_message, QueueUrl=queue, ReceiveRequestAttemptId="1")[0] == "InvalidParameterValue"
    sqs.send_message(QueueUrl=queue, MessageBody="x", MessageGroupId="g" * 128)
    assert refusal(sqs.send_message, QueueUrl=queue, MessageBody="x", MessageGroupId="g" * 129)[2] == 400
    assert refusal(sqs.send_message, QueueUrl=queue, MessageBody="x", MessageGroupId="a b")[2] == 400


def test_an_attribute_sets_the_priority_of_a_message(sqs: Any, queue: str) -> None:
    for body, priority in (("low", "LOW"), ("urgent", "critical"), ("plain", None), ("high", "1")):
        attributes = {} if priority is None else {"penstock.priority": text(priority)}
        sqs.send_message(QueueUrl=queue, MessageBody=body, MessageAttributes=attributes)
    found = received(sqs, queue)
    assert bodies(found) == ["urgent", "high", "plain", "low"]
    assert found[0]["MessageAttributes"] == {"penstock.priority": text("critical")}


def test_a_batch_answers_for_each_of_its_entries(sqs: Any, queue: str) -> None:
    entries = [
        {"Id": "good", "MessageBody": "a", "MessageAttributes": {"k": text("v")}},
        {"Id": "bad", "MessageBody": "\x00"},
        {"Id": "late", "MessageBody": "b", "DelaySeconds": 901},
        {"Id": "fine", "MessageBody": "c", "MessageSystemAttributes": TRACE},
    ]
    result = sqs.send_message_batch(QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in result["Successful"]] == ["good", "fine"]
    assert [(each["Id"], each["Code"], each["SenderFault"]) for each in result["Failed"]] == [
        ("bad", "InvalidMessageContents", True),
        ("late", "InvalidParameterValue", True),
    ]
    assert result["Successful"][0]["MD5OfMessageBody"] == hashlib.md5(b"a").hexdigest()
    assert "MD5OfMessageAttributes" in result["Successful"][0]
    assert "MD5OfMessageSystemAttributes" in result["Successful"][1]
    assert bodies(received(sqs, queue)) == ["a", "c"]


def test_a_batch_that_is_wrong_as_a_whole_sends_nothing(sqs: Any, queue: str) -> None:
    def entry(name: str, body: str = "x") -> dict[str, str]:
        return {"Id": name, "MessageBody": body}

    half = "x" * 524_288
    for entries, code in (
        ([], "EmptyBatchRequest"),
        ([entry(str(number)) for number in range(11)], "TooManyEntriesInBatchRequest"),
        ([entry("a"), entry("a")], "BatchEntryIdsNotDistinct"),
        ([entry("a"), entry("")], "InvalidBatchEntryId"),
        ([entry("a"), entry("b:c")], "InvalidBatchEntryId"),
        ([entry("x" * 81)], "InvalidBatchEntryId"),
        ([entry("a", half), entry("b", half), entry("c")], "BatchRequestTooLong"),
    ):
        found = refusal(sqs.send_message_batch, QueueUrl=queue, Entries=entries)
        assert (found[0], found[2]) == (f"AWS.SimpleQueueService.{code}", 400)
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessages"] == "0"
