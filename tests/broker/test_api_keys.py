"""Keys in a file: made and revoked while servers read it, by one process or by many."""

import json
import multiprocessing
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.access import ANONYMOUS_ADMIN, Grant, KeyNeeded, KeyUnknown, Role
from penstock.broker.api_keys import (
    KeyNotFound,
    Keys,
    KeysDamaged,
    create_key,
    following,
    read_keys,
    reset_file,
    revoke_key,
)
from tests.waiting import elapse

NOW = "2026-11-16T00:00:00Z"
GRANTS = (Grant(Role.WRITE, "orders*"), Grant(Role.READ, "*"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "keys.json"


def make(path: Path, name: str = "shop") -> str:
    return create_key(path, name, GRANTS, queues_max=3, created_at=NOW)[1]


def test_a_key_is_found_again_as_it_was_made(path: Path) -> None:
    key, text = create_key(path, "shop", GRANTS, queues_max=3, created_at=NOW)
    assert read_keys(path) == [key]
    assert (key.name, key.grants, key.queues_max, key.created_at) == ("shop", GRANTS, 3, NOW)
    assert text.startswith(f"pk_{key.id}_")
    assert text.endswith(key.ending)


def test_the_file_holds_no_secret_and_is_for_its_owner_only(path: Path) -> None:
    secret = make(path).split("_", 2)[2]
    assert secret not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in path.parent.iterdir()) == ["keys.json", "keys.lock", "keys.needed"]


def test_a_link_in_the_place_of_the_lock_of_keys_is_refused(path: Path, tmp_path: Path) -> None:
    path.parent.mkdir()
    target = tmp_path / "elsewhere"
    target.touch()
    path.with_suffix(".lock").symlink_to(target)
    # Made by root, a key would give away the file that the link leads to.
    with pytest.raises(OSError, match=r"keys\.lock is a symbolic link"):
        make(path)


def test_a_server_takes_up_a_key_that_is_made_while_it_runs(path: Path) -> None:
    make(path)
    keys = Keys(path)
    text = make(path, "other")
    with pytest.raises(KeyUnknown):
        keys.access.authenticate(f"Bearer {text}")
    assert keys.refresh()
    assert keys.access.authenticate(f"Bearer {text}").name == "other"
    assert not keys.refresh()


def test_a_revoked_key_is_not_good_any_more(path: Path) -> None:
    text = make(path)
    keys = Keys(path)
    assert revoke_key(path, text.split("_")[1]).name == "shop"
    assert keys.refresh()
    with pytest.raises(KeyUnknown):
        keys.access.authenticate(f"Bearer {text}")


def test_a_key_that_is_not_there_cannot_be_revoked(path: Path) -> None:
    make(path)
    with pytest.raises(KeyNotFound):
        revoke_key(path, "000000000000")
    assert len(read_keys(path)) == 1


def test_a_server_without_keys_is_open_until_the_first_is_made(path: Path) -> None:
    keys = Keys(path)
    assert keys.access.authenticate(None) is ANONYMOUS_ADMIN
    make(path)
    assert keys.refresh()
    with pytest.raises(KeyNeeded):
        keys.access.authenticate(None)


def test_revoking_the_last_key_still_needs_keys(path: Path) -> None:
    text = make(path)
    keys = Keys(path)
    revoke_key(path, text.split("_")[1])
    for running in (keys, Keys(path)):
        running.refresh()
        with pytest.raises(KeyNeeded):
            running.access.authenticate(None)


def test_a_key_file_that_disappears_still_needs_keys(path: Path) -> None:
    make(path)
    keys = Keys(path)
    path.unlink()
    assert keys.refresh()
    with pytest.raises(KeyNeeded):
        keys.access.authenticate(None)


def test_a_server_that_has_had_keys_does_not_open_because_the_file_is_gone(path: Path) -> None:
    make(path)
    path.unlink()
    with pytest.raises(KeyNeeded):
        Keys(path).access.authenticate(None)
    text = make(path)
    assert Keys(path).access.authenticate(f"Bearer {text}").name == "shop"


def test_a_file_that_came_without_its_marker_is_marked_at_the_start(path: Path) -> None:
    make(path)
    path.with_suffix(".needed").unlink()
    Keys(path)
    path.unlink()
    assert not Keys(path).access.is_open


def test_only_a_reset_opens_a_server_that_has_had_keys(path: Path) -> None:
    make(path)
    running = Keys(path)
    assert reset_file(path)
    assert Keys(path).access.is_open
    running.refresh()
    assert not running.access.is_open, "one that runs stays closed"


def test_a_link_in_the_place_of_the_file_is_not_followed(path: Path) -> None:
    make(path)
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")
    with pytest.raises(KeysDamaged, match="cannot be read"):
        Keys(path)


def test_a_damaged_file_leaves_the_old_keys_good_until_it_is_mended(path: Path) -> None:
    text = make(path)
    whole = path.read_bytes()
    keys = Keys(path)
    path.write_bytes(whole[:50])
    assert not keys.refresh()
    assert "keys.json" in keys.problem
    assert keys.access.authenticate(f"Bearer {text}").name == "shop"
    path.write_bytes(whole)
    assert keys.refresh()
    assert keys.problem == ""


def test_a_damaged_file_does_not_leave_a_server_open(path: Path) -> None:
    keys = Keys(path)
    path.parent.mkdir()
    path.write_text("{")
    path.chmod(0o600)
    keys.refresh()
    with pytest.raises(KeyNeeded):
        keys.access.authenticate(None)


def damaged(path: Path, change: dict[str, object]) -> None:
    said = json.loads(path.read_text())
    said["keys"][0].update(change)
    path.write_text(json.dumps(said))


@pytest.mark.parametrize(
    "change",
    [
        {"id": "x"},
        {"id": "0123456789ab\n"},
        {"sha256": "00"},
        {"grants": []},
        {"grants": [{"role": "root", "queue": "*"}]},
        {"grants": [{"role": "read", "queue": "a b"}]},
        {"queues_max": -1},
        {"queues_max": True},
        {"secret": "x"},
        {"name": ""},
    ],
)
def test_a_tampered_file_is_refused(path: Path, change: dict[str, object]) -> None:
    make(path)
    damaged(path, change)
    with pytest.raises(KeysDamaged):
        Keys(path)


def test_two_keys_of_one_id_are_refused(path: Path) -> None:
    make(path)
    make(path)
    damaged(path, {"id": json.loads(path.read_text())["keys"][1]["id"]})
    with pytest.raises(KeysDamaged, match="two keys with one id"):
        read_keys(path)


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(path: Path, mode: int) -> None:
    make(path)
    path.chmod(mode)
    with pytest.raises(KeysDamaged, match="chmod 600"):
        Keys(path)


def test_a_folder_in_the_place_of_the_file_is_refused(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(KeysDamaged, match="cannot be read"):
        Keys(path)


def test_nothing_is_written_over_a_file_that_is_damaged(path: Path) -> None:
    make(path)
    path.write_text("{")
    with pytest.raises(KeysDamaged):
        make(path)
    assert path.read_text() == "{"


@given(data=st.binary(max_size=200))
def test_no_bytes_in_the_file_do_worse_than_a_refusal(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "keys.json"
    path.write_bytes(data)
    path.chmod(0o600)
    with pytest.raises(KeysDamaged):
        read_keys(path)


def test_a_file_left_by_one_who_died_while_writing_is_no_hindrance(path: Path) -> None:
    path.parent.mkdir()
    path.with_suffix(".new").write_text("half")
    make(path)
    assert len(read_keys(path)) == 1


@pytest.mark.parametrize("name", ["", "x" * 101, "a\nb", "\x1b[2J"])
def test_a_key_needs_a_name_that_can_be_shown(path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="can be printed"):
        make(path, name)
    assert not path.exists()


def make_many(path: Path, worker: int) -> None:
    for number in range(10):
        make(path, f"{worker}-{number}")


def test_keys_made_at_the_same_time_are_all_there(path: Path) -> None:
    processes = multiprocessing.get_context("spawn")
    workers = [processes.Process(target=make_many, args=(path, worker)) for worker in range(2)]
    for worker in workers:
        worker.start()
    make_many(path, 2)
    for worker in workers:
        worker.join(60)
    assert [worker.exitcode for worker in workers] == [0, 0]
    assert {key.name for key in read_keys(path)} == {f"{worker}-{each}" for worker in range(3) for each in range(10)}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_keys_made_by_root_belong_to_the_owner_of_the_folder(path: Path) -> None:
    path.parent.mkdir()
    os.chown(path.parent, 12_345, 12_345)
    make(path)
    assert {(each.stat().st_uid, each.stat().st_gid) for each in path.parent.iterdir()} == {(12_345, 12_345)}


def test_a_key_can_be_made_where_the_umask_is_generous(path: Path) -> None:
    before = os.umask(0)
    try:
        make(path)
    finally:
        os.umask(before)
    assert path.stat().st_mode & 0o777 == 0o600


async def test_a_running_server_notes_what_became_of_its_keys(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    logged: list[str] = []
    make(path)
    keys = Keys(path)
    async with following(keys, lambda event, **_: logged.append(event.name)):
        make(path, "other")
        await elapse(1.5)
        assert logged == ["keys.changed"]
        path.write_text("{")
        await elapse(3)
        assert logged == ["keys.changed", "keys.damaged"]
