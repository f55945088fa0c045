"""The settings of a queue as requests and answers have them, made from the table in `contract/queue_settings.py`.

    Settings        what can be set: every field may be left out
    SettingsView    all settings of a queue, behind its identity

Editors and type checkers read `queue_settings.pyi`, which is made from the same table.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType, defstruct

from penstock.contract.messages import TIERS
from penstock.contract.queue_settings import PARTS, SAID, SAID_NAMES, SETTINGS, Row
from penstock.wire.names import Name

# Of a weight: what is less is not told from 0 as a ratio.
_LEAST_RATIO = 0.001


class QueueIdentity(Struct, kw_only=True):
    queue_id: str
    queue_name: str
    created_at: str | None


def _is_queue(row: Row) -> bool:
    return type(row.default) is str


def type_of(row: Row) -> Any:
    """Return the type of a setting in a request."""
    setting, default = row.setting, row.default
    if setting.words:
        return Literal[setting.words]
    if isinstance(default, bool):
        return bool
    if _is_queue(row):
        return Name
    number: Any = Annotated[int, Meta(ge=setting.least, le=setting.most)]
    if setting.is_ratio:
        number = Annotated[float, Meta(ge=_LEAST_RATIO, le=setting.most)]
    elif setting.unit == "ms":
        # 0 and not 0.0: `Annotated` takes one for the other, and the first that it has seen is shown everywhere.
        number = Annotated[float, Meta(ge=setting.least / 1_000 or 0, le=setting.most // 1_000)]
    if isinstance(default, tuple):
        return Annotated[list[number], Meta(min_length=TIERS, max_length=TIERS)]
    return number


def description_of(row: Row) -> str:
    """Return what a setting means, its unit if its name does not say it, and its default."""
    setting = row.setting
    default = row.as_said(row.default)
    unit = " In seconds." if setting.unit == "ms" and not setting.said.endswith("_s") else ""
    if isinstance(default, list):
        default = ", ".join(f"{each:g}" for each in default)
    elif isinstance(default, bool):
        default = str(default).lower()
    elif isinstance(default, str):
        default = f"`{default}`"
    return setting.help + unit + ("" if _is_queue(row) else f" Default {default}.")


def _field(name: str, row: Row) -> tuple[str, Any, Any]:
    kind = type_of(row) | UnsetType | None if _is_queue(row) else type_of(row) | UnsetType
    return name, Annotated[kind, Meta(description=description_of(row))], UNSET


def _view_field(name: str, row: Row) -> tuple[str, Any]:
    if _is_queue(row):
        return name, Annotated[str | None, Meta(description="Null for dead letters, which are not buried again.")]
    default = row.as_said(row.default)
    return name, float if row.setting.unit == "ms" else type(default)


def _rows_of(part: str) -> dict[str, Row]:
    return {said.rpartition(".")[2]: SETTINGS[name] for said, name in SAID.items() if said.rpartition(".")[0] == part}


def _made(kind: str, about: str, **fields: Any) -> type[Struct]:
    return defstruct(
        kind,
        [(name, *rest) for name, rest in fields.items()],
        namespace={"__doc__": about},
        module=__name__,
        omit_defaults=True,
        forbid_unknown_fields=True,
        kw_only=True,
    )


SETTINGS_ABOUT = "What can be set for a queue. What is left out keeps its value, or has its default in a new queue."

PART_TYPES: dict[str, type[Struct]] = {
    part: _made(part.capitalize(), about, **{name: _field(name, row)[1:] for name, row in _rows_of(part).items()})
    for part, about in PARTS.items()
}
Tiers, Retry, Tenants = (PART_TYPES[part] for part in ("tiers", "retry", "tenants"))
Settings = _made(
    "Settings",
    SETTINGS_ABOUT,
    **{
        name: (PART_TYPES[name] | UnsetType, UNSET) if name in PARTS else _field(name, SETTINGS[SAID[name]])[1:]
        for name in SAID_NAMES
    },
)
SettingsView = defstruct(
    "SettingsView",
    [(name, PART_TYPES[name]) if name in PARTS else _view_field(name, SETTINGS[SAID[name]]) for name in SAID_NAMES],
    bases=(QueueIdentity,),
    module=__name__,
    kw_only=True,
)
# Every name that can be set, parts with a dot before them, in the order of `Settings`.
SETTING_NAMES: tuple[str, ...] = tuple(sorted(SAID, key=lambda said: SAID_NAMES.index(said.partition(".")[0])))
# The words of every setting that is one of a few.
CHOICES: dict[str, tuple[str, ...]] = {
    said.rpartition(".")[2]: SETTINGS[name].setting.words for said, name in SAID.items() if SETTINGS[name].setting.words
}
