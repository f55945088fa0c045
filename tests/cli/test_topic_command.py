"""`penstock topic` and `penstock group`: what is asked of a server, and what people see of its answers."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec
import pytest
import typer
from typer.testing import CliRunner, Result

from penstock.cli import app
from penstock.cli.topic import settings_said
from penstock.wire import topics as wire

VIEW = wire.TopicView(
    topic_name="events",
    topic_id="abc",
    partition_count=2,
    retention_s=604_800.0,
    retention_bytes=None,
    segment_bytes=1_000,
    max_message_bytes=2_000,
    cleanup="delete",
    record_count=1_234,
    size_bytes=5_678,
    kafka="127.0.0.1:9092",
    partitions=[wire.PartitionView(0, 0, 1_000, 5_000), wire.PartitionView(1, 10, 244, 678)],
)
GROUP = wire.GroupView(
    group_name="billing",
    state="Stable",
    protocol="range",
    generation=3,
    lag=1_040,
    members=[wire.MemberView("ann-1", None, "ann", "127.0.0.1", [wire.Assigned("events", 0)])],
    partitions=[
        wire.LagRow("events", 0, 0, 0, 1_000, 1_000, "ann-1"),
        wire.LagRow("events", 1, 204, 10, 244, 40),
        wire.LagRow("events", 2, None, 0, 5, None),
    ],
)
RECORDS = [
    wire.RecordView(partition=0, offset=7, timestamp="2026-11-16T09:00:00Z", key="k", value="two teapots"),
    wire.RecordView(partition=0, offset=8, timestamp="2026-11-16T09:00:01Z", value_base64="/w=="),
]
ANSWERS: dict[tuple[str, str], msgspec.Struct] = {
    ("POST", "/api/topics"): VIEW,
    ("GET", "/api/topics"): wire.TopicList([wire.TopicRow("events", 2, 1_234, 5_678)]),
    ("GET", "/api/topics/events"): VIEW,
    ("PATCH", "/api/topics/events"): VIEW,
    ("DELETE", "/api/topics/events"): wire.TopicDeleted("events"),
    ("GET", "/api/topics/events/records"): wire.RecordPage(RECORDS, 9, 0, 1_000),
    ("GET", "/api/topics/empty/records"): wire.RecordPage([], 0, 0, 0),
    ("POST", "/api/topics/events/records"): wire.Produced([wire.ProducedRecord(1, 244)]),
    ("GET", "/api/groups"): wire.GroupList([wire.GroupRow("billing", "Stable", 1, 1_040)]),
    ("GET", "/api/groups/billing"): GROUP,
    ("DELETE", "/api/groups/billing"): wire.GroupDeleted("billing"),
}


class Answering(ThreadingHTTPServer):
    """Says what a server would, and remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Exchange)
        self.asked: list[tuple[str, str, Any]] = []


class _Exchange(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Answering

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.asked.append((self.command, self.path, json.loads(body) if body else None))
        said = msgspec.json.encode(ANSWERS[self.command, self.path.partition("?")[0]])
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    do_GET = do_POST = do_PATCH = do_DELETE = answer  # noqa: N815 - They are the library's names.

    def log_message(self, *_: object) -> None:
        """It is a test."""


@pytest.fixture(scope="module")
def answering() -> Iterator[Answering]:
    with Answering() as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def asked(answering: Answering, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, Any]]:
    monkeypatch.setenv("PENSTOCK_URL", f"http://127.0.0.1:{answering.server_address[1]}")
    monkeypatch.setenv("COLUMNS", "200")
    answering.asked.clear()
    return answering.asked


def run(*arguments: str, stdin: str | None = None) -> Result:
    done = CliRunner().invoke(app, list(arguments), input=stdin)
    assert done.exit_code == 0, done.output
    return done


def words(text: str) -> list[list[str]]:
    return [line.split() for line in text.splitlines() if line.strip()]


def test_a_topic_is_made_and_changed_with_the_settings_that_were_typed(asked: list[tuple[str, str, Any]]) -> None:
    run("topic", "create", "events", "partitions=2", "cleanup=compact")
    run("topic", "set", "events", "retention_s=none")
    assert asked == [
        ("POST", "/api/topics", {"topic_name": "events", "partitions": 2, "cleanup": "compact"}),
        ("PATCH", "/api/topics/events", {"retention_s": None}),
    ]


@pytest.mark.parametrize("word", ["partitions", "colour=red", "partitions=0", "partitions=many", "cleanup=never"])
def test_a_setting_of_a_topic_that_cannot_be_is_a_usage_error(word: str) -> None:
    with pytest.raises(typer.BadParameter, match=word.partition("=")[0]):
        settings_said([word])


def test_topics_are_listed_and_shown_with_their_partitions(asked: list[tuple[str, str, Any]]) -> None:
    assert words(run("topic", "list").stdout)[1] == ["events", "2", "1,234", "5,678"]
    shown = words(run("topic", "show", "events").stdout)
    assert ["retention_bytes", "-"] in shown
    assert ["kafka", "127.0.0.1:9092"] in shown
    assert shown[-1] == ["1", "10", "244", "678"]
    assert json.loads(run("topic", "show", "events", "--json").stdout)["partition_count"] == 2


def test_a_topic_is_deleted_after_a_question(asked: list[tuple[str, str, Any]]) -> None:
    assert "1,234 records" in run("topic", "delete", "events", stdin="y\n").output
    assert [each[0] for each in asked] == ["GET", "DELETE"]
    assert CliRunner().invoke(app, ["topic", "delete", "events"], input="n\n").exit_code != 0
    assert [each[0] for each in asked] == ["GET", "DELETE", "GET"]


def test_records_are_browsed_and_produced_by_hand(asked: list[tuple[str, str, Any]]) -> None:
    shown = words(run("topic", "browse", "events", "--offset", "7", "--limit", "2").stdout)
    assert shown[1:] == [
        ["7", "2026-11-16T09:00:00Z", "k", "two", "teapots"],
        ["8", "2026-11-16T09:00:01Z", "-", "base64:/w=="],
    ]
    assert "from 0 to 0" in run("topic", "browse", "empty").output
    assert run("topic", "produce", "events", "a", "b", "--record-key", "k").stdout == "partition 1, offset 244\n"
    assert asked[0][1] == "/api/topics/events/records?partition=0&offset=7&limit=2"
    assert asked[2][2] == {"records": [{"value": "a", "key": "k"}, {"value": "b", "key": "k"}]}


def test_groups_are_listed_and_shown_with_their_lag(asked: list[tuple[str, str, Any]]) -> None:
    assert words(run("group", "list").stdout)[1] == ["billing", "Stable", "1", "1,040"]
    shown = words(run("group", "show", "billing").stdout)
    assert ["lag", "1,040"] in shown
    assert ["ann-1", "ann", "127.0.0.1", "events/0"] in shown
    assert shown[-3:] == [
        ["events", "0", "0", "1,000", "1,000"],
        ["events", "1", "204", "244", "40"],
        ["events", "2", "-", "5", "-"],
    ]


def test_a_group_is_deleted_after_a_question(asked: list[tuple[str, str, Any]]) -> None:
    assert "Forget how far billing has come?" in run("group", "delete", "billing", stdin="y\n").output
    assert run("group", "delete", "billing", "--yes", "--json").stdout == '{"group_name":"billing"}\n'
    assert [each[:2] for each in asked] == [("DELETE", "/api/groups/billing")] * 2
