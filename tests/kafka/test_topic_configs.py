"""Settings of topics are said again as they were set, and what is named twice in one request is not done at all."""

from datetime import timedelta
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._resource import ResourceType
from kio.schema.errors import ErrorCode

from penstock.api.kafka.wire.schema import Api
from tests.kafka.brokers import Broker, RawClient
from tests.kafka.librdkafka import WAIT_S, admin, create
from tests.kafka.messages import request_type
from tests.kafka.test_rest import ask

SET, DELETE = AlterConfigOpType.SET, AlterConfigOpType.DELETE


def described(broker: Broker, topic: str) -> dict[str, ConfigEntry]:
    made = admin(broker.servers)
    (found,) = made.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]).values()
    answer: dict[str, ConfigEntry] = found.result(WAIT_S)
    return answer


def altered(broker: Broker, topic: str, *changes: tuple[str, str, Any]) -> None:
    entries = [ConfigEntry(name, value, incremental_operation=how) for name, value, how in changes]
    made = admin(broker.servers)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    (done,) = made.incremental_alter_configs([resource]).values()
    done.result(WAIT_S)


def test_what_was_set_is_said_again_to_the_letter_and_as_set(broker: Broker, topic: str) -> None:
    said: dict[str, Any] = {
        "cleanup.policy": "delete,compact",
        "retention.ms": "604800000",
        "min.insync.replicas": "1",
        "flush.ms": "0",
        "min.compaction.lag.ms": "1000",
        "max.compaction.lag.ms": "9223372036854775807",
    }
    create(broker.servers, topic, **{name.replace(".", "_"): value for name, value in said.items()})
    found = described(broker, topic)
    assert {name: found[name].value for name in said} == said
    assert not [name for name in said if found[name].is_default]
    assert found["segment.bytes"].is_default


def test_what_is_unset_is_the_default_again(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, retention_ms="604800000", max_compaction_lag_ms="5000")
    altered(broker, topic, ("retention.ms", "", DELETE), ("max.compaction.lag.ms", "", DELETE))
    found = described(broker, topic)
    assert found["retention.ms"].is_default
    assert found["max.compaction.lag.ms"].value == str(2**63 - 1)


def test_what_rest_has_changed_since_is_not_said_in_the_old_words(broker: Broker, topic: str) -> None:
    create(broker.servers, topic, cleanup_policy="delete,compact", retention_ms="5000")
    assert ask(broker, "PATCH", f"/api/topics/{topic}", {"retention_s": 9})[0] == 200
    found = described(broker, topic)
    assert (found["retention.ms"].value, found["cleanup.policy"].value) == ("9000", "delete,compact")


@pytest.mark.parametrize("is_wanted", [True, False])
def test_synonyms_are_told_to_those_who_ask_for_them(
    raw: RawClient, broker: Broker, topic: str, is_wanted: bool
) -> None:
    create(broker.servers, topic, retention_ms="5000")
    kind = request_type(Api.DESCRIBE_CONFIGS, 4)
    of_resource = kind.__dataclass_fields__["resources"].type.__args__[0]
    wanted = of_resource(resource_type=2, resource_name=topic, configuration_keys=None)
    (found,) = raw.ask(kind(resources=(wanted,), include_synonyms=is_wanted, include_documentation=False)).results
    assert {bool(each.synonyms) for each in found.configs} == {is_wanted}


def test_lags_of_compaction_that_contradict_each_other_are_refused(broker: Broker, topic: str) -> None:
    with pytest.raises(KafkaException, match="compaction_lag_ms_max"):
        create(broker.servers, topic, min_compaction_lag_ms="2000", max_compaction_lag_ms="1000")


def test_settings_of_the_broker_are_no_matter_of_rights(broker: Broker) -> None:
    made = admin(broker.servers)
    entry = ConfigEntry("log.retention.ms", "5", incremental_operation=SET)
    (done,) = made.incremental_alter_configs(
        [ConfigResource(ResourceType.BROKER, "0", incremental_configs=[entry])]
    ).values()
    with pytest.raises(KafkaException, match="settings in a file") as caught:
        done.result(WAIT_S)
    assert caught.value.args[0].code() == KafkaError.INVALID_REQUEST


def rows(kind: Any, field: str, *made: dict[str, Any]) -> Any:
    row = kind.__dataclass_fields__[field].type.__args__[0]
    return tuple(row(**each) for each in made)


def test_a_topic_that_is_there_twice_in_one_request_is_one_row_and_nothing_is_done(
    raw: RawClient, broker: Broker, topic: str
) -> None:
    create(broker.servers, topic)
    timeout = timedelta(seconds=WAIT_S)
    kind = request_type(Api.CREATE_PARTITIONS, 3)
    twice = [{"name": topic, "count": count, "assignments": None} for count in (2, 3)]
    found = raw.ask(kind(topics=rows(kind, "topics", *twice), timeout=timeout, validate_only=False))
    assert [(each.name, each.error_code) for each in found.results] == [(topic, ErrorCode.invalid_request)]
    kind = request_type(Api.DELETE_TOPICS, 6)
    topic_id = bytes.fromhex(ask(broker, "GET", f"/api/topics/{topic}")[1]["topic_id"].replace("-", ""))
    by_both: list[dict[str, Any]] = [{"name": topic, "topic_id": None}, {"name": None, "topic_id": uuid(topic_id)}]
    for named in ([by_both[0]] * 2, by_both):
        found = raw.ask(kind(topics=rows(kind, "topics", *named), timeout=timeout))
        assert [(each.name, each.error_code) for each in found.responses] == [(topic, ErrorCode.invalid_request)]
    kind = request_type(Api.CREATE_TOPICS, 7)
    new = {"name": f"{topic}-new", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": ()}
    found = raw.ask(kind(topics=rows(kind, "topics", new, new), timeout=timeout, validate_only=False))
    assert [(each.name, each.error_code) for each in found.topics] == [(f"{topic}-new", ErrorCode.invalid_request)]
    status, view = ask(broker, "GET", f"/api/topics/{topic}")
    assert (status, view["partition_count"]) == (200, 1)
    assert ask(broker, "GET", f"/api/topics/{topic}-new")[0] == 404


def uuid(data: bytes) -> Any:
    from uuid import UUID

    return UUID(bytes=data)
