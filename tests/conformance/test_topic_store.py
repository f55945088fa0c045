"""What every store of topics does, in a folder and in PostgreSQL."""

import asyncio
from dataclasses import replace

import pytest

from penstock.broker.topics import FetchOne, Topics
from penstock.contract.topic_settings import BadTopicSettings, TopicSettings
from penstock.log.interface import OffsetOutOfRange
from penstock.log.record import header as read_header
from penstock.streams.interface import (
    ACKS_LEADER,
    BadTopicName,
    PartitionNotFound,
    PartitionsCannotShrink,
    TopicExists,
    TopicNotFound,
)
from penstock.streams.produce_checks import CorruptBatch, KeylessRecord, MessageTooLarge
from penstock.streams.producer_state import OutOfOrderSequence, ProducerFenced
from tests.conformance.topics import TopicStage, bodies, every_engine, read
from tests.simulation.clock import EPOCH_MS
from tests.streams.small import HOUR_MS, TINY, Pair, Read, Sender, batch, read_all, values
from tests.waiting import let_others_run

LAG_MS = 60_000
COMPACTED = replace(
    TINY, is_compacted=True, is_deleted=False, tombstone_ms=HOUR_MS, compaction_lag_ms_max=LAG_MS, ahead_ms_max=None
)
FETCH = [FetchOne("events", 0, 0, 1_000_000)]


@every_engine
async def test_records_come_back_as_they_were_sent_with_dense_offsets(stage: TopicStage) -> None:
    first = await stage.topics.produce("events", 0, values(b"a", b"b"))
    second = await stage.topics.produce("events", 0, values(b"c", codec="lz4"))
    assert (first.base_offset, second.base_offset, second.is_duplicate) == (0, 2, False)
    assert [(each.offset, each.value) for each in await read(stage.topics)] == [(0, b"a"), (1, b"b"), (2, b"c")]
    assert stage.topics.ends("events", 0) == (0, 3)


@every_engine
async def test_what_one_server_takes_another_one_serves(stage: TopicStage) -> None:
    await stage.topics.produce("events", 0, values(b"a"))
    assert (await stage.beside.produce("events", 0, values(b"b"))).base_offset == 1
    assert await bodies(stage.topics) == await bodies(stage.beside) == [b"a", b"b"]


@every_engine
async def test_an_acknowledged_record_is_there_after_a_crash(stage: TopicStage) -> None:
    for number in range(5):
        await stage.topics.produce("events", 0, values(b"%d" % number))
    await stage.crash()
    assert await bodies(stage.topics) == [b"0", b"1", b"2", b"3", b"4"]
    assert (await stage.topics.produce("events", 0, values(b"5"))).base_offset == 5
    await stage.reopen()
    assert len(await bodies(stage.topics)) == 6


@every_engine
async def test_batches_have_the_order_in_which_they_were_appended(stage: TopicStage) -> None:
    begun = [stage.topics.append("events", 0, values(b"%d" % number)) for number in range(200)]
    done = [await stage.topics.settled("events", 0, each) for each in begun]
    assert [each.base_offset for each in done] == list(range(200))
    assert await bodies(stage.topics) == [b"%d" % number for number in range(200)]


@every_engine
async def test_a_batch_that_asks_for_less_safety_is_read_as_well(stage: TopicStage) -> None:
    appended = stage.topics.append("events", 0, values(b"a"), acks=ACKS_LEADER)
    assert (await stage.topics.settled("events", 0, appended)).base_offset == 0
    (found,) = await stage.topics.fetch(FETCH, bytes_max=1_000_000, wait_ms=60_000)
    assert found.high_watermark == 1


@every_engine
async def test_two_servers_that_append_at_once_leave_no_gap(stage: TopicStage) -> None:
    async def produce(topics: Topics, name: bytes) -> list[int]:
        return [(await topics.produce("events", 0, values(name))).base_offset for _ in range(30)]

    found = await asyncio.gather(produce(stage.topics, b"a"), produce(stage.beside, b"b"))
    assert sorted(found[0] + found[1]) == list(range(60))
    read_back = await bodies(stage.topics)
    assert [read_back[offset] for offset in found[0]] == [b"a"] * 30


@every_engine
async def test_a_batch_sent_twice_is_there_once_also_at_another_server(stage: TopicStage) -> None:
    me = Sender(id=7)
    sent = [values(b"%d" % number, sender=me, sequence=number) for number in range(6)]
    for each in sent:
        await stage.topics.produce("events", 0, each)
    repeated = await stage.beside.produce("events", 0, sent[4])
    assert (repeated.base_offset, repeated.is_duplicate) == (4, True)
    with pytest.raises(OutOfOrderSequence):
        await stage.beside.produce("events", 0, values(b"9", sender=me, sequence=9))
    # Only the last five are known.
    with pytest.raises(OutOfOrderSequence):
        await stage.topics.produce("events", 0, sent[0])
    assert len(await bodies(stage.topics)) == 6


@every_engine
async def test_a_producer_that_was_replaced_is_refused(stage: TopicStage) -> None:
    await stage.topics.produce("events", 0, values(b"a", sender=Sender(id=7), sequence=0))
    newer = Sender(id=7, epoch=1)
    with pytest.raises(OutOfOrderSequence):
        await stage.topics.produce("events", 0, values(b"b", sender=newer, sequence=1))
    await stage.topics.produce("events", 0, values(b"b", sender=newer, sequence=0))
    with pytest.raises(ProducerFenced):
        await stage.topics.produce("events", 0, values(b"c", sender=Sender(id=7), sequence=1))


@every_engine
async def test_producer_ids_are_given_out_once(stage: TopicStage) -> None:
    ids = [await topics.streams.new_producer() for topics in (stage.topics, stage.beside) for _ in range(3)]
    first = await stage.beside.streams.new_producers(10)
    await stage.crash()
    ids += [first, first + 9, await stage.topics.streams.new_producer()]
    assert len(set(ids)) == 9
    assert min(ids) >= 0


@every_engine
async def test_a_bad_batch_is_refused_and_changes_nothing(stage: TopicStage) -> None:
    good = values(b"a")
    with pytest.raises(CorruptBatch):
        await stage.topics.produce("events", 0, good[:-1] + b"\xff")
    await stage.topics.streams.create("small", TopicSettings(message_bytes_max=80))
    with pytest.raises(MessageTooLarge):
        await stage.topics.produce("small", 0, values(bytes(100)))
    with pytest.raises(PartitionNotFound):
        await stage.topics.produce("events", 1, good)
    with pytest.raises(TopicNotFound):
        await stage.topics.produce("nowhere", 0, good)
    assert stage.topics.ends("events", 0) == (0, 0)


@every_engine
async def test_a_fetch_that_waits_is_woken_by_any_server(stage: TopicStage) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(stage.topics.fetch(FETCH, bytes_max=1_000_000, wait_ms=600_000))
        await let_others_run()
        await stage.beside.produce("events", 0, values(b"a"))
    (found,) = waiting.result()
    assert found.high_watermark == 1
    assert found.size_bytes


@every_engine
async def test_a_fetch_begins_with_the_batch_that_holds_its_offset(stage: TopicStage) -> None:
    await stage.topics.produce("events", 0, values(b"a", b"b", b"c"))
    await stage.topics.produce("events", 0, values(b"d"))
    for topics in (stage.topics, stage.beside):
        (found,) = await topics.fetch([FetchOne("events", 0, 1, 1)], bytes_max=1)
        assert [read_header(batch).base_offset for batch in found.batches] == [0]
        (found,) = await topics.fetch([FetchOne("events", 0, 1, 10_000)], bytes_max=10_000)
        assert [read_header(batch).base_offset for batch in found.batches] == [0, 3]
    (beyond,) = await stage.topics.fetch([FetchOne("events", 0, 5, 1)], bytes_max=1)
    assert isinstance(beyond.error, OffsetOutOfRange)


@every_engine
async def test_offsets_are_found_by_time(stage: TopicStage) -> None:
    times = [EPOCH_MS, EPOCH_MS + 10, EPOCH_MS + 5, EPOCH_MS + 20]
    for number, at_ms in enumerate(times):
        await stage.topics.produce("events", 0, values(b"%d" % number, at_ms=at_ms))
    await stage.beside.look([("events", 0)])
    assert await stage.beside.offset_at("events", 0, EPOCH_MS + 1) == (1, EPOCH_MS + 10)
    assert await stage.beside.offset_at("events", 0, EPOCH_MS + 11) == (3, EPOCH_MS + 20)
    assert await stage.beside.offset_at("events", 0, EPOCH_MS + 21) is None
    assert await stage.beside.max_timestamp("events", 0) == (3, EPOCH_MS + 20)


@every_engine
async def test_what_is_trimmed_is_not_read_again(stage: TopicStage) -> None:
    for number in range(4):
        await stage.topics.produce("events", 0, values(b"%d" % number))
    assert await stage.beside.streams.trim("events", 0, 2) == 2
    await stage.look_after()
    (gone,) = await stage.topics.fetch(FETCH, bytes_max=1_000)
    assert isinstance(gone.error, OffsetOutOfRange)
    assert await bodies(stage.topics, 2) == [b"2", b"3"]
    with pytest.raises(OffsetOutOfRange):
        await stage.topics.streams.trim("events", 0, 5)
    await stage.crash()
    await stage.topics.look([("events", 0)])
    assert stage.topics.ends("events", 0) == (2, 4)
    assert await stage.topics.streams.trim("events", 0, -1) == 4
    assert (await stage.topics.produce("events", 0, values(b"4"))).base_offset == 4


@every_engine
async def test_records_go_when_they_are_too_old_and_offsets_stay_used_up(stage: TopicStage) -> None:
    await stage.topics.streams.change("events", replace(TINY, retention_ms=HOUR_MS, ahead_ms_max=None))
    for number in range(10):
        await stage.topics.produce("events", 0, values(bytes(400), b"%d" % number))
    await stage.look_after()
    assert stage.topics.earliest("events", 0) == 0
    stage.advance(2 * HOUR_MS)
    await stage.look_after()
    await stage.look_after()
    await stage.topics.look([("events", 0)])
    assert stage.topics.ends("events", 0) == (20, 20)
    assert (await stage.topics.produce("events", 0, values(b"later"))).base_offset == 20


@every_engine
async def test_a_partition_that_is_too_large_loses_its_oldest_records(stage: TopicStage) -> None:
    await stage.topics.streams.change("events", replace(TINY, retention_ms=None, retention_bytes=4_000))
    for number in range(30):
        await stage.topics.produce("events", 0, values(b"%d" % number + bytes(300)))
    await stage.look_after()
    await stage.beside.look([("events", 0)])
    start, end = stage.beside.ends("events", 0) or (0, 0)
    assert end == 30
    assert 15 <= start <= 22


@every_engine
async def test_topics_are_made_changed_and_deleted_for_every_server(stage: TopicStage) -> None:
    made = await stage.topics.streams.create("orders", TopicSettings(partitions=2))
    await stage.beside.refresh()
    assert [topic.name for topic in stage.beside.list()] == ["events", "orders"]
    assert stage.beside.streams.find_by_id(made.id).number == made.number
    await stage.beside.streams.grow("orders", 3)
    await stage.beside.streams.change("orders", TopicSettings(partitions=3, retention_ms=5))
    await stage.topics.refresh()
    assert stage.topics.streams.find("orders").settings.retention_ms == 5
    await stage.topics.produce("orders", 2, values(b"a"))
    await stage.topics.streams.delete("orders")
    with pytest.raises(TopicNotFound):
        await stage.beside.produce("orders", 2, values(b"b"))
    again = await stage.beside.streams.create("orders")
    assert again.number > made.number
    assert again.id != made.id
    await stage.look_after()
    await stage.reopen()
    assert await read(stage.topics, topic="orders") == []


@every_engine
async def test_a_topic_that_cannot_be_is_refused_for_what_it_is(stage: TopicStage) -> None:
    wanted = [
        ("new.one", TopicSettings()),
        ("new_one", TopicSettings()),
        ("events", TopicSettings()),
        ("!", TopicSettings()),
    ]
    made = await stage.beside.streams.create_all(wanted)
    assert [type(each) for each in made[1:]] == [TopicExists, TopicExists, BadTopicName]
    with pytest.raises(PartitionsCannotShrink):
        await stage.topics.streams.grow("events", 1)
    with pytest.raises(BadTopicSettings):
        await stage.topics.streams.change("events", TopicSettings(partitions=2))
    with pytest.raises(TopicNotFound):
        await stage.topics.streams.delete("nowhere")
    await stage.topics.refresh()
    assert [topic.name for topic in stage.topics.list()] == ["events", "new.one"]


@every_engine
async def test_a_fetch_that_waits_ends_with_its_topic(stage: TopicStage) -> None:
    async with asyncio.TaskGroup() as tasks:
        waiting = tasks.create_task(stage.topics.fetch(FETCH, bytes_max=1_000, wait_ms=600_000))
        await let_others_run()
        await stage.topics.streams.delete("events")
    (found,) = waiting.result()
    assert isinstance(found.error, TopicNotFound)


@every_engine
async def test_of_a_compacted_topic_the_last_record_of_each_key_stays_at_its_offset(stage: TopicStage) -> None:
    await stage.topics.streams.change("events", COMPACTED)
    me, history = Sender(id=7), [(b"%d" % (number % 7), b"%d" % number + bytes(40)) for number in range(90)]
    for at in range(0, 90, 3):
        sent = batch(*history[at : at + 3], codec="lz4", sender=me, sequence=at)
        await stage.topics.produce("events", 0, sent)
    assert len(await everything(stage.beside)) == 90
    await compact(stage)
    found = await everything(stage.beside)
    assert [(each.offset, each.key, each.value) for each in found] == [
        (offset, *history[offset]) for offset in range(83, 90)
    ]
    for start in range(91):
        assert [each.offset for each in await everything(stage.beside, start=start)] == list(range(max(start, 83), 90))
    assert stage.topics.ends("events", 0) == (0, 90)
    # What is known of producers stays.
    assert (await stage.beside.produce("events", 0, sent)).is_duplicate
    more = await stage.beside.produce("events", 0, batch((b"0", b"next"), sender=me, sequence=90))
    assert (more.base_offset, more.is_duplicate) == (90, False)
    await stage.crash()
    assert [each.offset for each in await everything(stage.topics)] == [*range(83, 91)]


@every_engine
async def test_what_was_compacted_is_compacted_again_with_what_came_after(stage: TopicStage) -> None:
    await stage.topics.streams.change("events", COMPACTED)
    history: list[Pair] = []
    for turn in range(4):
        for number in range(12):
            pairs: list[Pair] = [(b"%d" % (number % (3 + turn)), b"%d" % turn), (b"k%d" % number, None)]
            history += pairs
            await stage.topics.produce("events", 0, batch(*pairs))
        await compact(stage)
        newest = {key: (offset, value) for offset, (key, value) in enumerate(history)}
        for topics in (stage.topics, stage.beside):
            found = await everything(topics)
            assert {each.key: (each.offset, each.value) for each in found} == newest
            assert len(found) == len(newest)


@every_engine
async def test_the_latest_time_is_that_of_a_record_that_compaction_left(stage: TopicStage) -> None:
    await stage.topics.streams.change("events", COMPACTED)
    await stage.topics.produce("events", 0, batch((b"k", b"1"), (b"l", b"1"), at_ms=[EPOCH_MS + 50, EPOCH_MS + 10]))
    await stage.topics.produce("events", 0, batch((b"k", b"2"), at_ms=EPOCH_MS + 20))
    assert await stage.topics.max_timestamp("events", 0) == (0, EPOCH_MS + 50)
    stage.advance(50)
    await compact(stage)
    assert [each.offset for each in await everything(stage.beside)] == [1, 2]
    assert await stage.beside.max_timestamp("events", 0) == (2, EPOCH_MS + 20)
    assert await stage.beside.offset_at("events", 0, EPOCH_MS + 1) == (1, EPOCH_MS + 10)


@every_engine
async def test_a_tombstone_deletes_its_key_and_goes_after_its_time_for_every_server(stage: TopicStage) -> None:
    await stage.topics.streams.change("events", COMPACTED)
    for pair in ((b"gone", b"v"), (b"kept", b"v"), (b"gone", None)):
        await stage.topics.produce("events", 0, batch(pair))
    assert len(await everything(stage.beside)) == 3
    await compact(stage)
    assert [(each.offset, each.key) for each in await everything(stage.beside)] == [(1, b"kept"), (2, b"gone")]
    # Its time begins with the first cleaning that saw it, so that every reader can see it.
    await stage.topics.produce("events", 0, batch((b"other", b"v")))
    await compact(stage)
    assert [each.offset for each in await everything(stage.beside)] == [1, 2, 3]
    stage.advance(HOUR_MS)
    await stage.topics.produce("events", 0, batch((b"other", b"v")))
    await compact(stage)
    assert [each.offset for each in await everything(stage.beside)] == [1, 4]


@every_engine
async def test_records_younger_than_the_least_lag_are_not_compacted(stage: TopicStage) -> None:
    lags = replace(COMPACTED, compaction_lag_ms_min=2 * LAG_MS, compaction_lag_ms_max=2 * LAG_MS)
    await stage.topics.streams.change("events", lags)
    for body in (b"1", b"2"):
        await stage.topics.produce("events", 0, batch((b"k", body)))
    await compact(stage)
    assert len(await everything(stage.topics)) == 2
    stage.advance(LAG_MS)
    await compact(stage)
    assert [each.value for each in await everything(stage.topics)] == [b"2"]


@every_engine
async def test_records_without_a_key_go_when_their_topic_becomes_compacted(stage: TopicStage) -> None:
    await stage.topics.produce("events", 0, batch((None, b"a"), (b"k", b"b"), (None, b"c"), (b"l", b"d")))
    await stage.topics.produce("events", 0, values(b"e"))
    await stage.topics.streams.change("events", COMPACTED)
    with pytest.raises(KeylessRecord):
        await stage.topics.produce("events", 0, values(b"f"))
    await compact(stage)
    assert [(each.offset, each.value) for each in await everything(stage.topics)] == [(1, b"b"), (3, b"d")]


async def compact(stage: TopicStage) -> None:
    """Let so much time pass that an engine with segments closes the last one."""
    stage.advance(LAG_MS + 1)
    await stage.look_after()


async def everything(topics: Topics, start: int | None = None) -> list[Read]:
    await topics.look([("events", 0)])
    return await read_all(topics, start=start)
