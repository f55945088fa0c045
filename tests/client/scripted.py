"""A transport that answers as a test says, in virtual time, with real frames: what a server and a network may do."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from penstock.client import Client
from penstock.client.caller import Answer, Headers
from penstock.frame import Buffer
from penstock.wire import frames
from penstock.wire.problems import CODES, Problem


@dataclass
class Request:
    method: str
    path: str
    body: bytes
    timeout_s: float
    # When it was made, in virtual time.
    at_s: float


@dataclass
class ScriptedTransport:
    """Calls ``answers`` one after the other, the last of them for ever."""

    answers: list[Callable[[Request], Awaitable[Answer]]]
    requests: list[Request] = field(default_factory=list)
    is_closed: bool = False

    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        request = Request(method, path, bytes(body), timeout_s, asyncio.get_running_loop().time())
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return await answer(request)

    async def close(self) -> None:
        self.is_closed = True


def raises(error: Exception) -> Callable[[Request], Awaitable[Answer]]:
    async def answer(request: Request) -> Answer:
        raise error

    return answer


def problem(code: str, **more: float | str) -> Callable[[Request], Awaitable[Answer]]:
    async def answer(request: Request) -> Answer:
        known = CODES[code]
        found = Problem(title=known.title, status=known.status, code=code, detail=f"{code} it is", **more)  # type: ignore[arg-type]
        return Answer(known.status, {"content-type": "application/problem+json"}, msgspec.json.encode(found))

    return answer


async def sent(request: Request) -> Answer:
    """Every message gets a key: its sequence and its row."""
    frame = frames.decode_send(request.body)
    assert frame.sender is not None
    keys = [frame.sender.sequence << 16 | row for row in range(len(frame.bodies))]
    return Answer(201, {}, frames.encode_sent(frames.Ids(1, keys)))


def settled(*done: int) -> Callable[[Request], Awaitable[Answer]]:
    async def answer(request: Request) -> Answer:
        return Answer(200, {}, frames.encode_settled(done))

    return answer


async def settles_all(request: Request) -> Answer:
    return Answer(200, {}, frames.encode_settled([held.rows for held in frames.decode_settle(request.body).held]))


def leased(count: int, *, lease: int = 1, lasts_s: float = 600) -> Callable[[Request], Awaitable[Answer]]:
    async def answer(request: Request) -> Answer:
        frame = frames.LeasedFrame(
            lease=lease,
            token=7,
            until_ms=int((time.time() + lasts_s) * 1_000),
            ids=frames.Ids(1, range(count)),
            bodies=[b"%d" % row for row in range(count)],
            tiers=bytes([2] * count),
            deliveries=[1] * count,
            sent_at_ms=[1] * count,
        )
        return Answer(200, {}, frames.encode_leased(frame))

    return answer


@asynccontextmanager
async def scripted(
    *answers: Callable[[Request], Awaitable[Answer]], timeout_s: float = 60
) -> AsyncIterator[tuple[Client, ScriptedTransport]]:
    transport = ScriptedTransport(list(answers))
    async with Client(lambda: transport, timeout_s=timeout_s) as client:
        yield client, transport
    assert transport.is_closed
