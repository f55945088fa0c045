"""FIFO queues over SQS: order within a group, one consumer for each, and sending twice is sending once."""

import hashlib
from typing import Any

from tests.sqs.conftest import bodies, made, received
from tests.sqs.test_queues import refusal


def send(sqs: Any, url: str, body: str, group: str = "g", **more: Any) -> dict[str, Any]:
    found: dict[str, Any] = sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group, **more)
    return found


def test_a_group_is_in_order_and_with_one_consumer_at_a_time(sqs: Any, fifo: str) -> None:
    for body in ("a1", "a2", "a3"):
        send(sqs, fifo, body, "a")
    send(sqs, fifo, "b1", "b")
    first = received(sqs, fifo, 1)
    assert bodies(first) == ["a1"]
    # The rest of the group waits for it; the other group does not.
    assert bodies(received(sqs, fifo)) == ["b1"]
    sqs.delete_message(QueueUrl=fifo, ReceiptHandle=first[0]["ReceiptHandle"])
    assert bodies(received(sqs, fifo)) == ["a2", "a3"]


def test_a_message_of_a_fifo_queue_tells_its_group_its_id_and_its_sequence(sqs: Any, fifo: str) -> None:
    sent = [send(sqs, fifo, body, "group-1", MessageDeduplicationId=f"id-{body}") for body in "abc"]
    numbers = [each["SequenceNumber"] for each in sent]
    assert numbers == sorted(numbers, key=int)
    assert len(set(numbers)) == 3
    assert {len(each) for each in numbers} == {20}
    found = received(sqs, fifo)
    assert [each["Attributes"]["SequenceNumber"] for each in found] == numbers
    assert [each["Attributes"]["MessageDeduplicationId"] for each in found] == ["id-a", "id-b", "id-c"]
    assert {each["Attributes"]["MessageGroupId"] for each in found} == {"group-1"}


def test_the_content_is_the_id_where_the_queue_says_so(sqs: Any, fifo: str) -> None:
    first, again = send(sqs, fifo, "same"), send(sqs, fifo, "same")
    other = send(sqs, fifo, "same", MessageDeduplicationId="another")
    assert first["MessageId"] == again["MessageId"] != other["MessageId"]
    found = received(sqs, fifo)
    assert bodies(found) == ["same", "same"]
    assert found[0]["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"same").hexdigest()


def test_an_id_counts_in_all_groups_or_within_one(sqs: Any, fifo: str) -> None:
    assert send(sqs, fifo, "x", "a")["MessageId"] == send(sqs, fifo, "x", "b")["MessageId"]
    by_group = made(
        sqs, suffix=".fifo", FifoQueue="true", DeduplicationScope="messageGroup", ContentBasedDeduplication="true"
    )
    assert send(sqs, by_group, "x", "a")["MessageId"] == send(sqs, by_group, "x", "a")["MessageId"]
    assert send(sqs, by_group, "x", "a")["MessageId"] != send(sqs, by_group, "x", "b")["MessageId"]
    assert received(sqs, by_group)[0]["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"x").hexdigest()


def test_a_purge_forgets_the_ids_of_what_it_removed(sqs: Any, fifo: str) -> None:
    first = send(sqs, fifo, "a")
    sqs.purge_queue(QueueUrl=fifo)
    again = send(sqs, fifo, "a")
    assert first["MessageId"] != again["MessageId"] == send(sqs, fifo, "a", "another")["MessageId"]
    (found,) = received(sqs, fifo)
    assert found["Attributes"]["MessageDeduplicationId"] == hashlib.sha256(b"a").hexdigest()


def test_a_group_is_open_again_as_soon_as_its_first_message_is_visible(sqs: Any, fifo: str) -> None:
    for body in ("a1", "a2", "a3"):
        send(sqs, fifo, body, "a")
    first, second = received(sqs, fifo, 2)
    send(sqs, fifo, "b1", "b")
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=0)
    # The first is still in flight: nothing overtakes it.
    assert bodies(received(sqs, fifo)) == ["b1"]
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    first, second = received(sqs, fifo, 2)
    assert bodies([first, second]) == ["a1", "a2"]
    sqs.change_message_visibility(QueueUrl=fifo, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    # The second is not touched by that, and the third waits behind it.
    (again,) = received(sqs, fifo)
    assert again["Body"] == "a1"
    for each in (again, second):
        assert received(sqs, fifo) == []
        sqs.delete_message(QueueUrl=fifo, ReceiptHandle=each["ReceiptHandle"])
    assert bodies(received(sqs, fifo)) == ["a3"]


def test_the_id_of_a_receive_has_letters_digits_and_punctuation(sqs: Any, fifo: str) -> None:
    for said in ("§", "a b", "x" * 129):
        found = refusal(sqs.receive_message, QueueUrl=fifo, ReceiveRequestAttemptId=said)
        assert found[0] == "InvalidParameterValue"
    assert received(sqs, fifo, ReceiveRequestAttemptId="a-b.c!") == []


def test_what_a_fifo_queue_needs_is_asked_for(sqs: Any) -> None:
    fifo = made(sqs, suffix=".fifo", FifoQueue="true")
    found = refusal(sqs.send_message, QueueUrl=fifo, MessageBody="x", MessageDeduplicationId="1")
    assert found == ("MissingParameter", "The request must contain the parameter MessageGroupId.", 400)
    found = refusal(sqs.send_message, QueueUrl=fifo, MessageBody="x", MessageGroupId="g")
    no_id = (
        "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided explicitly"
    )
    assert found == ("InvalidParameterValue", no_id, 400)
    good = {"Id": "good", "MessageBody": "x", "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    for lacking in ("MessageGroupId", "MessageDeduplicationId"):
        bad = {name: value for name, value in good.items() if name != lacking} | {"Id": "bad"}
        assert refusal(sqs.send_message_batch, QueueUrl=fifo, Entries=[good, bad])[0] == "InvalidParameterValue"
    assert received(sqs, fifo) == []


def test_a_message_of_a_fifo_queue_has_no_delay_of_its_own(sqs: Any, fifo: str) -> None:
    asked = {"QueueUrl": fifo, "MessageBody": "x", "MessageGroupId": "g"}
    code, message, _ = refusal(sqs.send_message, **asked, DelaySeconds=2)
    assert code == "InvalidParameterValue"
    assert message == (
        "Value 2 for parameter DelaySeconds is invalid. "
        "Reason: The request include parameter that is not valid for this queue type."
    )
    sqs.send_message(**asked, DelaySeconds=0)
    assert bodies(received(sqs, fifo)) == ["x"]


def test_a_batch_is_sent_in_its_order_and_each_entry_once(sqs: Any, fifo: str) -> None:
    entries = [{"Id": str(at), "MessageBody": body, "MessageGroupId": "g"} for at, body in enumerate("cab" + "c")]
    result = sqs.send_message_batch(QueueUrl=fifo, Entries=entries)
    ids = [each["MessageId"] for each in result["Successful"]]
    assert ids[3] == ids[0]
    assert len(set(ids)) == 3
    assert bodies(received(sqs, fifo)) == ["c", "a", "b"]
