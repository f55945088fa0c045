"""What editors and type checkers read of `wire/queue_settings.py`, whose types are made from a table."""

from typing import Any, Literal, get_args, get_origin

from msgspec import Struct

from penstock.wire import queue_settings as made

_HEAD = """\
# Made from the table in `contract/queue_settings.py` by `python -m tests.docs.reference`.

from typing import Any, Literal

from msgspec import Struct, UnsetType

from penstock.contract.queue_settings import Row

SETTING_NAMES: tuple[str, ...]
SETTINGS_ABOUT: str
CHOICES: dict[str, tuple[str, ...]]
PART_TYPES: dict[str, type[Struct]]

def type_of(row: Row) -> Any: ...
def description_of(row: Row) -> str: ...

class QueueIdentity(Struct, kw_only=True):
    queue_id: str
    queue_name: str
    created_at: str | None
"""


def settings_stub() -> str:
    asked = "omit_defaults=True, forbid_unknown_fields=True, kw_only=True"
    parts = [_class(kind, f"Struct, {asked}", default=" = ...") for kind in made.PART_TYPES.values()]
    settings = _class(made.Settings, f"Struct, {asked}", default=" = ...")
    return "\n".join([_HEAD, *parts, settings, _class(made.SettingsView, "QueueIdentity, kw_only=True")])


def _class(kind: type[Struct], bases: str, default: str = "") -> str:
    own = {name: hint for name, hint in kind.__annotations__.items() if name not in made.QueueIdentity.__annotations__}
    lines = [f"    {name}: {_name_of(hint)}{default}" for name, hint in own.items()]
    return "\n".join([f"class {kind.__name__}({bases}):", *lines, ""])


def _name_of(hint: Any) -> str:
    """Return a type as it is written, without what msgspec is told about it."""
    if hasattr(hint, "__metadata__"):
        return _name_of(hint.__origin__)
    if get_origin(hint) is Literal:
        return "Literal[" + ", ".join(f'"{word}"' for word in get_args(hint)) + "]"
    if get_origin(hint) is list:
        return f"list[{_name_of(get_args(hint)[0])}]"
    if get_args(hint):
        return " | ".join(_name_of(each) for each in get_args(hint))
    return "None" if hint is type(None) else str(hint.__name__)
