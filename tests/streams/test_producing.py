"""What a producer sends is stored as it came, or refused before anything has changed."""

import struct
from dataclasses import replace

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker.topics import Topics
from penstock.contract.topic_settings import TopicSettings
from penstock.log import record
from penstock.log.interface import LogFull
from penstock.log.record import header as read_header
from penstock.streams import compression
from penstock.streams.compression import UnpackedTooLarge, UnsupportedCodec, entries, unpacked
from penstock.streams.produce_checks import (
    BadTimestamp,
    CorruptBatch,
    InvalidRecord,
    KeylessRecord,
    MessageTooLarge,
    TransactionsUnsupported,
    check_batch,
)
from tests.simulation.clock import EPOCH_MS
from tests.simulation.disk import SimDisk
from tests.simulation.world import Died, Machine
from tests.streams.small import (
    CODECS,
    FOLDER,
    HOUR_MS,
    SMALL,
    TINY,
    Sender,
    batch,
    bodies,
    in_folder,
    open_topics,
    read_all,
    running,
    values,
)

PLAIN = TopicSettings()
COMPACTED = TopicSettings(is_compacted=True)
REFUSALS = (
    CorruptBatch,
    InvalidRecord,
    MessageTooLarge,
    BadTimestamp,
    TransactionsUnsupported,
    UnsupportedCodec,
    UnpackedTooLarge,
)


def changed(good: bytes, layout: str, position: int, value: int) -> bytes:
    """Return a batch with a field written over and a CRC that is right for it."""
    bad = bytearray(good)
    struct.pack_into(layout, bad, position, value)
    struct.pack_into(">I", bad, 17, crc32c(memoryview(bad)[21:]))
    return bytes(bad)


async def test_batches_get_the_next_offsets_and_are_stored_as_they_came(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        first = await topics.produce("events", 0, values(b"a", b"b"))
        sent = values(b"c", codec="gzip")
        second = await topics.produce("events", 0, sent)
        assert (first.base_offset, second.base_offset, second.appended_at_ms) == (0, 2, -1)
        partition = in_folder(topics).find("events").partitions[0]
        (_, stored) = await partition.read(0, bytes_max=10_000)
        assert bytes(stored[16:]) == sent[16:]
        assert read_header(stored).base_offset == 2


@pytest.mark.parametrize("codec", CODECS)
async def test_every_codec_passes_through_to_the_consumer(codec: str, machine: Machine) -> None:
    records = [(b"key %d" % number, b"value " * 40) for number in range(20)]
    for settings in (PLAIN, COMPACTED):
        sent = batch(*records, codec=codec)
        assert check_batch(sent, settings, EPOCH_MS).record_count == 20
    async with running(machine) as topics:
        await topics.streams.create("events", COMPACTED)
        await topics.produce("events", 0, sent)
        assert [(each.key, each.value) for each in await read_all(topics)] == records


async def test_what_a_producer_was_told_survives_a_power_cut(machine: Machine) -> None:
    runtime = machine.start()

    async def live() -> None:
        topics = await open_topics(runtime, FOLDER, SMALL)
        await topics.streams.create("events", TINY)
        await topics.produce("events", 0, values(b"told"))
        topics.append("events", 0, values(b"not told"))
        machine.power_cut(lambda _path, _page: False)

    with pytest.raises(Died):
        await machine.run(live())
    async with running(machine) as topics:
        assert await bodies(topics) == [b"told"]


async def test_an_answer_that_waits_for_nothing_comes_before_the_disk(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        produced = await topics.produce("events", 0, values(b"a"), waits=False)
        assert produced.base_offset == 0
        assert topics.latest("events", 0) == 0
        await topics.produce("events", 0, values(b"b"))
        assert await bodies(topics) == [b"a", b"b"]


async def test_too_much_for_the_disk_makes_a_producer_wait_and_is_not_lost(machine: Machine) -> None:
    settings = replace(SMALL, partition_log=replace(SMALL.partition_log, backlog_bytes_max=300))
    async with running(machine, settings) as topics:
        await topics.streams.create("events", TINY)
        for number in range(20):
            await topics.produce("events", 0, values(b"%d" % number + bytes(100)), waits=False)
        await topics.produce("events", 0, values(b"last"))
        assert len(await bodies(topics)) == 21


async def test_a_full_disk_refuses_records_and_goes_on_serving_them() -> None:
    machine = Machine(disk=SimDisk(capacity_bytes=1_200_000))
    async with running(machine) as topics:
        await topics.streams.create("events", TopicSettings())
        count = 0
        while not await _is_full(topics):
            count += 1
        assert count > 3
        assert len(await bodies(topics)) == count
        machine.disk.capacity_bytes = None
        assert (await topics.produce("events", 0, values(b"again"))).base_offset == count


async def _is_full(topics: Topics) -> bool:
    try:
        await topics.produce("events", 0, values(bytes(50_000)))
    except LogFull:
        return True
    return False


async def test_records_have_the_time_of_their_arrival_where_the_topic_says_so(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, has_append_time=True))
        machine.clock.advance_ms(5_000)
        sent = batch((b"k", b"v"), (b"k", b"w"), at_ms=[1_000, 2_000], codec="lz4")
        produced = await topics.produce("events", 0, sent)
        found = await read_all(topics)
        assert {each.at_ms for each in found} == {produced.appended_at_ms}
        assert produced.appended_at_ms >= EPOCH_MS + 5_000
        assert [each.value for each in found] == [b"v", b"w"]
        assert bytes(sent) == batch((b"k", b"v"), (b"k", b"w"), at_ms=[1_000, 2_000], codec="lz4")


@pytest.mark.parametrize("wanted", CODECS)
async def test_records_are_packed_as_the_topic_wants_them(wanted: str, machine: Machine) -> None:
    records = [(b"key %d" % number, b"value " * 40) for number in range(20)]
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, codec=CODECS[wanted]))
        for sequence, codec in enumerate(CODECS):
            await topics.produce("events", 0, batch(*records, codec=codec, sender=Sender(), sequence=20 * sequence))
        again = batch(*records, codec="gzip", sender=Sender(), sequence=20)
        assert (await topics.produce("events", 0, again)).base_offset == 20
        stored = await in_folder(topics).find("events").partitions[0].read(0, bytes_max=1 << 20)
        assert {read_header(each).attributes for each in stored} == {CODECS[wanted]}
        assert [(each.key, each.value) for each in await read_all(topics)] == records * len(CODECS)


async def test_what_is_too_large_only_when_it_is_packed_again_is_refused(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", replace(TINY, codec=0, message_bytes_max=500))
        with pytest.raises(MessageTooLarge):
            await topics.produce("events", 0, values(bytes(1_000), codec="gzip"))
        assert (await topics.produce("events", 0, values(b"small", codec="gzip"))).base_offset == 0


@pytest.mark.parametrize("codec", ["none", "zstd"])
async def test_a_batch_that_does_not_say_its_latest_time_is_given_it(codec: str, machine: Machine) -> None:
    silent = changed(values(b"a", b"b", b"c", at_ms=[5_000, 9_000, 7_000], codec=codec), ">q", 35, -1)
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        await topics.produce("events", 0, silent)
        assert [each.at_ms for each in await read_all(topics)] == [5_000, 9_000, 7_000]
        assert await topics.max_timestamp("events", 0) == (1, 9_000)
        ahead = changed(values(b"a", at_ms=EPOCH_MS + 2 * HOUR_MS, codec=codec), ">q", 35, -1)
        with pytest.raises(BadTimestamp):
            await topics.produce("events", 0, ahead)


def test_a_latest_time_beyond_all_numbers_is_refused() -> None:
    timeless = replace(PLAIN, ahead_ms_max=None)
    apart = changed(values(b"a", b"b", at_ms=[0, 2**62]), ">q", 35, -1)
    assert check_batch(apart, timeless, EPOCH_MS).record_count == 2
    with pytest.raises(BadTimestamp):
        check_batch(changed(apart, ">q", 27, 2**63 - 1), timeless, EPOCH_MS)


# What is refused.


def test_a_batch_larger_than_the_topic_takes_is_refused_by_its_size_alone() -> None:
    with pytest.raises(MessageTooLarge, match="message_bytes_max is 100"):
        check_batch(bytes(101), replace(PLAIN, message_bytes_max=100), EPOCH_MS)


def test_a_damaged_batch_is_refused_whichever_bit_it_is() -> None:
    good = values(b"some value")
    check_batch(good, PLAIN, EPOCH_MS)
    # What the CRC does not cover, base offset and leader epoch, is written over anyway.
    for position in (*range(8, 12), *range(16, len(good))):
        for bit in range(8):
            bad = bytearray(good)
            bad[position] ^= 1 << bit
            with pytest.raises((CorruptBatch, InvalidRecord)):
                check_batch(bad, PLAIN, EPOCH_MS)


def test_a_batch_cut_short_anywhere_is_refused() -> None:
    good = values(b"some value")
    for size in range(len(good)):
        with pytest.raises(CorruptBatch):
            check_batch(good[:size], PLAIN, EPOCH_MS)


def test_two_batches_at_once_for_one_partition_are_refused() -> None:
    with pytest.raises(InvalidRecord, match="more than one"):
        check_batch(values(b"a") + values(b"b"), PLAIN, EPOCH_MS)


def test_a_transaction_is_refused_by_its_name() -> None:
    with pytest.raises(TransactionsUnsupported):
        check_batch(values(b"a", sender=Sender(), is_transactional=True), PLAIN, EPOCH_MS)
    with pytest.raises(TransactionsUnsupported):
        check_batch(changed(values(b"a"), ">h", 21, 0x20), PLAIN, EPOCH_MS)


@pytest.mark.parametrize("attribute", [record.MARKER_ATTRIBUTE, record.HOLE_ATTRIBUTE, record.THINNED_ATTRIBUTE, 0x40])
def test_no_producer_can_send_what_only_the_log_may_write(attribute: int) -> None:
    with pytest.raises(InvalidRecord):
        check_batch(changed(values(b"a"), ">h", 21, attribute), PLAIN, EPOCH_MS)


@pytest.mark.parametrize(("field", "value"), [(23, 5), (23, -1), (57, 0), (57, 2), (57, -1), (57, 2**31 - 1)])
def test_counts_and_offset_deltas_must_agree(field: int, value: int) -> None:
    with pytest.raises(InvalidRecord):
        check_batch(changed(values(b"a"), ">i", field, value), PLAIN, EPOCH_MS)


def test_an_unknown_codec_is_refused_as_such() -> None:
    for codec in (5, 6, 7):
        with pytest.raises(UnsupportedCodec):
            check_batch(changed(values(b"a"), ">h", 21, codec), PLAIN, EPOCH_MS)


def test_a_time_in_the_far_future_would_keep_a_segment_for_ever_and_is_refused() -> None:
    ahead = values(b"a", at_ms=EPOCH_MS + 2 * HOUR_MS)
    with pytest.raises(BadTimestamp):
        check_batch(ahead, PLAIN, EPOCH_MS)
    check_batch(ahead, replace(PLAIN, ahead_ms_max=None), EPOCH_MS)
    check_batch(ahead, replace(PLAIN, has_append_time=True), EPOCH_MS)
    with pytest.raises(BadTimestamp):
        check_batch(changed(values(b"a"), ">q", 35, -5), PLAIN, EPOCH_MS)
    with pytest.raises(BadTimestamp):
        check_batch(changed(values(b"a"), ">h", 21, 0x08), PLAIN, EPOCH_MS)


def test_a_compacted_topic_takes_no_record_without_a_key() -> None:
    for codec in CODECS:
        with pytest.raises(KeylessRecord):
            check_batch(batch((b"k", b"v"), (None, b"w"), codec=codec), COMPACTED, EPOCH_MS)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_bomb_is_not_unpacked(codec: str) -> None:
    """A gigabyte would be made of a megabyte; a bound of a megabyte is not exceeded."""
    packed = compression.pack(CODECS[codec], bytes(64 << 20))
    bomb = bytearray(record.seal([bytes(packed)], count=1, at_ms=EPOCH_MS, attributes=CODECS[codec]))
    settings = replace(PLAIN, unpacked_bytes_max=1 << 20, message_bytes_max=16 << 20)
    with pytest.raises(UnpackedTooLarge):
        check_batch(bomb, settings, EPOCH_MS)


@given(
    codec=st.integers(0, 4),
    parts=st.lists(st.tuples(st.binary(min_size=1, max_size=20), st.integers(1, 20_000)), max_size=8),
)
def test_what_is_packed_again_can_be_unpacked_by_the_library(codec: int, parts: list[tuple[bytes, int]]) -> None:
    records = b"".join(part * times for part, times in parts)[:300_000] or b"x"
    packed = compression.pack(codec, records)
    assert bytes(compression.unpack(codec, packed, bytes_max=1 << 20) if codec else packed) == records
    if codec == compression.LZ4:
        assert bytes(cramjam.lz4.decompress(packed)) == records


def test_lz4_is_packed_in_blocks_that_java_reads() -> None:
    """The header says so: version 1, independent blocks, and a right checksum, which the library looks at."""
    packed = compression.pack(compression.LZ4, bytes(200_000))
    assert packed[:7].hex() == "04224d18604082"
    for wrong in (b"\x60\x40\x83", b"\x60\x50\x82"):
        with pytest.raises(compression.BadlyPacked):
            compression.unpack(compression.LZ4, packed[:4] + wrong + packed[7:], bytes_max=1 << 20)


def test_zstandard_that_asks_for_a_giant_window_is_refused() -> None:
    for front in (b"\x28\xb5\x2f\xfd\x00\xf8", b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little")):
        with pytest.raises(UnpackedTooLarge):
            compression.unpack(compression.ZSTD, front + bytes(20), bytes_max=1 << 20)


@given(codec=st.integers(1, 4), packed=st.binary(max_size=300), settings=st.sampled_from([PLAIN, COMPACTED]))
def test_packed_garbage_is_refused_and_nothing_else(codec: int, packed: bytes, settings: TopicSettings) -> None:
    sealed = record.seal([packed], count=3, at_ms=EPOCH_MS, attributes=codec)
    try:
        check_batch(sealed, settings, EPOCH_MS)
    except REFUSALS:
        return
    records = compression.unpack(codec, packed, bytes_max=PLAIN.unpacked_bytes_max)
    assert len(records) <= PLAIN.unpacked_bytes_max


@given(position=st.integers(21, 200), value=st.integers(0, 255), codec=st.sampled_from(sorted(CODECS)))
def test_whatever_a_producer_makes_of_its_records_is_refused_or_readable(position: int, value: int, codec: str) -> None:
    """The CRC is the producer's own: it can be right for anything."""
    good = batch((b"key one", b"value" * 5), (b"key two", None), (b"", b""), codec=codec)
    bad = changed(good, ">B", position % len(good), value) if position % len(good) >= 21 else good
    try:
        header = check_batch(bad, COMPACTED, EPOCH_MS)
    except REFUSALS:
        return
    found = list(entries(unpacked(bad, header, bytes_max=1 << 20), header.record_count))
    assert len(found) == header.record_count
    assert all(entry.key is not None for entry in found)


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_a_batch(data: bytes) -> None:
    with pytest.raises(REFUSALS):
        check_batch(data, PLAIN, EPOCH_MS)
