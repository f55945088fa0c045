"""A batch that a producer sends twice is written once, whatever happens between."""

import pytest

from penstock.contract.limits import PRODUCER_MS, PRODUCERS_MAX
from penstock.log.record import header as read_header
from penstock.streams.producer_state import (
    NAME,
    SEQUENCES,
    OutOfOrderSequence,
    ProducerFenced,
    Producers,
    ProducerUnknown,
    SnapshotDamaged,
)
from tests.simulation.clock import EPOCH_MS
from tests.simulation.world import Died, Machine
from tests.streams.small import FOLDER, SMALL, TINY, Sender, bodies, in_folder, look_after, open_topics, running, values

ALICE, BOB = Sender(7), Sender(8)
SNAPSHOT = f"{FOLDER}/partitions/1-0/{NAME}"


def sent(number: int, sender: Sender = ALICE, count: int = 1) -> bytes:
    """Return the batch of a producer that begins with its record of this number."""
    return values(*(b"%d" % each for each in range(number, number + count)), sender=sender, sequence=number % SEQUENCES)


async def test_a_batch_sent_again_is_answered_as_the_first_time(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        first = [await topics.produce("events", 0, sent(number, count=2)) for number in range(0, 10, 2)]
        again = [await topics.produce("events", 0, sent(number, count=2)) for number in range(0, 10, 2)]
        assert [each.base_offset for each in again] == [each.base_offset for each in first] == [0, 2, 4, 6, 8]
        assert [each.is_duplicate for each in first + again] == [False] * 5 + [True] * 5
        assert len(await bodies(topics)) == 10


async def test_a_duplicate_is_not_acknowledged_before_the_first_is_durable(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        topics.append("events", 0, sent(0))
        duplicate = topics.append("events", 0, sent(0))
        assert duplicate.is_duplicate
        assert topics.latest("events", 0) == 0
        await topics.settled("events", 0, duplicate)
        assert topics.latest("events", 0) == 1


async def test_a_gap_a_step_back_and_a_forgotten_batch_are_out_of_order(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        for number in range(7):
            await topics.produce("events", 0, sent(number))
        for wrong in (0, 1, 8, 100):
            with pytest.raises(OutOfOrderSequence):
                await topics.produce("events", 0, sent(wrong))
        with pytest.raises(OutOfOrderSequence):
            await topics.produce("events", 0, sent(6, count=2))
        assert (await topics.produce("events", 0, sent(2))).is_duplicate
        assert len(await bodies(topics)) == 7


async def test_a_higher_epoch_begins_at_nought_and_fences_the_lower_one(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        await topics.produce("events", 0, sent(0))
        heir = Sender(ALICE.id, epoch=1)
        with pytest.raises(OutOfOrderSequence):
            await topics.produce("events", 0, sent(1, heir))
        await topics.produce("events", 0, sent(0, heir))
        with pytest.raises(ProducerFenced):
            await topics.produce("events", 0, sent(1))
        await topics.produce("events", 0, sent(0, BOB))


async def test_partitions_and_producers_count_for_themselves(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        await topics.streams.grow("events", 2)
        for partition in (0, 1):
            for sender in (ALICE, BOB):
                assert not (await topics.produce("events", partition, sent(0, sender))).is_duplicate


def test_sequences_begin_again_after_the_largest() -> None:
    producers = Producers()
    for offset, number in enumerate(range(SEQUENCES - 3, SEQUENCES + 3, 2)):
        header = read_header(sent(number, count=2))
        assert producers.judge(header) is None
        producers.add(header, 2 * offset, appended_at_ms=-1, now_ms=0)
    # The batch in the middle had the largest number and nought.
    repeated = producers.judge(read_header(sent(SEQUENCES - 1, count=2)))
    assert repeated is not None
    assert (repeated.first_sequence, repeated.last_sequence, repeated.base_offset) == (SEQUENCES - 1, 0, 2)


@pytest.mark.parametrize("end", ["close", "kill", "power cut"])
@pytest.mark.parametrize("snapshot", ["kept", "lost", "damaged"])
async def test_a_batch_is_known_after_any_end_of_the_process(end: str, snapshot: str, machine: Machine) -> None:
    await live_and_end(machine, end)
    if snapshot == "lost":
        machine.disk.remove(SNAPSHOT)
    elif snapshot == "damaged":
        machine.disk.flip_bit(SNAPSHOT, 99)
    async with running(machine) as topics:
        for number in range(19, 24):
            repeated = await topics.produce("events", 0, sent(number))
            assert (repeated.is_duplicate, repeated.base_offset) == (True, number)
        with pytest.raises(OutOfOrderSequence):
            await topics.produce("events", 0, sent(25))
        assert not (await topics.produce("events", 0, sent(24))).is_duplicate
        assert len(await bodies(topics)) == 25


async def live_and_end(machine: Machine, end: str) -> None:
    """Send twenty-four batches, with a snapshot after twenty, and end the process."""

    async def live() -> None:
        topics = await open_topics(runtime, FOLDER, SMALL)
        await topics.streams.create("events", TINY)
        for number in range(20):
            await topics.produce("events", 0, sent(number))
        await look_after(topics)
        for number in range(20, 24):
            await topics.produce("events", 0, sent(number))
        if end == "close":
            await topics.close()
        machine.kill() if end != "power cut" else machine.power_cut(lambda _path, _page: False)

    runtime = machine.start()
    with pytest.raises(Died):
        await machine.run(live())


async def test_opening_reads_only_what_came_since_the_snapshot(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        for number in range(40):
            await topics.produce("events", 0, sent(number))
        assert len(in_folder(topics).find("events").partitions[0].log.segments) > 3
    # What is damaged is not read: else opening would fail.
    machine.disk.flip_bit(f"{FOLDER}/partitions/1-0/{0:020}.log", 8 * 100)
    async with running(machine) as topics:
        partition = in_folder(topics).find("events").partitions[0]
        assert partition.remembered_offset == 40
        assert (await topics.produce("events", 0, sent(39))).is_duplicate


async def test_a_producer_is_known_although_its_records_are_gone(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        for number in range(20):
            await topics.produce("events", 0, sent(number))
        await topics.streams.trim("events", 0, -1)
        await look_after(topics)
        assert topics.earliest("events", 0) == 20
    async with running(machine) as topics:
        assert (await topics.produce("events", 0, sent(19))).is_duplicate
        with pytest.raises(OutOfOrderSequence):
            await topics.produce("events", 0, sent(0))


async def test_a_producer_that_was_silent_for_a_day_is_forgotten_and_may_go_on(machine: Machine) -> None:
    async with running(machine) as topics:
        await topics.streams.create("events", TINY)
        await topics.produce("events", 0, sent(0))
        machine.clock.advance_ms(PRODUCER_MS // 2)
        await topics.produce("events", 0, sent(0, BOB))
        machine.clock.advance_ms(PRODUCER_MS // 2)
        await look_after(topics)
        assert len(in_folder(topics).find("events").partitions[0].producers) == 1
        assert not (await topics.produce("events", 0, sent(5))).is_duplicate


def test_of_too_many_producers_the_longest_unheard_of_is_forgotten() -> None:
    producers = Producers()
    for producer in range(PRODUCERS_MAX + 1):
        if producer == 10:
            producers.add(read_header(sent(1, Sender(0))), 99, appended_at_ms=-1, now_ms=0)
        producers.add(read_header(sent(0, Sender(producer))), producer, appended_at_ms=-1, now_ms=0)
    assert len(producers) == PRODUCERS_MAX
    assert producers.judge(read_header(sent(1, Sender(0)))) is not None
    # Number one was the longest unheard of: whatever it sends now is new.
    assert producers.judge(read_header(sent(77, Sender(1)))) is None


def test_a_snapshot_says_the_same_as_what_it_was_made_of() -> None:
    producers = Producers()
    for number in range(8):
        producers.add(read_header(sent(number)), number, appended_at_ms=EPOCH_MS, now_ms=EPOCH_MS)
    data = producers.to_bytes(8)
    offset, read = Producers.from_bytes(data)
    assert (offset, read.to_bytes(8)) == (8, data)
    assert read.judge(read_header(sent(5))) == producers.judge(read_header(sent(5)))
    for bad in (b"", data[:-1], data + b"x", b"\0" + data[1:]):
        with pytest.raises(SnapshotDamaged):
            Producers.from_bytes(bad)


def test_a_repeated_first_batch_is_refused_only_if_its_producer_may_have_had_to_go() -> None:
    known = Producers()
    first, later = read_header(sent(0)), read_header(sent(3))
    known.check_known(first, is_repeat=True)
    with pytest.raises(ProducerUnknown, match=r"producer 7 is not known.*begins with sequence 3"):
        known.check_known(later, is_repeat=False)

    known.add(first, 0, appended_at_ms=-1, now_ms=EPOCH_MS)
    known.check_known(later, is_repeat=True)
    for number in range(PRODUCERS_MAX):
        known.add(first._replace(producer_id=100 + number), 1 + number, appended_at_ms=-1, now_ms=EPOCH_MS)

    known.check_known(first, is_repeat=False)
    with pytest.raises(ProducerUnknown):
        known.check_known(first, is_repeat=True)
