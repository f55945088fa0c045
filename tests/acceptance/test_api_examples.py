"""The examples in the OpenAPI document are true: played in their order, a server answers what they say."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from kio.schema.offset_commit.v8.request import OffsetCommitRequestPartition, OffsetCommitRequestTopic
from kio.schema.types import TopicName
from kio.static.primitive import i32, i64

from penstock.api.kafka.wire.schema import Api
from penstock.api.rest.openapi import EXAMPLES
from penstock.api.rest.operations import OPERATIONS
from tests.acceptance.http_server import RunningServer, running_server
from tests.acceptance.raw_http import RawAnswer, ask, request
from tests.kafka.brokers import RawClient
from tests.kafka.brokers import request as kafka_request
from tests.waiting import wait_until

BY_NAME = {operation.name: operation for operation in OPERATIONS}
# What differs from run to run, and what it looks like.
VARYING = {
    "time": re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z"),
    "receipt": re.compile(r"[0-9a-f]+-[0-9a-f]+-[0-9a-f]+"),
    "message_id": re.compile(r"1-[0-9a-f]+"),
    "task_id": re.compile(r"r_[0-9a-f]+"),
    "topic_id": re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    "kafka": re.compile(r"127\.0\.0\.1:\d+"),
}


class Story:
    """Plays examples, with the receipts and ids of this run in place of theirs."""

    def __init__(self, server: RunningServer) -> None:
        self._server = server
        self._latest: dict[str, str] = {}

    def ask(self, method: str, path: str, body: Any = None) -> RawAnswer:
        sent = b"" if body is None else json.dumps(body).encode()
        answer = ask(self._server.port, request(method, path, sent))
        self._remember(json.loads(answer.body))
        return answer

    def play(self, name: str) -> None:
        operation, example = BY_NAME[name], EXAMPLES[name]
        path = operation.path.format(**self._current(example.parameters))
        query = f"?{urlencode({key: _text(value) for key, value in self._current(example.query).items()})}"
        answer = self.ask(operation.method, path + (query if example.query else ""), self._current(example.body))

        assert answer.status == example.status, (name, answer.body)
        assert _alike(answer.json) == _alike(example.answer), name

    def receive(self) -> str:
        receipt: str = self.ask("GET", "/api/queues/orders/messages").json["receipt"]
        return receipt

    def bury(self) -> None:
        """Send a message that fails, and wait until it is with the dead letters."""
        self.ask("POST", "/api/queues/orders/messages", {**EXAMPLES["send_messages"].body, "max_deliveries": 1})
        sent = self._latest["message_id"]
        self.ask("POST", "/api/queues/orders/release", {"receipts": [self.receive()], "delay_s": 0})
        wait_until(lambda: self.ask("GET", f"/api/queues/orders.dead/messages/{sent}").status == 200)

    def commit(self) -> None:
        """Let a group read the first record of a topic, as a Kafka client does."""
        host, _, port = self._latest["kafka"].partition(":")
        part = OffsetCommitRequestPartition(partition_index=i32(1), committed_offset=i64(1), committed_metadata="")
        topic = OffsetCommitRequestTopic(name=TopicName("events"), partitions=(part,))
        with RawClient((host, int(port))) as client:
            client.ask(kafka_request(Api.OFFSET_COMMIT, 8, group_id="readers", member_id="", topics=(topic,)))

    def _remember(self, value: Any) -> None:
        for name, each in value.items() if isinstance(value, dict) else ():
            if name in VARYING and isinstance(each, str):
                self._latest[name] = each
            for row in each if isinstance(each, list) else [each]:
                self._remember(row)

    def _current(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._current(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self._current(each) for each in value]
        return self._latest.get(_kind(value) or "", value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _kind(value: Any) -> str | None:
    return next((name for name, look in VARYING.items() if isinstance(value, str) and look.fullmatch(value)), None)


def _alike(value: Any) -> Any:
    """Return a value with a word in place of what differs from run to run."""
    if isinstance(value, dict):
        return {name: "offset" if name.endswith("_offset") else _alike(each) for name, each in value.items()}
    if isinstance(value, list):
        return [_alike(each) for each in value]
    return _kind(value) or value


@pytest.mark.slow
def test_every_example_is_what_a_server_answers(tmp_path: Path) -> None:
    with running_server(tmp_path) as server:
        story = Story(server)
        prepared: dict[str, Callable[[], object]] = {
            "ack_message": lambda: (story.ask("POST", "/api/queues/orders/messages", {"data": "x"}), story.receive()),
            "cancel_message": lambda: story.ask("POST", "/api/queues/orders/messages", {"data": "x", "delay_s": 3600}),
            "begin_redrive": story.bury,
            "get_redrive": lambda: wait_until(
                lambda: story.ask("GET", "/api/queues/orders.dead/redrive").json["tasks"][0]["state"] == "done"
            ),
            "requeue_message": lambda: [each() for each in (story.receive, story.bury)],
            "list_groups": story.commit,
            "read_history": lambda: wait_until(
                lambda: len(story.ask("GET", "/api/queues/orders/history").json["rows"]) >= 1
            ),
        }
        for name in EXAMPLES:
            prepared.get(name, lambda: None)()
            story.play(name)
