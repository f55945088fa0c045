"""The first hour of a new user: what is typed wrong at first, and what the command says then."""

import json
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import app
from tests.cli.conftest import Run


def test_a_message_that_is_said_to_be_json_has_to_be_json(run: Run) -> None:
    run("queue", "create", "said")
    bad = run("send", "said", "--json", "{bad")
    assert bad.exit_code == 2
    assert "the message is not JSON" in bad.stderr
    assert run("receive", "said").exit_code == 1, "nothing was sent"
    assert run("send", "said", "--json", '{"tea": ["oolong"]}').exit_code == 0
    assert json.loads(run("receive", "said", "--json").stdout)["data"] == {"tea": ["oolong"]}
    assert json.loads(run("send", "said", "--json", "two teapots").stdout)["message_id"]
    assert run("receive", "said").stdout == "two teapots\n"


def test_a_dash_stands_for_standard_input(run: Run) -> None:
    run("queue", "create", "dashed")
    assert run("send", "dashed", "-", stdin="from a pipe\n").exit_code == 0
    assert run("receive", "dashed").stdout == "from a pipe\n"


def test_options_are_spelt_as_the_keywords_of_the_client(run: Run) -> None:
    made = run(
        "queue", "create", "spelt", "--max-deliveries", "7", "--visibility-timeout=5", "retry.min_backoff_s=2", "--json"
    )
    assert made.exit_code == 0, made.stderr
    view = json.loads(made.stdout)
    assert (view["max_deliveries"], view["visibility_timeout"], view["retry"]["min_backoff_s"]) == (7, 5, 2)
    assert json.loads(run("queue", "update", "spelt", "--max-deliveries", "3", "--json").stdout)["max_deliveries"] == 3
    for wrong, said in (("--max-delivery", "max_deliveries"), ("--colour", "no option --colour")):
        refused = run("queue", "create", "spelt", wrong, "7")
        assert refused.exit_code == 2
        assert said in refused.stderr
    assert run("queue", "update", "spelt", "--max-deliveries").exit_code == 2
    assert run("send", "spelt", "x", "--delay-s", "0").exit_code == 0
    assert run("send", "spelt", "y", "--scheduled-at", "2020-01-01T00:00:00Z").exit_code == 0
    assert sorted(run("receive", "spelt", "--limit", "5", "--wait-s", "5").stdout.split()) == ["x", "y"]


def test_what_a_server_refuses_is_not_explained_in_words_of_http(run: Run) -> None:
    run("queue", "create", "full", "queue_size=1")
    run("send", "full", "a")
    refused = run("send", "full", "b", "--timeout", "0")
    assert refused.exit_code == 75
    assert "Try again" in refused.stderr
    wrong = run("send", "full", "b", "--scheduled-at", "tomorrow")
    assert wrong.exit_code == 65
    for each in (refused, wrong):
        assert "Retry-After" not in each.stderr
        assert "`field`" not in each.stderr


def test_listing_the_dead_letters_of_one_queue_points_to_showing_them(run: Run) -> None:
    refused = run("dlq", "list", "orders")
    assert refused.exit_code == 2
    assert "penstock dlq show orders" in refused.stderr


@pytest.mark.parametrize("kind", ["queue", "topic", "group"])
def test_what_is_not_there_is_answered_with_where_to_look_for_it(run: Run, kind: str) -> None:
    refused = run(kind, "show", "nope")
    assert refused.exit_code == 66
    assert f"there is no {kind} 'nope'" in refused.stderr
    assert f"`penstock {kind} list`" in refused.stderr


def test_a_kafka_port_that_is_taken_is_named_with_its_own_option(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        words = ["serve", "--port", "0", "--kafka", "--kafka-port", port, "--data", str(tmp_path)]
        ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 73
    assert "--kafka-port 0 takes any that is free" in ended.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A backup of a store."""
    with penstock.connect(f"file:{tmp_path / 'data'}") as client:
        client.create_queue("orders")
        client.queue("orders").send("teapot")
    copied = CliRunner().invoke(app, ["backup", str(tmp_path / "data"), str(tmp_path / "copy")])
    assert copied.exit_code == 0, copied.stderr
    return tmp_path / "copy"


def test_a_whole_backup_is_looked_at_log_by_log(copy: Path) -> None:
    looked = CliRunner().invoke(app, ["repair", str(copy)])
    assert looked.exit_code == 0, looked.stderr
    assert str(copy / "journal") in looked.stdout.replace("\n", "")
    refused = CliRunner().invoke(app, ["repair", str(copy), "--apply", "cut"])
    assert refused.exit_code == 2
    assert str(copy / "journal") in refused.stderr.replace("\n", "")


def test_damage_in_a_backup_is_found_by_looking_at_all_of_it(copy: Path) -> None:
    (segment,) = (copy / "journal").glob("*.log")
    raw = bytearray(segment.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    raw[100:140] = bytes(40)
    segment.write_bytes(raw)
    looked = CliRunner().invoke(app, ["repair", str(copy)])
    assert looked.exit_code == 1
