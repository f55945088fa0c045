"""Every event becomes a journal record and comes back the same."""

from collections.abc import Callable
from dataclasses import fields
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.core.queue import events
from penstock.core.queue.events import Event, Sent
from penstock.core.queue.message import Origin, Run, Sender
from penstock.frame import Blobs
from penstock.log import record
from penstock.store.embedded.event_codec import (
    Decoded,
    Encoded,
    UnknownEvent,
    decode,
    decode_by_layout,
    encode,
    encode_by_layout,
)

U32 = st.integers(0, 2**32 - 1)
U63 = st.integers(0, 2**63 - 1)
RUNS = st.lists(st.builds(Run, st.integers(0, 255), U63, U32), max_size=5).map(tuple)
MASKS = st.integers(0, 2**1000 - 1)

# What each field of an event may be; a field that is not listed here fails the test that uses it.
FIELDS = {
    "queue": U32,
    "into": U32,
    "sequence": U63,
    "is_redrive": st.booleans(),
    "from_ms": U63,
    "most": U32,
    "is_done": st.booleans(),
    "at_ms": U63,
    "until_ms": U63,
    "lease": U63,
    "token": U63,
    "lease_ms": U63,
    "tier": st.integers(0, 255),
    "mask": MASKS,
    "runs": RUNS,
    "visible_at_ms": st.lists(U63, max_size=5).map(tuple),
    **dict.fromkeys(("name", "settings", "error", "actor", "reason"), st.text(max_size=50)),
}
MOVES = [events.Buried, events.Redriven]
PLAIN = [kind for kind in get_args(Event) if kind not in {Sent, events.Copied, events.Leased, events.Arrived, *MOVES}]


@pytest.mark.parametrize("kind", PLAIN, ids=lambda kind: kind.__name__)
def test_an_event_comes_back_the_same(kind: type[Event]) -> None:
    @given(st.builds(kind, **{field.name: FIELDS[field.name] for field in fields(kind)}))
    def round_trip(event: Event) -> None:
        assert decode(*encode(event)) == Decoded(event)

    round_trip()


@given(st.lists(st.tuples(st.builds(Run, st.integers(0, 255), U63, U32), st.integers(0, 4)), max_size=5))
def test_a_lease_comes_back_with_the_tier_of_each_run(rows: list[tuple[Run, int]]) -> None:
    event = events.Leased(1, 2, 3, 4, 5, tuple(run for run, _ in rows), bytes(tier for _, tier in rows))
    assert decode(*encode(event)) == Decoded(event)


MOVED = st.tuples(
    st.builds(Run, st.integers(0, 4), U63, st.just(1)),
    st.integers(0, 4),
    st.builds(Origin, U32, st.integers(0, 4), U63, U63, U32),
    st.binary(max_size=9),
    st.text(max_size=9),
)


@pytest.mark.parametrize("kind", MOVES, ids=lambda kind: kind.__name__)
@given(rows=st.lists(MOVED, max_size=4))
def test_a_move_comes_back_with_where_each_message_came_from(
    kind: type[Event], rows: list[tuple[Run, int, Origin, bytes, str]]
) -> None:
    runs, tiers, origins, groups, errors = (tuple(row[i] for row in rows) for i in range(5))
    event = kind(1, 2, 3, runs, bytes(tiers), origins, groups, errors)  # type: ignore[call-arg, arg-type]
    assert decode(*encode(event)) == Decoded(event)


ARRIVED = st.tuples(MOVED, st.binary(max_size=99), st.binary(max_size=9))


@given(rows=st.lists(ARRIVED, min_size=1, max_size=4), has_attributes=st.booleans())
def test_what_arrives_from_another_shard_brings_its_bodies_and_attributes(
    rows: list[tuple[tuple[Run, int, Origin, bytes, str], bytes, bytes]], has_attributes: bool
) -> None:
    tiers, origins, groups, errors = (tuple(row[0][i] for row in rows) for i in range(1, 5))
    event = events.Arrived(1, 2, 3, 4, bytes(tiers), origins, groups, errors)  # type: ignore[arg-type]
    attributes = [row[2] for row in rows] if has_attributes else None
    bodies = Blobs.of([row[1] for row in rows])
    found = decode(*encode(event, bodies, None if attributes is None else Blobs.of(attributes)))
    assert found.event == event
    assert found.bodies is not None
    assert list(map(bytes, found.bodies)) == [row[1] for row in rows]
    assert (None if found.attributes is None else list(map(bytes, found.attributes))) == attributes


@st.composite
def sends(draw: st.DrawFn) -> tuple[Sent, list[bytes], list[bytes] | None]:
    count = draw(st.integers(1, 6))

    def column(values: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
        return st.none() | st.lists(values, min_size=count, max_size=count).map(tuple)

    blobs = st.binary(max_size=20)
    event = Sent(
        draw(U32),
        draw(U63),
        tiers=draw(st.binary(min_size=count, max_size=count)),
        sender=draw(st.none() | st.builds(Sender, U63, U32, U63)),
        visible_at_ms=draw(column(U63)),  # type: ignore[arg-type]
        groups=draw(column(blobs)),  # type: ignore[arg-type]
        dedup_ids=draw(column(blobs)),  # type: ignore[arg-type]
        deliveries_max=draw(column(st.integers(0, 2**16 - 1))),  # type: ignore[arg-type]
        repeats=draw(st.lists(st.tuples(U32, U63), max_size=3).map(tuple)),
    )
    bodies = draw(st.lists(st.binary(max_size=300), min_size=count, max_size=count))
    attributes = draw(st.none() | st.lists(blobs, min_size=count, max_size=count))
    return event, bodies, attributes


@given(sends())
def test_a_send_comes_back_with_its_bodies_and_attributes(sent: tuple[Sent, list[bytes], list[bytes] | None]) -> None:
    event, bodies, attributes = sent
    found = decode(*encode(event, Blobs.of(bodies), None if attributes is None else Blobs.of(attributes)))
    assert found.event == event
    assert found.bodies is not None
    assert list(map(bytes, found.bodies)) == bodies
    assert (None if found.attributes is None else list(map(bytes, found.attributes))) == attributes


@given(st.lists(st.builds(Run, st.integers(0, 4), U63, U32), max_size=5), st.lists(st.binary(max_size=9), max_size=5))
def test_bodies_copied_forward_come_back_with_the_numbers_they_are_of(runs: list[Run], bodies: list[bytes]) -> None:
    event = events.Copied(1, 2, tuple(runs))
    for attributes in (None, Blobs.of(bodies[::-1])):
        found = decode(*encode(event, Blobs.of(bodies), attributes))
        assert found.event == event
        assert found.bodies is not None
        assert list(map(bytes, found.bodies)) == bodies
        assert (None if found.attributes is None else list(map(bytes, found.attributes))) == (
            None if attributes is None else bodies[::-1]
        )


@given(st.builds(events.Acked, U32, U63, U63, MASKS))
def test_an_ack_is_written_as_its_layout_says(event: Event) -> None:
    assert encode(event) == encode_by_layout(event)


@given(st.lists(st.tuples(st.builds(Run, st.integers(0, 255), U63, U32), st.integers(0, 4)), max_size=3), U63, U63)
def test_a_lease_is_written_as_its_layout_says(rows: list[tuple[Run, int]], token: int, lease_ms: int) -> None:
    event = events.Leased(1, 2, 3, token, lease_ms, tuple(run for run, _ in rows), bytes(tier for _, tier in rows))
    assert encode(event) == encode_by_layout(event)


@given(sends() | sends().map(lambda sent: (Sent(sent[0].queue, sent[0].at_ms, sent[0].tiers), sent[1], None)))
def test_a_send_is_written_as_its_layout_says(sent: tuple[Sent, list[bytes], list[bytes] | None]) -> None:
    event, bodies, attributes = sent
    columns = Blobs.of(bodies), None if attributes is None else Blobs.of(attributes)
    assert encode(event, *columns) == encode_by_layout(event, *columns)


def told(read: Callable[[bytes, bytes | None], Decoded], key: bytes, value: bytes | None) -> object:
    """What comes of reading a record: all that is in it, or how it was refused."""
    try:
        event, bodies, attributes = read(key, value)
    except Exception as error:
        return type(error)
    return event, *(None if column is None else list(map(bytes, column)) for column in (bodies, attributes))


HEALTHY = st.one_of(
    st.builds(events.Acked, U32, U63, U63, MASKS).map(encode),
    st.builds(events.Leased, U32, U63, U63, U63, U63, st.just((Run(2, 7, 1),)), st.just(b"\2")).map(encode),
    st.lists(st.binary(max_size=9), min_size=1, max_size=9).map(
        lambda bodies: encode(Sent(1, 2, bytes(len(bodies))), Blobs.of(bodies))
    ),
)


@given(HEALTHY, st.data())
def test_a_short_cut_reads_what_the_layout_reads_also_of_damaged_records(found: Encoded, data: st.DataObject) -> None:
    key, value = found
    assert told(decode, key, value) == told(decode_by_layout, key, value)
    is_key = value is None or data.draw(st.booleans())
    part = bytearray(key if is_key or value is None else value)
    if data.draw(st.booleans()):
        part[data.draw(st.integers(0, len(part) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del part[data.draw(st.integers(2, len(part))) :]
    damaged = (bytes(part), value) if is_key else (key, bytes(part))
    assert told(decode, *damaged) == told(decode_by_layout, *damaged)


def test_events_of_one_decision_share_a_batch_and_a_crc() -> None:
    made: list[Event] = [events.Acked(1, 2, 3, 0b101), events.Expired(1, 2, (Run(0, 7, 1),))]
    batch = record.encode([encode(event) for event in made], at_ms=2)
    record.check(batch)
    assert [decode(entry.key, entry.value).event for entry in record.records(batch)] == made


@pytest.mark.parametrize("key", [None, b"", b"\x07", b"\x00\x01", b"\xff\x01" + bytes(40), b"\x07\x02" + bytes(40)])
def test_an_unknown_kind_or_version_of_event_is_refused(key: bytes | None) -> None:
    with pytest.raises(UnknownEvent):
        decode(key, None)


def test_the_body_of_a_message_is_a_slice_of_the_journal() -> None:
    key, value = encode(Sent(1, 2, tiers=b"\x02"), Blobs.of([b"x" * 100]))
    found = decode(key, value)
    assert found.bodies is not None
    assert found.bodies[0].obj is value
