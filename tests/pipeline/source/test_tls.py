"""Reading from a server that speaks TLS, and writing to it: with an authority of one's own, and without trust."""

from pathlib import Path

import pytest

import penstock
from penstock.pipeline.http import ServerUnreachable
from penstock.pipeline.sink.send import SendFailed, Sending
from penstock.settings import ServerSettings
from tests.certificates import make_certificate
from tests.pipeline.reading import read
from tests.pipeline.sink.test_writer import task
from tests.server.serving import server

UNTRUSTED = "its certificate is not trusted: self-signed certificate. For an authority of your own, set SSL_CERT_FILE"


def test_a_server_with_a_certificate_of_its_own_is_trusted_where_the_environment_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = make_certificate(tmp_path)
    settings = ServerSettings(port=0, data=tmp_path / "data", tls_cert=str(made.cert), tls_key=str(made.key))
    with server(settings) as running:
        url = running.url.replace("http://", "https://")
        with pytest.raises(ServerUnreachable, match=UNTRUSTED):
            read({"url": url, "read": "live"})
        # At once, as no second try would mend it, and of nothing that may have been sent.
        sending = Sending(url, "", wait_s_max=600, sleep=_never)
        with pytest.raises(SendFailed, match=UNTRUSTED) as failed:
            sending.send("orders", b"frame")
        assert not failed.value.is_unsure

        monkeypatch.setenv("SSL_CERT_FILE", str(made.cert))
        with penstock.connect(url).sync() as client:
            client.create_queue("orders")
        assert task(url, "orders", 3).sent == 3
        assert read({"url": url, "read": "live", "columns": "data"}).column("data").to_pylist() == [
            b"000000",
            b"000001",
            b"000002",
        ]


def test_a_server_without_tls_is_not_asked_for_it_again_and_again(tmp_path: Path) -> None:
    with server(ServerSettings(port=0, data=tmp_path)) as running:
        url = running.url.replace("http://", "https://")
        with pytest.raises(ServerUnreachable, match="what answers speaks no TLS: the address may begin with http://"):
            read({"url": url, "read": "live"})
        sending = Sending(url, "", wait_s_max=600, sleep=_never)
        with pytest.raises(SendFailed, match="what answers speaks no TLS"):
            sending.send("orders", b"frame")


def _never(seconds: float) -> None:
    raise AssertionError(f"it waits for {seconds} s")
