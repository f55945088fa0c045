"""Record batches over REST: what is sent twice is there once, and what cannot be told is refused."""

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.api.rest.errors import Refused
from penstock.api.rest.records import _split
from penstock.api.rest.request import BATCHES_TYPE
from penstock.log.record import Producer, encode
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import create, produce_all, producer, read_topic

AT_MS = 1_700_000_000_000


def batch(*values: bytes, producer_id: int = -1, epoch: int = 0, sequence: int = 0, at_ms: int = AT_MS) -> bytes:
    sender = Producer(producer_id, epoch, sequence) if producer_id >= 0 else Producer()
    return bytes(encode([(None, value) for value in values], at_ms=at_ms, producer=sender))


def post(broker: Broker, path: str, body: bytes, kind: str = BATCHES_TYPE) -> tuple[int, Any]:
    request = Request(f"{broker.url}/api/topics/{path}", body, {"content-type": kind}, method="POST")
    try:
        with urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def new_producers(broker: Broker, topic: str, count: int = 1) -> dict[str, Any]:
    status, found = post(broker, f"{topic}/producers", b'{"count": %d}' % count, "application/json")
    assert status == 201
    return dict(found)


@pytest.fixture
def events(broker: Broker, topic: str) -> str:
    create(broker.servers, topic, 3, max_message_bytes="2000", retention_ms="-1")
    return topic


def test_a_batch_that_is_sent_again_is_answered_with_its_first_offset(broker: Broker, events: str) -> None:
    produce_all(producer(broker.servers), events, [b"before"], partition=2)
    given = new_producers(broker, events)
    assert (given["partition_count"], given["max_message_bytes"], given["producer_epoch"]) == (3, 2000, 0)
    who = given["producer_id"]
    body = batch(b"a", b"b", producer_id=who) + batch(b"c", producer_id=who)

    first = post(broker, f"{events}/records?partitions=2,0", body)
    again = post(broker, f"{events}/records?partitions=2,0&repeat=true", body)
    following = post(broker, f"{events}/records?partitions=2", batch(b"d", producer_id=who, sequence=2))

    rows = [{"partition": 2, "offset": 1}, {"partition": 0, "offset": 0}]
    assert first == (201, {"batches": [row | {"duplicate": False} for row in rows]})
    assert again == (201, {"batches": [row | {"duplicate": True} for row in rows]})
    assert following[1]["batches"][0]["offset"] == 3
    found = read_topic(broker.servers, events, 4, partition=2)
    assert [each.value() for each in found] == [b"before", b"a", b"b", b"d"]


def test_producer_ids_are_given_out_once(broker: Broker, events: str) -> None:
    block = new_producers(broker, events, 2**32)
    after = new_producers(broker, events)

    assert block["count"] == 2**32
    assert after["producer_id"] >= block["producer_id"] + 2**32
    assert post(broker, f"{events}/producers", b'{"count": 0}', "application/json")[1]["field"] == "count"


def test_what_a_producer_may_not_send_is_refused_with_the_field(broker: Broker, events: str) -> None:
    who = new_producers(broker, events)["producer_id"]
    assert post(broker, f"{events}/records?partitions=1", batch(b"a", producer_id=who, epoch=1))[0] == 201
    good = batch(b"new", producer_id=who)
    for bad, code, field in (
        (batch(b"x", producer_id=who, epoch=1, sequence=7), "out_of_order_sequence", ".base_sequence"),
        (batch(b"x", producer_id=who, epoch=0), "producer_fenced", ".producer_epoch"),
        (batch(b"x", producer_id=who + 1, sequence=1), "producer_unknown", ".producer_id"),
        (batch(b"x" * 2_000), "message_too_large", ""),
        (batch(b"x", at_ms=AT_MS * 2), "bad_field", ""),
        (good[:-1] + b"?", "bad_field", ""),
    ):
        # The batch before the bad one is good, and is not written either.
        status, found = post(broker, f"{events}/records?partitions=0,1", good + bad)
        assert (found["code"], found["field"]) == (code, f"batches[1]{field}"), found
        assert status in {400, 409, 413}
    for query, body, field in (
        ("", good, "partitions"),
        ("?partitions=0,0", good + good, "partitions"),
        ("?partitions=0,1", good, "partitions"),
        ("?partitions=0,x", good, "partitions"),
        ("?partitions=9", good, "partition"),
        ("?partitions=0", good[:-1], "batches[0]"),
        ("?partitions=0", b"", "partitions"),
    ):
        assert post(broker, f"{events}/records{query}", body)[1]["field"] == field
    assert post(broker, f"{events}/records?partitions=0", good)[1]["batches"][0]["offset"] == 0
    # Of records, each says its partition by itself.
    values = json.dumps({"records": [{"value": "x", "partition": 1}]}).encode()
    assert post(broker, f"{events}/records?partitions=0", values, "application/json")[1]["records"][0]["partition"] == 1


@given(st.binary(max_size=300))
def test_bytes_that_are_no_batches_are_refused_or_cut_without_loss(content: bytes) -> None:
    try:
        found = _split(memoryview(content))
    except Refused:
        return
    assert b"".join(found) == content
