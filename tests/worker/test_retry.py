"""What becomes of a message whose work has failed."""

from hypothesis import given
from hypothesis import strategies as st

from penstock.client.drafts import DELAY_S_MAX
from penstock.client.worker.settings import Reject, Retry, RetryIn, Verdict, as_retry, describe, judge
from penstock.contract.limits import ERROR_CHARACTERS_MAX


def test_without_rules_the_queue_decides_when_to_try_again() -> None:
    assert judge(Retry(), ValueError("x"), 3) == Verdict()


def test_the_most_special_type_of_an_error_decides() -> None:
    retry = Retry(by={Exception: 1, OSError: 2, ConnectionError: lambda attempt: attempt * 10, ValueError: Reject})
    errors = [KeyError(), FileNotFoundError(), ConnectionResetError(), UnicodeError()]
    assert [judge(retry, error, 4) for error in errors] == [
        Verdict(delay_s=1.0),
        Verdict(delay_s=2.0),
        Verdict(delay_s=40.0),
        Verdict(is_rejected=True),
    ]


def test_a_backoff_doubles_up_to_its_cap_and_is_drawn_below_it() -> None:
    plain, drawn = Retry(min_backoff_s=2, max_backoff_s=9, jitter=False), Retry(min_backoff_s=2, max_backoff_s=9)
    assert [judge(plain, ValueError(), attempt).delay_s for attempt in (1, 2, 3, 4, 9_999)] == [2, 4, 8, 9, 9]
    assert judge(drawn, ValueError(), 2, roll=0.25) == Verdict(delay_s=1.0)
    assert 0 <= (judge(drawn, ValueError(), 2).delay_s or 0) < 4


def test_work_may_say_itself_when_it_is_to_be_tried_again() -> None:
    assert judge(Retry(by={Exception: Reject}), RetryIn(7, "too many requests"), 1) == Verdict(delay_s=7.0)
    assert judge(Retry(min_backoff_s=1), Reject("no such customer"), 1) == Verdict(is_rejected=True)


def test_rules_by_type_may_be_given_alone() -> None:
    assert as_retry({OSError: 5}) == Retry(by={OSError: 5})
    assert as_retry(None) == Retry()


@given(st.floats(allow_nan=False), st.integers(1, 10_000))
def test_a_delay_is_always_one_the_server_takes(delay_s: float, attempt: int) -> None:
    found = judge(Retry(by={ValueError: lambda _: delay_s}), ValueError(), attempt).delay_s
    assert found is not None
    assert 0 <= found <= DELAY_S_MAX


def deep(levels: int, words: str) -> None:
    if not levels:
        raise ValueError(words)
    deep(levels - 1, words)


@given(st.integers(0, 30), st.text(max_size=3_000))
def test_what_is_kept_of_an_error_is_its_words_and_where_it_was_raised(levels: int, words: str) -> None:
    try:
        deep(levels, words)
    except ValueError as error:
        text = describe(error)
    assert len(text) <= ERROR_CHARACTERS_MAX
    assert text.startswith(f"ValueError: {words}"[:500] if words else "ValueError")
    assert "raise ValueError(words)" in text


def test_of_a_rejection_the_words_are_kept() -> None:
    assert describe(Reject("no such customer")) == "no such customer"
    assert describe(Reject()) == "Reject"
