"""Answers that no server of ours gives: each is an error with a name for the caller, and no call is left waiting."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.client import Client, PenstockError, ServerError
from penstock.client.caller import Answer
from penstock.wire import frames
from tests.client.scripted import Request, leased, scripted, settled


async def _ask_everything(client: Client) -> list[object]:
    queue = client.queue("q")
    return await asyncio.gather(
        queue.send("x"),
        queue.send_many(["x", "y"]),
        queue.receive(),
        queue.ack(["1-2-3"]),
        queue.describe(),
        queue.history(),
        client.create_queue("q"),
        client.health(),
        return_exceptions=True,
    )


@st.composite
def damaged_frames(draw: st.DrawFn) -> bytes:
    """A good frame of some kind with a few bytes changed, or cut off."""
    request = Request("POST", "/", b"", 1, 0)
    good = draw(
        st.sampled_from(
            [
                frames.encode_sent(frames.Ids(1, range(3))),
                frames.encode_sent(frames.Ids(0, None, [b"1-2"])),
                frames.encode_settled([5, 0]),
                asyncio.run(_body(leased(3), request)),
            ]
        )
    )
    data = bytearray(good)
    for position, value in draw(st.lists(st.tuples(st.integers(0, len(data) - 1), st.integers(0, 255)), max_size=4)):
        data[position] = value
    return bytes(data[: draw(st.integers(0, len(data)))])


async def _body(answer: Callable[[Request], Awaitable[Answer]], request: Request) -> bytes:
    return (await answer(request)).body


@given(
    body=st.binary(max_size=100) | damaged_frames(), status=st.sampled_from([200, 201, 204, 302, 400, 404, 418, 500])
)
def test_no_answer_is_more_than_an_error_with_a_name(body: bytes, status: int) -> None:
    async def answer(request: Request) -> Answer:
        return Answer(status, {"retry-after": "soon"}, body)

    async def ask() -> None:
        async with scripted(answer, timeout_s=0) as (client, _):
            for result in await _ask_everything(client):
                assert not isinstance(result, BaseException) or isinstance(result, PenstockError), repr(result)

    asyncio.run(ask())


async def test_fewer_ids_than_messages_are_no_answer() -> None:
    async def one_id(request: Request) -> Answer:
        return Answer(201, {}, frames.encode_sent(frames.Ids(1, [7])))

    async with scripted(one_id) as (client, _):
        results = await asyncio.gather(*(client.queue("q").send("x") for _ in range(3)), return_exceptions=True)
        assert [type(result) for result in results] == [ServerError] * 3
        with pytest.raises(ServerError, match="1 ids for 2"):
            await client.queue("q").send_many(["x", "y"])


async def test_fewer_results_than_leases_are_no_answer() -> None:
    async with scripted(settled(1)) as (client, _):
        with pytest.raises(ServerError, match="1 results for 2"):
            await client.queue("q").ack(["1-2-0", "2-2-0"])
