"""API keys of a database: all its servers share them, also behind a pooler."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from tests.cli.servers import Served
from tests.postgres.poolers import Pooler, needs_pgbouncer
from tests.postgres.servers import shared_server
from tests.waiting import wait_until

pytestmark = pytest.mark.slow
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def dsn() -> str:
    return shared_server().new_database()


@pytest.fixture
def pooler() -> Iterator[Pooler]:
    with Pooler(shared_server()) as pooler:
        yield pooler


def key(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["key", *arguments])


def made(dsn: str, *more: str) -> str:
    done = key("create", "--name", "ops", "--role", "admin", "--store", dsn, *more)
    assert done.exit_code == 0, done.output
    return done.stdout.strip()


def status(server: Served, text: str | None = None) -> int:
    headers = {} if text is None else {"authorization": f"Bearer {text}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"{server.url}/api/queues", headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def wait_until_refused(server: Served, text: str | None = None) -> None:
    wait_until(lambda: status(server, text) == 401, within_s=WAIT_S)


def test_a_key_made_for_a_database_closes_all_its_servers_and_revoking_it_reaches_all(tmp_path: Path, dsn: str) -> None:
    with (
        Served(tmp_path / "a", "--store", dsn, "--no-kafka") as one,
        Served(tmp_path / "b", "--store", dsn, "--no-kafka") as other,
    ):
        assert [status(one), status(other)] == [200, 200]
        text = made(dsn)
        for server in (one, other):
            wait_until_refused(server)
            assert status(server, text) == 200
        assert [each["name"] for each in json.loads(key("list", "--store", dsn, "--json").stdout)] == ["ops"]
        rotated = key("rotate", text.split("_")[1], "--keep-old-for", "0s", "--store", dsn).stdout.strip()
        for server in (one, other):
            wait_until_refused(server, text)
            assert status(server, rotated) == 200
        assert key("revoke", text.split("_")[1], "--store", dsn).exit_code == 0
        for server in (one, other):
            wait_until_refused(server, rotated)
    # It has had a key, and never opens without one again.
    with Served(tmp_path / "c", "--store", dsn, "--no-kafka") as late:
        assert status(late) == 401
    assert key("reset", "--yes", "--store", dsn).exit_code == 0
    with Served(tmp_path / "d", "--store", dsn, "--no-kafka") as again:
        assert status(again) == 200


@needs_pgbouncer
def test_keys_reach_servers_behind_a_pooler(tmp_path: Path, dsn: str, pooler: Pooler) -> None:
    through = pooler.url(dsn)
    with Served(tmp_path / "a", "--store", through, "--pooled", "--no-kafka") as server:
        assert status(server) == 200
        text = made(dsn)
        wait_until_refused(server)
        assert status(server, text) == 200


def test_a_server_that_others_reach_does_not_start_on_a_database_without_keys(tmp_path: Path, dsn: str) -> None:
    where = ("--port", "0", "--data", str(tmp_path / "a"), "--store", dsn, "--no-kafka")
    open_door = ("--behind-proxy", "--hosts", "queues.example")
    refused = CliRunner().invoke(app, ["serve", *where, *open_door])
    assert (refused.exit_code, "it has no keys" in refused.output) == (78, True)
    text = made(dsn)
    with Served(tmp_path / "a", "--store", dsn, "--no-kafka", *open_door) as server:
        assert [status(server), status(server, text)] == [401, 200]


def test_keys_in_the_folder_of_a_server_on_a_database_are_refused_not_ignored(tmp_path: Path, dsn: str) -> None:
    assert key("create", "--name", "ops", "--role", "admin", "--data", str(tmp_path / "a")).exit_code == 0
    refused = CliRunner().invoke(app, ["serve", "--port", "0", "--data", str(tmp_path / "a"), "--store", dsn])
    assert (refused.exit_code, "takes those of its database" in refused.output) == (74, True)


def test_a_damaged_row_is_refused_at_the_start(tmp_path: Path, dsn: str) -> None:
    made(dsn)
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE penstock.keyring SET revision = 1, content = '{'")
    refused = CliRunner().invoke(app, ["serve", "--port", "0", "--data", str(tmp_path / "a"), "--store", dsn])
    assert (refused.exit_code, "does not hold keys" in refused.output) == (74, True)


def test_the_keys_of_a_map_are_in_its_first_database(tmp_path: Path, dsn: str) -> None:
    first = shared_server().new_database()
    store = f"orders.*={first},*={dsn}"
    text = made(store)
    assert len(json.loads(key("list", "--store", first, "--json").stdout)) == 1
    assert json.loads(key("list", "--store", dsn, "--json").stdout) == []
    with Served(tmp_path / "a", "--store", store, "--no-kafka") as server:
        assert [status(server), status(server, text)] == [401, 200]
