"""Long polls of a key that is revoked meanwhile, on a running server: refused as its next request would be."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.broker import api_keys
from penstock.broker.access import Grant, Role, sqs_access_key_id
from penstock.broker.api_keys import NewKey, change_file, create_key, revoke_key
from penstock.settings import ServerSettings
from tests.server.serving import ANSWER_S, server
from tests.sqs.conftest import client_of
from tests.sqs.test_queues import refusal

POLL = "/api/queues/orders/messages?wait_s=20"


def on_any_port(folder: Path) -> ServerSettings:
    return ServerSettings(port=0, data=folder / "data")


def test_a_long_poll_of_rest_is_answered_401_when_its_key_is_revoked(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path)
    key, text = create_key(settings.keys_path, "a", [Grant(Role.ADMIN, "*")], queues_max=None, created_at="")
    create_key(settings.keys_path, "b", [Grant(Role.ADMIN, "*")], queues_max=None, created_at="")
    with server(settings) as running, running.client() as client:
        bearer = f"Bearer {text}"
        assert client.ask("POST", "/api/queues", {"queue_name": "orders"}, authorization=bearer).status == 201
        client.send(f"GET {POLL} HTTP/1.1\r\nhost: localhost\r\nauthorization: {bearer}\r\n\r\n".encode())
        revoke_key(settings.keys_path, key.id)
        answer = client.answer()
        assert (answer.status, answer.json()["code"]) == (401, "unauthorized")
        # The connection stays, and answers the next request.
        assert client.ask("GET", "/health/live").status == 200


def test_a_long_poll_of_sqs_is_refused_as_an_unknown_key_is_when_its_key_is_revoked(tmp_path: Path) -> None:
    settings = on_any_port(tmp_path)
    wanted = NewKey(name="a", grants=(Grant(Role.ADMIN, "*"),), has_sqs=True)
    key = change_file(settings.keys_path, lambda found: api_keys.create(found, wanted, created_at="")).key
    with server(settings) as running:
        pair = {"aws_access_key_id": sqs_access_key_id(key.id), "aws_secret_access_key": key.sqs_secret}
        sqs = client_of(running.url, **pair)
        url = sqs.create_queue(QueueName="orders")["QueueUrl"]

        def poll() -> Any:
            return refusal(sqs.receive_message, QueueUrl=url, WaitTimeSeconds=20)

        polled = _in_a_thread(poll)
        revoke_key(settings.keys_path, key.id)
        code, _, status = polled()
        assert (code, status) == ("InvalidClientTokenId", 403)
        sqs.close()


def _in_a_thread(function: Callable[[], Any]) -> Callable[[], Any]:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(function()))
    thread.start()

    def joined() -> Any:
        thread.join(ANSWER_S)
        return found[0]

    return joined
