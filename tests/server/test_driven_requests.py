"""Requests that are answered without a task get the answers that a task would give them, byte for byte."""

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.api.rest.app import RestApplication, hot
from penstock.api.rest.hosts import LoopbackGuard
from penstock.api.rest.request import Service
from penstock.broker.access import Access
from penstock.broker.queues import Queues, open_queues
from penstock.contract.limits import KIB, MIB
from penstock.contract.queue_settings import QueueSettings
from penstock.listening.http_connection import Shared
from penstock.listening.listener import BufferBudget, listening
from penstock.listening.sockets import bind
from penstock.runtime.memory import memory_runtime
from penstock.store.embedded.store import EmbeddedStore
from tests.server.serving import HASTY, Running, in_thread
from tests.simulation.clock import SimDice
from tests.waiting import wait_until

_RECEIPT = re.compile(rb'"receipt":"([0-9a-f-]+)"')
_LENGTH = re.compile(rb"content-length: (\d+)")
_DATE = re.compile(rb"(date|x-request-id): [^\r]*\r\n")


class StandingClock:
    def now_ms(self) -> int:
        return 1_700_000_000_000


class Side:
    """A server with queues in memory, whose clock stands and whose dice fall as those of the other side."""

    def __init__(self, *, is_driven: bool) -> None:
        self._is_driven = is_driven
        self.counted: list[tuple[str, str, int]] = []
        self.driven = 0
        self.queues: Queues
        self._address = ("", 0)
        self._client: socket.socket | None = None
        self._last_receipt = b"1-1-0"

    async def _main(self, running: Running) -> None:
        told = asyncio.Event()
        running.stop = told.set
        runtime = replace(memory_runtime(StandingClock()), dice=SimDice(1))
        async with await EmbeddedStore.in_memory(runtime) as store, open_queues(store, runtime) as self.queues:
            await self.queues.create("orders", QueueSettings(body_bytes_max=16 * KIB))
            await self.queues.create("in-order", QueueSettings(is_fifo=True, size_max=20))
            service = Service(self.queues, Access.open(), 64 * KIB)
            application = LoopbackGuard(RestApplication(service, runtime.log_event))
            budget = BufferBudget(MIB, asyncio.get_running_loop().time)
            shared = Shared(application, HASTY, runtime.log_event, connections_max=100, budget=budget)
            shared.count = lambda scope, status, _: self.counted.append((scope["method"], scope["path"], status))
            if self._is_driven:
                shared.needs_no_task = self._drive
            doors = bind("127.0.0.1", 0)
            async with listening(doors, shared, None):
                self._address = doors[0].getsockname()[:2]
                running.is_ready.set()
                await told.wait()

    def _drive(self, scope: Any) -> bool:
        is_hot = hot(scope)[0] is not None
        self.driven += is_hot
        return is_hot

    @contextmanager
    def serving(self) -> Iterator["Side"]:
        with in_thread(self._main):
            try:
                yield self
            finally:
                if self._client is not None:
                    self._client.close()

    def ask(self, request: "Asked") -> bytes:
        """Return a whole answer as it came, but for the date and the id. Of requests at once, the answers together."""
        if self._client is None:
            self._client = socket.create_connection(self._address, timeout=60)
        self._client.sendall(request.encoded(self._last_receipt) * request.times)
        answers = b"".join(self._answer() for _ in range(request.times))
        if b"connection: close" in answers:
            self._client.close()
            self._client = None
        found = _RECEIPT.findall(answers)
        self._last_receipt = found[-1] if found else self._last_receipt
        return answers

    def _answer(self) -> bytes:
        assert self._client is not None
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            head += self._received(1)
        length, body = _LENGTH.search(head), b""
        while length is not None and len(body) < int(length[1]):
            body += self._received(int(length[1]) - len(body))
        return _DATE.sub(b"", head) + body

    def _received(self, most: int) -> bytes:
        assert self._client is not None
        found = self._client.recv(most)
        assert found, "the connection ended within an answer"
        return found


@dataclass(frozen=True)
class Asked:
    target: tuple[str, str]
    queue: str
    body: Any
    # What becomes of the body: as it is, in MessagePack, or cut in the middle.
    form: str
    headers: tuple[str, ...]
    times: int = 1

    def encoded(self, receipt: bytes) -> bytes:
        """Return it as bytes, with the last receipt that was received where it asks for one."""
        method, path = self.target
        kind = "msgpack" if self.form == "msgpack" else "json"
        body = self.body if isinstance(self.body, bytes) else getattr(msgspec, kind).encode(self.body)
        body = body.replace(b"LAST-RECEIPT", receipt) if kind == "json" else body
        body = body[: len(body) // 2] if self.form == "cut" else body
        lines = [f"{method} /api/queues/{self.queue}/{path} HTTP/1.1", *self.headers, f"content-length: {len(body)}"]
        lines += [] if self.form == "untyped" else [f"content-type: application/{kind}"]
        return "\r\n".join([*lines, "", ""]).encode() + body


SENT = [
    {"data": "a teapot"},
    {"data": {"cups": 4}},
    {"data": None},
    {},
    {"messages": [{"data": "a"}, {"data": "b", "priority": "HIGH", "attributes": {"n": 1}}]},
    {"messages": []},
    {"messages": [{"data": "a"}], "data": "b"},
    {"data": "x", "priority": "nope"},
    {"data": "x", "delay_s": -1},
    {"data": "x", "group": "g", "dedup_id": "d"},
    {"data": "x", "what": 1},
    {"data": "x" * 20 * KIB},
    {"data": "x" * 70 * KIB},
    {"data_base64": "AP8="},
    {"data_base64": "!"},
]
ASKED = [
    {},
    {"limit": 3},
    {"limit": 0},
    {"limit": 2, "visibility_timeout": 5},
    {"limit": 1, "wait_s": 0.01},
    {"limit": 1, "ack": ["LAST-RECEIPT"]},
    {"limit": "many"},
]
SETTLED = [
    {"receipts": ["LAST-RECEIPT"]},
    {"receipts": ["1-1-0", "ffff-1-0"]},
    {"receipts": ["none"]},
    {"receipts": []},
    {"receipts": ["LAST-RECEIPT"], "delay_s": 0, "error": "boom"},
]
TARGETS: list[tuple[tuple[str, str], list[Any]]] = [
    (("POST", "messages"), SENT),
    (("GET", "messages"), [b""]),
    (("GET", "messages?limit=2&wait_s=0.01"), [b""]),
    (("GET", "messages?limit=none"), [b""]),
    (("POST", "lease"), [b"", *ASKED]),
    (("POST", "ack"), SETTLED),
    (("POST", "release"), SETTLED),
    (("PUT", "ack"), SETTLED),
]
HEADERS = ["accept: application/msgpack", "idempotency-key: k", "idempotency-key: ", "content-encoding: gzip"]


@st.composite
def requests(draw: st.DrawFn) -> Asked:
    target, bodies = draw(st.sampled_from(TARGETS))
    host = draw(st.sampled_from(["localhost"] * 8 + ["evil.example"]))
    return Asked(
        target,
        draw(st.sampled_from(["orders"] * 4 + ["in-order", "gone", "no%20name", "a%2fb"])),
        draw(st.sampled_from(bodies) | st.binary(max_size=40)),
        draw(st.sampled_from(["json"] * 4 + ["msgpack", "cut", "untyped"])),
        (f"host: {host}", *draw(st.lists(st.sampled_from(HEADERS), max_size=1))),
        draw(st.sampled_from([1, 1, 1, 3])),
    )


@pytest.fixture(scope="module")
def sides() -> Iterator[tuple[Side, Side]]:
    with ExitStack() as stack:
        driven, by_tasks = Side(is_driven=True), Side(is_driven=False)
        yield stack.enter_context(driven.serving()), stack.enter_context(by_tasks.serving())


@given(st.lists(requests(), min_size=1, max_size=12))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_a_request_without_a_task_is_answered_and_counted_as_one_with_a_task(
    sides: tuple[Side, Side], asked: list[Asked]
) -> None:
    driven, by_tasks = sides
    for each in asked:
        assert driven.ask(each) == by_tasks.ask(each), each
    # An answer is counted when it has been sent.
    wait_until(lambda: driven.counted == by_tasks.counted)
    assert driven.queues.traffic.totals == by_tasks.queues.traffic.totals
    assert driven.queues.traffic.refusals == by_tasks.queues.traffic.refusals
    assert not by_tasks.driven


def test_a_send_a_lease_and_an_ack_are_answered_without_a_task(sides: tuple[Side, Side]) -> None:
    for side in sides:
        before = side.driven
        for target, body in (
            (("POST", "messages"), {"data": "a teapot"}),
            (("POST", "lease"), {}),
            (("POST", "ack"), {"receipts": ["LAST-RECEIPT"]}),
        ):
            assert side.ask(Asked(target, "orders", body, "json", ("host: localhost",))).startswith(b"HTTP/1.1 20")
        assert side.driven - before == (3 if side is sides[0] else 0)
