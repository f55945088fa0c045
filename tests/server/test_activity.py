"""The audit log of a real server: it survives a restart, has failed logins, and is shown by a command."""

import time
from pathlib import Path

from typer.testing import CliRunner

from penstock.broker.access import Grant, Role
from penstock.broker.api_keys import create_key
from penstock.cli import app
from penstock.settings import ServerSettings
from tests.server.serving import Client, Running, server

WAIT_S = 60.0


def call(running: Running, head: str, key: str, body: str = "") -> int:
    with Client(running.address) as client:
        length = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n" if body else ""
        client.send(f"{head} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n{length}\r\n{body}".encode())
        return client.answer().status


def test_the_audit_log_survives_a_restart_and_names_who_was_not_let_in(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, data=tmp_path, kafka=False)
    made = create_key(tmp_path / "keys.json", "ops", [Grant(Role.ADMIN, "*")], queues_max=None, created_at="")
    key = made[1]
    with server(settings) as running:
        assert call(running, "POST /api/queues", key, '{"queue_name":"orders"}') == 201
        assert call(running, "POST /api/queues/orders/purge", f"pk_{'0' * 12}_{'x' * 43}") == 401
    with server(settings) as running:
        shown = ""
        until = time.monotonic() + WAIT_S
        while "login.fail" not in shown:
            assert time.monotonic() < until, shown
            result = CliRunner(env={"COLUMNS": "300"}).invoke(app, ["activity", "--url", running.url, "--key", key])
            assert result.exit_code == 0, result.output
            shown = result.output
        assert "queue.create" in shown
        assert "127.0.0.1" in shown
        chosen = CliRunner().invoke(app, ["activity", "orders", "--url", running.url, "--key", key, "--json"])
        assert '"actor":"ops"' in chosen.output
        assert "login.fail" not in chosen.output
        assert key[-20:] not in "".join(file.read_text() for file in (tmp_path / "audit").glob("*.jsonl"))
