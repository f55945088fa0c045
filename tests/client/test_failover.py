"""One client of several equal servers: it goes on at the next one when its server does not serve."""

from collections.abc import Awaitable, Callable

import pytest

from penstock.client.caller import Answer, NotSent, Unanswered
from penstock.client.failover import FailoverTransport, addresses_of
from tests.client.scripted import Request, ScriptedTransport, problem, raises

Script = Callable[[Request], Awaitable[Answer]]

GONE, BROKEN = raises(NotSent("no connection")), raises(Unanswered("the connection was lost"))
STOPPING, UNKNOWN = problem("stopping"), problem("outcome_unknown")


def answers(body: bytes) -> Script:
    async def answer(_request: Request) -> Answer:
        return Answer(200, {}, body)

    return answer


class Three:
    """Servers `a`, `b` and `c`; the client begins with `a`."""

    def __init__(self, *of_a: Script) -> None:
        self.all = [ScriptedTransport([answers(name)]) for name in (b"a", b"b", b"c")]
        self.all[0].answers = [*of_a, answers(b"a")]
        self.transport = FailoverTransport(self.all)
        self.transport._current = 0

    async def ask(self, *, is_repeatable: bool = True) -> bytes | int:
        answer = await self.transport.request(
            "POST", "/x", headers=(), body=b"teapot", timeout_s=30, is_repeatable=is_repeatable
        )
        return answer.body if answer.status == 200 else answer.status

    @property
    def asked(self) -> list[int]:
        return [len(each.requests) for each in self.all]


async def test_a_client_stays_with_a_server_that_serves() -> None:
    three = Three()
    assert [await three.ask() for _ in range(3)] == [b"a"] * 3
    assert three.asked == [3, 0, 0]


@pytest.mark.parametrize("trouble", [GONE, BROKEN, STOPPING])
async def test_a_request_goes_on_at_the_next_server_and_so_do_those_after_it(trouble: Script) -> None:
    three = Three(trouble)
    assert [await three.ask() for _ in range(3)] == [b"b"] * 3
    assert three.asked == [1, 3, 0]
    assert three.all[1].requests[0].body == b"teapot"


async def test_what_must_not_be_repeated_goes_on_only_if_nothing_was_done() -> None:
    three = Three(BROKEN)
    with pytest.raises(Unanswered):
        await three.ask(is_repeatable=False)
    assert three.asked == [1, 0, 0]
    # The next request asks another one.
    assert await three.ask(is_repeatable=False) == b"b"
    assert await Three(GONE).ask(is_repeatable=False) == b"b"


async def test_a_request_whose_outcome_is_unknown_is_not_repeated_by_itself() -> None:
    three = Three(UNKNOWN)
    assert [await three.ask(), await three.ask()] == [504, b"b"]


async def test_each_server_is_asked_once_and_then_the_last_answer_counts() -> None:
    three = Three(STOPPING)
    three.all[1].answers = [STOPPING]
    three.all[2].answers = [STOPPING]
    assert await three.ask() == 503
    assert three.asked == [1, 1, 1]
    three.all[1].answers = three.all[2].answers = [GONE]
    three.all[0].answers = [GONE]
    with pytest.raises(NotSent):
        await three.ask()
    assert three.asked == [2, 2, 2]


def test_a_url_names_several_servers_briefly_or_in_full() -> None:
    assert [each.authority for each in addresses_of("http://a:1,b:2,c:3")] == ["a:1", "b:2", "c:3"]
    assert [each.authority for each in addresses_of("https://a,https://b:8443")] == ["a", "b:8443"]
    assert [each.prefix for each in addresses_of("http://a,b/queues")] == ["/queues", "/queues"]
    with pytest.raises(ValueError, match="http://host"):
        addresses_of("http://a,,b")
