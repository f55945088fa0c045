"""Deleting and changing visibility, one by one and in batches, by handles that are good and by others."""

from typing import Any

import pytest

from tests.sqs.conftest import attributes_of, bodies, made, received
from tests.sqs.test_queues import refusal


def filled(sqs: Any, url: str, *texts: str) -> list[dict[str, Any]]:
    """Send messages and receive them."""
    for each in texts:
        sqs.send_message(QueueUrl=url, MessageBody=each)
    found = received(sqs, url)
    assert bodies(found) == list(texts)
    return found


def test_a_deleted_message_is_gone_and_deleting_it_again_is_no_error(sqs: Any, queue: str) -> None:
    (message,) = filled(sqs, queue, "a")
    for _ in range(2):
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_message_whose_visibility_is_zero_comes_back_at_once(sqs: Any, queue: str) -> None:
    (message,) = filled(sqs, queue, "a")
    sqs.change_message_visibility(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=0)
    (again,) = received(sqs, queue)
    assert again["Attributes"]["ApproximateReceiveCount"] == "2"
    assert again["ReceiptHandle"] != message["ReceiptHandle"]


@pytest.mark.parametrize("handle", ["x", "A" * 52, "=" * 52, "Ä" * 52, "A" * 51 + "=", "x" * 2_000])
def test_what_is_no_handle_is_refused_as_such(sqs: Any, queue: str, handle: str) -> None:
    for call, more in ((sqs.delete_message, {}), (sqs.change_message_visibility, {"VisibilityTimeout": 1})):
        found = refusal(call, QueueUrl=queue, ReceiptHandle=handle, **more)
        assert (found[0], found[2]) == ("ReceiptHandleIsInvalid", 404)


def test_a_handle_is_good_for_its_own_queue_only(sqs: Any, queue: str) -> None:
    (message,) = filled(sqs, made(sqs), "a")
    asked = {"QueueUrl": queue, "ReceiptHandle": message["ReceiptHandle"]}
    with pytest.raises(sqs.exceptions.ReceiptHandleIsInvalid):
        sqs.delete_message(**asked)
    assert refusal(sqs.change_message_visibility, **asked, VisibilityTimeout=1)[0] == "ReceiptHandleIsInvalid"


def test_parameters_that_are_missing_are_named_in_their_order(sqs: Any, queue: str) -> None:
    for asked, name in (
        ({}, "QueueUrl"),
        ({"QueueUrl": queue}, "ReceiptHandle"),
        ({"QueueUrl": queue, "ReceiptHandle": "x"}, "VisibilityTimeout"),
    ):
        found = refusal(sqs.change_message_visibility, **asked)
        assert found == ("MissingParameter", f"The request must contain the parameter {name}.", 400)
    too_long = {"QueueUrl": queue, "ReceiptHandle": "x", "VisibilityTimeout": 43_201}
    assert refusal(sqs.change_message_visibility, **too_long)[0] == "InvalidParameterValue"


def test_a_batch_of_deletes_answers_for_each(sqs: Any, queue: str) -> None:
    first, second = filled(sqs, queue, "a", "b")
    entries = [
        {"Id": "one", "ReceiptHandle": first["ReceiptHandle"]},
        {"Id": "none", "ReceiptHandle": "nonsense"},
        {"Id": "two", "ReceiptHandle": second["ReceiptHandle"]},
    ]
    result = sqs.delete_message_batch(QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in result["Successful"]] == ["one", "two"]
    (failed,) = result["Failed"]
    assert (failed["Id"], failed["Code"], failed["SenderFault"]) == ("none", "ReceiptHandleIsInvalid", True)
    assert attributes_of(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_a_batch_of_changes_answers_for_each(sqs: Any, queue: str) -> None:
    first, second, third = filled(sqs, queue, "a", "b", "c")
    entries = [
        {"Id": "back", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 0},
        {"Id": "longer", "ReceiptHandle": second["ReceiptHandle"], "VisibilityTimeout": 600},
        {"Id": "silent", "ReceiptHandle": third["ReceiptHandle"]},
        {"Id": "none", "ReceiptHandle": "nonsense", "VisibilityTimeout": 1},
        {"Id": "ever", "ReceiptHandle": third["ReceiptHandle"], "VisibilityTimeout": 43_201},
    ]
    result = sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)
    assert [each["Id"] for each in result["Successful"]] == ["back", "longer"]
    assert {each["Id"]: each["Code"] for each in result["Failed"]} == {
        "silent": "MissingParameter",
        "none": "ReceiptHandleIsInvalid",
        "ever": "InvalidParameterValue",
    }
    assert bodies(received(sqs, queue)) == ["a"]


def test_every_batch_obeys_the_same_rules(sqs: Any, queue: str) -> None:
    def entry(name: str) -> dict[str, Any]:
        return {"Id": name, "ReceiptHandle": "x"}

    for call in (sqs.delete_message_batch, sqs.change_message_visibility_batch):
        for entries, code in (
            ([], "EmptyBatchRequest"),
            ([entry(str(number)) for number in range(11)], "TooManyEntriesInBatchRequest"),
            ([entry("a"), entry("a")], "BatchEntryIdsNotDistinct"),
            ([entry("invalid:id")], "InvalidBatchEntryId"),
        ):
            assert refusal(call, QueueUrl=queue, Entries=entries)[0] == f"AWS.SimpleQueueService.{code}"
