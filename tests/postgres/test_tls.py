"""Options of TLS in the URL are passed through to the driver, by servers and by clients."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psycopg
import pytest

import penstock
from penstock.client import DatabaseUnusable
from tests.certificates import make_certificate
from tests.postgres.servers import NoPostgres, Server, unprivileged_user


class Secured(NamedTuple):
    server: Server
    address: str
    certificate: Path

    def url(self, *options: str) -> str:
        return f"postgresql://postgres@{self.address}/postgres?" + "&".join(options)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    """A server with a certificate that it has signed itself, at an address of this machine that is its own."""
    address = f"127.{os.getpid() % 250 + 1}.{os.getpid() // 250 % 250 + 1}.7"
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        folder = Path(name)
        certificate, key = make_certificate(folder, names=f"IP:{address}")
        folder.chmod(0o755)
        key.chmod(0o600)
        user = unprivileged_user()
        if user is not None:
            shutil.chown(key, user)
        options = {
            "ssl": "on",
            "ssl_cert_file": str(certificate),
            "ssl_key_file": str(key),
            "listen_addresses": address,
        }
        try:
            server = Server(options=options)
        except NoPostgres as error:
            if "SSL is not supported" not in str(error):
                raise
            pytest.skip("this PostgreSQL was built without TLS")
        with server:
            yield Secured(server, address, certificate)


def connections_in_the_clear(secured: Secured) -> tuple[int, int]:
    """How many connections over the network there are, and how many of them are not encrypted."""
    with psycopg.connect(secured.server.dsn) as connection:
        found = connection.execute(
            "SELECT count(*), count(*) FILTER (WHERE NOT ssl) FROM pg_stat_ssl "
            "JOIN pg_stat_activity USING (pid) WHERE client_addr IS NOT NULL"
        ).fetchone()
    assert found is not None
    return found[0], found[1]


def test_every_connection_is_encrypted_if_that_is_asked_for(secured: Secured) -> None:
    url = secured.url("sslmode=verify-full", f"sslrootcert={secured.certificate}")
    with penstock.connect(url) as client:
        client.create_queue("orders")
        client.queue("orders").send("teapot")
        # Those for its verbs, the one it listens on, and one that is lent.
        count, in_the_clear = connections_in_the_clear(secured)
        assert count >= 2
        assert in_the_clear == 0
        with psycopg.connect(url) as connection:
            client.queue("orders").send("lamp", connection=connection)
        assert len(client.queue("orders").receive(limit=2)) == 2


def test_a_server_without_a_trusted_certificate_is_refused(secured: Secured, tmp_path: Path) -> None:
    another, _ = make_certificate(tmp_path, names=f"IP:{secured.address}")
    with (
        penstock.connect(secured.url("sslmode=verify-full", f"sslrootcert={another}")) as client,
        pytest.raises(DatabaseUnusable, match="certificate verify failed"),
    ):
        client.create_queue("orders")
