"""Every version that ApiVersions names is answered, whatever is in the request; every other one ends the connection."""

import ast
import io
import re
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from aiokafka.protocol import admin, commit
from kio.schema.errors import ErrorCode

from penstock.api.kafka.wire.schema import OFFERED, Api
from tests.acceptance.processes import ROOT
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.librdkafka import create
from tests.kafka.messages import decoded, request_type, response_type, some_messages, versions_of

# Stands for the topic of a test.
NAME = "the-topic"


def some_requests(key: int, version: int) -> list[Any]:
    """Return requests with anything in them, but none that waits for minutes, or for which there is no answer."""
    found = some_messages(request_type(key, version), 3)
    if key == Api.PRODUCE:
        found = [replace(each, acks=-1) for each in found]
    if key == Api.FETCH:
        found = [replace(each, max_wait=timedelta(0)) for each in found]
    if key == Api.JOIN_GROUP:
        found = [replace(each, member_id="nobody") for each in found]
    return found


@pytest.mark.parametrize("key", OFFERED)
def test_every_version_that_is_offered_is_answered(broker: Broker, key: int) -> None:
    for version in versions_of(key):
        with RawClient((broker.host, broker.port)) as client:
            for each in some_requests(key, version):
                client.ask(each)
                if key == Api.SASL_AUTHENTICATE:
                    break


def asked(raw: RawClient, request: Any) -> Any:
    """Send a request of aiokafka's, and return all there is in the answer."""
    head = request.API_KEY.to_bytes(2, "big") + request.API_VERSION.to_bytes(2, "big") + bytes(4) + b"\0\1x"
    raw.send_frame(head + request.encode())
    answer = io.BytesIO(raw.frame()[4:])
    (found,) = vars(request.RESPONSE_TYPE.decode(answer)).values()
    assert not answer.read(), "bytes are left over"
    return found


OLDER_REQUESTS = [
    (admin.CreateTopicsRequest_v0, [[(NAME, 2, 1, [], [("retention.ms", "5000")])], 5_000]),
    (admin.CreateTopicsRequest_v1, [[(NAME, 2, 1, [], [("retention.ms", "5000")])], 5_000, False]),
    (admin.DeleteTopicsRequest_v0, [[NAME], 5_000]),
]


@pytest.mark.parametrize(("kind", "said"), OLDER_REQUESTS, ids=lambda each: getattr(each, "__name__", ""))
def test_versions_that_only_older_clients_speak_are_answered(raw: RawClient, topic: str, kind: Any, said: Any) -> None:
    def ask(kind: Any, said: Any) -> Any:
        return asked(raw, kind(*ast.literal_eval(repr(said).replace(NAME, topic))))

    if kind.API_KEY == Api.DELETE_TOPICS:
        ask(*OLDER_REQUESTS[0])
    assert [row[:2] for row in ask(kind, said)] == [(topic, 0)]
    repeated = (
        ErrorCode.topic_already_exists if kind.API_KEY == Api.CREATE_TOPICS else ErrorCode.unknown_topic_or_partition
    )
    assert [row[1] for row in ask(kind, said)] == [repeated]


@pytest.mark.parametrize("kind", [commit.OffsetCommitRequest_v0, commit.OffsetCommitRequest_v1])
def test_offsets_are_committed_as_older_clients_say_them(
    broker: Broker, raw: RawClient, topic: str, group: str, kind: Any
) -> None:
    create(broker.servers, topic, 2)
    row = (1, 7, -1, "note") if kind.API_VERSION else (1, 7, "note")
    who = [-1, ""] if kind.API_VERSION else []
    answered = asked(raw, kind(group, *who, [(topic, [row, (9, *row[1:])])]))
    assert answered == [(topic, [(1, 0), (9, ErrorCode.unknown_topic_or_partition)])]
    assert asked(raw, commit.OffsetFetchRequest_v1(group, [(topic, [1])])) == [(topic, [(1, 7, "note", 0)])]


def test_the_versions_that_are_offered_are_those_of_the_table(raw: RawClient) -> None:
    found = raw.ask(request(Api.API_VERSIONS, 3, client_software_name="test", client_software_version="1"))
    said = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
    assert said == {key: (offer.least, offer.most) for key, offer in OFFERED.items()}
    transactions = {24, 25, 26, 27, 28}
    assert not transactions & set(said)


def test_a_client_of_the_future_learns_which_versions_there_are(raw: RawClient) -> None:
    correlation = raw.send(
        request(Api.API_VERSIONS, 4, client_software_name="a", client_software_version="b"), version=77
    )
    frame = raw.frame()
    assert int.from_bytes(frame[:4], "big") == correlation
    found = decoded(response_type(Api.API_VERSIONS, 0), frame[4:])
    assert found.error_code == 35
    assert len(found.api_keys) == len(OFFERED)
    # And it goes on, on the same connection.
    assert raw.ask(request(Api.API_VERSIONS, 0)).error_code == 0


def test_the_reference_says_which_versions_are_offered() -> None:
    page = (ROOT / "docs" / "reference" / "kafka.md").read_text()
    said = dict(re.findall(r"^\| (\d+) \| \w+ \| (\d+–\d+) \|", page, re.MULTILINE))
    assert said == {str(int(key)): f"{offer.least}–{offer.most}" for key, offer in OFFERED.items()}


@pytest.mark.parametrize(("key", "version"), [(Api.PRODUCE, 2), (Api.METADATA, 99), (26, 0), (-1, 0), (999, 0)])
def test_what_is_not_offered_ends_the_connection_and_nothing_else(broker: Broker, key: int, version: int) -> None:
    with RawClient((broker.host, broker.port)) as client, RawClient((broker.host, broker.port)) as other:
        head = key.to_bytes(2, "big", signed=True) + version.to_bytes(2, "big")
        client.send_frame(head + b"\0\0\0\1\0\1x" + bytes(20))
        assert client.is_closed()
        assert other.ask(request(Api.API_VERSIONS, 0)).error_code == 0
