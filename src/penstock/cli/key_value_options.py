"""Settings of a queue as people type them: `visibility_timeout=60 tiers.mode=strict`, or `--visibility-timeout 60`.

The words are those of REST, and the types of REST say what each may be, so there is
no second list of options to keep in step.
"""

import difflib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import typer

from penstock.wire.queue_settings import SETTING_NAMES, Settings
from penstock.wire.words import rule_of


def complete_setting(incomplete: str) -> list[str]:
    """What a shell offers after the first letters of a setting."""
    return [f"{name}=" for name in SETTING_NAMES if name.startswith(incomplete)]


def settings_said(words: Iterable[str]) -> dict[str, Any]:
    """Return what `name=value` words say, as the SDK takes it; one that cannot be is a usage error.

    >>> settings_said(["visibility_timeout=60", "tiers.weights=8,4,2,1,1", "fifo=true"])
    {'visibility_timeout': 60.0, 'fifo': True, 'tiers': {'weights': [8.0, 4.0, 2.0, 1.0, 1.0]}}
    """
    said: dict[str, Any] = {}
    for word in _joined(words):
        name, equals, text = word.partition("=")
        if not equals or name not in SETTING_NAMES:
            raise typer.BadParameter(f"{word!r} is not a setting; {_nearest(name)}, as in visibility_timeout=60")
        first, _, rest = name.partition(".")
        checked = _checked(first, rest, text)
        if rest:
            said.setdefault(first, {}).update(checked[first])
        else:
            said.update(checked)
    # In one order whatever was typed, so that parts stand together.
    return {name: said[name] for name in Settings.__struct_fields__ if name in said}


def _joined(words: Iterable[str]) -> Iterator[str]:
    """Return options as `name=value`.

    >>> list(_joined(["fifo=true", "--max-deliveries", "7", "--retry.base-s=2"]))
    ['fifo=true', 'max_deliveries=7', 'retry.min_backoff_s=2']
    """
    given = iter(words)
    for word in given:
        if not word.startswith("--"):
            yield word
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if name not in SETTING_NAMES:
            raise typer.BadParameter(f"there is no option {word}; {_nearest(name)}")
        if not equals:
            found = next(given, None)
            if found is None:
                raise typer.BadParameter(f"{word} needs a value")
            value = found
        yield f"{name}={value}"


def _checked(first: str, rest: str, text: str) -> dict[str, Any]:
    problem = ""
    for value in _readings(text):
        asked = {first: {rest: value} if rest else value}
        try:
            found: dict[str, Any] = msgspec.to_builtins(msgspec.convert(asked, Settings, strict=False))
            return found
        except msgspec.ValidationError as error:
            problem = rule_of(str(error)).words
    raise typer.BadParameter(f"{first}{'.' if rest else ''}{rest} cannot be {text!r}: {problem}")


def _readings(text: str) -> list[Any]:
    """What a text may mean: nothing at all, a list, or itself."""
    if text in {"", "none", "null"}:
        return [None]
    if "," in text or text.startswith("["):
        return [[part.strip() for part in text.strip("[]").split(",")]]
    return [text]


def _nearest(name: str) -> str:
    near = difflib.get_close_matches(name, SETTING_NAMES, n=1)
    return f"is {near[0]} meant?" if near else f"there are {', '.join(SETTING_NAMES)}"
