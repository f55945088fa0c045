"""What is changed in a scenario: weights, aging, strictness, workers; whatever it does not name stays as it is.

    urgent first:weights=32,8,4,2,1,aging=0,0,0,10m,20m,workers=12
    strict:mode=strict

A list goes on until the next `name=`. Times are seconds, or have a unit: ms, s, m, h, d.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import BadSettings, QueueSettings
from penstock.pipeline.job import JobFailed

BASELINE = "baseline"
HAPPENED = "happened"
WORKERS_MAX = 10_000

_UNITS_MS = {"ms": 1, "": 1_000, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_NAME_CHARACTERS_MAX = 60


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name, and what is other than now; None stays as it is."""

    name: str
    weights: tuple[int, ...] | None = None
    aging_ms: tuple[int, ...] | None = None
    is_strict: bool | None = None
    workers: int | None = None

    def settings(self, now: QueueSettings) -> QueueSettings:
        said = {"weights": self.weights, "aging_ms": self.aging_ms, "is_strict": self.is_strict}
        changed: dict[str, Any] = {name: value for name, value in said.items() if value is not None}
        return replace(now, **changed)


def read_scenario(text: str) -> Scenario:
    """Read a scenario as it is typed.

    >>> read_scenario("calm:weights=4,2,2,1,1,mode=weighted,workers=8")
    Scenario(name='calm', weights=(4, 2, 2, 1, 1), aging_ms=None, is_strict=False, workers=8)
    """
    name, colon, rest = text.partition(":")
    name = name.strip()
    if not colon or not 0 < len(name) <= _NAME_CHARACTERS_MAX or name in {BASELINE, HAPPENED}:
        raise JobFailed(f"{text!r} is no scenario: it has a name of its own, as in calm:weights=4,2,2,1,1,workers=8")
    said: dict[str, Any] = {}
    for option, value in _options(rest, text):
        field, read = _OPTIONS[option]
        try:
            said[field] = read(value)
        except ValueError as error:
            raise JobFailed(f"scenario {name!r}: {option}={value} is not understood: {error}") from None
    scenario = Scenario(name, **said)
    try:
        scenario.settings(QueueSettings())
    except BadSettings as error:
        raise JobFailed(f"scenario {name!r}: {error}") from None
    return scenario


def of_weights(text: str) -> Scenario:
    """Return the scenario that `--weights` stands for."""
    return read_scenario(f"weights {text}:weights={text}")


def _options(text: str, whole: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for word in text.split(","):
        option, equals, value = word.strip().partition("=")
        if equals and option in _OPTIONS:
            found.append((option, value))
        elif found and not equals:
            found[-1] = (found[-1][0], f"{found[-1][1]},{option}")
        else:
            raise JobFailed(f"{whole!r}: {word!r} is not understood; a scenario may say {', '.join(_OPTIONS)}")
    return found


def _weights(text: str) -> tuple[int, ...]:
    return _list(text, int)


def _aging(text: str) -> tuple[int, ...]:
    return _list(text, _span_ms)


def _mode(text: str) -> bool:
    if text not in {"strict", "weighted"}:
        raise ValueError("a mode is strict or weighted")
    return text == "strict"


def _workers(text: str) -> int:
    count = int(text)
    if not 1 <= count <= WORKERS_MAX:
        raise ValueError(f"there may be 1 to {WORKERS_MAX:,}")
    return count


def _list(text: str, read: Callable[[str], int]) -> tuple[int, ...]:
    words = text.split(",")
    if len(words) != TIERS:
        raise ValueError(f"it has {len(words)} numbers; there are {TIERS} tiers")
    return tuple(read(word.strip()) for word in words)


def _span_ms(text: str) -> int:
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,3})?)(ms|s|m|h|d|)", text)
    if found is None:
        raise ValueError(f"{text!r} is no time, as 30, 30s, 10m or 1h")
    return int(float(found[1]) * _UNITS_MS[found[2]])


_OPTIONS: dict[str, tuple[str, Callable[[str], Any]]] = {
    "weights": ("weights", _weights),
    "aging": ("aging_ms", _aging),
    "mode": ("is_strict", _mode),
    "workers": ("workers", _workers),
}
