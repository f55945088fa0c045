"""`penstock queue`, against a server."""

import json

import pytest
import typer

from penstock.cli.config import complete_queue
from penstock.cli.key_value_options import QUEUE, settings_said
from penstock.wire.queue_settings import SETTING_NAMES
from tests.cli.conftest import Run


def test_a_queue_is_made_with_the_settings_that_were_typed(run: Run) -> None:
    done = run(
        "queue", "create", "made", "visibility_timeout=60", "tiers.weights=8,4,2,1,1", "retry.min_backoff_s=2", "--json"
    )
    assert done.exit_code == 0, done.output
    view = json.loads(done.stdout)
    assert view["queue_name"] == "made"
    assert view["visibility_timeout"] == 60
    assert view["retry"]["min_backoff_s"] == 2
    assert view["tiers"]["weights"][4] * 8 == view["tiers"]["weights"][0]


def test_making_a_queue_again_with_other_settings_is_a_conflict(run: Run) -> None:
    assert run("queue", "create", "again").exit_code == 0
    assert run("queue", "create", "again").exit_code == 0
    done = run("queue", "create", "again", "max_deliveries=9")
    assert done.exit_code == 73
    assert "again" in done.stderr


def test_queues_are_listed_with_what_is_in_them(run: Run) -> None:
    run("queue", "create", "listed")
    run("send", "listed", "one")
    run("queue", "pause", "listed")
    done = run("queue", "list", "--prefix", "listed")
    header, row = done.stdout.splitlines()
    assert header.split() == ["queue", "ready", "in", "flight", "delayed", "oldest"]
    assert row.split()[:4] == ["listed", "1", "0", "0"]
    assert row.split()[-1] == "paused"
    assert [each["queue_name"] for each in json.loads(run("queue", "list", "--prefix", "listed", "--json").stdout)] == [
        "listed"
    ]


def test_a_queue_is_shown_with_its_settings_and_its_priorities(run: Run) -> None:
    run("queue", "create", "shown", "max_deliveries=3")
    run("send", "shown", "one", "--priority", "HIGH")
    shown = [line.split() for line in run("queue", "show", "shown").stdout.splitlines()]
    assert ["max_deliveries", "3"] in shown
    assert any(line[:2] == ["HIGH", "1"] for line in shown)


def test_settings_change_and_the_others_stay(run: Run) -> None:
    run("queue", "create", "changed", "max_deliveries=3")
    view = json.loads(run("queue", "update", "changed", "visibility_timeout=7", "--json").stdout)
    assert (view["visibility_timeout"], view["max_deliveries"]) == (7, 3)


def test_nothing_to_set_is_a_usage_error(run: Run) -> None:
    assert run("queue", "update", "changed").exit_code == 2


def test_a_paused_queue_hands_nothing_out_until_it_is_resumed(run: Run) -> None:
    run("queue", "create", "paused")
    run("send", "paused", "one")
    assert run("queue", "pause", "paused").exit_code == 0
    assert run("receive", "paused").exit_code == 1
    assert run("queue", "resume", "paused").exit_code == 0
    assert run("receive", "paused").stdout == "one\n"


def test_a_purge_asks_first(run: Run) -> None:
    run("queue", "create", "purged")
    run("send", "purged", "one")
    refused = run("queue", "purge", "purged", stdin="n\n")
    assert refused.exit_code == 1
    assert "Delete 1 message in purged for good?" in refused.stderr
    assert run("queue", "purge", "purged", stdin="y\n").stdout.endswith("Deleted 1 message.\n")
    assert json.loads(run("queue", "purge", "purged", "--yes", "--json").stdout) == {"purged": 0}


def test_a_queue_is_deleted_after_a_yes(run: Run) -> None:
    run("queue", "create", "deleted")
    assert run("queue", "delete", "deleted", stdin="\n").exit_code == 1
    assert run("queue", "delete", "deleted", "--yes").exit_code == 0
    gone = run("queue", "show", "deleted")
    assert gone.exit_code == 66
    assert "penstock queue list" in gone.stderr


def test_an_error_is_json_for_those_who_asked_for_json(run: Run) -> None:
    done = run("queue", "show", "nowhere", "--json")
    assert done.exit_code == 66
    assert done.stdout == ""
    assert json.loads(done.stderr)["error"]["code"] == "queue_not_found"


def test_what_the_server_refuses_is_bad_data(run: Run) -> None:
    assert run("queue", "create", "q_1").exit_code == 65


def test_where_no_server_is_the_next_step_is_said(run: Run) -> None:
    done = run("queue", "list", "--url", "http://127.0.0.1:9", "--timeout", "0")
    assert done.exit_code == 69
    assert "Start one with `penstock serve`, or say where it is with --url" in done.stderr


def test_an_address_that_is_none_is_a_bad_setting(run: Run) -> None:
    assert run("queue", "list", "--url", "gopher://x").exit_code == 78


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["fifo=true"], {"fifo": True}),
        (["fifo=false", "paused=1"], {"fifo": False, "paused": True}),
        (["dead_letter_queue=graves"], {"dead_letter_queue": "graves"}),
        (["dead_letter_queue=123"], {"dead_letter_queue": "123"}),
        (["dead_letter_queue=none"], {"dead_letter_queue": None}),
        (["tiers.reserve_percent=0,2,5,10,20"], {"tiers": {"reserve_percent": [0, 2, 5, 10, 20]}}),
        (["tenants.noisy_percent=20"], {"tenants": {"noisy_percent": 20}}),
        (["tiers.mode=strict", "tiers.aging_s=[0,0,0,5,6]"], {"tiers": {"mode": "strict", "aging_s": [0, 0, 0, 5, 6]}}),
        (["visibility_timeout=0.5"], {"visibility_timeout": 0.5}),
        ([], {}),
    ],
)
def test_settings_are_typed_in_the_words_of_the_api(words: list[str], said: dict[str, object]) -> None:
    assert settings_said(words) == said


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("visibility_timout=3", "is visibility_timeout meant?"),
        ("visibility_timeout", "visibility_timeout=60"),
        ("visibility_timeout=soon", "visibility_timeout cannot be 'soon'"),
        ("visibility_timeout=-1", "it has to be at least 0.001"),
        ("tiers.weights=1,2", "at least 5 elements"),
        ("tiers.mode=loose", "tiers.mode cannot be 'loose'"),
        ("tiers=strict", "is not a setting"),
        ("zebra=1", "there are queue_size, visibility_timeout"),
    ],
)
def test_a_setting_that_cannot_be_is_explained(word: str, sentence: str) -> None:
    with pytest.raises(typer.BadParameter) as caught:
        settings_said([word])
    assert sentence in str(caught.value)


def test_a_shell_is_offered_the_names_of_queues(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run("queue", "create", "offered-b")
    run("queue", "create", "offered-a")
    assert complete_queue("offered") == ["offered-a", "offered-b"]
    monkeypatch.setenv("PENSTOCK_URL", "http://127.0.0.1:9")
    assert complete_queue("offered") == []


def test_a_shell_is_offered_the_names_of_settings() -> None:
    assert QUEUE.complete("tiers.") == ["tiers.mode=", "tiers.weights=", "tiers.aging_s=", "tiers.reserve_percent="]
    assert len(QUEUE.complete("")) == len(SETTING_NAMES)
