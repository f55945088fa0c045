"""The reference pages say what the code says."""

from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

import pytest

from penstock.contract.limits import LIMITS
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.telemetry import NOTES
from tests.docs.declared import Declared, bounds_of, choices_of, settings_of
from tests.docs.reference import PAGES, limits_page, notes_page, queue_settings_page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_not_stale(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run `python -m tests.docs.reference`"


def test_every_declared_name_is_on_its_page() -> None:
    assert all(f"| `{note.name}` | {note.level} |" in notes_page() for note in NOTES)
    assert all(f"| `{limit.name}` |" in limits_page() for limit in LIMITS)
    assert all(f"| `{field.name}` |" in queue_settings_page() for field in fields(QueueSettings))


def test_every_number_among_the_settings_has_its_bounds_on_the_page() -> None:
    numbers = {field.name for field in fields(QueueSettings) if type(field.default) in {int, tuple}}

    assert bounds_of(QueueSettings).keys() == numbers


def test_the_bounds_on_the_page_are_those_that_hold() -> None:
    assert bounds_of(QueueSettings)["reserve_percent"] == "each 0 to 99"
    QueueSettings(reserve_percent=(99,) * 5)
    with pytest.raises(BadSettings):
        QueueSettings(reserve_percent=(100, 0, 0, 0, 0))


class Speed(Enum):
    # As the
    # crow flies.
    FAST = "fast"


@dataclass
class Explained:
    # How fast.
    speed: Speed = Speed.FAST


@dataclass
class Unexplained:
    # This is of the first one only.
    speed: int = 1
    weight: int = 2


def test_the_comment_above_a_setting_is_its_meaning() -> None:
    assert settings_of(Explained) == [Declared("speed", Speed.FAST, "How fast.")]
    assert choices_of(Speed) == [Declared("FAST", "fast", "As the crow flies.")]


def test_a_setting_without_a_comment_is_an_error() -> None:
    with pytest.raises(KeyError, match="weight"):
        settings_of(Unexplained)
