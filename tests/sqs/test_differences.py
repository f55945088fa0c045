"""Where we differ from AWS, and say so: each difference on the reference page that no other test shows."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

from penstock.api.sqs.receipt_handles import message_of_uuid
from penstock.core.queue.message import Receipt
from penstock.settings import ServerSettings
from penstock.store.interface import Release
from tests.server.serving import server
from tests.sqs.conftest import ACCOUNT, arn_of, attributes_of, bodies, client_of, made, name_of, received
from tests.sqs.in_process import open_sqs
from tests.sqs.test_dead_letters import buried, policy
from tests.sqs.test_queues import refusal
from tests.waiting import elapse


def test_a_policy_is_kept_and_not_enforced(sqs: Any, queue: str) -> None:
    nobody = {"Version": "2012-10-17", "Statement": [{"Effect": "Deny", "Principal": "*", "Action": "SQS:*"}]}
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"Policy": json.dumps(nobody)})
    sqs.send_message(QueueUrl=queue, MessageBody="a")
    assert bodies(received(sqs, queue)) == ["a"]
    assert json.loads(attributes_of(sqs, queue)["Policy"]) == nobody
    permission = {"QueueUrl": queue, "Label": "one", "AWSAccountIds": [ACCOUNT]}
    sqs.add_permission(**permission, Actions=["SendMessage"])
    sqs.remove_permission(QueueUrl=queue, Label="one")
    sqs.send_message(QueueUrl=queue, MessageBody="b")


def test_a_name_that_begins_as_ids_do_is_refused(sqs: Any) -> None:
    assert refusal(sqs.create_queue, QueueName="q_1")[0] == "InvalidParameterValue"


def test_the_sender_of_every_message_is_the_account(sqs: Any, queue: str) -> None:
    sqs.send_message(QueueUrl=queue, MessageBody="a")
    assert received(sqs, queue)[0]["Attributes"]["SenderId"] == ACCOUNT


def test_a_batch_fails_for_what_is_larger_than_its_queue_allows(sqs: Any) -> None:
    url = made(sqs, MaximumMessageSize="1024")
    entries = [{"Id": "small", "MessageBody": "x"}, {"Id": "large", "MessageBody": "x" * 1_025}]
    told = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    assert [each["Id"] for each in told["Successful"]] == ["small"]
    assert [(each["Id"], each["Code"]) for each in told["Failed"]] == [("large", "InvalidParameterValue")]


def test_a_delay_as_long_as_the_retention_is_refused(sqs: Any) -> None:
    url = made(sqs, MessageRetentionPeriod="60")
    assert refusal(sqs.send_message, QueueUrl=url, MessageBody="x", DelaySeconds=60)[0] == "InvalidParameterValue"
    told = refusal(sqs.set_queue_attributes, QueueUrl=url, Attributes={"DelaySeconds": "60"})
    assert told[0] == "InvalidAttributeValue"
    sqs.send_message(QueueUrl=url, MessageBody="x", DelaySeconds=59)


def test_what_was_sent_straight_to_a_dead_letter_queue_stays_there(sqs: Any) -> None:
    url, grave = buried(sqs, "buried")
    sqs.send_message(QueueUrl=grave, MessageBody="straight")
    sqs.start_message_move_task(SourceArn=arn_of(grave))
    while (status := sqs.list_message_move_tasks(SourceArn=arn_of(grave))["Results"][0]["Status"]) == "RUNNING":
        pass
    assert status == "COMPLETED"
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"VisibilityTimeout": "30"})
    assert bodies(received(sqs, url)) == ["buried"]
    assert bodies(received(sqs, grave)) == ["straight"]


def test_rules_tasks_and_attempts_are_forgotten_by_a_restart(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, data=tmp_path, sqs=True, sqs_cooldowns=True)
    attempt: dict[str, Any] = {"VisibilityTimeout": 600, "ReceiveRequestAttemptId": "once"}
    with server(settings) as running:
        sqs = client_of(running.url)
        grave = sqs.create_queue(QueueName="grave")["QueueUrl"]
        sqs.create_queue(QueueName="orders", Attributes={"RedrivePolicy": policy(grave, 1)})
        sqs.start_message_move_task(SourceArn=arn_of(grave))
        assert sqs.list_message_move_tasks(SourceArn=arn_of(grave))["Results"]
        kind = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
        url = sqs.create_queue(QueueName="a.fifo", Attributes=kind)["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
        assert bodies(received(sqs, url, **attempt)) == bodies(received(sqs, url, **attempt)) == ["x"]
        sqs.delete_queue(QueueUrl=sqs.create_queue(QueueName="brief")["QueueUrl"])
        assert refusal(sqs.create_queue, QueueName="brief")[0] == "AWS.SimpleQueueService.QueueDeletedRecently"
        sqs.close()
    with server(settings) as running:
        sqs = client_of(running.url)
        assert sqs.create_queue(QueueName="brief")["QueueUrl"]
        assert not sqs.list_message_move_tasks(SourceArn=arn_of(grave)).get("Results")
        url = sqs.get_queue_url(QueueName="a.fifo")["QueueUrl"]
        assert received(sqs, url, **attempt) == []
        sqs.close()


def test_a_server_that_waits_as_aws_does_refuses_a_second_purge_and_a_name_for_a_minute(waiting: Any) -> None:
    url = made(waiting)
    waiting.purge_queue(QueueUrl=url)
    code, message, status = refusal(waiting.purge_queue, QueueUrl=url)
    assert (code, status) == ("AWS.SimpleQueueService.PurgeQueueInProgress", 403)
    assert message == f"Only one PurgeQueue operation on {name_of(url)} is allowed every 60 seconds."
    waiting.delete_queue(QueueUrl=url)
    code, message, _ = refusal(waiting.create_queue, QueueName=name_of(url))
    assert code == "AWS.SimpleQueueService.QueueDeletedRecently"
    assert message.startswith("You must wait 60 seconds after deleting a queue")


async def test_a_message_that_rests_counts_as_delayed() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make()
        await sqs("SendMessage", QueueUrl=url, MessageBody="a")
        delivery = await sqs.queues.lease("orders", want=1)
        assert delivery is not None
        receipt = Receipt(delivery.lease, delivery.token, 0)
        await sqs.queues.release("orders", [receipt], Release(delay_ms=60_000, error="boom"))
        asked = ["ApproximateNumberOfMessagesDelayed", "ApproximateNumberOfMessages"]
        told = (await sqs("GetQueueAttributes", QueueUrl=url, AttributeNames=asked))["Attributes"]
        assert told == {"ApproximateNumberOfMessagesDelayed": "1", "ApproximateNumberOfMessages": "0"}


async def test_attributes_are_in_force_at_once_and_changes_of_others_within_a_second() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make()
        await sqs("SendMessage", QueueUrl=url, MessageBody="x" * 1_025)
        await sqs("SetQueueAttributes", QueueUrl=url, Attributes={"MaximumMessageSize": "1024"})
        assert await sqs.refused("SendMessage", QueueUrl=url, MessageBody="x" * 1_025) == "InvalidParameterValue"
        await sqs.queues.change("orders", lambda settings: replace(settings, body_bytes_max=2_000))
        await elapse(1)
        await sqs("SendMessage", QueueUrl=url, MessageBody="x" * 1_025)


async def test_the_id_of_a_message_is_a_uuid_of_the_id_in_rest() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make()
        sent = await sqs("SendMessage", QueueUrl=url, MessageBody="a")
        assert UUID(sent["MessageId"]).version == 8
        assert await sqs.queues.placement.of("orders").look("orders", message_of_uuid(sent["MessageId"])) is not None


async def test_only_a_change_through_sqs_is_dated() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make()

        async def modified() -> int:
            asked = {"QueueUrl": url, "AttributeNames": ["LastModifiedTimestamp"]}
            return int((await sqs("GetQueueAttributes", **asked))["Attributes"]["LastModifiedTimestamp"])

        made_at = await modified()
        await elapse(5)
        await sqs.queues.change("orders", lambda settings: settings)
        assert await modified() == made_at
        await sqs("SetQueueAttributes", QueueUrl=url, Attributes={"DelaySeconds": "1"})
        assert await modified() == made_at + 5


async def test_a_queue_without_a_policy_buries_nothing() -> None:
    async with open_sqs() as sqs:
        url = await sqs.make(VisibilityTimeout="0")
        await sqs("SendMessage", QueueUrl=url, MessageBody="a")
        seen = 0
        while seen < 30:
            seen += len(await sqs.receive(url))
            await elapse(1)
        (message,) = await sqs.receive(url)
        assert int(message["Attributes"]["ApproximateReceiveCount"]) == seen + 1
        asked = {"QueueUrl": url, "AttributeNames": ["RedrivePolicy"]}
        assert "Attributes" not in await sqs("GetQueueAttributes", **asked)


async def test_who_may_bury_is_asked_when_the_policy_is_set() -> None:
    async with open_sqs() as sqs:
        grave = await sqs.make("grave")
        url = await sqs.make("orders", RedrivePolicy=policy(grave, 1), VisibilityTimeout="0")
        nobody = {"RedriveAllowPolicy": json.dumps({"redrivePermission": "denyAll"})}
        await sqs("SetQueueAttributes", QueueUrl=grave, Attributes=nobody)
        await sqs("SendMessage", QueueUrl=url, MessageBody="a")
        while (await sqs.queues.placement.of("grave").counts("grave")).live < 1:
            await sqs.receive(url)
        assert [each["Body"] for each in await sqs.receive(grave)] == ["a"]


async def test_the_retention_of_a_dead_letter_starts_again() -> None:
    async with open_sqs() as sqs:
        grave = await sqs.make("grave", MessageRetentionPeriod="60")
        url = await sqs.make(
            "orders", RedrivePolicy=policy(grave, 1), VisibilityTimeout="0", MessageRetentionPeriod="60"
        )
        await sqs("SendMessage", QueueUrl=url, MessageBody="a")
        await elapse(50)
        while (await sqs.queues.placement.of("grave").counts("grave")).live < 1:
            await sqs.receive(url)
        await elapse(50)
        (dead,) = await sqs.receive(grave, VisibilityTimeout=0)
        assert int(dead["Attributes"]["SentTimestamp"]) < sqs.queues.now_ms() - 90_000
        await elapse(15)
        assert await sqs.receive(grave) == []
