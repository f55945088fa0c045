"""What is published to programs of others: the OpenAPI document, and the answers of SQS in XML."""

import re
from collections.abc import Callable
from urllib.parse import urlencode

import msgspec

from penstock.api.rest.openapi import document
from tests.api.asgi import Response
from tests.simulation.loop import simulate
from tests.sqs.in_process import Sqs, open_sqs

_FORM = {"content-type": "application/x-www-form-urlencoded"}
# What is drawn for each request or lease.
_DRAWN = re.compile(r"(<(?:RequestId|ReceiptHandle|TaskHandle)>|(?:ReceiptHandle|TaskHandle)=')[^<']*")
_DEAD = "arn:aws:sqs:us-east-1:000000000000:dead"


def openapi() -> str:
    return msgspec.json.format(msgspec.json.encode(document()), indent=2).decode() + "\n"


def sqs_answers() -> str:
    """Return the answers to a request of each action, and to some that are refused, always in the same order."""
    answers: list[str] = []

    async def life() -> None:
        async with open_sqs() as sqs:
            await _tell(sqs, answers)

    simulate(life)
    return "\n".join(answers)


async def _tell(sqs: Sqs, answers: list[str]) -> None:
    async def ask(action: str, **asked: str) -> str:
        said = {name.replace("_", "."): value for name, value in asked.items()}
        form = urlencode({"Action": action, "Version": "2012-11-05", **said}).encode()
        answer = await sqs.raw("POST", "/", form, headers=_FORM)
        answers.append(_shown(action, said, answer))
        return answer.body.decode()

    redrive = f'{{"deadLetterTargetArn":"{_DEAD}","maxReceiveCount":1}}'
    await ask("CreateQueue", QueueName="dead")
    url = _inside("QueueUrl", await ask("CreateQueue", QueueName="orders", Tag_1_Key="team", Tag_1_Value="<a> & b"))
    policy = {"Attribute_1_Name": "RedrivePolicy", "Attribute_1_Value": redrive}
    await ask("SetQueueAttributes", QueueUrl=url, **policy)
    await ask("GetQueueUrl", QueueName="orders")
    await ask("ListQueues")
    await ask("ListDeadLetterSourceQueues", QueueUrl=url.replace("orders", "dead"))
    await ask("TagQueue", QueueUrl=url, Tag_1_Key="stage", Tag_1_Value="")
    await ask("ListQueueTags", QueueUrl=url)
    await ask("UntagQueue", QueueUrl=url, TagKey_1="stage")
    permission = {"AWSAccountId_1": "000000000000", "ActionName_1": "SendMessage"}
    await ask("AddPermission", QueueUrl=url, Label="label", **permission)
    await ask("RemovePermission", QueueUrl=url, Label="label")
    attribute = {"MessageAttribute_1_Name": "n", "MessageAttribute_1_Value_DataType": "Number"}
    attribute |= {"MessageAttribute_1_Value_StringValue": "3.0"}
    await ask("SendMessage", QueueUrl=url, MessageBody='<a> & "b"\r\n', **attribute)
    entries = {"SendMessageBatchRequestEntry_1_Id": "e1", "SendMessageBatchRequestEntry_1_MessageBody": "two"}
    entries |= {"SendMessageBatchRequestEntry_2_Id": "e2", "SendMessageBatchRequestEntry_2_MessageBody": "three"}
    entries |= {"SendMessageBatchRequestEntry_2_DelaySeconds": "901"}
    await ask("SendMessageBatch", QueueUrl=url, **entries)
    everything = {"AttributeName_1": "All", "MessageAttributeName_1": "All", "MaxNumberOfMessages": "1"}
    first = _inside("ReceiptHandle", await ask("ReceiveMessage", QueueUrl=url, **everything))
    await ask("ChangeMessageVisibility", QueueUrl=url, ReceiptHandle=first, VisibilityTimeout="60")
    second = _inside("ReceiptHandle", await ask("ReceiveMessage", QueueUrl=url))
    await ask("ReceiveMessage", QueueUrl=url)
    name = "ChangeMessageVisibilityBatchRequestEntry_1"
    later = {f"{name}_Id": "e1", f"{name}_ReceiptHandle": second, f"{name}_VisibilityTimeout": "5"}
    await ask("ChangeMessageVisibilityBatch", QueueUrl=url, **later)
    await ask("GetQueueAttributes", QueueUrl=url, AttributeName_1="All")
    await ask("DeleteMessage", QueueUrl=url, ReceiptHandle=first)
    name = "DeleteMessageBatchRequestEntry_1"
    await ask("DeleteMessageBatch", QueueUrl=url, **{f"{name}_Id": "e1", f"{name}_ReceiptHandle": second})
    task = _inside("TaskHandle", await ask("StartMessageMoveTask", SourceArn=_DEAD))
    await ask("ListMessageMoveTasks", SourceArn=_DEAD)
    await ask("CancelMessageMoveTask", TaskHandle=task)
    await ask("PurgeQueue", QueueUrl=url)
    await ask("DeleteQueue", QueueUrl=url)
    await ask("GetQueueUrl", QueueName="orders")
    await ask("SendMessage", QueueUrl=url)
    await ask("MakeCoffee")


def _shown(action: str, said: dict[str, str], answer: Response) -> str:
    asked = " ".join(f"{name}={value!r}" for name, value in said.items())
    # Each element on a line of its own: a difference is then a line.
    body = answer.body.decode().replace("><", ">\n<")
    shown = f"{action} {asked}".rstrip() + f"\n{answer.status} {answer.headers['content-type']}\n{body.rstrip()}\n"
    return _DRAWN.sub(r"\1…", shown)


def _inside(element: str, answer: str) -> str:
    found = re.search(f"<{element}>(.*?)</{element}>", answer)
    assert found, answer
    return found[1]


DOCUMENTS: dict[str, Callable[[], str]] = {"openapi.json": openapi, "sqs_answers.txt": sqs_answers}
