"""SQS on a store of several shards: where a queue lies makes no difference to a client."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.settings import ServerSettings
from tests.server.serving import server
from tests.sqs.conftest import arn_of, attributes_of, bodies, client_of, name_of, received
from tests.sqs.test_queues import refusal

NAMES = [f"orders-{number}" for number in range(9)]


@pytest.fixture
def sharded(tmp_path: Path) -> Iterator[Any]:
    with server(ServerSettings(port=0, data=tmp_path, shards=3, sqs=True)) as running:
        client = client_of(running.url)
        yield client
        client.close()


def test_queues_of_all_shards_are_listed_in_order_and_tell_their_own_handles_apart(sharded: Any) -> None:
    urls = [sharded.create_queue(QueueName=name, Attributes={"VisibilityTimeout": "60"})["QueueUrl"] for name in NAMES]
    handles: dict[str, str] = {}
    for url in urls:
        sharded.send_message(QueueUrl=url, MessageBody=name_of(url))
        (message,) = received(sharded, url)
        assert message["Body"] == name_of(url)
        handles[url] = message["ReceiptHandle"]
    listed: list[str] = []
    token: str | None = ""
    while token is not None:
        page = sharded.list_queues(QueueNamePrefix="orders-", MaxResults=4, **({"NextToken": token} if token else {}))
        listed += page["QueueUrls"]
        token = page.get("NextToken")
    assert listed == urls
    for url, other in zip(urls, urls[1:] + urls[:1], strict=True):
        assert refusal(sharded.delete_message, QueueUrl=url, ReceiptHandle=handles[other])[0] == (
            "ReceiptHandleIsInvalid"
        )
        sharded.delete_message(QueueUrl=url, ReceiptHandle=handles[url])
        assert attributes_of(sharded, url)["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_dead_letters_go_to_another_shard_and_a_move_task_brings_them_back(sharded: Any) -> None:
    # Of nine queues on three shards, not all lie where their dead letters do.
    grave = sharded.create_queue(QueueName="grave")["QueueUrl"]
    policy = json.dumps({"deadLetterTargetArn": arn_of(grave), "maxReceiveCount": 1})
    attributes = {"RedrivePolicy": policy, "VisibilityTimeout": "0"}
    urls = [sharded.create_queue(QueueName=name, Attributes=attributes)["QueueUrl"] for name in NAMES]
    ids = {}
    for url in urls:
        ids[url] = sharded.send_message(QueueUrl=url, MessageBody=name_of(url), MessageGroupId="g")["MessageId"]
        assert bodies(received(sharded, url, WaitTimeSeconds=5)) == [name_of(url)]
    until = time.monotonic() + 60
    while attributes_of(sharded, grave)["ApproximateNumberOfMessages"] != str(len(urls)):
        assert all(received(sharded, url) == [] for url in urls)
        assert time.monotonic() < until
    assert sorted(sharded.list_dead_letter_source_queues(QueueUrl=grave)["queueUrls"]) == urls
    for url in urls:
        sharded.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "60"})
    sharded.start_message_move_task(SourceArn=arn_of(grave))
    for url in urls:
        (back,) = received(sharded, url, WaitTimeSeconds=20)
        assert (back["Body"], back["MessageId"]) == (name_of(url), ids[url])
        assert back["Attributes"]["MessageGroupId"] == "g"
