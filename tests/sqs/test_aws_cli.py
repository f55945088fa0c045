"""aws-cli, unchanged, on a server of ours."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.serving import Running
from tests.sqs.aws_commands import Aws, CommandFailed, arguments, aws, environment
from tests.sqs.conftest import arn_of, name_of, new_name
from tests.sqs.test_send import text


@pytest.fixture(scope="module")
def commands(running: Running, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with aws(running.url, tmp_path_factory.mktemp("home")) as found:
        yield found


def _made(commands: Aws, **attributes: str) -> str:
    url: str = commands.sqs("create-queue", queue_name=new_name(), attributes=attributes)["QueueUrl"]
    return url


@pytest.mark.slow
def test_the_command_that_users_type_makes_a_queue(running: Running, sqs: Any, tmp_path: Path) -> None:
    name = new_name()
    command = [str(Path(sys.executable).parent / "aws"), *arguments(running.url, "create-queue", {"queue_name": name})]
    done = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {"QueueUrl": sqs.get_queue_url(QueueName=name)["QueueUrl"]}


@pytest.mark.slow
def test_the_life_of_a_message_in_commands(commands: Aws) -> None:
    url = _made(commands)
    assert commands.sqs("list-queues", queue_name_prefix=name_of(url)) == {"QueueUrls": [url]}
    given = {"color": text("rot & größer"), "count": text("3", "Number")}
    sent = commands.sqs("send-message", queue_url=url, message_body="<first>", message_attributes=given)
    options = {"wait_time_seconds": "20", "message_attribute_names": "All", "attribute_names": "All"}
    (message,) = commands.sqs("receive-message", queue_url=url, **options)["Messages"]
    assert (message["Body"], message["MessageAttributes"]) == ("<first>", given)
    assert (message["MessageId"], message["MD5OfMessageAttributes"]) == (
        sent["MessageId"],
        sent["MD5OfMessageAttributes"],
    )
    assert message["Attributes"]["ApproximateReceiveCount"] == "1"
    handle = {"queue_url": url, "receipt_handle": message["ReceiptHandle"]}
    assert commands.sqs("change-message-visibility", visibility_timeout="0", **handle) is None
    (again,) = commands.sqs("receive-message", queue_url=url)["Messages"]
    assert commands.sqs("delete-message", queue_url=url, receipt_handle=again["ReceiptHandle"]) is None
    # An answer without messages prints nothing.
    assert commands.sqs("receive-message", queue_url=url) is None


@pytest.mark.slow
def test_batches_in_commands_answer_for_each_entry(commands: Aws) -> None:
    url = _made(commands)
    entries = [{"Id": "good", "MessageBody": "a"}, {"Id": "late", "MessageBody": "b", "DelaySeconds": 901}]
    told = commands.sqs("send-message-batch", queue_url=url, entries=entries)
    assert [each["Id"] for each in told["Successful"]] == ["good"]
    assert [each["Id"] for each in told["Failed"]] == ["late"]
    (message,) = commands.sqs("receive-message", queue_url=url)["Messages"]
    deletes = [{"Id": "d", "ReceiptHandle": message["ReceiptHandle"]}]
    assert commands.sqs("delete-message-batch", queue_url=url, entries=deletes) == {"Successful": [{"Id": "d"}]}


@pytest.mark.slow
def test_a_queue_is_looked_after_with_commands(commands: Aws) -> None:
    grave = _made(commands)
    policy = json.dumps({"deadLetterTargetArn": arn_of(grave), "maxReceiveCount": 1})
    url = _made(commands, RedrivePolicy=policy)
    changes = {"VisibilityTimeout": "0", "DelaySeconds": "0"}
    assert commands.sqs("set-queue-attributes", queue_url=url, attributes=changes) is None
    told = commands.sqs("get-queue-attributes", queue_url=url, attribute_names="All")["Attributes"]
    assert told | changes == told
    assert commands.sqs("tag-queue", queue_url=url, tags={"team": "mail"}) is None
    assert commands.sqs("list-queue-tags", queue_url=url) == {"Tags": {"team": "mail"}}
    assert commands.sqs("list-dead-letter-source-queues", queue_url=grave) == {"queueUrls": [url]}
    commands.sqs("send-message", queue_url=url, message_body="poison")
    assert commands.sqs("receive-message", queue_url=url)["Messages"]
    # The second receive finds that it was received too often.
    assert commands.sqs("receive-message", queue_url=url) is None
    started = commands.sqs("start-message-move-task", source_arn=arn_of(grave))
    assert started["TaskHandle"]
    (back,) = commands.sqs("receive-message", queue_url=url, wait_time_seconds="20")["Messages"]
    assert back["Body"] == "poison"
    assert commands.sqs("purge-queue", queue_url=grave) is None


@pytest.mark.slow
def test_a_command_tells_an_error_by_its_older_code(commands: Aws) -> None:
    with pytest.raises(CommandFailed, match=r"\(AWS\.SimpleQueueService\.NonExistentQueue\)"):
        commands.sqs("get-queue-url", queue_name="never-made")
