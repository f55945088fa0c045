"""Every record of a produced batch is looked at, whichever way it is checked."""

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from penstock.log.record import BadBatch, read_varint, varint
from penstock.streams.produce_checks import BadRecord, check_records

Fields = tuple[bytes | None, bytes | None, tuple[tuple[bytes, bytes | None], ...]]


def field(value: bytes | None) -> bytes:
    return varint(-1) if value is None else varint(len(value)) + value


def record(delta: int, fields: Fields = (None, b"value", ()), *, delta_ms: int = 0) -> bytes:
    key, value, headers = fields
    told = b"".join(field(name) + field(text) for name, text in headers)
    body = b"".join((b"\0", varint(delta_ms), varint(delta), field(key), field(value), varint(len(headers)), told))
    return varint(len(body)) + body


def is_good(data: bytes, count: int) -> bool:
    """Say the same as `check_records` in the plainest way."""
    view = memoryview(data)
    at = 0
    try:
        for delta in range(count):
            length, at = read_varint(view, at)
            end = at + length
            _, at = read_varint(view, at + 1)
            found, at = read_varint(view, at)
            at = after_field(view, after_field(view, at))
            headers, at = read_varint(view, at)
            if found != delta or headers < 0:
                return False
            for _ in range(headers):
                name, _ = read_varint(view, at)
                at = after_field(view, after_field(view, at))
                if name < 0 or at > end:
                    return False
            if at != end:
                return False
    except BadBatch:
        return False
    return at == len(data)


def after_field(view: memoryview, at: int) -> int:
    length, at = read_varint(view, at)
    if length < -1 or at + length > len(view):
        raise BadBatch
    return at + max(0, length)


def agrees(data: bytes, count: int) -> bool:
    try:
        check_records(data, count)
    except BadRecord as error:
        return not is_good(data, count) and 0 <= error.index < count
    return is_good(data, count)


texts = st.one_of(st.none(), st.binary(max_size=4), st.binary(min_size=60, max_size=70), st.just(bytes(9_000)))
headers = st.lists(st.tuples(st.binary(max_size=5), texts), max_size=2).map(tuple)
lives = st.lists(st.tuples(st.tuples(texts, texts, headers), st.sampled_from([0, 63, 64, -70, 9_000])), min_size=1)


@given(lives)
def test_records_of_any_shape_are_taken(made: list[tuple[Fields, int]]) -> None:
    data = b"".join(record(delta, fields, delta_ms=time) for delta, (fields, time) in enumerate(made))
    check_records(data, len(made))
    assert is_good(data, len(made))


@pytest.mark.parametrize("count", [1, 2, 17, 63, 64, 65, 130, 8_191, 8_192, 8_193, 20_000])
@pytest.mark.parametrize("fields", [(None, b"v", ()), (b"key", bytes(200), ()), (b"k", None, ((b"a", b"b"),))])
def test_runs_of_records_alike_are_taken_whatever_their_number(count: int, fields: Fields) -> None:
    made = [record(delta, fields, delta_ms=delta // 700) for delta in range(count)]
    check_records(b"".join(made), count)
    check_records(memoryview(b"".join(made)), count)
    with pytest.raises(BadRecord):
        check_records(b"".join(made), count + 1)
    with pytest.raises(BadRecord):
        check_records(b"".join(made), 2**31 - 1)
    with pytest.raises(BadRecord, match=r"follow|not there"):
        check_records(b"".join([*made, record(count, fields)]), count)


@given(
    count=st.integers(1, 150),
    fields=st.tuples(st.sampled_from([None, b"", b"key"]), st.sampled_from([None, b"v" * 3, b"v" * 66]), st.just(())),
    spot=st.tuples(st.integers(0, 2**31), st.integers(0, 255)),
)
@example(count=150, fields=(None, b"v" * 3, ()), spot=(0, 0))
def test_one_byte_changed_anywhere_in_a_run_is_judged_as_by_a_plain_walk(
    count: int, fields: Fields, spot: tuple[int, int]
) -> None:
    data = bytearray(b"".join(record(delta, fields) for delta in range(count)))
    data[spot[0] % len(data)] = spot[1]
    assert agrees(bytes(data), count)


def test_every_byte_of_a_run_matters_or_is_of_a_key_a_value_an_attribute_or_a_time() -> None:
    whole = b"".join(record(delta, (b"k", b"v", ())) for delta in range(40))
    for place in range(len(whole)):
        for flip in (1, 2, 0x80):
            data = bytearray(whole)
            data[place] ^= flip
            assert agrees(bytes(data), 40), (place, flip)


@given(st.binary(max_size=60), st.integers(1, 5))
def test_bytes_that_are_no_records_are_refused(data: bytes, count: int) -> None:
    assert agrees(data, count)


def endless(number: int) -> bytes:
    """A number with more bytes than it may have."""
    return bytes([number | 0x80]) + b"\x80" * 11 + b"\0"


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        varint(-1),
        varint(-4) + bytes(8),
        varint(2**31 - 1),
        endless(2),
        varint(16) + b"\0" + endless(0) + bytes(4),
        varint(6) + b"\0\0\0" + varint(-2) + b"\1\0",
        varint(6) + b"\0\0\0\1" + varint(-3) + b"\0",
        varint(6) + b"\0\0\0\1\1" + varint(-1),
        varint(6) + b"\0\0\0\1\1" + varint(60),
        varint(8) + b"\0\0\0\1\1" + varint(1) + varint(-1) + varint(-1),
    ],
)
def test_lengths_that_lie_are_named_by_their_record(broken: bytes) -> None:
    before: Sequence[bytes] = [record(0), record(1)]
    with pytest.raises(BadRecord) as caught:
        check_records(b"".join([*before, broken]), 3)
    assert caught.value.index == 2
