"""`penstock backup` beside a server that is used, and a server started on what it copied, by librdkafka."""

import threading
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

from tests.acceptance.test_repair_command import SEGMENT, penstock
from tests.kafka.brokers import Broker
from tests.kafka.librdkafka import WAIT_S, consumer, create, produce_all, producer, read, read_topic

PARTITIONS = 3


def keep_producing(servers: str, stopped: threading.Event) -> None:
    made = producer(servers, enable_idempotence=True)
    while not stopped.is_set():
        produce_all(made, "events", [b"later"] * 100)


def commit_what_is_read(made: Consumer, count: int) -> None:
    made.subscribe(["events"])
    read(made, count)
    made.commit(asynchronous=False)


def test_a_copy_made_under_load_is_restored_with_all_records_and_offsets_from_before(tmp_path: Path) -> None:
    before = [b"%d" % number for number in range(300)]
    with Broker(tmp_path / "old" / "data") as broker:
        create(broker.servers, "events", PARTITIONS)
        create(broker.servers, "quiet")
        produce_all(producer(broker.servers), "quiet", before)
        for partition in range(PARTITIONS):
            produce_all(producer(broker.servers), "events", before, partition=partition)
        with consumer(broker.servers) as made:
            commit_what_is_read(made, PARTITIONS * len(before))
        stopped = threading.Event()
        producing = threading.Thread(target=keep_producing, args=(broker.servers, stopped))
        producing.start()
        done = penstock("backup", tmp_path / "old" / "data", tmp_path / "new" / "data")
        stopped.set()
        producing.join()
        assert done.returncode == 0, done.stderr
    sound = penstock("repair", tmp_path / "new" / "data" / "streams")
    assert sound.returncode == 0, sound.stdout + sound.stderr

    with Broker(tmp_path / "new" / "data") as broker:
        assert [each.value() for each in read_topic(broker.servers, "quiet", len(before))] == before
        with consumer(broker.servers) as made:
            places = [TopicPartition("events", partition) for partition in range(PARTITIONS)]
            for place in made.committed(places, timeout=WAIT_S):
                assert place.offset == len(before)
                _, end = made.get_watermark_offsets(place, timeout=WAIT_S)
                assert end >= place.offset
        for partition in range(PARTITIONS):
            found = read_topic(broker.servers, "events", len(before), partition=partition)
            assert [each.value() for each in found] == before
        assert produce_all(producer(broker.servers, enable_idempotence=True), "quiet", [b"on"]) == [len(before)]


def test_damage_to_a_partition_is_found_from_the_folder_of_all_topics_and_mended_by_its_own(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        create(broker.servers, "events")
        for number in range(3):
            produce_all(producer(broker.servers), "events", [b"%d" % number])
        assert penstock("repair", tmp_path / "data" / "streams").returncode == 2, "it is in use"
        broker.stop()
    streams = tmp_path / "data" / "streams"
    segment = streams / "partitions" / "1-0" / SEGMENT
    data = bytearray(segment.read_bytes())
    data[62] ^= 1
    segment.write_bytes(data)
    found = penstock("repair", streams)
    assert found.returncode == 1
    assert "partitions/1-0" in found.stdout
    assert "catalog" not in found.stdout
    assert penstock("repair", streams, "--apply", "skip").returncode == 2
    assert penstock("repair", streams / "catalog", "--apply", "skip").returncode == 2
    assert penstock("repair", streams / "partitions" / "1-0", "--apply", "skip", "--yes").returncode == 0
    with Broker(tmp_path / "data") as broker:
        assert [each.value() for each in read_topic(broker.servers, "events", 2)] == [b"1", b"2"]
