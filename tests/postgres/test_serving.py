"""A whole server on a database: started as a user starts it, killed, and asked how the database is."""

import os
import subprocess
import sys
import urllib.request
from pathlib import Path

import penstock
from tests.cli.servers import Served
from tests.postgres.servers import shared_server


def _penstock(*arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PENSTOCK_")}
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, check=False, text=True)


def test_a_server_keeps_its_messages_in_the_database(tmp_path: Path) -> None:
    dsn = shared_server().new_database()
    with Served(tmp_path / "a", "--store", dsn) as server, penstock.connect(server.url) as client:
        client.create_queue("orders")
        client.queue("orders").send("teapot")
        with urllib.request.urlopen(f"{server.url}/metrics") as answer:
            shown = answer.read().decode()
    assert 'penstock_postgres_rows{kind="dead",table="ready"}' in shown
    assert "penstock_ready 1.0" in shown
    with Served(tmp_path / "b", "--store", dsn, "--no-migrate") as server, penstock.connect(server.url) as client:
        message = client.queue("orders").receive()
        assert message is not None
        assert message.text == "teapot"


def test_a_schema_is_made_by_a_command_too(tmp_path: Path) -> None:
    dsn = shared_server().new_database()
    refused = _penstock("serve", "--port", "0", "--data", str(tmp_path), "--store", dsn, "--no-migrate")
    assert (refused.returncode, "penstock migrate" in refused.stderr) == (78, True)

    plan = _penstock("migrate", "--store", dsn, "--plan")
    assert "CREATE TABLE penstock.queue" in plan.stdout
    first, second = _penstock("migrate", "--store", dsn), _penstock("migrate", "--store", dsn)
    assert (first.returncode, "came from version 0" in first.stdout) == (0, True)
    assert "was up to date" in second.stdout
    assert "Can go: 0 periods" in _penstock("archive", "--store", dsn).stdout


def test_a_database_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    dsn = f"postgresql://penstock:secret@/shop?host={tmp_path}"
    for arguments in (("migrate",), ("serve", "--port", "0", "--data", str(tmp_path))):
        done = _penstock(*arguments, "--store", dsn)
        assert done.returncode == 69, done.stderr
        assert "Traceback" not in done.stderr
        assert "secret" not in done.stderr
