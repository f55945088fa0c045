"""`penstock serve` as a process: it says where it is, stops when told, and refuses what it cannot be."""

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from penstock.cli import app
from tests.certificates import make_certificate
from tests.cli.servers import Served
from tests.waiting import wait_until


def penstock(*arguments: object, key: str = "", url: str = "") -> Result:
    """Run a command that ends by itself, in this process: starting another takes a second."""
    environment = {"PENSTOCK_KEY": key, "PENSTOCK_URL": url, "PENSTOCK_CONFIG": "", "PENSTOCK_DATA": ""}
    return CliRunner().invoke(app, [*map(str, arguments)], env=environment)


def refused_start(*arguments: object) -> subprocess.CompletedProcess[str]:
    """Run a server that is not to start."""
    command = [sys.executable, "-m", "penstock", "serve", "--port", "0", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("by", [signal.SIGTERM, signal.SIGINT])
def test_a_server_that_is_told_to_stop_ends_well_and_keeps_everything(tmp_path: Path, by: signal.Signals) -> None:
    with Served(tmp_path / "data") as server:
        assert f"messages  {tmp_path / 'data'}" in server.greeting
        assert "keys      not needed" in server.greeting
        assert penstock("queue", "create", "orders", url=server.url).exit_code == 0
        assert penstock("send", "orders", "teapot", url=server.url).exit_code == 0
        assert server.stop(by) == 0
    with Served(tmp_path / "data") as server:
        assert penstock("receive", "orders", url=server.url).stdout == "teapot\n"


def test_keys_come_and_go_while_the_server_runs(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    admin = penstock("key", "create", "--name", "ops", "--role", "admin", "--data", folder).stdout.strip()
    writer = penstock("key", "create", "--name", "w", "--role", "write", "--queue", "o*", "--data", folder, "--json")
    made = json.loads(writer.stdout)
    with Served(folder) as server:
        assert "keys      needed" in server.greeting
        without = penstock("queue", "list", url=server.url)
        assert without.exit_code == 77
        assert "penstock key create" in without.stderr
        assert penstock("queue", "create", "orders", key=admin, url=server.url).exit_code == 0
        assert penstock("queue", "create", "mails", key=admin, url=server.url).exit_code == 0
        assert penstock("send", "orders", "x", key=made["key"], url=server.url).exit_code == 0
        assert penstock("send", "mails", "x", key=made["key"], url=server.url).exit_code == 77
        assert penstock("queue", "purge", "orders", "--yes", key=made["key"], url=server.url).exit_code == 77
        seen = json.loads(penstock("queue", "list", "--json", key=made["key"], url=server.url).stdout)
        assert [row["queue_name"] for row in seen] == ["orders"]

        later = penstock("key", "create", "--name", "r", "--role", "read", "--data", folder).stdout.strip()
        assert penstock("key", "revoke", made["id"], "--data", folder).exit_code == 0
        # The server looks every second, and may have looked between the two. It says when it has seen a change.
        wait_until(lambda: penstock("send", "orders", "x", key=made["key"], url=server.url).exit_code == 77)
        assert "keys.changed" in server.errors()
        assert penstock("queue", "list", key=later, url=server.url).exit_code == 0


def test_a_key_makes_no_more_queues_than_it_may(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    words = ["--name", "shop", "--role", "admin", "--queue", "shop-*", "--queues-max", "1"]
    key = penstock("key", "create", *words, "--data", folder).stdout.strip()
    with Served(folder) as server:
        assert penstock("queue", "create", "shop-a", key=key, url=server.url).exit_code == 0
        assert penstock("queue", "create", "shop-a", key=key, url=server.url).exit_code == 0
        refused = penstock("queue", "create", "shop-b", key=key, url=server.url)
        assert refused.exit_code == 77
        assert "may have 1 queues" in refused.stderr
        assert penstock("queue", "delete", "shop-a", "--yes", key=key, url=server.url).exit_code == 0
        assert penstock("queue", "create", "shop-b", key=key, url=server.url).exit_code == 0


def test_a_server_that_others_could_reach_does_not_start_without_keys_and_tls(tmp_path: Path) -> None:
    words = ["--host", "0.0.0.0", "--data", tmp_path / "data"]
    refused = refused_start(*words)
    assert refused.returncode == 78
    assert "penstock key create" in refused.stderr
    assert not (tmp_path / "data").exists()
    penstock("key", "create", "--name", "ops", "--role", "admin", "--data", tmp_path / "data")
    refused = refused_start(*words)
    assert refused.returncode == 78
    assert "--tls-cert and --tls-key" in refused.stderr


def test_a_folder_in_use_is_not_served_twice(tmp_path: Path) -> None:
    with Served(tmp_path / "data"):
        refused = refused_start("--data", tmp_path / "data")
    assert refused.returncode == 73
    assert "in use by another process" in refused.stderr
    assert "--data" in refused.stderr


def test_a_port_in_use_is_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        refused = refused_start("--port", port, "--data", tmp_path / "data")
    assert refused.returncode == 73
    assert f"127.0.0.1, port {port}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_damaged_keys_keep_a_server_from_starting(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "keys.json").write_text("{")
    (tmp_path / "data" / "keys.json").chmod(0o600)
    refused = refused_start("--data", tmp_path / "data")
    assert refused.returncode == 74
    assert "keys.json does not hold keys" in " ".join(refused.stderr.split())


@pytest.mark.parametrize("words", [("--store", "mysql://localhost/x"), ("--shards", "0"), ("--tls-cert", "x")])
def test_a_setting_that_cannot_be_keeps_a_server_from_starting(tmp_path: Path, words: tuple[str, ...]) -> None:
    refused = refused_start("--data", tmp_path / "data", *words)
    assert refused.returncode == 78
    assert not (tmp_path / "data").exists()


def test_a_certificate_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = ["--tls-cert", tmp_path / "no.pem", "--tls-key", tmp_path / "no.key"]
    refused = refused_start("--data", tmp_path / "data", *words)
    assert refused.returncode == 78
    assert "no.pem" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_a_server_with_keys_and_tls_serves_other_machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (cert, private), folder = make_certificate(tmp_path), tmp_path / "data"
    key = penstock("key", "create", "--name", "ops", "--role", "admin", "--data", folder).stdout.strip()
    with Served(folder, "--host", "0.0.0.0", "--tls-cert", str(cert), "--tls-key", str(private)) as server:
        assert server.url.startswith("https://")
        near = f"https://localhost:{server.url.rpartition(':')[2]}"
        stranger = penstock("queue", "create", "orders", "--timeout", "0", key=key, url=near)
        assert stranger.exit_code == 69
        monkeypatch.setenv("SSL_CERT_FILE", str(cert))
        assert penstock("queue", "create", "orders", key=key, url=near).exit_code == 0
        assert penstock("queue", "list", url=near).exit_code == 77
        plain = penstock("queue", "list", "--timeout", "0", key=key, url=near.replace("https", "http"))
        assert plain.exit_code == 69
