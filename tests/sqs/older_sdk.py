"""The life of a few messages through boto3 of the time before JSON. It runs in a process that has that version.

`python tests/sqs/older_sdk.py URL` prints what each call was answered, as JSON. Nothing of
ours is imported here: this process has other libraries than the tests.
"""

import json
import sys
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

QUEUE = "of-an-older-sdk"


def life(sqs: Any) -> dict[str, Any]:
    """Call what a program of those days calls, and return what it saw."""
    url = sqs.create_queue(QueueName=QUEUE, Attributes={"VisibilityTimeout": "300"}, tags={"team": "mail"})["QueueUrl"]
    attributes = {
        "text": {"DataType": "String", "StringValue": "<größe> & \r\n"},
        "number": {"DataType": "Number.long", "StringValue": "3.0"},
        "bytes": {"DataType": "Binary", "BinaryValue": b"\0\xff"},
    }
    sent = sqs.send_message(QueueUrl=url, MessageBody='<a> & "b"', MessageAttributes=attributes)
    entries = [{"Id": "one", "MessageBody": "1"}, {"Id": "late", "MessageBody": "x", "DelaySeconds": 901}]
    batch = sqs.send_message_batch(QueueUrl=url, Entries=entries)
    received = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=20, AttributeNames=["All"], MessageAttributeNames=["All"]
    )["Messages"]
    first, second = received
    handle = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    sqs.change_message_visibility(**handle, VisibilityTimeout=60)
    sqs.delete_message(**handle)
    deletes = [{"Id": "d", "ReceiptHandle": second["ReceiptHandle"]}]
    deleted = sqs.delete_message_batch(QueueUrl=url, Entries=deletes)
    told = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return {
        "protocol": sqs.meta.service_model.metadata["protocol"],
        "queues": sqs.list_queues(QueueNamePrefix=QUEUE)["QueueUrls"] == [url],
        "tags": sqs.list_queue_tags(QueueUrl=url)["Tags"],
        "body": first["Body"],
        "attributes are the same": first["MessageAttributes"] == attributes,
        "digests are the same": first["MD5OfMessageAttributes"] == sent["MD5OfMessageAttributes"],
        "count": first["Attributes"]["ApproximateReceiveCount"],
        "sent in a batch": [each["Id"] for each in batch["Successful"]],
        "failed in a batch": [(each["Id"], each["Code"], each["SenderFault"]) for each in batch["Failed"]],
        "deleted in a batch": deleted["Successful"],
        "visibility": told["VisibilityTimeout"],
        "left": told["ApproximateNumberOfMessages"],
        "nothing is there": "Messages" not in sqs.receive_message(QueueUrl=url),
        "error": error_of(sqs),
    }


def error_of(sqs: Any) -> list[object]:
    """Return how a queue that is not there is told: the code that programs of those days compare, and the class."""
    try:
        sqs.get_queue_url(QueueName="never-made")
    except ClientError as error:
        return [error.response["Error"]["Code"], isinstance(error, sqs.exceptions.QueueDoesNotExist)]
    return []


def main(url: str) -> None:
    sqs = boto3.session.Session().client(
        "sqs",
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )
    sys.stdout.write(json.dumps(life(sqs) | {"version": boto3.__version__}))


if __name__ == "__main__":
    main(sys.argv[1])
