"""The page about nginx: its configuration, before a real server with keys, and clients that come through it."""

import getpass
import re
import ssl
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

import penstock
from penstock.cli import app
from tests.certificates import make_certificate
from tests.cli.servers import Served
from tests.deploy.tools import DEPLOY, needs
from tests.ports import HeldPort

PAGE = DEPLOY.parent / "docs" / "how-to" / "run-behind-nginx.md"
NGINX = "/usr/sbin/nginx"
# Everything that nginx writes stays in one folder, and it runs as the user who starts it.
AROUND = """
daemon off;
user {user};
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
    {block}
}}
"""


@pytest.fixture(scope="module")
def proxied(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, ssl.SSLContext]]:
    """Run nginx as the page says; return the URL that clients use, a key, and what trusts the certificate."""
    folder = tmp_path_factory.mktemp("nginx")
    certificate = make_certificate(folder)
    made = CliRunner().invoke(
        app, ["key", "create", "--name", "admin", "--role", "admin", "--data", str(folder / "data")]
    )
    port = HeldPort()
    options = ("--behind-proxy", "--hosts", "localhost", "--no-kafka")
    with Served(folder / "data", *options) as server:
        [block] = re.findall(r"```text\n(upstream .*?)```", PAGE.read_text(), re.DOTALL)
        for said, here in {
            "127.0.0.1:8080": server.url.removeprefix("http://"),
            "listen 443 ssl": f"listen 127.0.0.1:{port.number} ssl",
            "queues.example.com;": "localhost;",
            "/etc/letsencrypt/live/queues.example.com/fullchain.pem": str(certificate.cert),
            "/etc/letsencrypt/live/queues.example.com/privkey.pem": str(certificate.key),
        }.items():
            assert said in block
            block = block.replace(said, here)
        config = folder / "nginx.conf"
        config.write_text(AROUND.format(user=getpass.getuser(), folder=folder, block=block))
        subprocess.run([NGINX, "-t", "-q", "-c", str(config)], check=True)
        with subprocess.Popen([NGINX, "-c", str(config)]) as process:
            try:
                trust = ssl.create_default_context(cafile=str(certificate.cert))
                url = f"https://localhost:{port.number}"
                until_it_answers(url, trust)
                yield url, made.stdout.strip(), trust
            finally:
                process.terminate()
                port.give_back()


def until_it_answers(url: str, trust: ssl.SSLContext) -> None:
    while True:
        try:
            with urllib.request.urlopen(f"{url}/health/live", context=trust, timeout=60):
                return
        except OSError:
            continue


@needs(NGINX)
def test_a_client_sends_large_messages_and_waits_for_others_through_nginx(
    proxied: tuple[str, str, ssl.SSLContext],
) -> None:
    url, key, trust = proxied
    with penstock.connect(url, key=key, tls=trust) as client:
        client.create_queue("orders")
        queue = client.queue("orders")
        # A request of some 15 MiB, which is nearly what the server takes.
        queue.send_many([b"x" * 1_000_000] * 15)
        assert len(queue.receive(limit=100).ack()) == 15
        assert queue.receive(wait_s=1) is None


@needs(NGINX)
def test_nginx_passes_on_who_may_not(proxied: tuple[str, str, ssl.SSLContext]) -> None:
    url, _, trust = proxied
    for path, status in {"/api/queues": 401, "/metrics": 403}.items():
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(f"{url}{path}", context=trust, timeout=60)
        with caught.value as refused:
            assert refused.code == status
