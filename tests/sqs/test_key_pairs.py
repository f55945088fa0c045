"""Pairs of keys for SQS: what each role may do, on which queues, with boto3 itself."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.api.sqs.app import ACTIONS
from penstock.broker import api_keys
from penstock.broker.access import GRANTED, INCLUDED, Grant, Role, sqs_access_key_id
from penstock.broker.api_keys import Change, Keys, NewKey, change_file
from penstock.settings import ServerSettings
from tests.server.serving import server
from tests.sqs.conftest import client_of, received
from tests.sqs.test_queues import refusal

DENIED = ("AccessDenied", 403)


def make(path: Path, name: str, *grants: Grant, **limits: Any) -> Change:
    wanted = NewKey(name=name, grants=grants, has_sqs=True, **limits)
    return change_file(path, lambda found: api_keys.create(found, wanted, created_at=""))


class Stage:
    """A server with a key for each role on `orders*`."""

    def __init__(self, folder: Path) -> None:
        self.settings = ServerSettings(port=0, data=folder, kafka=False)
        path = self.settings.keys_path
        self.made = {name: make(path, name, Grant(role, "orders*")) for name, role in GRANTED.items()}
        self.made["owner"] = make(path, "owner", Grant(Role.ADMIN, "*"))
        self.made["limited"] = make(path, "limited", Grant(Role.ADMIN, "tiny*"), queues_max=1)
        self.made["slow"] = make(path, "slow", Grant(Role.READ, "*"), bytes_per_s=1)
        self.url = ""
        self._clients: list[Any] = []

    def client(self, name: str, *, secret: str = "") -> Any:
        key = self.made[name].key
        pair = {"aws_access_key_id": sqs_access_key_id(key.id), "aws_secret_access_key": secret or key.sqs_secret}
        self._clients.append(client_of(self.url, **pair))
        return self._clients[-1]

    def close(self) -> None:
        for client in self._clients:
            client.close()


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    found = Stage(tmp_path_factory.mktemp("pairs"))
    with server(found.settings) as running:
        found.url = running.url
        owner = found.client("owner")
        for name in ("orders", "orders-dead", "secret"):
            owner.create_queue(QueueName=name)
        yield found
        found.close()


def url_of(stage: Stage, queue: str) -> str:
    return f"{stage.url}/000000000000/{queue}"


def arn_of(queue: str) -> str:
    return f"arn:aws:sqs:us-east-1:000000000000:{queue}"


def asked_of(stage: Stage, queue: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Return a call of nearly every action on a queue, none of which does any harm where it is allowed."""
    url = {"QueueUrl": url_of(stage, queue)}
    entry = {"Id": "a", "ReceiptHandle": "x"}
    return {
        "AddPermission": ("add_permission", url | {"Label": "!", "AWSAccountIds": ["1"], "Actions": ["x"]}),
        "ChangeMessageVisibility": ("change_message_visibility", url | {"ReceiptHandle": "x", "VisibilityTimeout": 1}),
        "ChangeMessageVisibilityBatch": (
            "change_message_visibility_batch",
            url | {"Entries": [entry | {"VisibilityTimeout": 1}]},
        ),
        "CreateQueue": ("create_queue", {"QueueName": queue, "Attributes": {"DelaySeconds": "900"}}),
        "DeleteMessage": ("delete_message", url | {"ReceiptHandle": "x"}),
        "DeleteMessageBatch": ("delete_message_batch", url | {"Entries": [entry]}),
        "GetQueueAttributes": ("get_queue_attributes", url),
        "GetQueueUrl": ("get_queue_url", {"QueueName": queue}),
        "ListDeadLetterSourceQueues": ("list_dead_letter_source_queues", url),
        "ListMessageMoveTasks": ("list_message_move_tasks", {"SourceArn": arn_of(queue)}),
        "ListQueueTags": ("list_queue_tags", url),
        "ReceiveMessage": ("receive_message", url),
        "RemovePermission": ("remove_permission", url | {"Label": "!"}),
        "SendMessage": ("send_message", url | {"MessageBody": "a", "DelaySeconds": 5_000}),
        "SendMessageBatch": ("send_message_batch", url | {"Entries": []}),
        "SetQueueAttributes": ("set_queue_attributes", url | {"Attributes": {"DelaySeconds": "-1"}}),
        "StartMessageMoveTask": ("start_message_move_task", {"SourceArn": arn_of(queue)}),
        "TagQueue": ("tag_queue", url | {"Tags": {"aws:x": "y"}}),
        "UntagQueue": ("untag_queue", url | {"TagKeys": ["x"]}),
    }


def outcome(client: Any, method: str, asked: dict[str, Any]) -> tuple[str, int]:
    try:
        getattr(client, method)(**asked)
    except client.exceptions.ClientError as error:
        return error.response["Error"]["Code"], error.response["ResponseMetadata"]["HTTPStatusCode"]
    return "", 200


@pytest.mark.parametrize("role", [name for name in GRANTED if name != "admin"])
def test_every_action_is_allowed_to_the_roles_that_include_its_own_and_to_no_other(stage: Stage, role: str) -> None:
    client = stage.client(role)
    asked = asked_of(stage, "orders")
    # They would do harm, or need a task.
    assert set(ACTIONS) - set(asked) == {"CancelMessageMoveTask", "DeleteQueue", "ListQueues", "PurgeQueue"}
    denied = {name for name, (method, values) in asked.items() if outcome(client, method, values) == DENIED}
    assert denied == {name for name in asked if ACTIONS[name].role not in INCLUDED[GRANTED[role]]}
    for method in ("delete_queue", "purge_queue"):
        assert outcome(client, method, {"QueueUrl": url_of(stage, "orders")}) == DENIED
    listed = [each.rpartition("/")[2] for each in client.list_queues().get("QueueUrls", [])]
    assert listed == ([] if role == "metrics" else ["orders", "orders-dead"])


def test_an_admin_of_some_queues_has_no_rights_on_others(stage: Stage) -> None:
    client = stage.client("admin")
    for method, values in asked_of(stage, "secret").values():
        assert outcome(client, method, values) == DENIED, method
    for method in ("delete_queue", "purge_queue"):
        assert outcome(client, method, {"QueueUrl": url_of(stage, "secret")}) == DENIED
    assert outcome(client, *asked_of(stage, "orders")["GetQueueAttributes"]) == ("", 200)


def test_dead_letters_go_only_where_the_key_may_send(stage: Stage) -> None:
    client = stage.client("admin")

    def policy(target: str) -> dict[str, Any]:
        said = json.dumps({"deadLetterTargetArn": arn_of(target), "maxReceiveCount": 3})
        return {"QueueUrl": url_of(stage, "orders"), "Attributes": {"RedrivePolicy": said}}

    # Whether it exists is not told either.
    assert outcome(client, "set_queue_attributes", policy("secret")) == DENIED
    assert outcome(client, "set_queue_attributes", policy("nothing")) == DENIED
    made = {"QueueName": "orders-more", "Attributes": policy("secret")["Attributes"]}
    assert outcome(client, "create_queue", made) == DENIED
    assert outcome(client, "set_queue_attributes", policy("orders-dead")) == ("", 200)
    move = {"SourceArn": arn_of("orders-dead"), "DestinationArn": arn_of("secret")}
    assert outcome(client, "start_message_move_task", move) == DENIED
    # A queue without messages is done at once, so there may be no handle.
    client.start_message_move_task(SourceArn=arn_of("orders-dead"))


def test_a_sender_sends_and_a_receiver_receives(stage: Stage) -> None:
    stage.client("send").send_message(QueueUrl=url_of(stage, "orders"), MessageBody="tea")
    found = received(stage.client("receive"), url_of(stage, "orders"))
    assert [each["Body"] for each in found] == ["tea"]


def test_a_key_makes_no_more_queues_than_it_may_have(stage: Stage) -> None:
    client = stage.client("limited")
    client.create_queue(QueueName="tiny-1")
    assert outcome(client, "create_queue", {"QueueName": "tiny-2"}) == ("OverLimit", 403)


def test_a_key_that_goes_too_fast_is_throttled_in_the_words_of_aws(stage: Stage) -> None:
    client = stage.client("slow")
    client.list_queues()
    assert outcome(client, "list_queues", {}) == ("RequestThrottled", 403)


def test_a_wrong_secret_is_refused_and_so_is_the_id_of_no_key(stage: Stage) -> None:
    wrong = stage.client("admin", secret="x" * 43)
    assert refusal(wrong.list_queues)[0::2] == ("SignatureDoesNotMatch", 403)
    stranger = client_of(stage.url, aws_access_key_id="PSTK000000000000", aws_secret_access_key="x")
    assert refusal(stranger.list_queues)[0::2] == ("InvalidClientTokenId", 403)
    stranger.close()


def test_both_secrets_of_a_rotated_pair_sign_until_the_old_one_ends(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    before = make(path, "turning", Grant(Role.SEND, "orders*"))
    after = change_file(path, lambda found: api_keys.rotate(found, before.key.id, keep_ms=60_000, now_ms=10**13))
    pairs = Keys(path).access.sqs_pairs(sqs_access_key_id(before.key.id))
    assert [secret for secret, _ in pairs] == [after.key.sqs_secret, before.key.sqs_secret]
    assert len({before.key.sqs_secret, after.key.sqs_secret}) == 2
    change_file(path, lambda found: api_keys.rotate(found, before.key.id, keep_ms=60_000, now_ms=0))
    access = Keys(path).access
    assert len(access.sqs_pairs(sqs_access_key_id(before.key.id))) == 1
    assert access.has_sqs_keys
    assert access.sqs_pairs("AKIDEXAMPLE") == []
