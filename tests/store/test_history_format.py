"""A frame of the history says of each message what its settlement says, and is not taken for anything else."""

import struct
from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.history_columns import BodyState
from penstock.core.queue.settlements import Settlement
from penstock.frame import BadFrame
from penstock.runtime.interface import Buffer
from penstock.store.embedded.history_format import (
    Bodies,
    UnknownFrame,
    decode,
    encode,
    part,
    read_head,
)
from tests.store.settled import FULL, Row, body, naive, name, rows_of, settlement, settlements

NAMES = {queue: name(queue) for queue in range(10)}


def encoded(*settled: Settlement, bodies: Bodies | None = None) -> tuple[bytes, bytes]:
    return encode(settled, NAMES, covered=8, within=3, bodies=bodies)


def expected(settled: list[Settlement], *, has_bodies: bool) -> list[Row]:
    rows = [row for each in settled for row in naive([each._replace(queue=1)])]
    names = [name(each.queue) for each in settled for _ in range(each.count)]
    bodies = [b"x" * (row % 3) if has_bodies else None for row in range(len(rows))]
    return [row._replace(queue=queue, body=found) for row, queue, found in zip(rows, names, bodies, strict=True)]


def some_bodies(rows: int) -> Bodies:
    bodies: list[Buffer] = [b"x" * (row % 3) for row in range(rows)]
    return Bodies(array("B", [BodyState.KEPT] * rows), bodies, [b""] * rows)


@given(st.lists(settlements(), max_size=6), st.booleans())
def test_a_frame_has_a_row_for_each_message(settled: list[Settlement], has_bodies: bool) -> None:
    rows = sum(each.count for each in settled)
    frame = decode(*encoded(*settled, bodies=some_bodies(rows) if has_bodies else None))
    assert frame.head.rows == rows
    assert list(rows_of(frame)) == expected(settled, has_bodies=has_bodies)


@given(st.lists(settlements(), min_size=1, max_size=4))
def test_the_key_says_what_a_frame_covers_and_when_its_messages_were_settled(settled: list[Settlement]) -> None:
    head = read_head(encoded(*settled)[0])
    times = [each.settled_at_ms for each in settled]
    assert (head.covered, head.within) == (8, 3)
    assert (head.settled_from_ms, head.settled_to_ms) == (min(times), max(times))


@given(settlements(), st.data())
def test_a_part_of_a_settlement_is_a_part_of_its_rows(settled: Settlement, data: st.DataObject) -> None:
    settled = settled._replace(queue=1)
    start = data.draw(st.integers(0, settled.count - 1))
    count = data.draw(st.integers(1, settled.count - start))
    assert naive([part(settled, start, count)]) == naive([settled])[start : start + count]


def test_what_no_message_has_takes_no_space() -> None:
    plain = decode(*encoded(settlement(0, 1_000)))
    assert (plain.group, plain.error, plain.body_state, plain.body, plain.attributes, plain.key) == (None,) * 6
    assert len(encoded(settlement(0, 1_000))[1]) < 56 * 1_000


def test_a_group_or_an_error_that_repeats_is_written_once() -> None:
    same = [settlement(number, error="timed out after 30 s") for number in range(100)]
    key, value = encoded(*same, settlement(200), settlement(201, group=b"customer 7"))
    assert value.count(b"timed out after 30 s") == 1
    frame = decode(key, value)
    assert frame.error is not None
    assert frame.group is not None
    assert list(map(bytes, frame.error.words)) == [b"", b"timed out after 30 s"]
    assert frame.error.codes.tolist() == [1] * 100 + [0, 0]
    assert bytes(frame.group[101]) == b"customer 7"


def test_a_frame_names_its_queues_and_no_others() -> None:
    frame = decode(*encoded(settlement(queue=2), settlement(queue=FULL), settlement(1, queue=2)))
    assert frame.names() == {2: name(2), FULL: name(FULL)}


def test_a_frame_may_have_bodies_of_some_messages_and_attributes_of_fewer() -> None:
    states = array("B", [BodyState.KEPT, BodyState.NOT_KEPT, BodyState.TOO_LARGE, BodyState.KEPT])
    bodies = Bodies(states, [b"one", b"", b"", memoryview(b"four")], [b"", b"", b"", b"{}"])
    frame = decode(*encoded(settlement(0, 4), bodies=bodies))
    assert frame.body_state is not None
    assert frame.body is not None
    assert frame.attributes is not None
    assert frame.body_state.tolist() == [1, 0, 2, 1]
    assert list(map(bytes, frame.body)) == [b"one", b"", b"", b"four"]
    assert list(map(bytes, frame.attributes)) == [b"", b"", b"", b"{}"]


def test_a_frame_with_a_moved_message_says_where_each_was_in_the_queue_it_left() -> None:
    moved = settlement(7, 3)._replace(home=2, lane=1, number=40)
    frame = decode(*encoded(settlement(5), moved))
    assert frame.key is not None
    assert frame.key.tolist() == [5 << 3 | 2, 7 << 3 | 2, 8 << 3 | 2, 9 << 3 | 2]
    assert frame.number.tolist() == [5, 40, 41, 42]
    # Of another queue, with the very number it has here: a reader without keys may rely on it that nothing was moved.
    assert decode(*encoded(settlement(7)._replace(home=2))).key is not None


def test_a_frame_without_rows_only_covers() -> None:
    key, value = encode([], {}, covered=5, within=0)
    frame = decode(key, value)
    assert frame.head == (5, 0, 0, 0, 0)
    assert list(rows_of(frame)) == []


def test_a_frame_is_read_without_a_copy() -> None:
    key, value = encoded(settlement(0, 10, group=b"a"), bodies=some_bodies(10))
    frame = decode(key, value)
    assert frame.group is not None
    assert frame.body is not None
    views = [frame.queue, frame.number, frame.sent_at_ms, frame.group.codes, frame.group.words.data, frame.body.data]
    assert all(view.obj is value for view in views)


@pytest.mark.parametrize("size", [0, 1, 2, 7, 8, 9])
def test_messages_sent_one_by_one_keep_their_own_times(size: int) -> None:
    times = array("Q", range(100, 110)), array("q", range(1_000, 1_010))
    frame = decode(*encoded(settlement(101, 8, sent_at_ms=times)))
    assert frame.sent_at_ms.tolist() == list(range(1_001, 1_009))
    assert decode(*encoded(settlement(100 + size, 1, sent_at_ms=times))).sent_at_ms.tolist() == [1_000 + size]


def test_the_time_of_the_next_send_is_not_taken_for_that_of_the_last_message() -> None:
    times = array("Q", [100, 102]), array("q", [1_000, 2_000])
    assert decode(*encoded(settlement(100, 2, sent_at_ms=times))).sent_at_ms.tolist() == [1_000, 1_000]


@pytest.mark.parametrize("key", [None, b"", b"\x01", b"\x02\x01" + bytes(50), b"\x01\x02" + bytes(50)])
def test_an_unknown_kind_or_version_of_frame_is_refused(key: bytes | None) -> None:
    _, value = encoded(settlement())
    with pytest.raises(UnknownFrame):
        decode(key, value)
    with pytest.raises(UnknownFrame):
        read_head(key)


def test_an_unknown_flag_is_refused() -> None:
    key, value = encoded(settlement())
    with pytest.raises(UnknownFrame, match="flags"):
        decode(key[:3] + b"\x01" + key[4:], value)


def test_a_key_of_another_size_is_refused() -> None:
    key, value = encoded(settlement())
    for changed in (key[:-1], key + b"\x00"):
        with pytest.raises(BadFrame, match="key"):
            decode(changed, value)


def with_bytes(key: bytes, at: int, changed: bytes) -> bytes:
    return key[:at] + changed + key[at + len(changed) :]


@pytest.mark.parametrize(
    ("at", "changed"),
    [
        pytest.param(4, b"\x07", id="another count of rows"),
        pytest.param(2, b"\x00", id="a column that no flag speaks of"),
        pytest.param(2, b"\x03", id="a column that is missing"),
        pytest.param(40, b"\xff\xff\xff\xff", id="a table of 4 GiB"),
        pytest.param(44, b"\x00", id="a table that is missing"),
    ],
)
def test_a_key_that_does_not_fit_its_frame_is_refused(at: int, changed: bytes) -> None:
    key, value = encoded(settlement(group=b"a"))
    with pytest.raises(BadFrame):
        decode(with_bytes(key, at, changed), value)


def test_a_code_outside_its_table_is_refused() -> None:
    key, value = encoded(settlement(group=b"abc"))
    # The last column of the rows is the group's, and the tables follow it.
    at = len(value) - sum(struct.unpack("<III", key[40:])) - 8
    assert value[at : at + 4] == b"\x01\x00\x00\x00"
    for code in (b"\x02\x00\x00\x00", b"\xff\xff\xff\xff"):
        with pytest.raises(BadFrame, match="code"):
            decode(key, with_bytes(value, at, code))


def test_the_body_of_each_message_stands_in_its_row() -> None:
    numbers = range(40, 60)
    bodies = Bodies(
        array("B", [BodyState.KEPT] * 20), [body(FULL, 2, number) for number in numbers], [b""] * len(numbers)
    )
    frame = decode(*encoded(settlement(40, 20, queue=FULL), bodies=bodies))
    assert list(rows_of(frame)) == naive([settlement(40, 20, queue=FULL)])
