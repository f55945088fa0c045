"""Frames come back as they went in, are never copied, and never trusted."""

import tracemalloc
from array import array
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frame import BadFrame, Blobs, Column, pack, pack_bytes_and_blobs, unpack

CODES = "bBhHiIqQ"


def numbers(code: str, rows: int) -> st.SearchStrategy[Column]:
    bits = array(code).itemsize * 8
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if code.islower() else (0, (1 << bits) - 1)
    return st.lists(st.integers(low, high), min_size=rows, max_size=rows).map(lambda found: array(code, found))


def blobs(rows: int) -> st.SearchStrategy[Column]:
    return st.lists(st.binary(max_size=20), min_size=rows, max_size=rows).map(Blobs.of)


@st.composite
def frames(draw: st.DrawFn) -> list[Column]:
    rows = draw(st.integers(0, 9))
    kinds = draw(st.lists(st.sampled_from(CODES + "*"), max_size=5))
    return [draw(blobs(rows) if kind == "*" else numbers(kind, rows)) for kind in kinds]


def contents(columns: Sequence[Column]) -> list[list[bytes | int]]:
    return [list(map(bytes, column)) if isinstance(column, Blobs) else list(column) for column in columns]  # type: ignore[arg-type]


def shape(columns: Sequence[Column]) -> list[int]:
    return [len(column) for column in columns]


def only_blobs(frame: bytes) -> Blobs:
    (column,) = unpack(frame)
    assert isinstance(column, Blobs)
    return column


@given(frames())
def test_a_frame_comes_back_as_it_went_in(columns: list[Column]) -> None:
    assert contents(unpack(pack(columns))) == contents(columns)


@given(frames())
def test_what_was_unpacked_can_be_packed_again(columns: list[Column]) -> None:
    frame = pack(columns)
    assert pack(unpack(frame)) == frame


@given(st.lists(st.binary(max_size=20), max_size=9))
def test_byte_strings_are_packed_as_blobs_and_bytes_as_numbers(texts: list[bytes]) -> None:
    numbers = bytes(map(len, texts))
    assert pack([texts, numbers]) == pack([Blobs.of(texts), array("B", numbers)])


def test_of_a_part_of_a_column_only_the_part_is_packed() -> None:
    texts = [b"a", b"", b"ccc", b"dd"]
    for start, end in ((1, 4), (0, 2), (2, 2)):
        assert pack([Blobs.of(texts).part(start, end)]) == pack([texts[start:end]])


def test_a_frame_with_other_columns_than_wanted_is_refused() -> None:
    frame = pack([array("q", [1]), [b"a"]])
    assert len(unpack(frame, b"q*")) == 2
    for kinds in (b"q", b"*q", b"qq", b"q**"):
        with pytest.raises(BadFrame):
            unpack(frame, kinds)


@given(frames(), st.integers(0, 64))
def test_a_frame_may_begin_anywhere_in_a_buffer(columns: list[Column], position: int) -> None:
    frame = pack(columns)
    buffer = memoryview(bytes(position) + frame + b"after")
    assert contents(unpack(buffer[position : position + len(frame)])) == contents(columns)


@given(frames())
def test_a_truncated_frame_is_refused_at_every_byte(columns: list[Column]) -> None:
    frame = pack(columns)
    for size in range(len(frame)):
        with pytest.raises(BadFrame):
            unpack(frame[:size])


@given(frames(), st.binary(min_size=1, max_size=16))
def test_a_frame_ends_where_it_says(columns: list[Column], extra: bytes) -> None:
    with pytest.raises(BadFrame):
        unpack(pack(columns) + extra)


@given(frames(), st.data())
def test_a_damaged_frame_is_refused_or_keeps_its_shape(columns: list[Column], data: st.DataObject) -> None:
    damaged = bytearray(pack(columns))
    at = data.draw(st.integers(0, len(damaged) - 1))
    damaged[at] ^= data.draw(st.integers(1, 255))
    try:
        found = unpack(damaged)
    except BadFrame:
        return
    assert shape(found) == shape(columns)
    assert [len(column) for column in contents(found)] == shape(columns)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_frame_or_refused(data: bytes) -> None:
    try:
        columns = unpack(data)
    except BadFrame:
        return
    assert pack(columns) == data


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="nothing"),
        pytest.param(b"\x00" * 6 + b"\x01\x00", id="flags of the future"),
        pytest.param(b"\xff\xff\xff\xff" + b"\x00" * 4, id="rows without columns"),
        pytest.param(b"\x00" * 4 + b"\xff\xff\x00\x00", id="more columns than bytes"),
        pytest.param(b"\x00" * 4 + b"\x01\x00\x00\x00" + b"x\x00\x00\x00" + b"\x00" * 4, id="an unknown kind"),
        pytest.param(b"\x00" * 4 + b"\x01\x00\x00\x00" + b"q\x00\x01\x00" + b"\x00" * 4, id="a bit beside the kind"),
        pytest.param(b"\xff\xff\xff\xff\x01\x00\x00\x00" + b"q\x00\x00\x00" + b"\xff" * 4, id="4 GiB of numbers"),
        pytest.param(b"\xff\xff\xff\xff\x01\x00\x00\x00" + b"*\x00\x00\x00" + b"\xff" * 4, id="4 GiB of blobs"),
        pytest.param(b"\xff\xff\xff\xff\x01\x00\x00\x00" + b"*\x00\x00\x00" + b"\x00" * 4, id="rows without offsets"),
        pytest.param(
            b"\x00" * 4 + b"\x01\x00\x00\x00" + b"*\x00\x00\x00\x04" + b"\x00" * 7, id="offsets without zeros"
        ),
    ],
)
def test_a_frame_that_lies_about_its_size_is_refused(frame: bytes) -> None:
    with pytest.raises(BadFrame):
        unpack(frame)


@pytest.mark.parametrize(
    "offsets", [[0, 3, 2, 4], [1, 2, 3, 4], [0, 1, 2, 3], [0, -1, 2, 4], [0, 9, 9, 4], [0, 1, 2, 5]]
)
def test_offsets_out_of_order_or_outside_are_refused(offsets: list[int]) -> None:
    frame = pack_bytes_and_blobs(bytes(len(offsets) - 1), Blobs(array("i", offsets), memoryview(b"abcd")))
    with pytest.raises(BadFrame):
        unpack(frame)


def test_something_in_the_zeros_between_columns_is_refused() -> None:
    frame = bytearray(pack([array("b", [1]), array("q", [2])]))
    frame[8 + 2 * 8 + 1] = 1
    with pytest.raises(BadFrame):
        unpack(frame)


def test_unpacked_columns_share_the_memory_of_the_frame() -> None:
    frame = pack([array("q", [1, 2]), Blobs.of([b"one", b"two"])])
    fixed, variable = unpack(frame)
    assert isinstance(fixed, memoryview)
    assert isinstance(variable, Blobs)
    views = [fixed, variable.offsets, variable.data, variable[0], *variable]
    assert all(isinstance(view, memoryview) and view.obj is frame for view in views)


def test_numbers_keep_their_type() -> None:
    columns = unpack(pack([array(code, [0]) for code in CODES]))
    assert [column.format for column in columns if isinstance(column, memoryview)] == list(CODES)


def test_every_array_begins_at_a_multiple_of_eight() -> None:
    names = b"one", b"three"
    frame = pack([array("b", [1, 2]), Blobs.of(names), array("q", [3, 4])])
    positions = [frame.index(part) for part in (b"\x01\x02", b"\x00\x00\x00\x00\x03\x00\x00\x00", b"onethree")]
    assert all(position % 8 == 0 for position in positions)
    assert len(frame) % 8 == 0


def test_numbers_are_little_endian_as_the_drawing_says() -> None:
    assert pack([array("i", [1, -2])]) == bytes.fromhex("02000000 0100 0000 69000000 08000000 01000000 feffffff")


def test_blobs_are_offsets_and_bytes_as_arrow_lays_them_out() -> None:
    found = pack([Blobs.of([b"ab", b"", b"c"])])
    assert found == bytes.fromhex(
        "03000000 0100 0000 2a000000 13000000 00000000 02000000 02000000 03000000 616263 0000000000"
    )


def test_a_frame_without_rows_has_columns() -> None:
    fixed, variable = unpack(pack([array("q"), Blobs.of([])]))
    assert len(fixed) == len(variable) == 0
    assert isinstance(variable, Blobs)
    assert list(variable) == []
    assert list(variable) == []


def test_a_frame_without_columns_is_a_head() -> None:
    assert unpack(pack([])) == []
    assert pack([]) == bytes(8)


@given(st.lists(st.binary(max_size=20)))
def test_blobs_are_a_list_of_views(bodies: list[bytes]) -> None:
    for column in (Blobs.of(bodies), only_blobs(pack([Blobs.of(bodies)]))):
        assert len(column) == len(bodies)
        assert list(column) == [column[row] for row in range(len(bodies))] == bodies
        assert list(map(len, column)) == list(map(len, bodies))


def test_blobs_are_made_of_any_bytes() -> None:
    column = Blobs.of([b"a", bytearray(b"bc"), memoryview(b"def")])
    assert list(column) == [b"a", b"bc", b"def"]


def test_there_is_no_row_after_the_last() -> None:
    with pytest.raises(IndexError):
        Blobs.of([b"a"])[1]


def test_columns_of_different_lengths_are_our_own_mistake() -> None:
    with pytest.raises(AssertionError):
        pack([array("q", [1]), Blobs.of([])])


def test_a_hostile_count_of_rows_costs_no_memory() -> None:
    frame = b"\xff\xff\xff\xff\x02\x00\x00\x00" + b"*\x00\x00\x00\xff\xff\xff\xff" + b"q\x00\x00\x00\xff\xff\xff\xff"
    tracemalloc.start()
    try:
        with pytest.raises(BadFrame):
            unpack(frame)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 100_000


def test_a_stretch_of_rows_is_the_rows_one_by_one() -> None:
    blobs = Blobs.of([b"a", b"", b"ccc", b"dd"])
    assert list(blobs.part(1, 4)) == [blobs[1], blobs[2], blobs[3]]
    assert list(blobs.part(2, 2)) == []


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=20)), max_size=20))
def test_bytes_and_blobs_are_packed_at_once_as_column_by_column(rows: list[tuple[int, bytes]]) -> None:
    numbers, bodies = bytes(number for number, _ in rows), Blobs.of([body for _, body in rows])
    frame = pack_bytes_and_blobs(numbers, bodies)
    assert frame == pack([array("B", numbers), bodies])
    _, found = unpack(frame)
    assert isinstance(found, Blobs)
    assert pack_bytes_and_blobs(numbers, found) == frame
