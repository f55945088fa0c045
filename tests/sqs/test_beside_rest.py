"""The same queue through REST and through SQS: what one front end does, the other sees."""

from typing import Any

from tests.server.serving import Running
from tests.sqs.conftest import attributes_of, bodies, name_of, new_name, received
from tests.sqs.test_queues import refusal
from tests.sqs.test_send import TRACE, text


def rest(running: Running, method: str, path: str, body: Any = None) -> Any:
    with running.client() as client:
        answer = client.ask(method, f"/api/queues{path}", body)
        assert answer.status < 300, answer
        return answer.json()


def test_what_sqs_sends_rest_receives_with_sensible_values(sqs: Any, running: Running, queue: str) -> None:
    attributes = {
        "color": text("red"),
        "count": text("3", "Number"),
        "ratio": text("0.50", "Number"),
        "raw": {"DataType": "Binary", "BinaryValue": b"\x00\x01"},
        "penstock.priority": text("HIGH"),
    }
    sqs.send_message(
        QueueUrl=queue,
        MessageBody="hello",
        MessageAttributes=attributes,
        MessageSystemAttributes=TRACE,
        MessageGroupId="g",
    )
    message = rest(running, "GET", f"/{name_of(queue)}/messages?visibility_timeout=0")
    assert (message["data"], message["priority"], message["group"]) == ("hello", "HIGH", "g")
    shown = {name: value for name, value in message["attributes"].items() if name != "penstock.sqs"}
    assert shown == {"color": "red", "count": 3, "ratio": "0.50", "raw": "AAE=", "penstock.priority": "HIGH"}
    # It was not changed by being looked at.
    assert received(sqs, queue, WaitTimeSeconds=20)[0]["MessageAttributes"] == attributes


def test_what_rest_sends_sqs_receives(sqs: Any, running: Running) -> None:
    name = new_name()
    rest(running, "POST", "", {"queue_name": name, "visibility_timeout": 0.5, "max_deliveries": 0})
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    attributes = {"color": "red", "count": 3, "ratio": 0.5, "good": True}
    drafts = [{"data": "text", "attributes": attributes}, {"data": {"a": 1}}, {"data_base64": "AAH/"}]
    rest(running, "POST", f"/{name}/messages", {"messages": drafts})
    plain, value, raw = received(sqs, url, VisibilityTimeout=30)
    assert plain["Body"] == "text"
    assert plain["MessageAttributes"] == {
        "color": text("red"),
        "count": text("3", "Number"),
        "ratio": text("0.5", "Number"),
        "good": text("true"),
    }
    assert (value["Body"], value["MessageAttributes"]) == ('{"a":1}', {"content_type": text("application/json")})
    assert (raw["Body"], raw["MessageAttributes"]) == ("AAH/", {"penstock.encoding": text("base64")})
    sqs.delete_message(QueueUrl=url, ReceiptHandle=plain["ReceiptHandle"])
    assert rest(running, "GET", f"/{name}")["in_flight"] == 2


def test_settings_that_both_have_are_the_same(sqs: Any, running: Running, queue: str) -> None:
    rest(running, "PATCH", f"/{name_of(queue)}", {"visibility_timeout": 77, "delay_s": 2})
    found = attributes_of(sqs, queue)
    assert (found["VisibilityTimeout"], found["DelaySeconds"]) == ("77", "2")
    sqs.tag_queue(QueueUrl=queue, Tags={"team": "red"})
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"MessageRetentionPeriod": "60", "MaximumMessageSize": "1024"})
    view = rest(running, "GET", f"/{name_of(queue)}")
    assert (view["retention_s"], view["max_message_bytes"], view["visibility_timeout"]) == (60, 1_024, 77)
    assert "labels" not in view
    rest(running, "PATCH", f"/{name_of(queue)}", {"delay_s": 0})
    assert sqs.list_queue_tags(QueueUrl=queue)["Tags"] == {"team": "red"}


def test_dead_letters_of_rest_are_dead_letters_of_sqs(sqs: Any, running: Running) -> None:
    name = new_name()
    rest(running, "POST", "", {"queue_name": name, "max_deliveries": 1})
    rest(running, "POST", f"/{name}/messages", {"data": "a"})
    receipt = rest(running, "GET", f"/{name}/messages")["receipt"]
    rest(running, "POST", f"/{name}/release", {"receipts": [receipt], "error": "boom", "reject": True})
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    assert received(sqs, url) == []
    grave = sqs.get_queue_url(QueueName=f"{name}.dead")["QueueUrl"]
    assert sqs.list_dead_letter_source_queues(QueueUrl=grave)["queueUrls"] == [url]
    (dead,) = received(sqs, grave)
    assert dead["Attributes"]["DeadLetterQueueSourceArn"].endswith(f":{name}")


def test_a_full_queue_is_throttled_as_the_sdk_knows_it(sqs: Any, running: Running, queue: str) -> None:
    rest(running, "PATCH", f"/{name_of(queue)}", {"queue_size": 1})
    sqs.send_message(QueueUrl=queue, MessageBody="a")
    assert refusal(sqs.send_message, QueueUrl=queue, MessageBody="b")[0::2] == ("RequestThrottled", 403)
    assert bodies(received(sqs, queue)) == ["a"]


def test_calls_of_sqs_are_counted_by_action(sqs: Any, running: Running, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="a")
    with running.client() as client:
        told = client.ask("GET", "/metrics").body.decode()
    assert 'operation="sqs.SendMessage"' in told
