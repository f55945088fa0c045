"""Frames over REST: whole batches as columns, one receipt for a lease, and a bit for each message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.wire import frames
from penstock.wire.frames import FRAME_TYPE, Held, Ids, LeasedFrame, SendFrame, SettleFrame, encode_send
from tests.api.asgi import ORDERS, Api, bury, open_api, receive, send
from tests.simulation.loop import simulate
from tests.waiting import elapse

MESSAGES = f"{ORDERS}/messages"


def texts(ids: Ids) -> list[str]:
    return [ids[row] for row in range(len(ids))]


async def sent(api: Api, frame: SendFrame) -> list[str]:
    answer = await api.frame("POST", MESSAGES, encode_send(frame))
    assert answer.status == 201, answer
    assert answer.headers["content-type"] == FRAME_TYPE
    return texts(frames.decode_sent(answer.body))


async def leased(api: Api, limit: int = 10, *, queue: str = "orders", **query: object) -> LeasedFrame:
    answer = await api.frame("GET", f"/api/queues/{queue}/messages", query={"limit": limit, **query})
    assert answer.status == 200, answer
    assert answer.headers["cache-control"] == "no-store"
    return frames.decode_leased(answer.body)


async def settled(api: Api, verb: str, settle: SettleFrame) -> list[int]:
    answer = await api.frame("POST", f"{ORDERS}/{verb}", frames.encode_settle(settle))
    assert answer.status == 200, answer
    return frames.decode_settled(answer.body)


async def test_a_frame_of_messages_is_sent_leased_and_acked_with_one_receipt() -> None:
    async with open_api() as api:
        bodies = [b"%d" % each for each in range(1_000)]
        ids = await sent(api, SendFrame(bodies=bodies))
        lease = await leased(api, 1_000)
        assert texts(lease.ids) == ids
        assert [bytes(body) for body in lease.bodies] == bodies
        everything = (1 << 1_000) - 1
        assert await settled(api, "ack", SettleFrame([Held(lease.lease, lease.token, everything)])) == [everything]
        assert (await api.get(ORDERS))["current_message_count"] == 0


async def test_every_column_of_a_frame_arrives() -> None:
    async with open_api(fifo=False) as api:
        frame = SendFrame(
            bodies=[b"\xff", b"b"],
            tiers=bytes([1, 3]),
            groups=[b"g", b""],
            dedup_ids=[b"x", b""],
            attributes=[b'{"a":1}', b""],
            deliveries_max=[1, 0],
        )
        await sent(api, frame)
        lease = await leased(api, visibility_timeout=1)
        assert (bytes(lease.tiers), list(lease.deliveries)) == (bytes([1, 3]), [1, 1])
        assert lease.groups is not None
        assert [bytes(group) for group in lease.groups] == [b"g", b""]
        assert lease.attributes is not None
        assert [bytes(each) for each in lease.attributes] == [b'{"a":1}', b""]
        again = await sent(api, frame)
        assert again[0] == lease.ids[0]
        await elapse(1.1)
        # The first had one delivery.
        assert [bytes(body) for body in (await leased(api)).bodies] == [b"b", b"b"]


async def test_frames_and_json_meet_in_one_queue() -> None:
    async with open_api() as api:
        await sent(api, SendFrame(bodies=["ä".encode(), b"\xff"], attributes=[b'{"a":"b"}', b""]))
        first, second = await receive(api)
        assert (first["data"], first["attributes"], second["data_base64"]) == ("ä", {"a": "b"}, "/w==")
        await send(api, {"a": 1})
        lease = await leased(api)
        assert bytes(lease.bodies[0]) == b'{"a":1}'


async def test_a_frame_delays_messages_and_schedules_them() -> None:
    async with open_api() as api:
        now_ms = api.queues.now_ms()
        await sent(
            api,
            SendFrame(
                bodies=[b"now", b"delayed", b"scheduled"], delay_ms=[0, 2_000, 0], visible_at_ms=[0, 0, now_ms + 4_000]
            ),
        )
        assert [bytes(body) for body in (await leased(api)).bodies] == [b"now"]
        await elapse(2.1)
        assert [bytes(body) for body in (await leased(api)).bodies] == [b"delayed"]
        await elapse(2)
        assert [bytes(body) for body in (await leased(api)).bodies] == [b"scheduled"]


async def test_a_sender_repeats_its_frame_without_harm() -> None:
    async with open_api() as api:
        frame = SendFrame(bodies=[b"a", b"b"], sender=frames.Sender(7, 0, 1))
        assert await sent(api, frame) == await sent(api, frame)
        newer = SendFrame(bodies=[b"c"], sender=frames.Sender(7, 1, 1))
        await sent(api, newer)
        fenced = await api.frame("POST", MESSAGES, encode_send(frame))
        assert fenced.is_problem(409, "sender_fenced")
        assert (await api.get(ORDERS))["current_message_count"] == 3


async def test_an_empty_queue_answers_a_frame_with_204() -> None:
    async with open_api() as api:
        answer = await api.frame("GET", MESSAGES, query={"limit": 10})
        assert (answer.status, answer.body) == (204, b"")


async def test_a_frame_of_dead_letters_tells_their_origin() -> None:
    async with open_api() as api:
        (message_id,) = await bury(api, "a")
        lease = await leased(api, queue="orders.dead")
        assert texts(lease.ids) == [message_id]
        assert lease.origins is not None
        queues, _, deliveries = lease.origins
        assert (bytes(queues[0]), deliveries[0]) == (b"orders", 1)
        assert lease.errors is not None
        assert bytes(lease.errors[0]) == b"boom"


async def test_some_bits_of_some_leases_are_settled_and_the_answer_has_those_that_were() -> None:
    async with open_api() as api:
        await sent(api, SendFrame(bodies=[b"%d" % each for each in range(6)]))
        first, second = await leased(api, 3), await leased(api, 3)
        held = [Held(first.lease, first.token, 0b101), Held(second.lease, second.token, 0b011)]
        assert await settled(api, "ack", SettleFrame(held)) == [0b101, 0b011]
        again = [Held(first.lease, first.token, 0b111), Held(second.lease, second.token ^ 1, 0b111)]
        assert await settled(api, "ack", SettleFrame(again)) == [0b010, 0]
        assert (await api.get(ORDERS))["in_flight"] == 1


async def test_a_frame_releases_with_a_delay_and_an_error() -> None:
    async with open_api() as api:
        await sent(api, SendFrame(bodies=[b"a"]))
        lease = await leased(api)
        held = [Held(lease.lease, lease.token, 1)]
        assert await settled(api, "release", SettleFrame(held, time_ms=2_000, text="äh")) == [1]
        await elapse(2.1)
        again = await leased(api)
        assert again.errors is not None
        assert bytes(again.errors[0]).decode() == "äh"


async def test_a_frame_extends_a_lease() -> None:
    async with open_api() as api:
        await sent(api, SendFrame(bodies=[b"a"]))
        lease = await leased(api, visibility_timeout=1)
        assert await settled(api, "extend", SettleFrame([Held(lease.lease, lease.token, 1)], time_ms=10_000)) == [1]
        await elapse(5)
        assert (await api.frame("GET", MESSAGES)).status == 204


BAD_SENDS: list[tuple[SendFrame, str, int | None]] = [
    (SendFrame(bodies=[]), "messages", 1_000),
    (SendFrame(bodies=[b""] * 1_001), "messages", 1_000),
    (SendFrame(bodies=[b"a", b"b"], tiers=bytes([0, 5])), "messages[1].priority", 4),
    (SendFrame(bodies=[b"a"], groups=[b"x" * 129]), "messages[0].group", 128),
    (SendFrame(bodies=[b"a"], dedup_ids=[b"x" * 129]), "messages[0].dedup_id", 128),
    (SendFrame(bodies=[b"a"], deliveries_max=[10_001]), "messages[0].max_deliveries", 10_000),
    (SendFrame(bodies=[b"a"], delay_ms=[-1]), "messages[0].delay_s", None),
    (SendFrame(bodies=[b"a"], delay_ms=[2**62]), "messages[0].delay_s", 366 * 86_400),
    (SendFrame(bodies=[b"a"], visible_at_ms=[2**62]), "messages[0].delay_s", 366 * 86_400),
    (SendFrame(bodies=[b"a", b"b"], attributes=[b"", b"[]"]), "messages[1].attributes", None),
    (SendFrame(bodies=[b"a"], attributes=[b'{"a":{}}']), "messages[0].attributes", None),
    (SendFrame(bodies=[b"a"], attributes=[b"[" * 60_000]), "messages[0].attributes", None),
    (SendFrame(bodies=[b"a"], attributes=[b" " * 65_537]), "messages[0].attributes", 65_536),
]


@pytest.mark.parametrize(("frame", "field", "limit"), BAD_SENDS, ids=lambda each: str(each)[:60])
async def test_a_frame_beyond_a_limit_is_refused_by_its_field(frame: SendFrame, field: str, limit: int | None) -> None:
    async with open_api() as api:
        answer = await api.frame("POST", MESSAGES, encode_send(frame))
        assert answer.is_problem(400, "bad_field", field=field, limit=limit)
        assert (await api.get(ORDERS))["current_message_count"] == 0


async def test_a_body_of_a_frame_that_is_too_large_is_answered_with_413() -> None:
    async with open_api(max_message_bytes=3) as api:
        answer = await api.frame("POST", MESSAGES, encode_send(SendFrame(bodies=[b"abc", b"abcd"])))
        assert answer.is_problem(413, "message_too_large", field="messages[1].data", limit=3)


BAD_SETTLES: list[tuple[str, SettleFrame, str, int | None]] = [
    ("ack", SettleFrame([]), "leases", 1_000),
    ("ack", SettleFrame([Held(1, 1, 0)]), "rows", 10_000),
    ("ack", SettleFrame([Held(1, 1, 1 << 10_000)]), "rows", 10_000),
    ("extend", SettleFrame([Held(1, 1, 1)]), "time_ms", None),
    ("extend", SettleFrame([Held(1, 1, 1)], time_ms=43_200_001), "time_ms", 43_200_000),
    ("release", SettleFrame([Held(1, 1, 1)], time_ms=366 * 86_400_000 + 1), "time_ms", 366 * 86_400_000),
]


@pytest.mark.parametrize(("verb", "settle", "field", "limit"), BAD_SETTLES, ids=lambda each: str(each)[:60])
async def test_a_settlement_beyond_a_limit_is_refused_by_its_field(
    verb: str, settle: SettleFrame, field: str, limit: int | None
) -> None:
    async with open_api() as api:
        answer = await api.frame("POST", f"{ORDERS}/{verb}", frames.encode_settle(settle))
        assert answer.is_problem(400, "bad_field", field=field, limit=limit)


async def test_a_frame_is_refused_where_frames_are_not_spoken() -> None:
    async with open_api() as api:
        answer = await api.frame("POST", "/api/queues", b"x")
        assert answer.is_problem(415, "unsupported_media_type", field="Content-Type")
        # What has no frame is answered in JSON.
        assert (await api.frame("GET", ORDERS)).headers["content-type"] == "application/json"


def fuzz(body: bytes, path: str) -> None:
    async def story() -> None:
        async with open_api() as api:
            answer = await api.frame("POST", path, body)
            assert answer.status in {200, 201, 400, 413}

    simulate(story)


SEEDS: list[bytes] = [
    encode_send(SendFrame(bodies=[b"a", b"b"], tiers=b"\1\2", groups=[b"g", b""], delay_ms=[1, 2])),
    frames.encode_settle(SettleFrame([Held(1, 2, 3)], time_ms=5, text="x")),
]


@given(
    seed=st.sampled_from(SEEDS),
    at=st.integers(0, 200),
    byte=st.integers(0, 255),
    cut=st.integers(0, 200),
    verb=st.sampled_from(["messages", "ack", "release", "extend"]),
)
def test_no_damaged_frame_makes_the_server_fail(seed: bytes, at: int, byte: int, cut: int, verb: str) -> None:
    damaged = bytearray(seed)
    damaged[at % len(seed)] = byte
    fuzz(bytes(damaged[: len(damaged) - cut % 20]), f"{ORDERS}/{verb}")
