"""A server that speaks SQS, in a thread, and boto3 to call it with: loopback only, with credentials that are none."""

from collections.abc import Iterator
from itertools import count
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.validate import ParamValidator

from penstock.settings import ServerSettings
from tests.server.serving import Running, server

ACCOUNT = "000000000000"
REGION = "us-east-1"
_numbers = count()


@pytest.fixture(scope="session")
def running() -> Iterator[Running]:
    with server(ServerSettings(port=0, store="memory:", sqs=True)) as found:
        yield found


@pytest.fixture(scope="session")
def sqs(running: Running) -> Iterator[Any]:
    client = client_of(running.url)
    yield client
    client.close()


@pytest.fixture(scope="session")
def waiting() -> Iterator[Any]:
    """A client of a server that makes its clients wait for a minute where AWS does."""
    with server(ServerSettings(port=0, store="memory:", sqs=True, sqs_cooldowns=True)) as found:
        client = client_of(found.url)
        yield client
        client.close()


@pytest.fixture
def queue(sqs: Any) -> str:
    """The URL of a new standard queue."""
    return made(sqs)


@pytest.fixture
def fifo(sqs: Any) -> str:
    """The URL of a new FIFO queue, which takes the content for the id of a message that has none."""
    return made(sqs, suffix=".fifo", FifoQueue="true", ContentBasedDeduplication="true")


def client_of(url: str, **more: Any) -> Any:
    """Return boto3's client for a server. It repeats nothing, so that a test sees every answer."""
    given = {"aws_access_key_id": "test", "aws_secret_access_key": "test", "region_name": REGION} | more
    config = Config(retries={"total_max_attempts": 1}, connect_timeout=60, read_timeout=90, parameter_validation=False)
    client = boto3.session.Session().client("sqs", endpoint_url=url, config=config, **given)
    client.meta.events.register("after-call.sqs", check_answer)
    return client


def check_answer(parsed: dict[str, Any], model: Any, **_: Any) -> None:
    """Let botocore compare an answer with the model of the service: types, and members that must be there."""
    if "Error" in parsed or model.output_shape is None:
        return
    told = {name: value for name, value in parsed.items() if name != "ResponseMetadata"}
    if "Failed" in model.output_shape.members:
        # AWS leaves out the list that is empty, whatever the model says; what is in the other one is compared.
        told = {"Successful": [], "Failed": []} | told
    report = ParamValidator().validate(told, model.output_shape)
    assert not report.has_errors(), report.generate_report()


def new_name(suffix: str = "") -> str:
    """Return a name that no queue of this run has had."""
    return f"queue-{next(_numbers)}{suffix}"


def made(sqs: Any, *, suffix: str = "", tags: dict[str, str] | None = None, **attributes: str) -> str:
    """Make a queue, and return its URL."""
    url: str = sqs.create_queue(QueueName=new_name(suffix), Attributes=attributes, tags=tags or {})["QueueUrl"]
    return url


def name_of(url: str) -> str:
    return url.rpartition("/")[2]


def arn_of(url: str) -> str:
    return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name_of(url)}"


def received(sqs: Any, url: str, most: int = 10, **more: Any) -> list[dict[str, Any]]:
    """Receive what is there now, with everything that is told of it."""
    asked = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"], "MaxNumberOfMessages": most}
    found: list[dict[str, Any]] = sqs.receive_message(QueueUrl=url, **(asked | more)).get("Messages", [])
    return found


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [each["Body"] for each in messages]


def attributes_of(sqs: Any, url: str) -> dict[str, str]:
    found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found
