"""A whole server on a database, and the commands about one: as a user starts them."""

import socket
import urllib.request
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import penstock
from penstock.cli import app
from penstock.server import open_application
from penstock.settings import ServerSettings
from tests.cli.servers import Served
from tests.postgres.servers import shared_server
from tests.waiting import wait_until


def _penstock(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.slow
def test_a_server_keeps_its_messages_in_the_database(tmp_path: Path) -> None:
    dsn = shared_server().new_database()
    with Served(tmp_path / "a", "--store", dsn) as server, penstock.connect(server.url) as client:
        client.create_queue("orders")
        client.queue("orders").send("teapot")
        # A client of the database itself has the same queues.
        with penstock.connect(dsn) as beside:
            message = beside.queue("orders").receive()
            assert message is not None
            assert message.text == "teapot"
            beside.queue("orders").send("lamp")
        second = client.queue("orders").receive(wait_s=60)
        assert second is not None
        assert second.text == "lamp"
        rows = 'penstock_postgres_rows{database="*",kind="dead",table="ready"}'
        # The database is looked at beside all else, so perhaps later.
        wait_until(lambda: rows in _metrics(server))
        assert "penstock_ready 1.0" in _metrics(server)


def _metrics(server: Served) -> str:
    with urllib.request.urlopen(f"{server.url}/metrics") as answer:
        found: bytes = answer.read()
    return found.decode()


def test_a_schema_is_made_by_a_command_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dsn = shared_server().new_database()
    refused = _penstock("serve", "--port", "0", "--data", str(tmp_path), "--store", dsn, "--no-migrate")
    assert (refused.exit_code, "penstock migrate" in refused.output) == (78, True)

    assert "CREATE TABLE penstock.queue" in _penstock("migrate", "--store", dsn, "--plan").output
    first, second = _penstock("migrate", "--store", dsn), _penstock("migrate", "--store", dsn)
    assert (first.exit_code, "came from version 0" in first.output) == (0, True)
    assert "was up to date" in second.output
    assert "Can go: 0 periods" in _penstock("history", "list", "--store", dsn).output


def test_a_database_that_is_not_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dsn = f"postgresql://penstock:secret@/shop?host={tmp_path}"
    for arguments in (["migrate"], ["serve", "--port", "0", "--data", str(tmp_path)]):
        done = _penstock(*arguments, "--store", dsn)
        assert done.exit_code == 69, done.output
        assert "secret" not in done.output


def test_a_database_that_does_not_answer_is_a_sentence_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as hole:
        dsn = f"postgresql://ada:secret@127.0.0.1:{hole.getsockname()[1]}/shop?connect_timeout=2"
        for arguments in (["migrate"], ["serve", "--port", "0", "--data", str(tmp_path)]):
            done = _penstock(*arguments, "--store", dsn)
            assert done.exit_code == 69, done.output
            assert "does not answer: look whether it runs" in " ".join(done.output.split())
            assert "secret" not in done.output


@pytest.mark.real_time
async def test_a_database_that_may_lose_is_refused_or_doubted(caplog: pytest.LogCaptureFixture) -> None:
    dsn = shared_server().new_database()
    doubtful = f"{dsn}&options=-csynchronous_commit%3Doff"
    async with open_application(ServerSettings(store=doubtful)):
        assert "synchronous_commit is off" in caplog.text
    caplog.clear()
    async with open_application(ServerSettings(store=doubtful, postgres_allow_unsafe_durability=True)):
        assert "synchronous_commit" not in caplog.text
