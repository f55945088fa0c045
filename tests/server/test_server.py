"""A whole server: what it needs to start, what it answers to whom, and how it keeps its messages."""

import os
import socket
import ssl
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from penstock.broker.access import Grant, Role
from penstock.broker.api_keys import create_key, revoke_key
from penstock.listening.sockets import BadCertificate, CannotListen, allow_connections, bind, tls_context
from penstock.runtime.interface import FolderTaken
from penstock.settings import NotSecured, ServerSettings
from penstock.store.embedded.shard_set import TooFewShards
from penstock.store_factory import NoFolder
from tests.certificates import make_certificate
from tests.server.serving import Client, Running, hasty, server


def on_any_port(folder: Path, **more: Any) -> ServerSettings:
    return ServerSettings(port=0, data=folder / "data", **more)


def send_one(running: Running, **options: Any) -> str:
    with running.client(**options) as client:
        assert client.ask("POST", "/api/queues", {"queue_name": "orders"}).status in {200, 201}
        sent = client.ask("POST", "/api/queues/orders/messages", {"data": "one"})
        assert sent.status == 201
        return str(sent.json()["message_id"])


def waiting(running: Running) -> int:
    with running.client() as client:
        return int(client.ask("GET", "/api/queues/orders").json()["current_message_count"])


@pytest.mark.parametrize("more", [{}, {"shards": 3}])
def test_what_was_sent_is_there_after_a_restart(tmp_path: Path, more: dict[str, Any]) -> None:
    settings = on_any_port(tmp_path / "not" / "there" / "yet", **more)
    with server(settings) as running:
        send_one(running)
    with server(settings) as running:
        assert waiting(running) == 1


def test_a_store_in_another_folder_is_kept_there(tmp_path: Path) -> None:
    with server(on_any_port(tmp_path, store=f"file:{tmp_path / 'elsewhere'}")) as running:
        send_one(running)
    assert (tmp_path / "elsewhere" / "journal").is_dir()
    assert not (tmp_path / "data").exists()


def test_a_store_in_memory_writes_nothing_and_forgets_everything(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path, store="memory:")
    with server(settings) as running:
        send_one(running)
        assert waiting(running) == 1
    with server(settings) as running, running.client() as client:
        assert client.ask("GET", "/api/queues/orders").status == 404
    assert not list(tmp_path.iterdir())


def test_a_folder_is_for_one_server_at_a_time(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path)
    with server(settings) as running:
        with pytest.raises(FolderTaken, match="in use by another process"), server(settings):
            pass
        send_one(running)


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    settings = on_any_port(tmp_path, store=f"file:{tmp_path}/file/store")
    with pytest.raises(NoFolder, match=r"file/store: .*--data"), server(settings):
        pass


def test_fewer_shards_than_there_were_are_refused(tmp_path: Path) -> None:
    with server(on_any_port(tmp_path, shards=2)):
        pass
    with pytest.raises(TooFewShards), server(on_any_port(tmp_path)):
        pass


def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = ServerSettings(port=port, data=tmp_path / "data")
        with pytest.raises(CannotListen, match=f"port {port}: something else does.*--port 0"), server(settings):
            pass
    # Nothing was opened for a server that cannot be reached.
    assert not (tmp_path / "data").exists()


def test_a_default_port_for_kafka_that_is_taken_is_done_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        settings = on_any_port(tmp_path, kafka_port=port)
        with pytest.raises(CannotListen, match=f"port {port}"), server(settings, has_kafka=True):
            pass
        monkeypatch.setattr("penstock.server.KAFKA_PORT", port)
        with server(settings, has_kafka=True) as running, running.client() as client:
            assert client.ask("GET", "/health/ready").status == 200
            assert client.ask("GET", "/api/topics").status == 200
    assert "kafka.port_in_use" in caplog.text


@pytest.mark.skipif(os.geteuid() == 0, reason="root may listen on any port")
def test_a_port_that_is_not_permitted_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(CannotListen, match=r"not permitted.*--port 8080"):
        bind("127.0.0.1", 80)


@pytest.mark.parametrize(
    ("host", "why"), [("192.0.2.1", "does not have the address"), ("no.such.invalid", "no address")]
)
def test_an_address_of_others_is_an_error_that_says_what_to_do(host: str, why: str) -> None:
    with pytest.raises(CannotListen, match=f"{why}.*--host 127.0.0.1"):
        bind(host, 0)


def test_all_addresses_of_a_host_get_the_same_port() -> None:
    doors = bind("localhost", 0)
    assert len({door.getsockname()[1] for door in doors}) == 1
    for door in doors:
        door.close()


def test_a_port_that_is_free_at_one_address_only_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (f"127.0.0.{host}", 0)) for host in (1, 2)]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
    others: list[socket.socket] = []

    class Elsewhere(socket.socket):
        """The first port is free at one address and taken at the other."""

        def bind(self, address: Any) -> None:
            super().bind(address)
            if not others:
                others.append(self)
                others.append(socket.create_server(("127.0.0.2", self.getsockname()[1])))

    monkeypatch.setattr(socket, "socket", Elsewhere)
    doors = bind("here", 0)
    assert len({door.getsockname()[1] for door in (*doors, others[1])}) == 2
    for door in (*doors, others[1]):
        door.close()


def test_a_server_speaks_on_ipv6(tmp_path: Path) -> None:
    try:
        bind("::1", 0)[0].close()
    except CannotListen:
        pytest.skip("this machine has no IPv6")
    with server(on_any_port(tmp_path, host="::1")) as running:
        assert running.url.startswith("http://[::1]:")
        send_one(running)


def test_there_are_no_more_connections_than_the_system_has_files_for() -> None:
    assert allow_connections(10).connections_max == 10
    assert allow_connections(10**9).connections_max < 10**9


def test_metrics_of_a_server_without_keys_are_for_everybody(tmp_path: Path) -> None:
    with server(on_any_port(tmp_path)) as running, running.client() as client:
        assert client.ask("GET", "/metrics").status == 200


def test_health_needs_no_key_and_metrics_need_one_also_at_home_unless_told_otherwise(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path)
    create_key(settings.keys_path, "a", [Grant(Role.WRITE, "orders")], queues_max=None, created_at="")
    with server(settings) as running, running.client() as client:
        assert client.ask("GET", "/health/live").json() == {"status": "live"}
        assert client.ask("GET", "/health/ready").json() == {"status": "ready", "reasons": []}
        assert client.ask("GET", "/metrics").status == 401
        assert client.ask("GET", "/api/queues").status == 401
    with server(replace(settings, metrics_without_key=True)) as running, running.client() as client:
        assert client.ask("GET", "/metrics").status == 200
        assert client.ask("GET", "/api/queues").status == 401


def test_metrics_abroad_need_a_key_that_reads_all_queues(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path, host="0.0.0.0", behind_proxy=True, hosts="localhost")

    def key(role: Role, pattern: str) -> str:
        return create_key(settings.keys_path, "k", [Grant(role, pattern)], queues_max=None, created_at="")[1]

    some, every, only = key(Role.ADMIN, "orders*"), key(Role.READ, "*"), key(Role.METRICS, "*")
    with server(settings) as running, running.client() as client:
        assert client.ask("GET", "/health/ready").status == 200
        refused = client.ask("GET", "/metrics")
        assert (refused.status, refused.json()["code"]) == (401, "unauthorized")
        assert refused.headers["www-authenticate"].startswith("Bearer")
        assert client.ask("GET", "/metrics", authorization=f"Bearer {some}").status == 403
        assert client.ask("GET", "/metrics", authorization=f"Bearer {every}").status == 200
        assert client.ask("GET", "/metrics", authorization=f"Bearer {only}").status == 200


def test_a_server_that_others_reach_does_not_start_without_keys_and_tls(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path, host="0.0.0.0")
    with pytest.raises(NotSecured, match="penstock key create"), server(settings):
        pass
    create_key(settings.keys_path, "a", [Grant(Role.ADMIN, "*")], queues_max=None, created_at="")
    with pytest.raises(NotSecured, match="--tls-cert"), server(settings):
        pass


def test_a_server_behind_a_proxy_answers_to_its_names_alone(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path, behind_proxy=True, hosts="Queues.example,[fd00::1]")
    with pytest.raises(NotSecured, match="penstock key create"), server(settings):
        pass
    text = create_key(settings.keys_path, "a", [Grant(Role.ADMIN, "*")], queues_max=None, created_at="")[1]
    with server(settings) as running, running.client() as client:

        def ask(path: str, host: str) -> int:
            return client.ask("GET", path, authorization=f"Bearer {text}", host=host).status

        # A proxy beside the server may call it by its address; probes of health do.
        for host in ("queues.example", "QUEUES.example.:443", "[fd00::1]", "127.0.0.1:8080"):
            assert ask("/api/queues", host) == 200, host
        for host in ("evil.example", "queues.example.evil", "10.0.0.1", "", "x" * 1_000):
            assert ask("/api/queues", host) == 421, host
            assert ask("/health/ready", host) == 200, host


def test_keys_come_and_go_while_the_server_runs(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path)
    with server(settings) as running, running.client() as client:
        assert client.ask("GET", "/api/queues").status == 200
        key, text = create_key(settings.keys_path, "a", [Grant(Role.READ, "*")], queues_max=None, created_at="")
        while client.ask("GET", "/api/queues").status == 200:
            pass
        assert client.ask("GET", "/api/queues", authorization=f"Bearer {text}").status == 200
        revoke_key(settings.keys_path, key.id)
        while client.ask("GET", "/api/queues", authorization=f"Bearer {text}").status == 200:
            pass


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    made = make_certificate(tmp_path_factory.mktemp("tls"))
    return str(made.cert), str(made.key)


def test_a_server_with_a_certificate_speaks_tls_and_nothing_older_than_1_2(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    trusting = ssl.create_default_context(cafile=cert)
    with server(on_any_port(tmp_path, tls_cert=cert, tls_key=key)) as running:
        assert running.url.startswith("https://")
        send_one(running, tls=trusting)
        with Client(running.address, tls=trusting) as client:
            found = client.socket
            assert isinstance(found, ssl.SSLSocket)
            assert found.version() == "TLSv1.3"
            # Larger than what the transports buffer, and than the limit of a request.
            assert client.ask("POST", "/api/queues/orders/messages", {"data": "x" * 900_000}).status == 201
            received = client.ask("GET", "/api/queues/orders/messages?limit=5").json()
            assert [len(message["data"]) for message in received["messages"]] == [3, 900_000]
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.minimum_version = old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(OSError), Client(running.address, tls=old):  # noqa: PT011 - an alert or a reset.
            pass
        with running.client() as plain, pytest.raises(ConnectionError):
            plain.ask("GET", "/health/live")


def test_tls_is_not_negotiated_again_on_a_connection(certificate: tuple[str, str]) -> None:
    assert tls_context(*certificate).options & ssl.OP_NO_RENEGOTIATION


def test_a_tls_handshake_that_is_not_finished_is_ended(tmp_path: Path, certificate: tuple[str, str]) -> None:
    cert, key = certificate
    settings = on_any_port(tmp_path, tls_cert=cert, tls_key=key)
    with server(settings, hasty(handshake_s=0.2)) as running, running.client() as client:
        # The beginning of a first message of 512 bytes.
        client.send(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert client.is_closed()


def test_a_certificate_that_cannot_be_used_is_an_error_that_says_why(
    tmp_path: Path, certificate: tuple[str, str]
) -> None:
    cert, key = certificate
    for wrong in (cert, str(tmp_path / "not-there")):
        with (
            pytest.raises(BadCertificate, match=r"cert\.pem"),
            server(on_any_port(tmp_path, tls_cert=cert, tls_key=wrong)),
        ):
            pass
    locked = str(tmp_path / "locked.pem")
    subprocess.run(["openssl", "pkey", "-in", key, "-aes128", "-passout", "pass:x", "-out", locked], check=True)
    with pytest.raises(BadCertificate, match="password"), server(on_any_port(tmp_path, tls_cert=cert, tls_key=locked)):
        pass


def test_a_body_beyond_the_limit_is_refused_before_it_is_read(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path, store="memory:", request_bytes_max=1_024)
    with server(settings) as running, running.client() as client:
        answer = client.ask("POST", "/api/queues", {"queue_name": "x" * 2_000})
        assert (answer.status, answer.json()["limit"]) == (413, 1_024)
