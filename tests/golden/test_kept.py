"""Formats and documents are as they are kept, and no start loads more than is allowed."""

from collections.abc import Callable
from typing import get_args

import pytest

from penstock.core.queue.events import Event
from tests.golden import KEPT
from tests.golden.documents import DOCUMENTS
from tests.golden.formats import EVENTS, FORMATS, as_text
from tests.golden.loaded import LOADED, is_more

AGAIN = "If that is meant: python -m tests.golden"


@pytest.mark.parametrize(("name", "samples"), FORMATS.items(), ids=FORMATS)
def test_every_format_is_written_byte_by_byte_as_it_is_kept(name: str, samples: Callable[[], dict[str, bytes]]) -> None:
    assert as_text(samples()) == (KEPT / name).read_text(), AGAIN


def test_every_kind_of_event_is_among_the_samples() -> None:
    assert {type(event) for event in EVENTS} == set(get_args(Event))


@pytest.mark.parametrize(("name", "write"), DOCUMENTS.items(), ids=DOCUMENTS)
def test_every_document_says_what_it_is_kept_as(name: str, write: Callable[[], str]) -> None:
    assert write() == (KEPT / name).read_text(), AGAIN


@pytest.mark.parametrize(("name", "loaded"), LOADED.items(), ids=LOADED)
def test_no_start_loads_more_than_is_allowed(name: str, loaded: Callable[[], str]) -> None:
    more = is_more(loaded(), (KEPT / name).read_text())
    assert not more, f"{AGAIN}. More than before: {', '.join(more)}"
