"""What SQS was told is durable: a server that stops and starts has the same queues, with all their attributes."""

import json
from pathlib import Path

from penstock.settings import ServerSettings
from tests.server.serving import server
from tests.sqs.conftest import arn_of, attributes_of, client_of, name_of, received
from tests.sqs.test_queues import refusal
from tests.sqs.test_send import TRACE, text


def test_a_queue_that_was_purged_is_not_purged_again_because_the_server_restarted(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, data=tmp_path, sqs=True, sqs_cooldowns=True)
    for turn in range(2):
        with server(settings) as running:
            sqs = client_of(running.url)
            url = sqs.create_queue(QueueName="orders")["QueueUrl"]
            if not turn:
                sqs.purge_queue(QueueUrl=url)
            assert refusal(sqs.purge_queue, QueueUrl=url)[0] == "AWS.SimpleQueueService.PurgeQueueInProgress"
            sqs.close()


def test_queues_messages_and_everything_said_of_them_survive_a_restart(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, data=tmp_path, sqs=True)
    policy = json.dumps({"Version": "2012-10-17", "Statement": []})
    given = {"n": text("3.0", "Number.float"), "b": {"DataType": "Binary", "BinaryValue": b"\x00"}}
    with server(settings) as running:
        sqs = client_of(running.url)
        grave = sqs.create_queue(QueueName="grave.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
        attributes = {
            "FifoQueue": "true",
            "DeduplicationScope": "messageGroup",
            "Policy": policy,
            "ReceiveMessageWaitTimeSeconds": "2",
            "RedrivePolicy": json.dumps({"deadLetterTargetArn": arn_of(grave), "maxReceiveCount": 7}),
        }
        url = sqs.create_queue(QueueName="orders.fifo", Attributes=attributes, tags={"team": "röd"})["QueueUrl"]
        before = attributes_of(sqs, url)
        sent = sqs.send_message(
            QueueUrl=url,
            MessageBody="a",
            MessageGroupId="g",
            MessageDeduplicationId="1",
            MessageAttributes=given,
            MessageSystemAttributes=TRACE,
        )
        sqs.close()
    with server(settings) as running:
        sqs = client_of(running.url)
        url = sqs.get_queue_url(QueueName=name_of(url))["QueueUrl"]
        assert attributes_of(sqs, url) == before | {"ApproximateNumberOfMessages": "1"}
        assert sqs.list_queue_tags(QueueUrl=url)["Tags"] == {"team": "röd"}
        again = sqs.send_message(QueueUrl=url, MessageBody="b", MessageGroupId="g", MessageDeduplicationId="1")
        assert again["MessageId"] == sent["MessageId"]
        (message,) = received(sqs, url)
        assert (message["MessageId"], message["MessageAttributes"]) == (sent["MessageId"], given)
        assert message["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"]
        told = message["Attributes"]
        assert (told["MessageDeduplicationId"], told["MessageGroupId"]) == ("1", "g")
        assert told["SequenceNumber"] == sent["SequenceNumber"]
        assert told["AWSTraceHeader"] == TRACE["AWSTraceHeader"]["StringValue"]
        sqs.close()
