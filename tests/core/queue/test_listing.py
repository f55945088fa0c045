"""Whatever has happened to a queue, a list of what it holds is what a look at every number says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.messages import TIERS
from penstock.core.queue import listing
from penstock.core.queue.listing import START, ListCursor, Listing, list_live, next_live, next_numbers
from penstock.core.queue.queries import MessageView, look
from penstock.core.queue.rows import STATES
from penstock.core.queue.state import State
from tests.core.queue.life import Life
from tests.core.queue.test_living import RandomLife


def seen(state: State, page: Listing) -> list[tuple[object, ...]]:
    """Return the columns of a list, a row at a time."""
    return [
        (
            key,
            STATES[page.places[row]],
            page.tiers[row],
            page.sent_at_ms[row],
            page.deliveries[row],
            (page.homes[row], page.home_lanes[row], page.home_numbers[row]),
            page.groups.get(row, b""),
            page.errors.get(row, ""),
        )
        for row, key in enumerate(page.keys)
    ]


def expected(state: State, message: MessageView) -> tuple[object, ...]:
    home: tuple[int, ...] = (state.queue, message.message & 7, message.message >> 3)
    sent_at_ms, deliveries = message.sent_at_ms, message.deliveries
    if message.origin is not None:
        home, sent_at_ms = message.origin[:3], message.origin.sent_at_ms
        deliveries += message.origin.deliveries
    return (
        message.message,
        message.place,
        message.tier,
        sent_at_ms,
        deliveries,
        home,
        message.group,
        message.error,
    )


def naive(state: State) -> list[tuple[object, ...]]:
    """Ask for each number there ever was whether it is anywhere."""
    keys = [number << 3 | lane for lane in range(TIERS) for number in range(state.lanes[lane].next)]
    return [expected(state, message) for key in keys if (message := look(state, key)) is not None]


def pages(state: State, most: int) -> list[Listing]:
    found = [list_live(state, most=most)]
    while found[-1].after is not None:
        found.append(list_live(state, start=found[-1].after, most=most))
    return found


@given(
    seed=st.integers(0, 100_000),
    steps=st.integers(1, 120),
    most=st.sampled_from([1, 2, 3, 7, 40, 1_000]),
    window=st.sampled_from([1, 3, 10, 16_384]),
)
def test_pages_of_any_size_list_what_is_somewhere_and_nothing_else(
    seed: int, steps: int, most: int, window: int
) -> None:
    story = RandomLife(seed)
    for _ in range(steps):
        story.step()
    story.dead.advance(story.life.now_ms)
    for state in (story.life.state, story.dead.state):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(listing, "_WINDOW", window)
            found = pages(state, most)
        assert [row for page in found for row in seen(state, page)] == naive(state)
        assert all(len(page) <= most for page in found)
        # Where there is much in a queue, a page may find nothing among the numbers it looks at.
        assert window < 16_384 or all(map(len, found[:-1]))
        for page in found:
            in_runs = [
                number << 3 | run.lane for run in page.runs for number in range(run.first, run.first + run.length)
            ]
            assert in_runs == page.keys.tolist()


@given(seed=st.integers(0, 100_000), most=st.sampled_from([1, 5, 1_000]))
def test_the_ranges_of_pages_are_every_number_once(seed: int, most: int) -> None:
    story = RandomLife(seed)
    for _ in range(60):
        story.step()
    state = story.life.state
    looked_at = [
        number << 3 | lane
        for page in pages(state, most)
        for lane, first, end in page.ranges
        for number in range(first, end)
    ]
    assert looked_at == [number << 3 | lane for lane, end in enumerate(next_numbers(state)) for number in range(end)]
    for page in pages(state, most):
        assert all(
            any(lane == key & 7 and first <= key >> 3 < end for lane, first, end in page.ranges) for key in page.keys
        )


@given(seed=st.integers(0, 100_000), lane=st.integers(0, TIERS - 1), first=st.integers(0, 60))
def test_what_is_passed_over_as_settled_is_not_live_though_the_queue_changes_meanwhile(
    seed: int, lane: int, first: int
) -> None:
    story = RandomLife(seed)
    for _ in range(60):
        story.step()
    state = story.life.state
    end = state.lanes[lane].next
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(listing, "_WINDOW", 3)
        place = ListCursor(lane, first)
        for place in next_live(state, place):  # noqa: B007, B020 - the last one counts.
            story.step()
    assert place.number <= max(end, first)
    assert all(look(state, number << 3 | lane) is None for number in range(first, min(place.number, end)))


@given(lane=st.integers(0, TIERS - 1), number=st.integers(0, 2**61))
def test_a_page_may_begin_anywhere(lane: int, number: int) -> None:
    life = Life()
    for tier in range(TIERS):
        life.send(4, tier)
    found = list_live(life.state, start=ListCursor(lane, number), most=100)
    assert found.keys.tolist() == [
        each << 3 | tier for tier in range(lane, TIERS) for each in range(number if tier == lane else 0, 4)
    ]


def test_an_empty_queue_has_been_looked_at_and_holds_nothing() -> None:
    found = list_live(Life().state, start=START, most=1)
    assert (len(found), found.after, found.ranges) == (0, None, [(lane, 0, 0) for lane in range(TIERS)])
