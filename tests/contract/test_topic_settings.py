"""The table of the settings of a topic: each has a meaning, and one name in REST and in Kafka."""

from typing import Any

import pytest

from penstock.api.kafka.configs import CONFIGS
from penstock.api.rest.errors import problem_of
from penstock.contract.topic_settings import TOPIC_SETTINGS, BadTopicSettings, TopicSettings, as_said, from_said
from penstock.streams.compression import NONE, ZSTD


def refusal(name: str, value: int) -> BadTopicSettings:
    given: dict[str, Any] = {name: value}
    with pytest.raises(BadTopicSettings) as refused:
        TopicSettings(**given)
    return refused.value


@pytest.mark.parametrize("name", TOPIC_SETTINGS)
def test_every_setting_of_a_topic_has_a_meaning(name: str) -> None:
    assert TOPIC_SETTINGS[name].help.endswith(".")


@pytest.mark.parametrize("name", [name for name, setting in TOPIC_SETTINGS.items() if setting.said])
def test_an_error_names_a_setting_of_a_topic_as_rest_does(name: str) -> None:
    setting = TOPIC_SETTINGS[name]
    found = problem_of(refusal(name, setting.most + 1))
    assert found is not None
    assert (found.code, found.field) == ("bad_field", setting.said)
    assert found.detail.startswith(f"{setting.said} is {setting.most + 1}; it must be from {setting.least} to")


def test_kafka_has_every_number_by_its_name_there() -> None:
    said = {setting.kafka for setting in TOPIC_SETTINGS.values()} - {""}
    assert said <= CONFIGS.keys()
    assert list(CONFIGS) == sorted(CONFIGS)
    assert CONFIGS["retention.ms"].said(TopicSettings(retention_ms=None)) == "-1"
    assert CONFIGS["retention.ms"].meant("-1") == {"retention_ms": None}
    assert CONFIGS["segment.bytes"].meant("1024") == {"segment_bytes": 1024}


def test_packing_knows_every_codec_that_may_be_set() -> None:
    for codec in range(NONE, ZSTD + 1):
        TopicSettings(codec=codec)
    assert refusal("codec", ZSTD + 1).field == "codec"


def test_kafka_says_a_number_that_has_words_by_its_word() -> None:
    assert CONFIGS["compression.type"].said(TopicSettings(codec=None)) == "producer"
    assert CONFIGS["compression.type"].meant("zstd") == {"codec": ZSTD}
    assert CONFIGS["message.timestamp.type"].meant("LogAppendTime") == {"has_append_time": True}
    assert CONFIGS["min.cleanable.dirty.ratio"].meant("0.5") == {"dirty_percent_max": 50}
    with pytest.raises(ValueError, match="must be producer, uncompressed, gzip, snappy, lz4 or zstd"):
        CONFIGS["compression.type"].meant("rar")
    with pytest.raises(ValueError, match="must be CreateTime or LogAppendTime"):
        CONFIGS["message.timestamp.type"].meant("Never")


def test_what_rest_says_of_a_topic_means_the_same_settings_again() -> None:
    settings = TopicSettings(partitions=3, retention_ms=1_500, retention_bytes=None, is_compacted=True)
    assert TopicSettings(**from_said(as_said(settings))) == settings
    assert from_said({}) == {}
