"""The rows of streams: what librdkafka produces by its C interface is read again, all of it."""

from pathlib import Path

import pytest

from bench import librdkafka, streams

pytestmark = pytest.mark.real_time


def test_as_many_messages_are_read_as_were_produced(tmp_path: Path) -> None:
    with streams.kafka_server(tmp_path) as (server, address):
        streams.create(address, 3)
        sent = streams.produce(address, 0.1)
        assert sent > 0
        assert streams.consume(address, 3, sent) == sent
        assert server.cpu().total_s > 0


def test_a_setting_that_librdkafka_does_not_know_is_said_by_name() -> None:
    with pytest.raises(librdkafka.ClientFailed, match=r"no\.such-setting"):
        librdkafka.Producer({"no.such-setting": 1}, "bench")
