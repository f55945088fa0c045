"""The simulated network: late, lost, doubled, cut off, and healed again."""

import asyncio
from dataclasses import dataclass, field

import pytest

from penstock.runtime.interface import Runtime
from tests.simulation.loop import Unhandled, simulate
from tests.simulation.network import SimNetwork, Unreachable
from tests.simulation.world import Machine, PowerCut
from tests.waiting import elapse, let_others_run


@dataclass
class _Listener:
    """Answers each request with itself, and remembers it."""

    heard: list[object] = field(default_factory=list)

    async def __call__(self, sender: int, request: object) -> object:
        self.heard.append(request)
        return request


def _network(*nodes: int, seed: int = 0) -> tuple[SimNetwork, dict[int, _Listener]]:
    network, listeners = SimNetwork(seed), {node: _Listener() for node in nodes}
    for node, listener in listeners.items():
        network.join(node, listener)
    return network, listeners


async def _is_heard(network: SimNetwork, sender: int, receiver: int) -> bool:
    try:
        await network.call(sender, receiver, "hello", timeout_ms=100)
    except TimeoutError:
        return False
    return True


async def test_a_request_is_answered_after_a_while() -> None:
    network, _ = _network(1, 2)
    assert await network.call(1, 2, "hello", timeout_ms=100) == "hello"
    assert 0 < asyncio.get_running_loop().time() < 0.1


async def test_a_partition_cuts_both_ways_until_it_is_healed() -> None:
    network, listeners = _network(1, 2, 3)
    network.partition({1}, {2, 3})
    assert not await _is_heard(network, 1, 2)
    assert not await _is_heard(network, 3, 1)
    assert await _is_heard(network, 2, 3)
    assert not listeners[2].heard
    network.heal()
    assert await _is_heard(network, 1, 2)
    assert await _is_heard(network, 3, 1)


async def test_a_way_cut_in_one_direction_lets_requests_through_and_no_answers() -> None:
    network, listeners = _network(1, 2)
    network.cut(2, 1)
    assert not await _is_heard(network, 1, 2)
    assert listeners[2].heard == ["hello"]


async def test_a_node_that_is_not_there_is_unreachable() -> None:
    network, _ = _network(1)
    with pytest.raises(Unreachable):
        await network.call(1, 2, "hello", timeout_ms=100)


async def test_what_was_under_way_to_a_node_that_left_is_gone() -> None:
    network, listeners = _network(1, 2)
    async with asyncio.TaskGroup() as group:
        answer = group.create_task(_is_heard(network, 1, 2))
        await let_others_run()
        network.leave(2)
        network.join(2, listeners[2])
    assert not answer.result()
    assert not listeners[2].heard
    assert await _is_heard(network, 1, 2)


async def test_what_was_under_way_from_a_node_that_left_is_gone() -> None:
    network, listeners = _network(1, 2)
    async with asyncio.TaskGroup() as group:
        group.create_task(_is_heard(network, 1, 2))
        await let_others_run()
        network.leave(1)
    assert not listeners[2].heard


async def test_requests_are_lost_and_doubled_and_overtake_each_other() -> None:
    network, listeners = _network(1, 2)
    network.loss = network.duplication = 0.2
    calls = (network.call(1, 2, number, timeout_ms=100) for number in range(100))
    answers = await asyncio.gather(*calls, return_exceptions=True)
    heard = [number for number in listeners[2].heard if isinstance(number, int)]
    assert 0 < sum(isinstance(answer, TimeoutError) for answer in answers) < 60
    assert len(heard) > len(set(heard))
    assert heard != sorted(heard)
    assert all(answer in {number, None} for number, answer in enumerate(answers) if isinstance(answer, int))


async def test_nodes_share_no_state_through_what_they_send() -> None:
    network, listeners = _network(1, 2)
    sent = [[1], memoryview(b"view")]
    answer = await network.call(1, 2, sent, timeout_ms=100)
    assert answer == listeners[2].heard[0] == [[1], b"view"]
    assert isinstance(answer, list)
    answer[0].append(2)
    assert listeners[2].heard == [[[1], b"view"]]
    assert sent[0] == [1]


async def test_what_a_node_raises_reaches_the_caller() -> None:
    async def refuse(sender: int, request: object) -> object:
        raise PermissionError(request)

    network = SimNetwork()
    network.join(1, refuse)
    with pytest.raises(PermissionError, match="not this"):
        await network.call(0, 1, "not this", timeout_ms=100)


def test_a_mistake_in_an_answerer_fails_the_run() -> None:
    async def mistake(sender: int, request: object) -> object:
        raise AssertionError("never")

    async def main() -> None:
        network = SimNetwork()
        network.join(1, mistake)
        await network.call(0, 1, "hello", timeout_ms=100)

    with pytest.raises(Unhandled, match="never"):
        simulate(main)


async def test_a_node_whose_machine_dies_answering_never_answers(machine: Machine) -> None:
    network = SimNetwork()
    machine.on_death.append(lambda: network.leave(1))

    async def answer(sender: int, request: object) -> object:
        raise PowerCut("in the middle of an answer")

    async def serve(runtime: Runtime) -> None:
        network.join(1, answer)

    await machine.run(serve(machine.start()))
    assert not await _is_heard(network, 0, 1)
    assert not machine.is_running
    with pytest.raises(Unreachable):
        await network.call(0, 1, "hello", timeout_ms=100)


async def test_an_answer_still_being_given_may_outlast_the_run(machine: Machine) -> None:
    network = SimNetwork()

    async def answer(sender: int, request: object) -> object:
        async with asyncio.TaskGroup() as group:
            group.create_task(elapse(3_600))
        return request

    async def serve(runtime: Runtime) -> None:
        network.join(1, answer)

    await machine.run(serve(machine.start()))
    assert not await _is_heard(network, 0, 1)
