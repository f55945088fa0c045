"""Settings of a queue or a topic as people type them: `visibility_timeout=60 tiers.mode=strict`, or `--partitions 8`.

The words are those of REST, and the types of REST say what each may be, so there is no second list of options to keep
in step.
"""

import difflib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
import typer

from penstock.wire.queue_settings import SETTING_NAMES, Settings
from penstock.wire.topics import TopicSettings
from penstock.wire.words import rule_of


@dataclass(frozen=True, slots=True)
class Settable:
    """What can be set: the type that says what each setting may be, their names, and an example."""

    kind: type[msgspec.Struct]
    names: tuple[str, ...]
    example: str

    def complete(self, incomplete: str) -> list[str]:
        """What a shell offers after the first letters of a setting."""
        return [f"{name}=" for name in self.names if name.startswith(incomplete)]

    def nearest(self, name: str) -> str:
        near = difflib.get_close_matches(name, self.names, n=1)
        return f"is {near[0]} meant?" if near else f"there are {', '.join(self.names)}"


QUEUE = Settable(Settings, SETTING_NAMES, "visibility_timeout=60")
TOPIC = Settable(TopicSettings, TopicSettings.__struct_fields__, "partitions=8")
# The words of an option that a command does not have are settings.
WITH_SETTINGS = {"ignore_unknown_options": True}


def changes_said(words: Iterable[str], of: Settable) -> dict[str, Any]:
    """Return what `settings_said` does; nothing to set is a usage error, too."""
    said = settings_said(words, of)
    if not said:
        raise typer.BadParameter(f"say what to set, as in {of.example}")
    return said


def settings_said(words: Iterable[str], of: Settable = QUEUE) -> dict[str, Any]:
    """Return what `name=value` words say, as the SDK takes it; one that cannot be is a usage error.

    >>> settings_said(["visibility_timeout=60", "tiers.weights=8,4,2,1,1", "fifo=true"])
    {'visibility_timeout': 60.0, 'fifo': True, 'tiers': {'weights': [8.0, 4.0, 2.0, 1.0, 1.0]}}
    >>> settings_said(["retention_s=none", "--partitions", "8", "cleanup=compact,delete"], TOPIC)
    {'partitions': 8, 'retention_s': None, 'cleanup': 'compact,delete'}
    """
    said: dict[str, Any] = {}
    for word in _joined(words, of):
        name, equals, text = word.partition("=")
        if not equals or name not in of.names:
            raise typer.BadParameter(f"{word!r} is not a setting; {of.nearest(name)}, as in {of.example}")
        first, _, rest = name.partition(".")
        checked = _checked(first, rest, text, of)
        if rest:
            said.setdefault(first, {}).update(checked[first])
        else:
            said.update(checked)
    # In one order whatever was typed, so that parts stand together.
    return {name: said[name] for name in of.kind.__struct_fields__ if name in said}


def _joined(words: Iterable[str], of: Settable) -> Iterator[str]:
    """Return options as `name=value`.

    >>> list(_joined(["fifo=true", "--max-deliveries", "7", "--retry.min-backoff-s=2"], QUEUE))
    ['fifo=true', 'max_deliveries=7', 'retry.min_backoff_s=2']
    """
    given = iter(words)
    for word in given:
        if not word.startswith("--"):
            yield word
            continue
        name, equals, value = word[2:].partition("=")
        name = name.replace("-", "_")
        if name not in of.names:
            raise typer.BadParameter(f"there is no option {word}; {of.nearest(name)}")
        if not equals:
            found = next(given, None)
            if found is None:
                raise typer.BadParameter(f"{word} needs a value")
            value = found
        yield f"{name}={value}"


def _checked(first: str, rest: str, text: str, of: Settable) -> dict[str, Any]:
    problem = ""
    for value in _readings(text):
        asked = {first: {rest: value} if rest else value}
        try:
            found: dict[str, Any] = msgspec.to_builtins(msgspec.convert(asked, of.kind, strict=False))
            return found
        except msgspec.ValidationError as error:
            problem = rule_of(str(error)).words
    raise typer.BadParameter(f"{first}{'.' if rest else ''}{rest} cannot be {text!r}: {problem}")


def _readings(text: str) -> list[Any]:
    """What a text may mean: nothing at all, itself, or a list."""
    if text in {"", "none", "null"}:
        return [None]
    if "," in text or text.startswith("["):
        return [text, [part.strip() for part in text.strip("[]").split(",")]]
    return [text]
