"""The garbage collector of a server never looks at much at once, neither while it opens nor after."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.server import GC_THRESHOLDS, serve
from penstock.settings import ServerSettings

# About 5 ms.
LOOKED_AT_MAX = 15_000


@pytest.fixture(autouse=True)
def collector_as_it_was() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_a_look_at_the_young_is_short_and_all_are_looked_at_seldom() -> None:
    young, middle, old = GC_THRESHOLDS
    assert young * (middle + 2) <= LOOKED_AT_MAX
    assert young * (middle + 1) * old >= 40_000_000


def test_a_server_collects_before_it_opens_and_sets_aside_what_it_opened(tmp_path: Path) -> None:
    full: list[str] = []
    left: list[int] = []

    def count(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            full.append("while opening" if (tmp_path / "data").exists() else "before")

    def stop(_address: str) -> None:
        left.append(len(gc.get_objects()))
        assert gc.get_threshold() == GC_THRESHOLDS
        os.kill(os.getpid(), signal.SIGTERM)

    gc.callbacks.append(count)
    try:
        serve(ServerSettings(port=0, data=tmp_path / "data"), announce=stop)
    finally:
        gc.callbacks.remove(count)
    assert full == ["before"]
    assert left[0] < 1_000
