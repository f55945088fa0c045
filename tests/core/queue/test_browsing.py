"""Whatever has happened to a queue, its pages together show every live message once, and nothing else."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue import listing
from penstock.core.queue.listing import BadCursor, BrowseFilter, Position, browse, from_text, live_runs, to_text
from penstock.core.queue.queries import MessageView, look
from tests.core.queue.life import Lease, Life


def lived(seed: int, *, is_fifo: bool) -> Life:
    """Return a queue after a random life."""
    dice = random.Random(seed)
    life = Life(QueueSettings(is_fifo=is_fifo, deliveries_max=2, aging_ms=(0, 0, 0, 3_000, 3_000)))
    leases: list[Lease] = []
    for _ in range(dice.randrange(5, 60)):
        match dice.randrange(7):
            case 0 | 1:
                group = dice.choice([b"", b"", b"a", b"b", b"c"])
                delay_ms = dice.choice([0, 0, 0, 2_000])
                life.send(dice.randrange(1, 6), dice.randrange(5), group=group, delay_ms=delay_ms)
            case 2 | 3:
                lease = life.lease(dice.randrange(1, 8), lease_ms=dice.choice([500, 60_000]))
                leases += [lease] if lease else []
            case 4:
                life.wait(dice.randrange(1_000))
            case 5 if leases:
                life.ack(leases.pop(), dice.getrandbits(8))
            case 6 if leases:
                life.release(leases.pop(), dice.getrandbits(8), delay_ms=dice.choice([0, 5_000]))
    return life


def pages(life: Life, sought: BrowseFilter, most: int) -> list[MessageView]:
    found: list[MessageView] = []
    after: Position | None = ()
    while after is not None:
        page = browse(life.state, sought, after=from_text(to_text(after)), most=most)
        assert len(page.seen) <= most
        found += page.seen
        after = page.after
    return found


@given(
    seed=st.integers(0, 10_000),
    is_fifo=st.booleans(),
    most=st.sampled_from([1, 2, 7, 1_000]),
    sought=st.builds(
        BrowseFilter,
        place=st.sampled_from([None, None, *listing.PLACES]),
        tier=st.sampled_from([None, None, 0, 2, 4]),
        group=st.sampled_from([None, None, b"", b"a", b"z"]),
    ),
)
def test_pages_of_any_size_show_what_is_sought_once(seed: int, is_fifo: bool, most: int, sought: BrowseFilter) -> None:
    life = lived(seed, is_fifo=is_fifo)
    keys = [
        number << 3 | lane
        for lane, runs in enumerate(live_runs(life.state))
        for first, end in runs
        for number in range(first, end)
    ]
    there = [seen for key in keys if (seen := look(life.state, key)) is not None]
    assert len(there) == len(keys)
    expected = [
        seen
        for seen in there
        if sought.place in {None, seen.place}
        and sought.tier in {None, seen.tier}
        and sought.group in {None, seen.group}
    ]
    found = pages(life, sought, most)
    assert sorted(found, key=_message) == sorted(expected, key=_message)


def _message(seen: MessageView) -> int:
    return seen.message


def test_a_page_that_has_looked_at_enough_ends_and_says_where(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "PEEK_SCANNED_MAX", 3)
    life = Life()
    life.send(10, 2, group=b"a")
    (last,) = life.send(1, 2, group=b"b")
    life.release(life.leased(1), delay_ms=5_000)
    seen = pages(life, BrowseFilter(place="resting"), 10)
    assert len(seen) == 1
    assert [each.message for each in pages(life, BrowseFilter(group=b"b"), 10)] == [last]
    assert len(pages(life, BrowseFilter(), 10)) == 11


@given(text=st.text(alphabet="0123456789abcdef-x", max_size=40))
def test_a_text_is_a_cursor_or_it_is_refused(text: str) -> None:
    life = lived(1, is_fifo=False)
    try:
        position = from_text(text)
    except BadCursor:
        return
    browse(life.state, BrowseFilter(), after=position, most=10)


@given(
    numbers=st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=7),
    head=st.sampled_from([(0, 0), (0, 1), (1,), (2,)]),
)
def test_a_cursor_from_nowhere_leads_nowhere_and_breaks_nothing(numbers: list[int], head: tuple[int, ...]) -> None:
    life = lived(3, is_fifo=True)
    position = (head[0], numbers[0], *head[1:], *numbers[1:]) if head[0] == 0 else (head[0], *numbers)
    try:
        after = from_text(to_text(position))
    except BadCursor:
        return
    assert browse(life.state, BrowseFilter(), after=after, most=10).seen is not None
