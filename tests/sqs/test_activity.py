"""What is done over SQS is in the audit log, and so is a signature of a stranger."""

import json

from penstock.broker.access import ANONYMOUS_ADMIN
from penstock.broker.activity import Wanted
from penstock.store.audit_log import Entry
from tests.sqs.in_process import Sqs, open_sqs


async def entries(sqs: Sqs) -> list[Entry]:
    await sqs.queues.activity.write_logins()
    found, _ = await sqs.queues.activity.read(ANONYMOUS_ADMIN, Wanted(), before=None, most=100)
    return found


async def test_every_change_over_sqs_is_written_down() -> None:
    async with open_sqs() as sqs:
        url = (await sqs("CreateQueue", QueueName="orders"))["QueueUrl"]
        dead = (await sqs("CreateQueue", QueueName="dead"))["QueueUrl"]
        await sqs("CreateQueue", QueueName="dead")
        arn = (await sqs("GetQueueAttributes", QueueUrl=dead, AttributeNames=["QueueArn"]))["Attributes"]["QueueArn"]
        policy = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 1})
        await sqs("SetQueueAttributes", QueueUrl=url, Attributes={"RedrivePolicy": policy})
        await sqs("TagQueue", QueueUrl=url, Tags={"team": "red"})
        await sqs("UntagQueue", QueueUrl=url, TagKeys=["team"])
        said = {"QueueUrl": url, "Label": "them", "AWSAccountIds": ["123456789012"], "Actions": ["SendMessage"]}
        await sqs("AddPermission", **said)
        await sqs("RemovePermission", QueueUrl=url, Label="them")
        await sqs("StartMessageMoveTask", SourceArn=arn)
        await sqs("PurgeQueue", QueueUrl=url)
        await sqs("DeleteQueue", QueueUrl=url)
        found = [(each.action, each.target) for each in await entries(sqs)]
        assert found == [
            ("queue.delete", "orders"),
            ("queue.purge", "orders"),
            ("queue.redrive", "dead"),
            *[("queue.change", "orders")] * 5,
            ("queue.create", "dead"),
            ("queue.create", "orders"),
        ]
        assert {each.via for each in await entries(sqs)} == {"sqs"}
