"""`penstock dlq`, `peek`, `explain`, `escalate` and `top`, against a server."""

import json

import pytest

from penstock.cli.top import Sample, drawn, rates
from penstock.wire.queues import QueueName, Totals
from tests.cli.conftest import Run


def buried(run: Run, queue: str, *bodies: str) -> list[str]:
    """Bury messages by receiving each once too often; return their ids."""
    run("queue", "create", queue, "max_deliveries=1")
    ids = [run("send", queue, body).stdout.strip() for body in bodies]
    for _ in bodies:
        assert run("receive", queue, "--no-ack", "--visibility-timeout", "0").exit_code == 0
    # The shortest lease is one of a millisecond, which may not be over yet.
    while json.loads(run("queue", "show", queue, "--json").stdout)["current_message_count"]:
        assert run("receive", queue, "--no-ack").exit_code == 1
    return ids


def test_a_queue_without_dead_letters_says_so(run: Run) -> None:
    run("queue", "create", "alive")
    done = run("dlq", "show", "alive")
    assert done.exit_code == 1
    assert "alive has no dead letters" in done.stderr


def test_dead_letters_are_listed_and_shown(run: Run) -> None:
    ids = buried(run, "sick", "a", "b")
    row = next(line.split() for line in run("dlq", "list").stdout.splitlines() if "sick.dead" in line)
    assert row[:3] == ["sick", "sick.dead", "2"]
    shown = run("dlq", "show", "sick")
    assert [line.split()[0] for line in shown.stdout.splitlines()[1:]] == ids
    by_name = json.loads(run("dlq", "show", "sick.dead", "--text", "b", "--json").stdout)
    assert [each["message_id"] for each in by_name["messages"]] == ids[1:]


def test_one_dead_letter_goes_back(run: Run) -> None:
    first, second = buried(run, "one-back", "a", "b")
    assert run("dlq", "requeue", "one-back", second).stdout == f"{second} went to one-back\n"
    assert run("receive", "one-back").stdout == "b\n"
    assert run("dlq", "requeue", "one-back", "1-99999").exit_code == 66
    assert [line.split()[0] for line in run("dlq", "show", "one-back").stdout.splitlines()[1:]] == [first]


def test_all_dead_letters_go_back_after_a_dry_run(run: Run) -> None:
    buried(run, "all-back", "a", "b", "c")
    dry = run("dlq", "redrive", "all-back", "--dry-run")
    assert dry.exit_code == 0, dry.output
    assert "Would send 3 messages back from all-back.dead" in dry.stdout
    assert "  3 to all-back" in dry.stdout
    done = run("dlq", "redrive", "all-back", "--text", "b", "--json")
    assert json.loads(done.stdout)["moved"] == {"all-back": 1}
    assert run("dlq", "redrive", "all-back", "--rate-per-s", "1000").exit_code == 0
    assert sorted(run("receive", "all-back", "--limit", "9").stdout.split()) == ["a", "b", "c"]
    assert run("dlq", "redrive", "all-back").exit_code == 1


def test_dead_letters_can_go_into_another_queue(run: Run) -> None:
    buried(run, "from-here", "a")
    run("queue", "create", "to-there")
    assert run("dlq", "redrive", "from-here", "--target-queue", "to-there").exit_code == 0
    assert run("receive", "to-there").stdout == "a\n"


def test_a_peek_shows_messages_and_takes_none(run: Run) -> None:
    run("queue", "create", "peeked")
    for body in ("one", "two"):
        run("send", "peeked", body, "--priority", "HIGH")
    shown = run("peek", "peeked", "--limit", "1")
    assert "one" in shown.stdout
    assert "two" not in shown.stdout
    cursor = shown.stderr.split("--cursor ")[1].strip()
    assert "two" in run("peek", "peeked", "--cursor", cursor).stdout
    assert [each["data"] for each in json.loads(run("peek", "peeked", "--json").stdout)["messages"]] == ["one", "two"]
    assert run("peek", "peeked", "--text", "three").exit_code == 1
    assert run("peek", "peeked", "--priority", "LOW").exit_code == 1


def test_a_peek_finds_a_message_behind_many_others(run: Run) -> None:
    run("queue", "create", "haystack")
    straw = "straw\n" * 3_000
    run("send", "haystack", "--file", "-", "--raw", stdin=f"{straw}needle\n")
    found = json.loads(run("peek", "haystack", "--text", "needle", "--json").stdout)
    assert [each["data"] for each in found["messages"]] == ["needle"]


def test_a_message_says_what_it_waits_for(run: Run) -> None:
    run("queue", "create", "explained")
    message_id = run("send", "explained", "x", "--delay-s", "60").stdout.strip()
    shown = run("explain", "explained", message_id)
    assert shown.exit_code == 0
    assert ["state", "delayed"] in [line.split() for line in shown.stdout.splitlines()]
    assert json.loads(run("explain", "explained", message_id, "--json").stdout)["wait_reason"]
    assert run("explain", "explained", "1-99999").exit_code == 66


def test_messages_are_escalated_by_id_or_by_what_they_say(run: Run) -> None:
    run("queue", "create", "urgent")
    low = ["--priority", "LOW"]
    first, second = (run("send", "urgent", body, *low).stdout.strip() for body in ("teapot", "kettle"))
    done = run("escalate", "urgent", second, "--priority", "CRITICAL", "--reason", "they call")
    assert done.stdout == "Moved 1 message to CRITICAL.\n"
    by_text = run("escalate", "urgent", "--text", "teapot", "--priority", "high", "--reason", "recall", "--json")
    assert json.loads(by_text.stdout)["moved"] == [first]
    assert run("receive", "urgent", "--limit", "2").stdout == "kettle\nteapot\n"
    assert run("escalate", "urgent", first, "--priority", "HIGH", "--reason", "late").exit_code == 1


def test_who_escalated_and_why_can_be_read_back(run: Run) -> None:
    run("queue", "create", "audited")
    assert "Nothing in audited was escalated" in run("escalations", "audited").stderr
    message_id = run("send", "audited", "x").stdout.strip()
    run("escalate", "audited", message_id, "--priority", "HIGH", "--reason", "they call", "--actor", "ann@desk")
    row = run("escalations", "audited").stdout.splitlines()[1].split()
    assert row[1:6] == ["everybody", "(ann@desk)", "HIGH", "1", "-"]
    assert row[6:] == ["they", "call"]
    assert json.loads(run("escalations", "audited", "--json").stdout)[0]["message_ids"] == [message_id]


@pytest.mark.parametrize("words", [(), ("1-1", "--text", "x")])
def test_an_escalation_names_messages_in_one_way(run: Run, words: tuple[str, ...]) -> None:
    assert run("escalate", "urgent", *words, "--priority", "HIGH", "--reason", "x").exit_code == 2


def test_one_look_shows_the_queues_with_their_priorities(run: Run) -> None:
    run("queue", "create", "watched")
    run("send", "watched", "x", "--priority", "HIGH")
    header, row = run("top", "--once", "--prefix", "watched").stdout.splitlines()
    assert header.split()[-5:] == ["CRITICAL", "HIGH", "NORMAL", "LOW", "BACKGROUND"]
    assert row.split()[0] == "watched"
    assert row.split()[-5:] == ["·", "1", "·", "·", "·"]
    found = json.loads(run("top", "--once", "--prefix", "watched", "--json").stdout)["queues"]
    assert found[0]["ready_by_priority"]["HIGH"] == 1


def queue_of(name: str, totals: Totals) -> QueueName:
    return QueueName(
        queue_id=name,
        queue_name=name,
        current_message_count=3,
        ready=3,
        in_flight=0,
        stuck=0,
        delayed=0,
        paused=True,
        oldest_age_s=None,
        totals=totals,
        dlq_id=None,
    )


def test_two_looks_make_rates() -> None:
    before = Sample(10.0, [queue_of("a", Totals(sent=10, acked=5))])
    now = Sample(12.0, [queue_of("a", Totals(sent=30, acked=5)), queue_of("b", Totals(sent=9))])
    assert rates(before, now, now.queues[0]) == {"sent": 10, "received": 0, "acked": 0}
    assert rates(before, now, now.queues[1]) == {"sent": None, "received": None, "acked": None}
    assert rates(None, now, now.queues[0])["sent"] is None


def test_a_server_that_started_again_has_no_negative_rates() -> None:
    before = Sample(10.0, [queue_of("a", Totals(sent=1_000))])
    now = Sample(11.0, [queue_of("a", Totals(sent=4))])
    assert rates(before, now, now.queues[0])["sent"] == 4


def test_queues_beyond_the_screen_are_counted() -> None:
    many = Sample(1.0, [queue_of(str(number), Totals()) for number in range(5)])
    assert drawn(None, many, most=3).caption == "and 2 more"
    assert drawn(None, many, most=3).row_count == 3
