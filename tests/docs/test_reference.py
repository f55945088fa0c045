"""The reference pages say what the code says."""

from dataclasses import dataclass, fields
from enum import Enum
from pathlib import Path

import pytest

from penstock.contract.limits import LIMITS
from penstock.contract.queue_settings import QueueSettings
from penstock.settings import ServerSettings
from penstock.telemetry import LOG_EVENTS
from tests.docs.declared import Declared, bounds_of, choices_of, settings_of
from tests.docs.reference import PAGES, limits_page, log_events_page, queue_settings_page


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_a_generated_page_is_not_stale(path: Path) -> None:
    assert path.read_text() == PAGES[path](), "run `python -m tests.docs.reference`"


def test_every_declared_name_is_on_its_page() -> None:
    assert all(f"| `{event.name}` | {event.level} |" in log_events_page() for event in LOG_EVENTS)
    assert all(f"| `{limit.name}` |" in limits_page() for limit in LIMITS)
    assert all(f"| `{field.name}` |" in queue_settings_page() for field in fields(QueueSettings))


def test_the_bounds_on_the_page_of_the_server_are_those_of_its_checks() -> None:
    assert bounds_of(ServerSettings)["port"] == "0 to 65535"


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
