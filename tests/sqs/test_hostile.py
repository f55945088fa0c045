"""Hostile input is answered with an error of the service, and never with one of ours."""

import math
from collections.abc import Callable
from typing import Any
from urllib.parse import urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.sqs import json_protocol, message_attributes, query_protocol
from penstock.api.sqs.app import ACTIONS
from penstock.api.sqs.errors import Refused
from penstock.api.sqs.receipt_handles import message_of_uuid, message_uuid, read_handle
from penstock.api.sqs.shapes import Attributes, MessageAttributeValue
from penstock.api.sqs.signature import Credentials, Signed, verify
from tests.sqs.in_process import open_sqs


def _json(value: Any) -> bytes:
    try:
        return msgspec.json.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return b"{}"


NAMES = sorted(
    {
        *("Attribute", "MessageAttribute", "Tag", "SendMessageBatchRequestEntry", "Name", "Value", "Key", "Id"),
        *("QueueUrl", "QueueName", "MessageBody", "DataType", "StringValue", "BinaryValue", "VisibilityTimeout"),
        *("AttributeName", "StringListValue", "1", "2", "0", "-1", "999999", "", "x"),
    }
)
PLAIN = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
JSON = st.recursive(
    PLAIN,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(NAMES) | st.text(), inner, max_size=4),
    max_leaves=12,
)
PATHS = st.lists(st.sampled_from(NAMES), min_size=1, max_size=10).map(".".join)
SIGNED_AT_MS = 1_767_225_600_000
SIGNATURE = {
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": "a/20260101/us-east-1/sqs/aws4_request",
    "X-Amz-Date": "20260101T000000Z",
    "X-Amz-Expires": "60",
    "X-Amz-SignedHeaders": "host",
    "X-Amz-Signature": "0" * 64,
}
XML_TEXT = st.text(
    st.characters(exclude_categories=["Cs", "Cc"], include_characters="\t\n\r", exclude_characters="\ufffe\uffff"),
    min_size=1,
    max_size=50,
)


def status_of(read: Callable[[], object]) -> int:
    """Return 200 for what can be read, or the status it is refused with; whatever else is raised fails the test."""
    try:
        read()
    except Refused as error:
        return error.kind.status
    return 200


@given(st.sampled_from(sorted(ACTIONS)), st.binary(max_size=100) | JSON.map(_json))
def test_any_bytes_are_a_request_in_json_or_refused(action: str, raw: bytes) -> None:
    assert status_of(lambda: json_protocol.decode(raw, ACTIONS[action].request)) in {200, 400}


@given(st.sampled_from(sorted(ACTIONS)), st.dictionaries(PATHS, st.text(max_size=20), max_size=20))
def test_any_fields_are_a_request_in_a_form_or_refused(action: str, fields: dict[str, str]) -> None:
    raw = urlencode(fields, errors="replace").encode()
    assert status_of(lambda: query_protocol.decode(query_protocol.read_form(raw), ACTIONS[action].request)) in {
        200,
        400,
    }


@given(st.dictionaries(st.sampled_from(sorted(SIGNATURE)), st.text(max_size=40), max_size=6))
def test_whatever_a_url_says_of_its_signature_it_is_refused_without_the_secret(said: dict[str, str]) -> None:
    request = Signed("GET", "/", urlencode(SIGNATURE | said, errors="replace"), [("host", "localhost")], b"")
    assert status_of(lambda: verify(request, Credentials("a", "b"), region="us-east-1", now_ms=SIGNED_AT_MS)) in {
        400,
        403,
    }


@given(st.binary(max_size=200))
def test_any_bytes_are_a_form_or_refused(raw: bytes) -> None:
    assert status_of(lambda: query_protocol.read_form(raw)) in {200, 400}


@given(st.text(max_size=100) | st.text("ABCabc0189-_=", min_size=52, max_size=52))
def test_any_text_is_a_handle_or_none(text: str) -> None:
    read_handle(text)


@given(st.integers(1, 2**32 - 1), st.integers(0, 2**64 - 1))
def test_the_id_of_a_message_goes_to_a_uuid_and_back(queue: int, key: int) -> None:
    found = message_uuid(f"{queue:x}-{key:x}")
    assert [len(part) for part in found.split("-")] == [8, 4, 4, 4, 12]
    assert found[14] == "8"
    assert found[19] in "89ab"
    assert message_of_uuid(found) == f"{queue:x}-{key:x}"


def attribute_values() -> st.SearchStrategy[MessageAttributeValue]:
    ending = st.just("") | st.text("abc.XYZ019", min_size=1, max_size=10).map(lambda text: f".{text}")
    numbers = st.integers().map(str) | st.decimals(allow_nan=False, allow_infinity=False).map(str)
    texts = st.builds(
        lambda end, value: MessageAttributeValue(data_type=f"String{end}", string_value=value), ending, XML_TEXT
    )
    counts = st.builds(
        lambda end, value: MessageAttributeValue(data_type=f"Number{end}", string_value=value), ending, numbers
    )
    blobs = st.builds(
        lambda end, value: MessageAttributeValue(data_type=f"Binary{end}", binary_value=value),
        ending,
        st.binary(min_size=1, max_size=50),
    )
    return texts | counts | blobs


ATTRIBUTES = st.dictionaries(st.text("abcXYZ019_-", min_size=1, max_size=20), attribute_values(), max_size=10)


@given(ATTRIBUTES, XML_TEXT | st.just(""), XML_TEXT | st.just(""))
def test_attributes_are_kept_and_recalled_exactly(attributes: Attributes, trace: str, dedup_id: str) -> None:
    try:
        message_attributes.check(attributes)
    except Refused:
        # A number too long, or with too large an exponent.
        return
    kept = message_attributes.keep(attributes, trace=trace, dedup_id=dedup_id)
    found, beside = message_attributes.recall(kept)
    assert found == attributes
    assert (beside.trace, beside.dedup_id) == (trace, dedup_id)
    plain = msgspec.json.decode(kept or b"{}")
    assert all(isinstance(value, str | int) for value in plain.values())


@given(st.dictionaries(st.text(max_size=10) | st.just("penstock.sqs"), PLAIN | st.just('{"types":{"a":"Binary"}}')))
def test_attributes_that_rest_kept_are_recalled_whatever_they_say(values: dict[str, Any]) -> None:
    plain = {name: value for name, value in values.items() if not isinstance(value, float) or math.isfinite(value)}
    try:
        kept = msgspec.json.encode(plain)
    except (OverflowError, UnicodeEncodeError):
        return
    try:
        msgspec.json.decode(kept)
    except msgspec.DecodeError:
        return
    found, _ = message_attributes.recall(kept)
    assert found.keys() == plain.keys() - {"penstock.sqs"}


@pytest.mark.parametrize(
    ("headers", "body", "status"),
    [
        ({"x-amz-target": "AmazonSQS.ListQueues"}, b"[" * 100_000, 400),
        ({"x-amz-target": "AmazonSQS.ListQueues"}, b'{"MaxResults": "1"}', 400),
        ({"x-amz-target": "AmazonSQS.ListQueues"}, b'{"QueueNamePrefix": null}', 200),
        ({"x-amz-target": "AmazonSQS.ListQueues"}, b"", 200),
        ({"x-amz-target": "AmazonSQS.ListQueues"}, b"null", 400),
        ({"x-amz-target": "AmazonSQS.ListQueues"}, b'{"QueueNamePrefix": "\xff"}', 400),
        ({"x-amz-target": "AmazonSQS.ListQueues", "content-encoding": "gzip"}, b"", 400),
        ({"x-amz-target": "AmazonSQS.ListQueues"}, b" " * 2_000, 413),
        ({"x-amz-target": "AmazonSQS.Fly"}, b"{}", 400),
        ({"x-amz-target": "DynamoDB_20120810.ListTables"}, b"{}", 400),
        ({}, b"Action=ListQueues", 200),
        ({}, b"Action=ListQueues&" + b"a=b&" * 400, 200),
        ({}, b"Action=ListQueues&" + b"a=b&" * 4_000, 400),
        ({}, b"Action=ListQueues&%ff=%ff", 400),
        ({"content-type": "text/plain"}, b"Action=ListQueues", 400),
        ({"sec-fetch-site": "cross-site"}, b"Action=ListQueues", 403),
        ({"sec-fetch-site": "same-site"}, b"Action=ListQueues", 403),
        ({"origin": "http://evil.example"}, b"Action=ListQueues", 403),
        ({"sec-fetch-site": "same-origin", "origin": "http://queues.test"}, b"Action=ListQueues", 200),
    ],
)
async def test_a_request_that_is_none_is_refused_with_a_status(
    headers: dict[str, str], body: bytes, status: int
) -> None:
    limit = 2_000 - 1 if status == 413 else 1_000_000
    async with open_sqs(request_bytes_max=limit) as sqs:
        answer = await sqs.raw("POST", "/", body, headers=headers)
        assert answer.status == status, answer
        assert ("x-amzn-query-error" in answer.headers) is (status != 200 and "x-amz-target" in headers)


async def test_a_page_of_another_site_cannot_call_by_loading_an_image() -> None:
    async with open_sqs() as sqs:
        await sqs.make()
        query = b"Action=DeleteQueue&QueueUrl=/000000000000/orders"
        answer = await sqs.raw("GET", "/", query=query, headers={"sec-fetch-site": "cross-site"})
        assert answer.status == 403
        assert (await sqs("ListQueues"))["QueueUrls"] == ["http://queues.test/000000000000/orders"]


async def test_a_host_that_is_no_name_is_not_repeated_in_an_address() -> None:
    async with open_sqs() as sqs:
        await sqs.make()
        answer = await sqs.raw("POST", "/", b"Action=ListQueues", headers={"host": 'x"><script>'})
        assert b"<QueueUrl>http://localhost/000000000000/orders</QueueUrl>" in answer.body
