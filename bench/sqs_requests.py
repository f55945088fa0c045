"""Requests to an SQS server as boto3 writes them, recorded once for each server: headers, signature and body.

In the body of the delete each handle is the word `HANDLE`, for those who send it again to put in what they received.
"""

from dataclasses import dataclass
from typing import Any

from bench.processes import Server
from bench.traffic import MESSAGE_BYTES

QUEUE = "orders"
BATCH = 10
# In the life of a batch: send, receive, delete.
CALLS = 3
HANDLE = "HANDLE"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request, as it was on the wire."""

    path: str
    headers: dict[str, str]
    body: str


def client(server: Server) -> Any:
    """Return boto3's client for a server, without settings of the environment."""
    # Other benchmarks do not need it.
    import boto3  # noqa: PLC0415
    from botocore.config import Config  # noqa: PLC0415

    return boto3.session.Session().client(
        "sqs",
        endpoint_url=server.url,
        region_name="us-east-1",
        aws_access_key_id="test",
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )


def entries() -> list[dict[str, str]]:
    return [{"Id": str(at), "MessageBody": "x" * MESSAGE_BYTES} for at in range(BATCH)]


def record(server: Server, queue: str) -> dict[str, Recorded]:
    """Make a queue, and return the three requests as boto3 sends them. The queue is as full as it was."""
    sqs = client(server)
    found: list[Recorded] = []
    url = sqs.create_queue(QueueName=queue)["QueueUrl"]
    sqs.meta.events.register("before-send.sqs", lambda request, **_: found.append(_recorded(request)))
    sqs.send_message_batch(QueueUrl=url, Entries=entries())
    messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=BATCH)["Messages"]
    deletes = [{"Id": str(at), "ReceiptHandle": each["ReceiptHandle"]} for at, each in enumerate(messages)]
    sqs.delete_message_batch(QueueUrl=url, Entries=deletes)
    sqs.close()
    send, receive, delete = found
    body = delete.body
    for each in messages:
        body = body.replace(each["ReceiptHandle"], HANDLE)
    return {"send": send, "receive": receive, "delete": Recorded(delete.path, delete.headers, body)}


def _recorded(request: Any) -> Recorded:
    # wrk counts the bytes itself, and closes nothing.
    left_out = {"content-length", "connection"}
    headers = {
        name: value.decode() if isinstance(value, bytes) else str(value)
        for name, value in request.headers.items()
        if name.lower() not in left_out
    }
    return Recorded("/" + request.url.split("/", 3)[3], headers, request.body.decode())
