"""`penstock send` and `penstock receive`, against a server."""

import json
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.send import BATCH_BYTES_MAX, BadLine, Lines, batches
from tests.cli.conftest import Run


def test_a_message_is_sent_received_and_gone(run: Run) -> None:
    run("queue", "create", "plain")
    sent = run("send", "plain", "two teapots")
    assert sent.exit_code == 0
    assert run("receive", "plain").stdout == "two teapots\n"
    empty = run("receive", "plain")
    assert empty.exit_code == 1
    assert "nothing to receive" in empty.stderr


def test_everything_about_a_message_can_be_said_and_is_shown(run: Run) -> None:
    run("queue", "create", "full")
    words = ["--priority", "high", "--group", "g", "--attribute", "tea=oolong", "--dedup-id", "d", "--json"]
    message_id = json.loads(run("send", "full", "x", *words).stdout)["message_id"]
    assert json.loads(run("send", "full", "x", *words).stdout)["message_id"] == message_id
    about = json.loads(run("receive", "full", "--json").stdout)
    assert about["message_id"] == message_id
    assert about["data"] == "x"
    assert (about["priority"], about["group"], about["attributes"]) == ("HIGH", "g", {"tea": "oolong"})
    assert about["delivery_count"] == 1


def test_standard_input_is_a_message_without_its_last_newline(run: Run) -> None:
    run("queue", "create", "piped")
    run("send", "piped", stdin="two\nlines\n")
    assert json.loads(run("receive", "piped", "--json").stdout)["data"] == "two\nlines"


def test_bytes_that_are_no_text_come_back_as_they_were(run: Run) -> None:
    run("queue", "create", "bytes")
    for _ in range(2):
        run("send", "bytes", stdin=b"\xff\x00")
    assert run("receive", "bytes").stdout_bytes == b"\xff\x00\n"
    assert json.loads(run("receive", "bytes", "--json").stdout)["data_base64"] == "/wA="


def test_a_delayed_message_waits(run: Run) -> None:
    run("queue", "create", "late")
    assert run("send", "late", "x", "--delay-s", "3600").exit_code == 0
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    assert run("send", "late", "x", "--scheduled-at", soon).exit_code == 0
    assert run("receive", "late").exit_code == 1
    assert run("send", "late", "x", "--scheduled-at", "tomorrow").exit_code == 65


def test_a_message_received_without_an_ack_comes_back(run: Run) -> None:
    run("queue", "create", "back")
    run("send", "back", "x")
    assert run("receive", "back", "--no-ack", "--visibility-timeout", "0").stdout == "x\n"
    about = json.loads(run("receive", "back", "--wait-s", "5", "--json").stdout)
    assert about["delivery_count"] == 2


def test_as_many_as_asked_for_are_received(run: Run) -> None:
    run("queue", "create", "many")
    run("send", "many", "--file", "-", "--raw", stdin="a\nb\nc\nd\n")
    assert run("receive", "many", "--limit", "3").stdout == "a\nb\nc\n"
    assert run("receive", "many", "--limit", "3").stdout == "d\n"


def test_a_queue_that_is_not_there_takes_nothing(run: Run) -> None:
    assert run("send", "nowhere", "x").exit_code == 66
    assert run("receive", "nowhere").exit_code == 66


@pytest.mark.parametrize("words", [("--attribute", "tea"), ("--attribute", "=x"), ("--file", "x.txt")])
def test_what_is_typed_wrong_is_a_usage_error(run: Run, words: tuple[str, ...]) -> None:
    assert run("send", "plain", "data", *words).exit_code == 2


def test_a_file_of_drafts_is_sent(run: Run, tmp_path: Path) -> None:
    run("queue", "create", "drafts")
    lines = ['{"data": "a"}', "", '{"data": {"b": 1}, "priority": "CRITICAL"}', '{"data_base64": "/w=="}']
    (tmp_path / "drafts.jsonl").write_text("\n".join(lines))
    assert run("send", "drafts", "--file", "drafts.jsonl").stdout == "Sent 3 messages.\n"
    received = [json.loads(line) for line in run("receive", "drafts", "--limit", "9", "--json").stdout.splitlines()]
    assert [each.get("data") or each["data_base64"] for each in received] == [{"b": 1}, "a", "/w=="]


def test_more_lines_than_fit_into_a_request_are_all_sent_in_order(run: Run, tmp_path: Path) -> None:
    run("queue", "create", "long")
    (tmp_path / "lines.txt").write_text("".join(f"line {number}\n" for number in range(2_500)))
    assert json.loads(run("send", "long", "--file", "lines.txt", "--raw", "--json").stdout) == {
        "sent": 2_500,
        "next_line": 2_501,
        "is_complete": True,
        "is_unsure": False,
    }
    received = run("receive", "long", "--limit", "3000").stdout.splitlines()
    assert received == [f"line {number}" for number in range(2_500)]


@pytest.mark.parametrize("bad", ["{", '{"data": "x", "colour": "red"}', "{}", '{"data": "x", "priority": "URGENT"}'])
def test_a_bad_line_stops_it_and_it_says_how_to_go_on(run: Run, tmp_path: Path, bad: str) -> None:
    run("queue", "create", "stopped")
    path = tmp_path / "drafts.jsonl"
    path.write_text(f'{{"data": "a"}}\n{bad}\n{{"data": "c"}}\n')
    done = run("send", "stopped", "--file", "drafts.jsonl")
    assert done.exit_code == 65
    assert done.stdout == "Sent 1 message.\n"
    assert "line 2 is no message" in done.stderr
    assert "--from-line 2" in done.stderr
    path.write_text('{"data": "a"}\n{"data": "b"}\n{"data": "c"}\n')
    assert run("send", "stopped", "--file", "drafts.jsonl", "--from-line", "2").stdout == "Sent 2 messages.\n"
    assert run("receive", "stopped", "--limit", "9").stdout == "a\nb\nc\n"


def test_a_stop_in_the_middle_says_what_was_sent(run: Run, tmp_path: Path) -> None:
    run("queue", "create", "small", "max_message_bytes=10")
    lines = ["short"] * 1_000 + ["much too long"]
    (tmp_path / "lines.txt").write_text("\n".join(lines))
    done = run("send", "small", "--file", "lines.txt", "--raw")
    assert done.exit_code == 65
    assert done.stdout == "Sent 1,000 messages.\n"
    assert "--from-line 1001" in done.stderr


def test_a_file_that_is_not_there_is_named(run: Run) -> None:
    done = run("send", "plain", "--file", "missing.jsonl")
    assert done.exit_code == 66
    assert "missing.jsonl cannot be read" in done.stderr


def cut(lines: Iterable[bytes], first: int = 1) -> list[Lines]:
    return list(batches(lines, first=first, is_raw=True))


@given(st.lists(st.binary(min_size=1, max_size=5).filter(lambda line: b"\n" not in line)), st.integers(1, 5))
def test_batches_hold_every_line_once_and_in_order(lines: list[bytes], first: int) -> None:
    found = cut([line + b"\n" for line in lines], first)
    wanted = [line.rstrip(b"\r\n") for line in lines[first - 1 :] if line.strip()]
    assert [message for batch in found for message in batch.messages] == wanted
    assert [batch.first for batch in found[1:]] == [batch.next for batch in found[:-1]]
    assert found[-1].next == max(first, len(lines) + 1)


def test_a_batch_is_small_enough_for_one_request() -> None:
    assert [len(batch.messages) for batch in cut([b"x\n"] * 2_001)] == [1_000, 1_000, 1]
    half = b"x" * 1_000_000 + b"\n"
    assert all(batch.size_bytes <= BATCH_BYTES_MAX for batch in cut([half] * 9))


def test_lines_before_a_bad_one_are_given_out_first() -> None:
    found = batches([b'{"data":1}', b"{"], first=1, is_raw=False)
    assert len(next(found).messages) == 1
    with pytest.raises(BadLine, match="line 2 is no message"):
        next(found)


def test_a_message_is_taken_back_until_it_is_due(run: Run) -> None:
    run("queue", "create", "plain")
    later, now = [
        json.loads(run("send", "plain", "x", *more, "--json").stdout)["message_id"]
        for more in (["--delay-s", "3600"], [])
    ]

    done = run("cancel", "plain", later, now)
    again = run("cancel", "plain", later, "--json")

    assert (done.exit_code, again.exit_code) == (1, 1)
    assert done.stdout == "Took back 1 message.\n"
    assert done.stderr == f"message '{now}' is due already: it waits for a consumer, or has one\n"
    assert json.loads(again.stdout) == {"cancelled": [], "left": {later: f"there is no message '{later}' in 'plain'"}}
