"""Attributes of a queue: which may be set, to what, and what is kept of them."""

import json
from typing import Any

import pytest

from penstock.api.sqs import queue_attributes
from penstock.contract.queue_settings import QueueSettings
from penstock.store.interface import Counts, Description
from tests.sqs.conftest import ACCOUNT, arn_of, attributes_of, made
from tests.sqs.test_queues import refusal


def test_every_attribute_that_can_be_set_is_read_back(sqs: Any, queue: str) -> None:
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    given = {
        "VisibilityTimeout": "43200",
        "DelaySeconds": "900",
        "MessageRetentionPeriod": "1209600",
        "MaximumMessageSize": "1024",
        "ReceiveMessageWaitTimeSeconds": "20",
        "Policy": policy,
        "KmsMasterKeyId": "alias/aws/sqs",
        "KmsDataKeyReusePeriodSeconds": "60",
        "SqsManagedSseEnabled": "false",
        "RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"}),
    }
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=given)
    found = attributes_of(sqs, queue)
    assert {name: found[name] for name in given} == given
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": "", "KmsMasterKeyId": "", "RedriveAllowPolicy": ""})
    found = attributes_of(sqs, queue)
    assert not {"Policy", "KmsMasterKeyId", "RedriveAllowPolicy"} & found.keys()
    assert found["ReceiveMessageWaitTimeSeconds"] == "20"


def test_a_queue_was_not_changed_before_it_was_made_though_a_second_has_begun_meanwhile() -> None:
    settings = queue_attributes.apply({}, QueueSettings(), now_s=1_700_000_000)
    made_later = Description("orders", "q_1", settings, 1_700_000_001_000, None, None, ())
    told = queue_attributes.show_counts(made_later, Counts((0,) * 5, 0, 0, (None,) * 5), "arn")
    assert (told["CreatedTimestamp"], told["LastModifiedTimestamp"]) == ("1700000001", "1700000001")


def test_only_the_attributes_that_are_asked_for_are_told(sqs: Any, queue: str) -> None:
    asked = ["VisibilityTimeout", "QueueArn", "Policy"]
    found = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=asked)["Attributes"]
    assert found == {"VisibilityTimeout": "30", "QueueArn": arn_of(queue)}
    assert "Attributes" not in sqs.get_queue_attributes(QueueUrl=queue)
    code, message, _ = refusal(sqs.get_queue_attributes, QueueUrl=queue, AttributeNames=["Colour"])
    assert (code, message) == ("InvalidAttributeName", "Unknown Attribute Colour.")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VisibilityTimeout", "43201"),
        ("VisibilityTimeout", "-1"),
        ("VisibilityTimeout", "soon"),
        ("VisibilityTimeout", "1.5"),
        ("DelaySeconds", "901"),
        ("MessageRetentionPeriod", "59"),
        ("MessageRetentionPeriod", "1209601"),
        ("MaximumMessageSize", "1023"),
        ("MaximumMessageSize", "1048577"),
        ("ReceiveMessageWaitTimeSeconds", "21"),
        ("KmsDataKeyReusePeriodSeconds", "59"),
        ("SqsManagedSseEnabled", "maybe"),
        ("Policy", "nonsense"),
        ("RedriveAllowPolicy", '{"redrivePermission": "perhaps"}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "byQueue"}'),
        ("RedriveAllowPolicy", '{"redrivePermission": "denyAll", "sourceQueueArns": ["a"]}'),
        ("RedriveAllowPolicy", json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": ["a"] * 11})),
    ],
)
def test_a_value_out_of_its_bounds_is_refused_by_name(sqs: Any, queue: str, name: str, value: str) -> None:
    code, message, _ = refusal(sqs.set_queue_attributes, QueueUrl=queue, Attributes={name: value})
    assert code == "InvalidAttributeValue"
    assert message.startswith(f"Invalid value for the parameter {name}.")
    assert attributes_of(sqs, queue).get(name) != value


@pytest.mark.parametrize("name", ["Colour", "QueueArn", "ApproximateNumberOfMessages", "FifoQueue", "All"])
def test_what_cannot_be_set_is_an_unknown_attribute(sqs: Any, queue: str, name: str) -> None:
    found = refusal(sqs.set_queue_attributes, QueueUrl=queue, Attributes={name: "true"})
    assert found == ("InvalidAttributeName", f"Unknown Attribute {name}.", 400)


def test_a_queue_stays_of_its_kind(sqs: Any, fifo: str) -> None:
    sqs.set_queue_attributes(QueueUrl=fifo, Attributes={"FifoQueue": "true"})
    code, message, _ = refusal(sqs.set_queue_attributes, QueueUrl=fifo, Attributes={"FifoQueue": "false"})
    assert code == "InvalidAttributeValue"
    assert message.endswith("Modifying queue type is not supported.")


def test_high_throughput_needs_ids_that_count_within_a_group(sqs: Any, fifo: str) -> None:
    alone = {"FifoThroughputLimit": "perMessageGroupId"}
    assert refusal(sqs.set_queue_attributes, QueueUrl=fifo, Attributes=alone)[0] == "InvalidAttributeValue"
    sqs.set_queue_attributes(QueueUrl=fifo, Attributes=alone | {"DeduplicationScope": "messageGroup"})
    found = attributes_of(sqs, fifo)
    assert (found["DeduplicationScope"], found["FifoThroughputLimit"]) == ("messageGroup", "perMessageGroupId")


def test_a_queue_with_a_key_tells_for_how_long_its_data_keys_are_used(sqs: Any, queue: str) -> None:
    assert "KmsDataKeyReusePeriodSeconds" not in attributes_of(sqs, queue)
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"KmsMasterKeyId": "alias/aws/sqs"})
    assert attributes_of(sqs, queue)["KmsDataKeyReusePeriodSeconds"] == "300"


def test_one_kind_of_encryption_is_named_at_a_time(sqs: Any, queue: str) -> None:
    both = {"KmsMasterKeyId": "key", "SqsManagedSseEnabled": "true"}
    assert refusal(sqs.set_queue_attributes, QueueUrl=queue, Attributes=both)[0] == "InvalidAttributeName"


def test_naming_one_kind_of_encryption_ends_the_other(sqs: Any, queue: str) -> None:
    for given, managed, key in (
        ({"SqsManagedSseEnabled": "true"}, "true", None),
        ({"KmsMasterKeyId": "key"}, "false", "key"),
        ({"SqsManagedSseEnabled": "true"}, "true", None),
    ):
        sqs.set_queue_attributes(QueueUrl=queue, Attributes=given)
        found = attributes_of(sqs, queue)
        assert (found["SqsManagedSseEnabled"], found.get("KmsMasterKeyId")) == (managed, key)


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        ("nonsense", "Redrive policy is not a valid JSON map."),
        ({"maxReceiveCount": 1}, "Redrive policy does not contain mandatory attribute: deadLetterTargetArn."),
        (
            {"deadLetterTargetArn": "dummy", "MaxReceiveCount": 1},
            "Redrive policy does not contain mandatory attribute: maxReceiveCount.",
        ),
        ({"deadLetterTargetArn": "dummy", "maxReceiveCount": 42}, "Invalid value for deadLetterTargetArn."),
        (
            {"deadLetterTargetArn": f"arn:aws:sqs:us-east-1:{ACCOUNT}:nobody", "maxReceiveCount": 1},
            "Dead letter target does not exist.",
        ),
    ],
)
def test_a_redrive_policy_that_cannot_be_is_refused_with_its_reason(
    sqs: Any, queue: str, policy: Any, reason: str
) -> None:
    said = policy if isinstance(policy, str) else json.dumps(policy)
    code, message, status = refusal(sqs.set_queue_attributes, QueueUrl=queue, Attributes={"RedrivePolicy": said})
    assert (code, status) == ("InvalidParameterValue", 400)
    assert message == f"Value {said} for parameter RedrivePolicy is invalid. Reason: {reason}"


@pytest.mark.parametrize("count", [0, 1_001, "many", 1.5, True])
def test_a_receive_count_out_of_its_bounds_is_refused(sqs: Any, queue: str, count: Any) -> None:
    said = json.dumps({"deadLetterTargetArn": arn_of(made(sqs)), "maxReceiveCount": count})
    code, message, _ = refusal(sqs.set_queue_attributes, QueueUrl=queue, Attributes={"RedrivePolicy": said})
    assert code == "InvalidParameterValue"
    assert "valid values are from 1 to 1000 both inclusive." in message


def test_a_dead_letter_queue_is_of_the_same_kind_as_its_source(sqs: Any, queue: str, fifo: str) -> None:
    said = json.dumps({"deadLetterTargetArn": arn_of(fifo), "maxReceiveCount": 1})
    message = refusal(sqs.set_queue_attributes, QueueUrl=queue, Attributes={"RedrivePolicy": said})[1]
    assert message.endswith("Dead-letter queue must be same type of queue as the source.")


def test_a_redrive_allow_policy_says_who_may_bury_here(sqs: Any, queue: str) -> None:
    other = made(sqs)
    grave = made(
        sqs, RedriveAllowPolicy=json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": [arn_of(queue)]})
    )
    said = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn_of(grave), "maxReceiveCount": "3"})}
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=said)
    found = json.loads(attributes_of(sqs, queue)["RedrivePolicy"])
    assert found == {"deadLetterTargetArn": arn_of(grave), "maxReceiveCount": 3}
    assert refusal(sqs.set_queue_attributes, QueueUrl=other, Attributes=said)[0] == "InvalidParameterValue"
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": ""})
    assert "RedrivePolicy" not in attributes_of(sqs, queue)


def test_tags_are_kept_changed_and_removed(sqs: Any) -> None:
    url = made(sqs, tags={"team": "red", "cost": ""})
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "red", "cost": ""}
    sqs.tag_queue(QueueUrl=url, Tags={"team": "blau", "größe": "5 µm"})
    sqs.untag_queue(QueueUrl=url, TagKeys=["cost", "never"])
    assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "blau", "größe": "5 µm"}
    sqs.untag_queue(QueueUrl=url, TagKeys=["team", "größe"])
    assert "Tags" not in sqs.list_queue_tags(QueueUrl=url)
    many = {f"tag-{number}": "x" for number in range(51)}
    assert refusal(sqs.tag_queue, QueueUrl=url, Tags=many)[0] == "InvalidParameterValue"
    assert refusal(sqs.tag_queue, QueueUrl=url, Tags={"x" * 129: "y"})[0] == "InvalidParameterValue"
    assert refusal(sqs.tag_queue, QueueUrl=url)[0] == "MissingParameter"
    assert refusal(sqs.untag_queue, QueueUrl=url)[0] == "MissingParameter"


def test_permissions_become_statements_of_the_policy(sqs: Any, queue: str) -> None:
    add = {"QueueUrl": queue, "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage", "ReceiveMessage"]}
    sqs.add_permission(Label="first", **add)
    sqs.add_permission(Label="second", **(add | {"Actions": ["*"]}))
    policy = json.loads(attributes_of(sqs, queue)["Policy"])
    assert policy["Id"] == f"{arn_of(queue)}/SQSDefaultPolicy"
    assert [each["Sid"] for each in policy["Statement"]] == ["first", "second"]
    assert policy["Statement"][0] == {
        "Sid": "first",
        "Effect": "Allow",
        "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
        "Action": ["SQS:SendMessage", "SQS:ReceiveMessage"],
        "Resource": arn_of(queue),
    }
    assert refusal(sqs.add_permission, Label="first", **add)[1].endswith("Reason: Already exists.")
    sqs.remove_permission(QueueUrl=queue, Label="first")
    assert refusal(sqs.remove_permission, QueueUrl=queue, Label="first")[1].endswith("Reason: can't find label.")
    sqs.remove_permission(QueueUrl=queue, Label="second")
    assert "Policy" not in attributes_of(sqs, queue)


def test_a_permission_is_added_to_a_policy_of_one_statement(sqs: Any, queue: str) -> None:
    one = {"Sid": "one", "Effect": "Allow", "Principal": "*", "Action": "SQS:*"}
    said = json.dumps({"Version": "2012-10-17", "Statement": one})
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": said})
    sqs.add_permission(QueueUrl=queue, Label="two", AWSAccountIds=["123456789012"], Actions=["SendMessage"])
    policy = json.loads(attributes_of(sqs, queue)["Policy"])
    assert policy["Statement"][0] == one
    assert [each["Sid"] for each in policy["Statement"]] == ["one", "two"]


def test_a_permission_that_cannot_be_given_is_refused(sqs: Any, queue: str) -> None:
    add = {"QueueUrl": queue, "Label": "a", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
    for change, code in (
        ({"Label": "not a label"}, "InvalidParameterValue"),
        ({"AWSAccountIds": ["me"]}, "InvalidParameterValue"),
        ({"AWSAccountIds": []}, "MissingParameter"),
        ({"Actions": []}, "MissingParameter"),
        ({"Actions": ["Fly"]}, "InvalidParameterValue"),
        ({"Actions": ["SendMessage"] * 8}, "OverLimit"),
    ):
        assert refusal(sqs.add_permission, **(add | change))[0] == code
    for action, reason in (
        ("RemovePermission", "Only the queue owner is allowed to invoke this action."),
        ("Fly", "There is no such action."),
    ):
        told = refusal(sqs.add_permission, **(add | {"Actions": [action]}))[1]
        assert told == f"Value SQS:{action} for parameter ActionName is invalid. Reason: {reason}"
