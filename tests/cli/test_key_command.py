"""`penstock key`: what it prints, and what is in the folder afterwards."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.broker.access import KeyUnknown, Role
from penstock.broker.api_keys import Keys, read_keys
from penstock.cli import app


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    for name in ("PENSTOCK_DATA", "PENSTOCK_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path / "penstock-data" / "keys.json"


def key(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["key", *arguments])


def test_the_key_alone_is_printed_so_that_a_script_can_take_it(here: Path) -> None:
    done = key("create", "--name", "ops", "--role", "admin")
    assert done.exit_code == 0
    caller = Keys(here).access.authenticate(f"Bearer {done.stdout.strip()}")
    caller.check(Role.ADMIN, "any-queue")
    assert "not shown again" in done.stderr


def test_a_key_is_for_the_queues_it_was_made_for(here: Path) -> None:
    done = key("create", "--name", "shop", "--role", "write", "--queue", "orders*", "--queue", "mails", "--json")
    made = json.loads(done.stdout)
    assert made["grants"] == [{"role": "write", "queue": "orders*"}, {"role": "write", "queue": "mails"}]
    caller = Keys(here).access.authenticate(f"Bearer {made['key']}")
    assert caller.has(Role.WRITE, "orders.dead")
    assert not caller.has(Role.WRITE, "bills")


def test_keys_are_listed_without_their_secrets() -> None:
    secret = key("create", "--name", "shop", "--role", "read", "--queues-max", "3").stdout.strip()
    shown = key("list").stdout
    assert "shop" in shown
    assert "read *" in shown
    assert secret not in shown
    assert secret[-4:] in shown
    assert [each["queues_max"] for each in json.loads(key("list", "--json").stdout)] == [3]


def test_every_change_of_keys_is_in_the_audit_log_without_a_secret(here: Path) -> None:
    secret = key("create", "--name", "shop", "--role", "read").stdout.strip()
    key_id = secret.split("_")[1]
    assert key("rotate", key_id).exit_code == 0
    assert key("revoke", key_id).exit_code == 0
    assert key("revoke", key_id).exit_code == 66
    assert key("reset", "--yes").exit_code == 0
    (file,) = (here.parent / "audit").glob("*.jsonl")
    found = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(each["action"], each["target"], each.get("detail")) for each in found] == [
        ("key.create", "shop", key_id),
        ("key.rotate", "shop", key_id),
        ("key.revoke", "shop", key_id),
        ("key.reset", "*", None),
    ]
    assert all("@" in each["actor"] and each["via"] == "command" for each in found)
    assert secret.split("_")[2] not in file.read_text()


def test_a_revoked_key_is_gone(here: Path) -> None:
    key_id = key("create", "--name", "shop", "--role", "read").stdout.split("_")[1]
    assert key("revoke", key_id).exit_code == 0
    assert read_keys(here) == []
    assert key("revoke", key_id).exit_code == 66


def test_the_folder_can_be_named(tmp_path: Path) -> None:
    assert key("create", "--name", "shop", "--role", "read", "--data", "elsewhere").exit_code == 0
    assert len(read_keys(tmp_path / "elsewhere" / "keys.json")) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--name", "shop"),
        ("--role", "read"),
        ("--name", "shop", "--role", "root"),
        ("--name", "shop", "--role", "read", "--queue", "a b"),
        ("--name", "", "--role", "read"),
        ("--name", "shop", "--role", "read", "--queues-max", "-1"),
    ],
)
def test_a_key_that_cannot_be_is_not_made(here: Path, arguments: tuple[str, ...]) -> None:
    assert key("create", *arguments).exit_code == 2
    assert not here.exists()


def test_a_damaged_file_is_named_and_left_alone(here: Path) -> None:
    here.parent.mkdir()
    here.write_text("{")
    for arguments in (("list",), ("revoke", "x"), ("create", "--name", "shop", "--role", "read")):
        done = key(*arguments)
        assert done.exit_code == 74
        assert "keys.json does not hold keys" in done.stderr
    assert here.read_text() == "{"


def test_a_key_that_expires_says_when_and_is_listed_as_expired(here: Path) -> None:
    made = json.loads(key("create", "--name", "shop", "--role", "read", "--expires-in", "90d", "--json").stdout)
    assert made["expires_at"] > made["created_at"]
    (found,) = read_keys(here)
    assert found.expires_at_ms is not None
    key("create", "--name", "gone", "--role", "read", "--expires-in", "0s")
    assert "expired" in key("list").stdout
    assert key("create", "--name", "shop", "--role", "read", "--expires-in", "soon").exit_code == 2


def test_a_rotated_key_has_two_secrets_for_a_while(here: Path) -> None:
    old = key("create", "--name", "shop", "--role", "read").stdout.strip()
    done = key("rotate", old.split("_")[1], "--keep-old-for", "1h")
    new = done.stdout.strip()
    assert "The old secret is good until" in done.stderr
    access = Keys(here).access
    assert access.authenticate(f"Bearer {old}").name == access.authenticate(f"Bearer {new}").name == "shop"
    newest = key("rotate", old.split("_")[1], "--keep-old-for", "0s").stdout.strip()
    access = Keys(here).access
    assert access.authenticate(f"Bearer {newest}").name == "shop"
    for ended in (old, new):
        with pytest.raises(KeyUnknown):
            access.authenticate(f"Bearer {ended}")
    assert key("rotate", "000000000000").exit_code == 66


def test_the_way_back_to_a_server_without_keys_has_to_be_meant(here: Path) -> None:
    key("create", "--name", "shop", "--role", "read")
    assert key("reset").exit_code == 2
    assert not Keys(here).access.is_open
    assert key("reset", "--yes").exit_code == 0
    assert Keys(here).access.is_open
    assert "There have been no keys" in key("reset", "--yes").stdout


def test_a_key_from_a_store_of_secrets_is_entered_once_however_often_it_is_said(here: Path) -> None:
    text = key("generate").stdout.strip()
    first = key("create", "--name", "ops", "--role", "admin", "--text", text)
    assert (first.exit_code, first.stdout) == (0, f"Entered the key {text.split('_')[1]}.\n")
    written = here.read_bytes()
    again = CliRunner().invoke(
        app, ["key", "create", "--name", "ops", "--role", "admin"], env={"PENSTOCK_NEW_KEY": text}
    )

    assert (again.exit_code, "nothing was changed" in again.stdout) == (0, True)
    assert here.read_bytes() == written
    Keys(here).access.authenticate(f"Bearer {text}").check(Role.ADMIN, "any-queue")


def test_a_key_whose_id_is_taken_by_another_secret_is_refused(here: Path) -> None:
    text = key("create", "--name", "ops", "--role", "admin").stdout.strip()
    other = text[:-43] + "x" * 43

    assert key("create", "--name", "ops", "--role", "admin", "--text", other).exit_code == 73
    with pytest.raises(KeyUnknown):
        Keys(here).access.authenticate(f"Bearer {other}")


@pytest.mark.parametrize("text", ["", "secret", "pk_1_2", "pk_0123456789ab_short", "pk_0123456789AB_" + "x" * 43])
def test_a_text_that_is_no_key_is_refused_and_nothing_is_made(here: Path, text: str) -> None:
    assert key("create", "--name", "ops", "--role", "admin", "--text", text).exit_code == 2
    assert not here.exists()
