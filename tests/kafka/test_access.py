"""Keys, roles and TLS for Kafka clients: the same keys as for REST, by SASL."""

import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v4 import request as fetch_v4
from kio.schema.metadata.v4 import request as metadata_v4
from kio.schema.types import TopicName

from penstock.api.kafka.wire.schema import Api
from penstock.broker import api_keys
from penstock.broker.access import Grant, Role
from penstock.broker.api_keys import NewKey, change_file, create_key, revoke_key
from tests.certificates import make_certificate
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.librdkafka import WAIT_S, admin, consumer, create, produce_all, producer, read, read_topic
from tests.kafka.messages import request_type
from tests.waiting import wait_until


class Locked:
    """A server with TLS and three keys."""

    def __init__(self, broker: Broker, keys: Path, authority: str) -> None:
        self.broker = broker
        self.path = keys
        self._authority = authority
        self.made = {
            name: create_key(keys, name, grants, queues_max=None, created_at="2026-01-01T00:00:00Z")
            for name, grants in GRANTS.items()
        }

    def login(self, name: str, **more: Any) -> dict[str, Any]:
        _, text = self.made[name]
        usual = {"sasl_mechanism": "PLAIN", "sasl_username": name, "sasl_password": text}
        return {"security_protocol": "SASL_SSL", "ssl_ca_location": self._authority, **usual, **more}


GRANTS = {
    "boss": [Grant(Role.ADMIN, "*")],
    "writer": [Grant(Role.WRITE, "open-*")],
    "reader": [Grant(Role.READ, "*")],
    "sender": [Grant(Role.SEND, "*")],
    "receiver": [Grant(Role.RECEIVE, "*")],
}


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Locked]:
    folder = tmp_path_factory.mktemp("locked")
    cert, key = map(str, make_certificate(folder))
    (folder / "data").mkdir()
    broker = Broker(folder / "data", "--tls-cert", cert, "--tls-key", key)
    found = Locked(broker, folder / "data" / "keys.json", cert)
    with broker:
        yield found


def error_of(call: Any) -> int:
    with pytest.raises(KafkaException) as caught:
        call()
    return int(caught.value.args[0].code())


def test_a_client_with_a_key_may_do_what_its_role_allows(locked: Locked, topic: str) -> None:
    servers = locked.broker.servers
    create(servers, f"open-{topic}", login=locked.login("boss"))
    assert produce_all(producer(servers, **locked.login("writer")), f"open-{topic}", [b"mine"]) == [0]
    assert [each.value() for each in read_topic(servers, f"open-{topic}", 1, **locked.login("reader"))] == [b"mine"]


@pytest.mark.parametrize("user", ["name", "id"])
def test_a_client_proves_its_key_without_saying_it(locked: Locked, user: str) -> None:
    name = "reader" if user == "name" else locked.made["reader"][0].id
    settings = locked.login("reader", sasl_mechanism="SCRAM-SHA-256", sasl_username=name)
    made = admin(locked.broker.servers, **settings)
    assert made.list_topics(timeout=WAIT_S).cluster_id == "penstock"


def test_megabytes_come_through_tls_as_they_were(locked: Locked, topic: str) -> None:
    servers, login = locked.broker.servers, locked.login("boss")
    create(servers, topic, login=login)
    dice = Random(1)
    values = [dice.randbytes(dice.choice([10, 1_000, 200_000])) for _ in range(150)]
    assert produce_all(producer(servers, linger_ms=50, **login), topic, values) == list(range(150))
    assert [each.value() for each in read_topic(servers, topic, 150, **login)] == values


def test_a_client_may_not_do_what_its_role_does_not_allow(locked: Locked, topic: str) -> None:
    servers = locked.broker.servers
    create(servers, topic, login=locked.login("boss"))
    errors: list[Any] = []
    made = producer(servers, **locked.login("reader"))
    made.produce(topic, b"no", on_delivery=lambda error, _: errors.append(error and error.code()))
    assert made.flush(WAIT_S) == 0
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    assert error_of(lambda: create(servers, "other", login=locked.login("writer"))) == 29
    assert topic not in admin(servers, **locked.login("writer")).list_topics(timeout=WAIT_S).topics


def test_a_sender_produces_and_a_receiver_consumes_and_neither_does_the_other(
    locked: Locked, topic: str, group: str
) -> None:
    servers = locked.broker.servers
    create(servers, topic, login=locked.login("boss"))
    assert produce_all(producer(servers, **locked.login("sender")), topic, [b"mine"]) == [0]
    with consumer(servers, group, **locked.login("receiver")) as reader:
        reader.subscribe([topic])
        assert [each.value() for each in read(reader, 1)] == [b"mine"]
        reader.commit(asynchronous=False)
    errors: list[Any] = []
    made = producer(servers, **locked.login("receiver"))
    made.produce(topic, b"no", on_delivery=lambda error, _: errors.append(error and error.code()))
    assert made.flush(WAIT_S) == 0
    assert errors == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
    with consumer(servers, group, **locked.login("sender")) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        found = reader.poll(WAIT_S)
        error = None if found is None else found.error()
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def ask_for_ever(client: Any) -> None:
    while True:
        client.list_topics(timeout=0.5)


def test_a_wrong_key_or_user_is_refused_and_told_so(locked: Locked) -> None:
    wrong = {"sasl_password": "pk_000000000000_" + "x" * 43}
    for more in (wrong, {"sasl_username": "somebody"}, {**wrong, "sasl_mechanism": "SCRAM-SHA-256"}):
        errors: list[int] = []
        settings = locked.login("boss", log_connection_close=False, **more)
        made = admin(locked.broker.servers, error_cb=lambda error, seen=errors: seen.append(error.code()), **settings)

        def is_told(made: Any = made, errors: list[int] = errors) -> bool:
            with pytest.raises(KafkaException):
                made.list_topics(timeout=1)
            made.poll(0)
            return KafkaError._AUTHENTICATION in errors

        # It says so when it has spoken to the server, which takes its time on a busy machine.
        wait_until(is_told, within_s=WAIT_S)


def test_a_revoked_key_is_cut_off_at_its_next_request(locked: Locked) -> None:
    key, _ = create_key(
        locked.path, "guest", [Grant(Role.READ, "*")], queues_max=None, created_at="2026-01-01T00:00:00Z"
    )
    locked.made["guest"] = (key, _)
    settings = locked.login("guest", log_connection_close=False, sasl_username=key.id)
    made = None
    for _attempt in range(15):
        # The server looks at its keys every second.
        made = admin(locked.broker.servers, **settings)
        try:
            made.list_topics(timeout=4)
            break
        except KafkaException:
            made = None
    assert made is not None
    revoke_key(locked.path, key.id)
    with pytest.raises(KafkaException):
        ask_for_ever(made)


def fetch_for_minutes() -> Any:
    part: Any = fetch_v4.FetchPartition
    asked: Any = request_type(Api.FETCH, 4)
    partition = part(partition=0, fetch_offset=0, partition_max_bytes=1_000)
    topics = (fetch_v4.FetchTopic(topic=TopicName("events"), partitions=(partition,)),)
    return asked(max_wait=timedelta(minutes=5), min_bytes=1, max_bytes=1_000, isolation_level=0, topics=topics)


def test_a_fetch_that_waits_ends_when_an_open_server_gets_its_first_key_and_when_that_is_revoked(
    tmp_path: Path,
) -> None:
    keys = tmp_path / "data" / "keys.json"
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, "events")
        with RawClient((broker.host, broker.port)) as client:
            client.send(fetch_for_minutes())
            key, text = create_key(keys, "only", GRANTS["boss"], queues_max=None, created_at="2026-01-01T00:00:00Z")
            assert client.is_closed()
        with RawClient((broker.host, broker.port)) as client:
            client.ask(request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN"))
            assert client.ask(request(Api.SASL_AUTHENTICATE, 0, auth_bytes=f"\0only\0{text}".encode())).error_code == 0
            client.send(fetch_for_minutes())
            revoke_key(keys, key.id)
            assert client.is_closed()


def limited(path: Path, **limits: Any) -> tuple[str, str]:
    wanted = NewKey(name="limited", grants=(Grant(Role.ADMIN, "*"),), **limits)
    done = change_file(path, lambda found: api_keys.create(found, wanted, created_at=""))
    return done.key.id, done.text


def logged_in(client: RawClient, text: str) -> None:
    client.ask(request(Api.SASL_HANDSHAKE, 1, mechanism="PLAIN"))
    said = f"\0limited\0{text}".encode()
    assert client.ask(request(Api.SASL_AUTHENTICATE, 0, auth_bytes=said)).error_code == 0


def test_topics_made_through_kafka_count_for_what_a_key_may_have(tmp_path: Path) -> None:
    _, text = limited(tmp_path / "data" / "keys.json", queues_max=1)
    with Broker(tmp_path / "data") as broker, RawClient((broker.host, broker.port)) as client:
        logged_in(client, text)

        def asked_for(name: str) -> int:
            topics = (metadata_v4.MetadataRequestTopic(name=TopicName(name)),)
            answer = client.ask(request(Api.METADATA, 4, topics=topics, allow_auto_topic_creation=True))
            return int(answer.topics[0].error_code)

        assert [asked_for("one"), asked_for("two"), asked_for("one")] == [0, ErrorCode.policy_violation, 0]
        login = {"sasl_mechanism": "PLAIN", "sasl_username": "limited", "sasl_password": text}
        with pytest.raises(KafkaException) as caught:
            create(broker.servers, "three", login={"security_protocol": "SASL_PLAINTEXT", **login})
        assert caught.value.args[0].code() == KafkaError.POLICY_VIOLATION


def test_a_kafka_client_that_goes_too_fast_is_told_so_and_made_to_wait(tmp_path: Path) -> None:
    _, text = limited(tmp_path / "data" / "keys.json", bytes_per_s=5)
    asked = request(Api.METADATA, 4, topics=(), allow_auto_topic_creation=False)
    with Broker(tmp_path / "data") as broker, RawClient((broker.host, broker.port)) as client:
        logged_in(client, text)
        first = client.ask(asked)
        heard_at = time.monotonic()
        assert first.throttle_time > timedelta(0)
        client.ask(asked)
        # A part of it may have passed before the answer was read here.
        assert time.monotonic() - heard_at >= first.throttle_time.total_seconds() / 2


def test_a_stranger_is_told_versions_and_nothing_else(tmp_path: Path) -> None:
    keys = tmp_path / "data" / "keys.json"
    create_key(keys, "only", GRANTS["boss"], queues_max=None, created_at="2026-01-01T00:00:00Z")
    with Broker(tmp_path / "data") as broker:
        with RawClient((broker.host, broker.port)) as client:
            assert client.ask(request(Api.API_VERSIONS, 0)).error_code == 0
            assert client.ask(request(Api.SASL_HANDSHAKE, 1, mechanism="GSSAPI")).error_code == 33
            client.send(request(Api.METADATA, 1, topics=None))
            assert client.is_closed()
        with RawClient((broker.host, broker.port)) as client:
            client.socket.sendall((1_000_000).to_bytes(4, "big"))
            assert client.is_closed()
