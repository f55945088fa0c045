"""Requests are made and answers are read without an event loop, by the table that the server's routes agree with."""

from collections.abc import Coroutine
from typing import Any, TypeVar, get_args

import msgspec
import pytest

from penstock.api.rest.operations import OPERATIONS
from penstock.client.caller import Answer, Caller, Headers, NotSent
from penstock.client.errors import ConnectionFailed
from penstock.client.requests import ask
from penstock.frame import Buffer
from penstock.wire import operations as api

T = TypeVar("T")

_ASKED = [each for each in vars(api).values() if isinstance(each, api.Operation) and each is not api.HEALTH]


@pytest.mark.parametrize("operation", _ASKED, ids=lambda each: f"{each.method} {each.path}")
def test_the_server_has_each_operation_of_the_client_with_the_same_types(operation: api.Operation[Any]) -> None:
    (route,) = (each for each in OPERATIONS if (each.method, each.path) == (operation.method, operation.path))
    if operation.answer is bytes:
        return
    answers = {kind for each in route.answers.values() for kind in (get_args(each) or (each,))}

    assert operation.answer in answers
    assert operation.body is None or operation.body in (get_args(route.body) or (route.body,))


class BlockingTransport:
    """Answers at once, as a transport over a blocking socket would; refuses the first ``refusals`` requests."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.asked: list[str] = []

    async def request(
        self, method: str, path: str, *, headers: Headers, body: Buffer, timeout_s: float, is_repeatable: bool
    ) -> Answer:
        self.asked.append(f"{method} {path}")
        if len(self.asked) <= self.refusals:
            raise NotSent("no connection")
        return Answer(200, {}, msgspec.json.encode({"purged": 3}))

    async def close(self) -> None:
        self.asked.append("close")


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits for an event loop."""
    try:
        work.send(None)
    except StopIteration as end:
        found: T = end.value
        return found
    raise AssertionError("it waits for an event loop")


def test_a_call_over_a_blocking_transport_needs_no_event_loop_and_is_retried_all_the_same() -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    transport = BlockingTransport(refusals=2)
    caller = Caller(lambda: transport, timeout_s=60, now_s=lambda: sum(slept), sleep=sleep)

    assert _run(caller.perform(ask(api.PURGE_QUEUE, {"queue": "a/b"}))).purged == 3
    assert transport.asked == ["POST /api/queues/a%2Fb/purge"] * 3
    assert len(slept) == 2
    transport.refusals = 1_000
    with pytest.raises(ConnectionFailed):
        _run(caller.perform(ask(api.PURGE_QUEUE, {"queue": "a/b"})))
    assert 50 < sum(slept) <= 61
