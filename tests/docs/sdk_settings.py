"""`client/settings.py`: the keywords of the SDK for settings and filters, made from the types of the REST API."""

from typing import Any

import msgspec
from msgspec import inspect

from penstock.contract.messages import PRIORITIES, STATES
from penstock.wire.operators import Filter
from penstock.wire.queue_settings import PART_TYPES, Settings
from penstock.wire.topics import TopicSettings
from tests.docs.pages import ROOT
from tests.docs.sync_stub import formatted

SDK_SETTINGS = ROOT / "src" / "penstock" / "client" / "settings.py"

# Parts before the whole.
_NAMES = {
    PART_TYPES["tiers"]: "TierSettings",
    PART_TYPES["retry"]: "RetrySettings",
    PART_TYPES["tenants"]: "TenantSettings",
    Settings: "QueueSettings",
    TopicSettings: "TopicSettings",
    Filter: "MessageFilter",
}
_HEAD = '''"""Settings and filters as keywords, so that editors and type checkers know their names and values.

Made from the types of the REST API by `python -m tests.docs.reference`: edit those instead.
"""

from typing import Literal, TypedDict

# The most urgent first; a number from 0 to 4 says the same.
'''


def sdk_settings() -> str:
    """Return the text of the module."""
    values = ", ".join([repr(each) for each in PRIORITIES] + [str(tier) for tier in range(len(PRIORITIES))])
    lines = [f"{_HEAD}Priority = Literal[{values}]"]
    states = ", ".join(repr(each) for each in STATES)
    lines += ["# Where a message is.", f"State = Literal[{states}]"]
    for struct, name in _NAMES.items():
        found = inspect.type_info(struct)
        assert isinstance(found, inspect.StructType)
        lines += ["", "", f"class {name}(TypedDict, total=False):", f'    """{struct.__doc__}"""', ""]
        for field in found.fields:
            lines += [f"    # {line}" for line in _lines(_description(field.type))]
            lines.append(f"    {field.name}: {_type(field.type, field.name)}")
    return formatted("\n".join(lines) + "\n", SDK_SETTINGS)


def _type(found: inspect.Type, name: str) -> str:
    found = found.type if isinstance(found, inspect.Metadata) else found
    if name in {"priority", "state"}:
        return name.capitalize()
    match found:
        case inspect.UnionType(types=types):
            return " | ".join(_type(each, name) for each in types if not _is_unset(each))
        case inspect.StructType(cls=cls):
            return _NAMES[cls]
        case inspect.ListType(item_type=item):
            return f"list[{_type(item, name)}]"
        case inspect.LiteralType(values=values):
            return f"Literal[{', '.join(f'{each!r}' for each in values)}]"
        case inspect.NoneType():
            return "None"
        case _:
            return {"IntType": "int", "FloatType": "float", "BoolType": "bool", "StrType": "str"}[type(found).__name__]


def _is_unset(found: inspect.Type) -> bool:
    return isinstance(found, inspect.CustomType) and found.cls is msgspec.UnsetType


def _description(found: Any) -> str:
    """Return what is said about a field, of whatever part of its type says it."""
    if isinstance(found, inspect.Metadata):
        said = (found.extra_json_schema or {}).get("description")
        return str(said) if said else _description(found.type)
    if isinstance(found, inspect.UnionType):
        return next(filter(None, map(_description, found.types)), "")
    return ""


def _lines(text: str, width: int = 110) -> list[str]:
    """Cut a text into lines."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + len(word) < width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
