"""What a stranger may do to a server: cost it a connection, and nothing else."""

from pathlib import Path
from random import Random

import pytest
from kio.schema.metadata.v5.request import MetadataRequestTopic
from kio.schema.types import TopicName

from penstock.api.kafka.wire.schema import OFFERED, Api
from tests.kafka.brokers import Broker, RawClient, request
from tests.kafka.messages import encoded
from tests.last_words import end_speech


def is_well(broker: Broker) -> bool:
    with RawClient((broker.host, broker.port)) as client:
        return int(client.ask(request(Api.METADATA, 5, topics=(), allow_auto_topic_creation=False)).controller_id) == 0


@pytest.mark.parametrize(
    "said",
    [
        b"\x7f\xff\xff\xff",
        b"\xff\xff\xff\xff",
        b"\x80\x00\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01",
        b"\0\0\0\0",
        b"\0\0\0\4\0\x12\0\0",
        # A compact array of four thousand million topics.
        b"\0\0\0\x14\0\3\0\x0c\0\0\0\1\0\1x\0" + b"\xff\xff\xff\xff\x0f" + b"\0\0\0",
        b"\0\0\0\x0f\0\3\0\5\0\0\0\1\0\1x\x7f\xff\xff\xff",
    ],
)
def test_what_is_no_request_ends_the_connection(broker: Broker, said: bytes) -> None:
    with RawClient((broker.host, broker.port)) as client:
        client.socket.sendall(said)
        assert client.is_closed()
    assert is_well(broker)


def test_random_bytes_behind_good_headers_do_no_harm(broker: Broker) -> None:
    dice = Random(1)
    for _ in range(150):
        key = dice.choice([*OFFERED])
        version = dice.randrange(OFFERED[key].least, OFFERED[key].most + 1)
        with RawClient((broker.host, broker.port)) as client:
            head = key.to_bytes(2, "big") + version.to_bytes(2, "big") + b"\0\0\0\1\0\1x"
            client.send_frame(head + dice.randbytes(dice.choice([0, 1, 5, 40, 400])))
            end_speech(client.socket)
    assert is_well(broker)
    assert "kafka.failed" not in broker.notes


def test_answers_come_in_the_order_of_the_requests(raw: RawClient) -> None:
    asked = [raw.send(request(Api.METADATA, version, topics=())) for version in (1, 2, 3) * 30]
    assert [int.from_bytes(raw.frame()[:4], "big") for _ in asked] == asked


def send_for_ever(client: RawClient, frame: bytes) -> None:
    while True:
        client.send_frame(frame)


def test_a_client_that_does_not_read_is_not_read_either(broker: Broker, topic: str) -> None:
    names = tuple(MetadataRequestTopic(name=TopicName(f"{topic}-none-{number}")) for number in range(200))
    asking = encoded(request(Api.METADATA, 5, topics=names, allow_auto_topic_creation=False))
    frame = b"\0\3\0\5\0\0\0\1\0\1x" + asking
    with RawClient((broker.host, broker.port)) as client:
        client.socket.settimeout(1.0)
        with pytest.raises(TimeoutError):
            send_for_ever(client, frame)
        assert is_well(broker)


def test_an_announced_frame_that_never_comes_costs_little(broker: Broker) -> None:
    assert broker.process is not None
    clients = [RawClient((broker.host, broker.port)) for _ in range(40)]
    try:
        before = memory_kib(broker)
        for client in clients:
            client.socket.sendall((16 * 1024 * 1024).to_bytes(4, "big") + b"x")
        # Answered after the frames that arrived before it were looked at.
        assert is_well(broker)
        assert memory_kib(broker) - before < 40 * 1024
    finally:
        for client in clients:
            client.socket.close()


def memory_kib(broker: Broker) -> int:
    assert broker.process is not None
    status = Path(f"/proc/{broker.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmRSS:"))
