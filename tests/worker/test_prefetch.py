"""How many messages a worker has in hand."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.worker.consumer import Prefetch
from penstock.contract.limits import REQUEST_MESSAGES_MAX

seconds = st.floats(0, 10_000)


def test_nothing_is_prefetched_before_the_speed_of_the_work_is_known() -> None:
    prefetch = Prefetch(20, 30)
    prefetch.fetched(1, is_whole=True)
    assert prefetch.most() == 0


def test_quick_work_has_twice_what_it_does_while_a_lease_is_on_its_way() -> None:
    prefetch = Prefetch(10, 30)
    prefetch.worked(0.01)
    prefetch.fetched(0.02, is_whole=True)
    assert prefetch.most() == 40


def test_a_lease_that_waited_for_messages_says_nothing_about_the_way() -> None:
    prefetch = Prefetch(10, 30)
    prefetch.worked(0.01)
    prefetch.fetched(20, is_whole=False)
    assert prefetch.most() == 0


def test_slow_work_prefetches_nothing_and_leaves_the_rest_to_others() -> None:
    prefetch = Prefetch(10, 30)
    prefetch.worked(15)
    prefetch.fetched(0.5, is_whole=True)
    assert prefetch.most() == 0


@given(st.integers(1, 1_000), st.floats(0.1, 43_200), st.lists(st.tuples(seconds, seconds), max_size=20))
def test_what_is_in_hand_can_be_worked_on_within_half_of_the_lease(
    concurrency: int, lease_s: float, measures: list[tuple[float, float]]
) -> None:
    prefetch = Prefetch(concurrency, lease_s)
    for worked_s, fetched_s in measures:
        prefetch.worked(worked_s)
        prefetch.fetched(fetched_s, is_whole=True)
    most = prefetch.most()
    assert 0 <= most <= REQUEST_MESSAGES_MAX
    if most:
        fastest_s = min(max(worked_s, 0.000_01) for worked_s, _ in measures)
        assert (most + concurrency) * fastest_s / concurrency <= lease_s / 2 * 1.001
