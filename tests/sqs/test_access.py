"""Who may call: signatures of version 4, checked against botocore's own, and servers with keys."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest
from botocore.auth import SigV4Auth, SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials as TheirCredentials

from penstock.api.sqs.errors import Refused
from penstock.api.sqs.signature import Credentials, Signed, verify
from penstock.broker.access import Access, Grant, Role
from penstock.broker.api_keys import create_key
from penstock.settings import BadSetting, ServerSettings
from tests.server.serving import server
from tests.sqs.conftest import REGION, bodies, client_of, received
from tests.sqs.in_process import open_sqs
from tests.sqs.older import older_client
from tests.sqs.test_queues import refusal
from tests.waiting import elapse

OURS = Credentials("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
NOW_MS = 1_440_938_160_000


def signed(url: str = "http://localhost/", *, note: str = "") -> Signed:
    """A request that botocore has signed at this very moment."""
    body = b"{}"
    request = AWSRequest("POST", url, data=body, headers={"X-Amz-Target": "AmazonSQS.ListQueues", "X-Amz-Note": note})
    signer = SigV4Auth(TheirCredentials(*OURS), "sqs", REGION)
    signer.add_auth(request)
    path, _, query = url.removeprefix("http://localhost").partition("?")
    found = [(name.lower(), value) for name, value in request.headers.items()]
    return Signed("POST", path, query, [("host", "localhost"), *found], body)


def presigned(url: str = "http://localhost/?Action=ListQueues", *, expires_s: int = 3_600) -> Signed:
    """A URL that botocore has signed at this very moment."""
    request = AWSRequest("GET", url)
    SigV4QueryAuth(TheirCredentials(*OURS), "sqs", REGION, expires=expires_s).add_auth(request)
    path, _, query = request.url.removeprefix("http://localhost").partition("?")
    return Signed("GET", path, query, [("host", "localhost")], b"")


def at_ms(request: Signed) -> int:
    fields = dict(parse_qsl(request.query)) | {name.title(): value for name, value in request.headers}
    said = fields["X-Amz-Date"]
    return int(datetime.strptime(said, "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC).timestamp() * 1_000)


@pytest.mark.parametrize(
    "url", ["http://localhost/", "http://localhost/000000000000/a-b_c.fifo", "http://localhost/?b=2&a=%20x&a=1&c="]
)
def test_a_request_that_botocore_signed_is_good(url: str) -> None:
    request = signed(url)
    verify(request, OURS, region=REGION, now_ms=at_ms(request))
    spaced = signed(url, note="  a   b ")
    verify(spaced, OURS, region=REGION, now_ms=at_ms(spaced))


def test_a_request_that_was_changed_on_its_way_is_refused() -> None:
    request = signed("http://localhost/?a=1")
    others = [(name, "AmazonSQS.DeleteQueue" if name == "x-amz-target" else value) for name, value in request.headers]
    for changed in (
        request._replace(body=b"{ }"),
        request._replace(method="GET"),
        request._replace(path="/other"),
        request._replace(query="a=2"),
        request._replace(headers=others),
        request._replace(headers=[each for each in request.headers if each[0] != "x-amz-target"]),
    ):
        with pytest.raises(Refused) as found:
            verify(changed, OURS, region=REGION, now_ms=at_ms(request))
        assert found.value.kind.code == "SignatureDoesNotMatch"


def test_a_signature_is_good_for_a_quarter_of_an_hour_around_its_time() -> None:
    request = signed()
    quarter_ms = 15 * 60 * 1_000
    for now_ms in (at_ms(request) - quarter_ms, at_ms(request) + quarter_ms):
        verify(request, OURS, region=REGION, now_ms=now_ms)
    for now_ms in (at_ms(request) - quarter_ms - 1, at_ms(request) + quarter_ms + 1):
        with pytest.raises(Refused, match="Signature expired"):
            verify(request, OURS, region=REGION, now_ms=now_ms)


def test_a_url_that_botocore_signed_is_good_for_as_long_as_it_says() -> None:
    request = presigned(
        "http://localhost/000000000000/a.fifo?Action=DeleteMessage&ReceiptHandle=a%2Bb%20c", expires_s=60
    )
    quarter_ms = 15 * 60 * 1_000
    for now_ms in (at_ms(request) - quarter_ms, at_ms(request) + 60_000):
        verify(request, OURS, region=REGION, now_ms=now_ms)
    for now_ms in (at_ms(request) - quarter_ms - 1, at_ms(request) + 60_001):
        with pytest.raises(Refused, match="Signature expired"):
            verify(request, OURS, region=REGION, now_ms=now_ms)


def test_a_signed_url_can_be_used_as_it_is_and_not_otherwise() -> None:
    request = presigned()
    for changed in (
        request._replace(query=request.query.replace("ListQueues", "DeleteQueue")),
        request._replace(query=f"{request.query}&QueueNamePrefix=a"),
        request._replace(query=request.query.replace("X-Amz-Expires=3600", "X-Amz-Expires=9999")),
        request._replace(method="POST"),
        request._replace(body=b"Action=DeleteQueue"),
        request._replace(headers=[*request.headers, ("x-amz-target", "AmazonSQS.DeleteQueue")]),
    ):
        with pytest.raises(Refused) as found:
            verify(changed, OURS, region=REGION, now_ms=at_ms(request))
        assert found.value.kind.code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        ("X-Amz-Expires=3600", "X-Amz-Expires=604801"),
        ("X-Amz-Expires=3600", "X-Amz-Expires=0"),
        ("X-Amz-Expires=3600", "Other=1"),
        ("AWS4-HMAC-SHA256", "AWS4-HMAC-MD5"),
        ("X-Amz-SignedHeaders=host", "X-Amz-SignedHeaders="),
        ("X-Amz-Date=", "X-Amz-Day="),
    ],
)
def test_a_url_whose_signature_is_not_whole_is_told_so(part: str, instead: str) -> None:
    request = presigned()
    changed = request._replace(query=request.query.replace(part, instead))
    assert changed != request
    with pytest.raises(Refused) as found:
        verify(changed, OURS, region=REGION, now_ms=at_ms(request))
    assert found.value.kind.code == "IncompleteSignature"


def test_a_signature_by_another_key_or_for_another_region_is_refused() -> None:
    request = signed()
    for credentials, region, code in (
        (Credentials("AKIDEXAMPLE", "another"), REGION, "SignatureDoesNotMatch"),
        (Credentials("ANOTHER", OURS.secret), REGION, "InvalidClientTokenId"),
        (OURS, "eu-central-1", "SignatureDoesNotMatch"),
    ):
        with pytest.raises(Refused) as found:
            verify(request, credentials, region=region, now_ms=at_ms(request))
        assert found.value.kind.code == code


@pytest.mark.parametrize(
    ("header", "code"),
    [
        (None, "MissingAuthenticationToken"),
        ("", "IncompleteSignature"),
        ("Bearer pk_0", "IncompleteSignature"),
        ("AWS4-HMAC-SHA256 Credential=a, SignedHeaders=b, Signature=c", "IncompleteSignature"),
    ],
)
def test_a_header_that_is_no_signature_is_told_from_none(header: str | None, code: str) -> None:
    headers = [("host", "localhost")] + ([] if header is None else [("authorization", header)])
    with pytest.raises(Refused) as found:
        verify(Signed("POST", "/", "", headers, b""), OURS, region=REGION, now_ms=NOW_MS)
    assert found.value.kind.code == code


def test_what_is_not_signed_does_not_make_a_signature_good() -> None:
    request = signed()
    fields = dict(request.headers)
    without_host = fields["authorization"].replace("SignedHeaders=host;", "SignedHeaders=")
    headers = [*((fields | {"authorization": without_host}).items())]
    with pytest.raises(Refused, match="must be signed"):
        verify(request._replace(headers=headers), OURS, region=REGION, now_ms=at_ms(request))


def test_a_header_that_names_the_action_cannot_be_added_to_a_signed_request() -> None:
    request = AWSRequest("POST", "http://localhost/", data=b"{}")
    SigV4Auth(TheirCredentials(*OURS), "sqs", REGION).add_auth(request)
    headers = [("host", "localhost"), *((name.lower(), value) for name, value in request.headers.items())]
    plain = Signed("POST", "/", "", headers, b"{}")
    verify(plain, OURS, region=REGION, now_ms=at_ms(plain))
    added = plain._replace(headers=[*headers, ("x-amz-target", "AmazonSQS.PurgeQueue")])
    with pytest.raises(Refused, match="X-Amz-Target"):
        verify(added, OURS, region=REGION, now_ms=at_ms(plain))


def test_a_server_with_credentials_serves_those_who_sign_with_them(tmp_path: Path) -> None:
    settings = ServerSettings(
        port=0,
        store="memory:",
        data=tmp_path,
        sqs=True,
        sqs_account="123456789012",
        sqs_region="eu-central-1",
        sqs_access_key_id=OURS.key_id,
        sqs_secret_access_key=OURS.secret,
    )
    good: dict[str, Any] = {
        "aws_access_key_id": OURS.key_id,
        "aws_secret_access_key": OURS.secret,
        "region_name": "eu-central-1",
    }
    with server(settings) as running:
        client = client_of(running.url, **good)
        url = client.create_queue(QueueName="orders")["QueueUrl"]
        assert url == f"{running.url}/123456789012/orders"
        client.send_message(QueueUrl=url, MessageBody="größe")
        older = older_client(running.url, tmp_path / "model", **good)
        assert bodies(received(older, url)) == ["größe"]
        arn = client.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        assert arn == "arn:aws:sqs:eu-central-1:123456789012:orders"
        stranger = client_of(running.url, **(good | {"aws_secret_access_key": "guess"}))
        assert refusal(stranger.list_queues)[0::2] == ("SignatureDoesNotMatch", 403)
        for each in (client, older, stranger):
            each.close()


async def test_a_server_with_keys_refuses_sqs_without_credentials() -> None:
    async with open_sqs(access=Access(())) as sqs:
        assert await sqs.refused("ListQueues") == "MissingAuthenticationToken"


async def test_a_long_poll_ends_when_an_open_server_gets_its_first_key() -> None:
    access = Access.open()
    async with open_sqs(access=access) as sqs:
        url = await sqs.make()
        async with asyncio.TaskGroup() as tasks:
            poll = tasks.create_task(sqs.refused("ReceiveMessage", QueueUrl=url, WaitTimeSeconds=20))
            await elapse(1)
            assert sqs.queues.waiting.count == 1
            access.replace(())
            before_ms = sqs.queues.now_ms()
        assert poll.result() == "MissingAuthenticationToken"
        assert sqs.queues.now_ms() - before_ms < 5_000


def test_a_server_with_keys_and_no_credentials_starts_and_says_why_it_refuses_sqs(tmp_path: Path) -> None:
    settings = ServerSettings(port=0, data=tmp_path)
    with server(settings) as running:
        client = client_of(running.url)
        assert "QueueUrls" not in client.list_queues(), "SQS is on unless it is switched off"
        client.close()
    create_key(settings.keys_path, "a", [Grant(Role.ADMIN, "*")], queues_max=None, created_at="")
    with server(settings) as running:
        client = client_of(running.url)
        code, message, status = refusal(client.list_queues)
        assert (code, status) == ("MissingAuthenticationToken", 403)
        assert "sqs_access_key_id" in message
        client.close()


def test_a_server_that_is_told_not_to_does_not_speak_sqs(tmp_path: Path) -> None:
    with server(ServerSettings(port=0, data=tmp_path, sqs=False)) as running, running.client() as client:
        answer = client.ask("POST", "/", {}, x_amz_target="AmazonSQS.ListQueues")
        assert answer.status in {404, 405}
        assert "x-amzn-requestid" not in answer.headers


def test_settings_of_sqs_that_cannot_be_are_refused() -> None:
    for bad in (
        {"sqs_account": "12345"},
        {"sqs_account": "abcdefghijkl"},
        {"sqs_region": "Moon Base"},
        {"sqs_access_key_id": "a"},
        {"sqs_secret_access_key": "a"},
    ):
        with pytest.raises(BadSetting, match=next(iter(bad))):
            ServerSettings(**bad)  # type: ignore[arg-type]
