"""A server that has keys answers strangers by the head of their request: nothing of its body is waited for or kept."""

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from penstock.api.rest.operations import OPERATIONS
from penstock.api.rest.request import Operation
from penstock.broker.access import Grant, Role
from penstock.broker.api_keys import create_key
from penstock.settings import ServerSettings
from tests.server.serving import Running, server

LENGTH = 14_000_000
TODAY = datetime.now(UTC).strftime("%Y%m%d")


@pytest.fixture(scope="module", params=["", "AKIDEXAMPLE"], ids=["without a pair for SQS", "with a pair for SQS"])
def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    settings = ServerSettings(
        port=0,
        data=tmp_path_factory.mktemp("strangers"),
        sqs_access_key_id=request.param,
        sqs_secret_access_key=request.param and "secret",
    )
    create_key(settings.keys_path, "a", [Grant(Role.ADMIN, "*")], queues_max=None, created_at="")
    with server(settings) as found:
        yield found


def authorization(key_id: str = "AKIDEXAMPLE", day: str = TODAY, region: str = "us-east-1", names: str = "host") -> str:
    scope = f"{key_id}/{day}/{region}/sqs/aws4_request"
    return f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders={names}, Signature={'0' * 64}"


NOW = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
SQS = {
    "without a signature": {},
    "with something else": {"authorization": "Bearer x"},
    "with a key id that is not known": {"authorization": authorization("AKIDOTHER"), "x-amz-date": NOW},
    "with an old date": {"authorization": authorization(day="20200101"), "x-amz-date": "20200101T000000Z"},
    "with no date": {"authorization": authorization()},
    "for another region": {"authorization": authorization(region="eu-west-1"), "x-amz-date": NOW},
    "with a header that is not there": {"authorization": authorization(names="host;x-none"), "x-amz-date": NOW},
}


def status_of(running: Running, method: str, path: str, headers: dict[str, str]) -> int:
    """Send the head of a request with a large body, and nothing of that body; return the status of the answer."""
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", f"content-length: {LENGTH}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    with running.client() as client:
        client.send("\r\n".join([*lines, "", ""]).encode())
        answer = client.answer()
        assert answer.headers["connection"] == "close"
        return answer.status


@pytest.mark.parametrize("path", ["/", "/000000000000/orders"])
@pytest.mark.parametrize("target", ["AmazonSQS.SendMessage", ""])
@pytest.mark.parametrize("headers", SQS.values(), ids=SQS.keys())
def test_sqs_refuses_a_stranger_before_its_body(
    running: Running, headers: dict[str, str], target: str, path: str
) -> None:
    headers = headers | ({"x-amz-target": target} if target else {})

    assert status_of(running, "POST", path, headers) in {400, 403}


@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}], ids=["without a key", "with a wrong key"])
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_rest_refuses_a_stranger_before_its_body(
    running: Running, operation: Operation, headers: dict[str, str]
) -> None:
    path = operation.path.replace("{", "").replace("}", "")

    assert status_of(running, operation.method, path, headers) == 401


@pytest.mark.parametrize(("method", "path"), [("POST", "/nowhere"), ("PUT", "/api/queues/a/messages"), ("PUT", "/")])
def test_what_leads_nowhere_is_refused_before_its_body(running: Running, method: str, path: str) -> None:
    assert status_of(running, method, path, {}) in {404, 405}
