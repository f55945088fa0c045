"""The embedded store on a machine that crashes: random lives, judged by what its clients were told."""

import pytest

from tests.simulation import shards_life, store_crashes, store_life
from tests.simulation.loop import simulate


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 32, 8))
def test_random_lives_of_a_store_keep_every_promise_to_its_clients(first: int) -> None:
    for seed in range(first, first + 8):
        store_life.run(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 32, 8))
def test_random_lives_of_a_store_with_shards_keep_every_promise_to_its_clients(first: int) -> None:
    for seed in range(first, first + 8):
        shards_life.run(seed)


@pytest.mark.parametrize("third", range(3))
def test_a_crash_at_any_step_loses_nothing_that_a_client_was_told(third: int) -> None:
    """Each step once; `python -m tests.simulation --life store_crashes` crashes there in each way."""
    for step in range(third, store_crashes.steps(), 3):
        store_crashes.crash(step, store_crashes.WAYS[step // 3 % 3])


def test_the_same_seed_lives_the_same_life() -> None:
    lives = [store_life.Life(3) for _ in range(2)]
    for life in lives:
        simulate(life.live, seed=3)
    first, second = [list(life.books.messages) for life in lives]
    assert first == second
    assert lives[0].machine.disk.operations == lives[1].machine.disk.operations
