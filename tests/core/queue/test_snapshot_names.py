"""The names under which a queue's state is written: every attribute is decided on, and no name is passed over."""

from collections.abc import Iterator
from typing import Any

import pytest

from penstock.contract.queue_settings import QueueSettings
from penstock.core.queue.message import Sender
from penstock.core.queue.snapshot import LAYOUTS, StateUnreadable, freeze, thaw
from penstock.core.queue.state import State
from tests.core.queue.life import Life


def frozen() -> dict[str, Any]:
    """A queue that has at least one object of every class of `LAYOUTS`."""
    life = Life(QueueSettings())
    life.send(3, group=b"a")
    life.send(2, sender=Sender(1, 0, 0))
    life.leased(2)
    return freeze(life.state)


def objects(value: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(value, dict):
        yield path, value
        for name, entry in value.items():
            yield from objects(entry, f"{path}.{name}")
    elif isinstance(value, list):
        for place, entry in enumerate(value):
            yield from objects(entry, f"{path}[{place}]")


@pytest.mark.parametrize("kind", LAYOUTS, ids=lambda kind: kind.__name__)
def test_every_attribute_has_a_name_on_disk_or_is_left_out_on_purpose(kind: type) -> None:
    names, left_out, wide = LAYOUTS[kind]
    attributes = set(kind.__slots__)  # type: ignore[attr-defined]
    undecided = attributes - names.keys() - left_out
    assert not undecided, (
        f"give these a name in LAYOUTS of core/queue/snapshot.py, or list them as left out: {undecided}"
    )
    assert names.keys() | left_out == attributes, "LAYOUTS has an attribute that there is no more"
    assert not names.keys() & left_out
    assert wide <= names.keys()
    assert len(set(names.values())) == len(names)
    assert kind.__dictoffset__ == 0, "an attribute that is not in __slots__ would not be written"


def test_an_object_of_every_class_is_written() -> None:
    written = [set(value) - {"settings"} for _, value in objects(frozen())]
    for kind, layout in LAYOUTS.items():
        assert set(layout.names.values()) in written, kind.__name__


def test_a_missing_name_and_an_unknown_one_are_damage() -> None:
    assert isinstance(thaw(frozen()), State)
    for path, value in objects(frozen()):
        for name in value:
            lacking = frozen()
            del dict(objects(lacking))[path][name]
            with pytest.raises(StateUnreadable, match=name):
                thaw(lacking)
        more = frozen()
        dict(objects(more))[path]["of_tomorrow"] = 1
        with pytest.raises(StateUnreadable, match=r"missing are \[\], unknown are \['of_tomorrow'\]"):
            thaw(more)


def test_a_setting_that_is_unknown_is_damage() -> None:
    strange = frozen()
    strange["settings"] = '{"of_tomorrow":1}'
    with pytest.raises(StateUnreadable, match="settings: there is no setting 'of_tomorrow'"):
        thaw(strange)
