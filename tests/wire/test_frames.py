"""The SDK's own format: what is written is what is read, and anything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.frame import BadFrame, Blobs
from penstock.wire import frames
from penstock.wire.frames import Held, Ids, LeasedFrame, Sender, SendFrame, SettleFrame

BODIES = [b"a", b"", b"\xff" * 300]


def test_a_send_travels_with_every_column() -> None:
    send = SendFrame(
        bodies=BODIES,
        tiers=bytes([0, 2, 4]),
        delay_ms=memoryview(bytes(24)).cast("q"),
        groups=[b"g", b"", b"h"],
        attributes=[b"{}", b"", b'{"a":"b"}'],
        sender=Sender(2**64 - 1, 7, 9),
    )

    read = frames.decode_send(frames.encode_send(send))

    assert [bytes(body) for body in read.bodies] == BODIES
    assert read.tiers == bytes([0, 2, 4])
    assert list(read.delay_ms or ()) == [0, 0, 0]
    assert [bytes(group) for group in read.groups or ()] == [b"g", b"", b"h"]
    assert read.dedup_ids is None
    assert [bytes(each) for each in read.attributes or ()] == [b"{}", b"", b'{"a":"b"}']
    assert read.sender == Sender(2**64 - 1, 7, 9)


def test_ids_travel_as_numbers_of_one_queue_or_as_texts() -> None:
    numbered = frames.decode_sent(frames.encode_sent(Ids(31, range(2, 26, 8))))
    spelled = frames.decode_sent(frames.encode_sent(Ids(0, None, [b"1f-2", b"2-a"])))

    assert [numbered[row] for row in range(len(numbered))] == ["1f-2", "1f-a", "1f-12"]
    assert [spelled[row] for row in range(len(spelled))] == ["1f-2", "2-a"]


def test_a_lease_travels_with_a_part_of_a_larger_column() -> None:
    leased = LeasedFrame(
        lease=5,
        token=2**63 - 1,
        until_ms=99,
        ids=Ids(1, [2, 10]),
        bodies=Blobs.of(BODIES).part(1, 3),
        tiers=bytes([2, 2]),
        deliveries=[1, 1],
        sent_at_ms=[3, 4],
        errors=[b"", b"boom"],
        origins=([b"orders", b""], [7, 0], [5, 0]),
    )

    read = frames.decode_leased(frames.encode_leased(leased))

    assert (read.lease, read.token, read.until_ms) == (5, 2**63 - 1, 99)
    assert [bytes(body) for body in read.bodies] == BODIES[1:]
    assert (list(read.deliveries), list(read.sent_at_ms), bytes(read.tiers)) == ([1, 1], [3, 4], bytes([2, 2]))
    assert read.groups is None
    assert [bytes(each) for each in read.errors or ()] == [b"", b"boom"]
    assert read.origins is not None
    assert [bytes(read.origins[0][0]), list(read.origins[1]), list(read.origins[2])] == [b"orders", [7, 0], [5, 0]]


@given(st.lists(st.builds(Held, *[st.integers(0, 2**64 - 1)] * 2, st.integers(0, 2**1000))), st.text())
def test_a_settling_travels_as_one_bitmap_for_each_lease(held: list[Held], text: str) -> None:
    read = frames.decode_settle(frames.encode_settle(SettleFrame(held, 30_000, text)))

    assert (list(read.held), read.time_ms) == (held, 30_000)
    assert read.text == text.encode(errors="replace").decode()
    assert frames.decode_settled(frames.encode_settled([each.rows for each in held])) == [each.rows for each in held]


@pytest.mark.parametrize("marks", [(False, False), (True, False), (False, True), (True, True)])
def test_a_settling_says_whether_messages_are_rejected_or_untouched(marks: tuple[bool, bool]) -> None:
    settle = SettleFrame([Held(1, 2, 3)], None, "why", *marks)
    assert frames.decode_settle(frames.encode_settle(settle)) == settle


READERS = [
    frames.decode_send,
    frames.decode_sent,
    frames.decode_leased,
    frames.decode_settle,
    frames.decode_settled,
    frames.decode_both,
]
WHOLE = [
    frames.encode_send(SendFrame(bodies=BODIES)),
    frames.encode_sent(Ids(1, [1, 2])),
    frames.encode_leased(
        LeasedFrame(
            lease=1, token=1, until_ms=1, ids=Ids(1, [2]), bodies=[b"x"], tiers=b"\2", deliveries=[1], sent_at_ms=[1]
        )
    ),
    frames.encode_settle(SettleFrame([Held(1, 2, 3)], None, "why")),
    frames.encode_settled([7]),
    frames.encode_both(frames.encode_settled([7]), b""),
]


@given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 400), st.binary(max_size=4))
def test_a_damaged_frame_is_refused_or_read_and_nothing_else(which: int, reader: int, at: int, patch: bytes) -> None:
    data = bytearray(WHOLE[which])
    data[at : at + len(patch)] = patch
    try:
        READERS[reader](data)
    except BadFrame:
        pass


@pytest.mark.parametrize("reader", READERS)
def test_a_frame_of_the_future_is_refused(reader: object) -> None:
    for whole in WHOLE:
        with pytest.raises(BadFrame):
            reader(bytes([whole[0], 2]) + whole[2:])  # type: ignore[operator]
