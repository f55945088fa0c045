"""`penstock topic` and `penstock group`, against a real server."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

import penstock
from penstock.cli import app
from penstock.cli.key_value_options import TOPIC, settings_said
from tests.kafka.brokers import Broker

Run = Callable[..., Result]


@pytest.fixture
def run(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PENSTOCK_URL", broker.url)
    monkeypatch.setenv("COLUMNS", "250")
    for name in ("PENSTOCK_KEY", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)

    def invoke(*arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(app, list(arguments), input=stdin)

    return invoke


def words(result: Result) -> list[list[str]]:
    assert result.exit_code == 0, result.output
    return [line.split() for line in result.stdout.splitlines() if line.strip()]


def test_a_topic_is_made_shown_changed_and_deleted(run: Run, topic: str, broker: Broker) -> None:
    made = json.loads(run("topic", "create", topic, "partitions=2", "cleanup=compact", "--json").stdout)
    assert (made["topic_name"], made["partition_count"], made["cleanup"]) == (topic, 2, "compact")
    assert run("topic", "create", topic, "partitions=2", "cleanup=compact").exit_code == 0
    assert run("topic", "create", topic, "partitions=3").exit_code == 73
    changed = json.loads(run("topic", "update", topic, "retention_s=none", "partitions=3", "--json").stdout)
    assert (changed["retention_s"], changed["partition_count"]) == (None, 3)
    shown = words(run("topic", "show", topic))
    assert ["kafka", broker.servers] in shown
    assert ["retention_s", "-"] in shown
    assert shown[-1][:3] == ["2", "0", "0"]
    assert [topic, "3", "0"] in [row[:3] for row in words(run("topic", "list"))]
    assert run("topic", "delete", topic, stdin="n\n").exit_code != 0
    assert "0 records" in run("topic", "delete", topic, stdin="y\n").output
    gone = run("topic", "show", topic)
    assert gone.exit_code == 66
    assert topic in gone.stderr


def test_records_are_produced_by_hand_and_browsed(run: Run, topic: str) -> None:
    run("topic", "create", topic)
    assert words(run("topic", "produce", topic, "two teapots", "three", "--record-key", "k")) == [
        ["partition", "0,", "offset", "0"],
        ["partition", "0,", "offset", "1"],
    ]
    header, row = words(run("topic", "browse", topic, "--offset", "1"))
    assert header == ["offset", "time", "key", "value"]
    assert (row[0], row[-2:]) == ("1", ["k", "three"])
    page = json.loads(run("topic", "browse", topic, "--limit", "1", "--json").stdout)
    assert ([each["value"] for each in page["records"]], page["next_offset"]) == (["two teapots"], 1)
    assert "Nothing is there" in run("topic", "browse", topic, "--offset", "2").stderr


def test_a_group_is_shown_with_its_members_and_its_lag(run: Run, topic: str, group: str, broker: Broker) -> None:
    run("topic", "create", topic)
    run("topic", "produce", topic, "one", "two", "three")

    async def read_one() -> Result:
        async with penstock.connect(broker.url) as client, asyncio.timeout(60):
            # Where the server speaks Kafka it says itself. The session outlives the commands on any machine.
            records = client.topic(topic).consume(group=group, session_timeout_ms=120_000)
            with await anext(records):
                pass
            (shown,) = [each for each in words(await asyncio.to_thread(run, "group", "show", group)) if topic in each]
            assert shown == [topic, "0", "-", "3", "-"]
            assert (await client.group(group)).members[0].assigned[0].topic_name == topic
            return await asyncio.to_thread(run, "group", "delete", group, "--yes")

    # It has a member, so it cannot go.
    assert asyncio.run(read_one()).exit_code == 73
    shown = words(run("group", "show", group))
    assert ["state", "Empty"] in shown
    assert shown[-1] == [topic, "0", "1", "3", "2"]
    assert [group, "Empty", "0", "2"] in words(run("group", "list"))
    assert words(run("group", "delete", group, "--yes")) == [["Deleted", f"{group}."]]
    assert run("group", "show", group).exit_code == 66


def test_what_was_typed_for_a_topic_is_read_in_the_words_of_the_api() -> None:
    assert settings_said(["partitions=8", "retention_s=none", "cleanup=compact"], TOPIC) == {
        "partitions": 8,
        "retention_s": None,
        "cleanup": "compact",
    }


@pytest.mark.parametrize("word", ["partitions", "colour=red", "partitions=0", "partitions=many", "cleanup=never"])
def test_a_setting_of_a_topic_that_cannot_be_is_a_usage_error(word: str) -> None:
    with pytest.raises(typer.BadParameter, match=word.partition("=")[0]):
        settings_said([word], TOPIC)
