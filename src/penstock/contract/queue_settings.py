"""What can be set for one queue, in one table: names, units, bounds, defaults, meanings, and who may set it.

    field of QueueSettings    in the core, in journals and in PostgreSQL, where settings are JSON
    Setting.said              in REST, the SDK and the command line, where times are seconds

Wire types, their translation and their view, errors, words of the command line and the reference pages are made
from this table, so another setting is a row here and the code that obeys it.

In JSON a name that is not there has its default; a name that is not known is refused, because a setting that is
silently ignored is worse than an error.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from enum import Enum
from math import gcd, lcm
from typing import Annotated, Any, Literal, get_args, get_type_hints

from penstock.contract.limits import (
    BODY_BYTES_MAX,
    DELIVERIES_MAX,
    DURATION_MS_MAX,
    LABELS_CHARACTERS_MAX,
    LEASE_MS_MAX,
    NOISY_LEASED_MAX,
    RETENTION_MS_MAX,
    WEIGHT_MAX,
)
from penstock.contract.messages import TIERS
from penstock.contract.names import check_name, is_dead_letters

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS

Unit = Literal["", "ms", "percent", "bytes", "characters", "messages", "deliveries"]


class BadSettings(ValueError):
    """A setting is unknown, of the wrong kind or out of bounds; the message begins with its name in the core."""

    def __init__(self, text: str, *, limit: int | None = None) -> None:
        super().__init__(text)
        self.limit = limit


class DedupScope(Enum):
    """How long an id keeps a second message of the same id away."""

    # Until the first one is settled.
    LIVE = "live"
    # For `dedup_window_ms` from the first send, settled or not.
    WINDOW = "window"
    # As `window`; a message that has no id gets a digest of its body from the store.
    CONTENT = "content"


class History(Enum):
    """What is told of a message when it is settled."""

    # Nothing.
    OFF = "off"
    # When it was sent, leased and settled, how often it was delivered, and how it ended.
    FACTS = "facts"
    # As `facts`, and its body.
    FULL = "full"


class Who(Enum):
    """Who may set it."""

    # A caller with the role admin, at any time.
    OWNER = "the owner"
    # The same, and only when the queue is created.
    CREATOR = "the owner, when the queue is created"
    # A front end, for itself.
    FRONT_END = "a front end"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What the type and the default of a field of `QueueSettings` do not say."""

    # The meaning, without unit and default.
    help: str
    # Its name in REST, with the part it is in; "" if it cannot be set there.
    said: str = ""
    # Of a number, or of each in a list; of a text, how long it may be.
    least: int = 0
    most: int = 0
    unit: Unit = ""
    # A list of numbers of which only the ratios count, so that fractions may be said.
    is_ratio: bool = False
    # A choice is a word in REST; of a bool, the words for False and True.
    words: tuple[str, ...] = ()
    who: Who = Who.OWNER


# What belongs together in REST, and stands in an object of its own.
PARTS = {
    "tiers": "How the five priorities share a queue. A list has one number for each, CRITICAL first.",
    "retry": "The delay of a released message: up to min_backoff_s · 2^(deliveries − 1), at most max_backoff_s.",
    "tenants": "When a group of a standard queue is noisy: it is then served only while no quiet group has messages.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of one queue. A list has one number for each tier, CRITICAL first."""

    size_max: Annotated[
        int,
        Setting(
            said="queue_size",
            most=2**40,
            unit="messages",
            help="The most messages in the queue, in flight and delayed ones included. Beyond it sends are refused; 0 "
            "is no limit.",
        ),
    ] = 0
    lease_ms: Annotated[
        int,
        Setting(
            said="visibility_timeout",
            least=1,
            most=LEASE_MS_MAX,
            unit="ms",
            help="How long a received message is hidden from other consumers, unless the request says otherwise.",
        ),
    ] = 30 * SECOND_MS
    deliveries_max: Annotated[
        int,
        Setting(
            said="max_deliveries",
            most=DELIVERIES_MAX,
            unit="deliveries",
            help="Deliveries before a message moves to the dead-letter queue, unless the message has a limit of its "
            "own; 0 is never, even for messages with a limit.",
        ),
    ] = 5
    back_after_deliveries: Annotated[
        int,
        Setting(
            said="demote_after_deliveries",
            most=DELIVERIES_MAX,
            unit="deliveries",
            help="After this many deliveries, a message whose lease expires returns behind the others of its priority "
            "instead of to its place; 0 is never. Not for FIFO queues.",
        ),
    ] = 0
    dead_letters: Annotated[
        str,
        Setting(
            said="dead_letter_queue",
            help="The name of its dead-letter queue; by default its own name with `.dead`.",
        ),
    ] = ""
    retention_ms: Annotated[
        int,
        Setting(
            said="retention_s",
            most=RETENTION_MS_MAX,
            unit="ms",
            help="How long the queue keeps a message that is not in flight, from its arrival; 0 keeps it until it is "
            "settled.",
        ),
    ] = 0
    delay_ms: Annotated[
        int,
        Setting(
            said="delay_s",
            most=DURATION_MS_MAX,
            unit="ms",
            help="How long a new message is delayed, unless it has a time of its own.",
        ),
    ] = 0
    is_fifo: Annotated[
        bool,
        Setting(
            said="fifo",
            who=Who.CREATOR,
            help="Deliver each group in order, to one consumer at a time; otherwise groups only share fairly. It "
            "cannot be changed later.",
        ),
    ] = False
    opens_early: Annotated[
        bool,
        Setting(
            who=Who.FRONT_END,
            help="Deliver a group of a FIFO queue again as soon as its first message is visible, even if later ones "
            "are still leased, as AWS does; otherwise it waits for all of them. It cannot be changed later.",
        ),
    ] = False
    dedup_scope: Annotated[
        DedupScope,
        Setting(
            said="dedup",
            words=tuple(scope.value for scope in DedupScope),
            help="How long a `dedup_id` suppresses a second message: `live` until the first is settled; `window` for a "
            "time after the first send; `content` as `window`, with an id from the body if there is none.",
        ),
    ] = DedupScope.LIVE
    dedup_window_ms: Annotated[
        int,
        Setting(
            said="dedup_window_s",
            least=1,
            most=DURATION_MS_MAX,
            unit="ms",
            help="The length of the window. Without `dedup` it selects `window`.",
        ),
    ] = 5 * MINUTE_MS
    is_strict: Annotated[
        bool,
        Setting(
            said="tiers.mode",
            words=("weighted", "strict"),
            help="`weighted` shares by weights; `strict` serves a priority only when all above it are empty.",
        ),
    ] = False
    weights: Annotated[
        tuple[int, ...],
        Setting(
            said="tiers.weights",
            least=1,
            most=WEIGHT_MAX,
            is_ratio=True,
            help="How priorities share while all have messages. Only ratios matter: 8:4:2:1:0.5 equals 16:8:4:2:1.",
        ),
    ] = (16, 8, 4, 2, 1)
    aging_ms: Annotated[
        tuple[int, ...],
        Setting(
            said="tiers.aging_s",
            most=DURATION_MS_MAX,
            unit="ms",
            help="How long a message waits before it moves up by one priority; 0 is never. The first number has no "
            "effect.",
        ),
    ] = (0, 0, 0, 30 * MINUTE_MS, 60 * MINUTE_MS)
    reserve_percent: Annotated[
        tuple[int, ...],
        Setting(
            said="tiers.reserve_percent",
            most=99,
            unit="percent",
            help="The part of `queue_size` that messages of a priority leave free for the others. With 0 for all, "
            "every priority may fill the queue.",
        ),
    ] = (0, 0, 0, 0, 0)
    backoff_ms_base: Annotated[
        int,
        Setting(
            said="retry.min_backoff_s",
            most=DURATION_MS_MAX,
            unit="ms",
            help="The longest delay after the first delivery of a message that is released without a delay. Each "
            "further delivery doubles it.",
        ),
    ] = SECOND_MS
    backoff_ms_max: Annotated[
        int,
        Setting(
            said="retry.max_backoff_s", most=DURATION_MS_MAX, unit="ms", help="The upper limit of the doubled delay."
        ),
    ] = 15 * MINUTE_MS
    has_jitter: Annotated[
        bool,
        Setting(
            said="retry.jitter",
            help="Choose the delay at random between 0 and the computed one, so that the messages of one outage do not "
            "all return at once. Otherwise use the computed delay.",
        ),
    ] = True
    noisy_percent: Annotated[
        int,
        Setting(
            said="tenants.noisy_percent",
            least=1,
            most=100,
            unit="percent",
            help="A group with more than this share of all messages in flight is noisy; 100 turns this off.",
        ),
    ] = 10
    noisy_leased_min: Annotated[
        int,
        Setting(
            said="tenants.noisy_in_flight",
            least=1,
            most=NOISY_LEASED_MAX,
            unit="messages",
            help="A group with fewer messages in flight is never noisy by its share of them.",
        ),
    ] = 30
    noisy_time_percent: Annotated[
        int,
        Setting(
            said="tenants.noisy_time_percent",
            least=1,
            most=100,
            unit="percent",
            help="A group that used more than this share of the recent time of consumers is noisy, however few of its "
            "messages are in flight; 100 turns this off.",
        ),
    ] = 10
    body_bytes_max: Annotated[
        int,
        Setting(
            said="max_message_bytes",
            least=1,
            most=BODY_BYTES_MAX,
            unit="bytes",
            help="The largest body. A send that has a larger one is refused as a whole.",
        ),
    ] = BODY_BYTES_MAX
    alert_dead_letters: Annotated[
        int,
        Setting(
            said="alert_dead_letters",
            least=0,
            most=2**40,
            unit="messages",
            help="How many dead letters of this queue raise an alert; 0 is never. The alert rules for Prometheus "
            "compare it with their count.",
        ),
    ] = 1
    history: Annotated[
        History,
        Setting(
            said="history",
            words=tuple(choice.value for choice in History),
            help="What the history keeps of a settled message: nothing, its times and outcome, or its body as well.",
        ),
    ] = History.FACTS
    is_paused: Annotated[
        bool,
        Setting(
            said="paused",
            help="Stop deliveries. Sends continue, and messages in flight can still be acked, released and extended.",
        ),
    ] = False
    labels: Annotated[
        str,
        Setting(
            who=Who.FRONT_END,
            most=LABELS_CHARACTERS_MAX,
            unit="characters",
            help="What a front end keeps with the queue for itself, such as tags: a text that nothing else looks into.",
        ),
    ] = ""

    def __post_init__(self) -> None:
        for name, least, most, row in _WITH_BOUNDS:
            value = getattr(self, name)
            if type(value) is not int or not least <= value <= most:
                row.check(name, value)

    def room(self, tier: int) -> int:
        """How many messages the queue may hold for one more of this tier to be let in."""
        return self.size_max - self.size_max * self.reserve_percent[tier] // 100

    def to_json(self) -> str:
        """Return all settings as text, in an order that does not change."""
        values = asdict(self)
        values["dedup_scope"] = self.dedup_scope.value
        values["history"] = self.history.value
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, *, may_be_newer: bool = False) -> "QueueSettings":
        """Read settings. Raises `BadSettings` if one is unknown, of the wrong kind or out of bounds.

        Where the text ``may_be_newer`` than this code, what is unknown is passed over.

        >>> QueueSettings.from_json('{"lease_ms": 5000}').lease_ms
        5000
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise BadSettings(f"settings are not JSON: {error}") from None
        if not isinstance(values, dict):
            raise BadSettings("settings are not an object of names and values")
        known = values.keys() & SETTINGS.keys() if may_be_newer else values.keys()
        for name in known - SETTINGS.keys():
            raise BadSettings(f"there is no setting {name!r}")
        return cls(**{name: SETTINGS[name].read(name, values[name]) for name in known})


@dataclass(frozen=True, slots=True)
class Row:
    """A setting with all that is known of it."""

    default: Any
    setting: Setting

    @property
    def part(self) -> str:
        return self.setting.said.rpartition(".")[0]

    def check(self, name: str, value: Any) -> None:
        """Raise `BadSettings` if a value is out of bounds."""
        setting = self.setting
        if type(value) is int:
            _check_bounds(name, value, setting)
        elif type(value) is tuple:
            if len(value) != TIERS:
                raise BadSettings(f"{name} has {len(value)} numbers; there are {TIERS} tiers")
            for each in value:
                _check_bounds(name, each, setting)
        elif setting.unit == "characters" and len(value) > setting.most:
            raise BadSettings(f"{name} has {len(value)} characters; at most {setting.most} are kept")

    def read(self, name: str, value: Any) -> Any:
        """Return a value of the JSON that settings are kept as."""
        default = self.default
        if isinstance(default, Enum):
            return _read_choice(name, type(default), value)
        if isinstance(default, tuple):
            if not isinstance(value, list) or not all(type(part) is int for part in value):
                raise BadSettings(f"{name} is a list of {TIERS} whole numbers, not {value!r}")
            return tuple(value)
        if type(value) is not type(default):
            raise BadSettings(f"{name} is a {type(default).__name__}, not {value!r}")
        return value

    def from_said(self, value: Any) -> Any:
        """Return what REST says, which has been checked, as the core has it."""
        default, setting = self.default, self.setting
        if isinstance(default, tuple):
            if setting.is_ratio:
                return whole_weights(value)
            return tuple(milliseconds(each) if setting.unit == "ms" else each for each in value)
        if isinstance(default, Enum):
            return type(default)(value)
        if setting.words:
            return bool(setting.words.index(value))
        if value is None:
            return default
        return milliseconds(value) if setting.unit == "ms" else value

    def as_said(self, value: Any) -> Any:
        """Return what the core has as REST says it."""
        setting = self.setting
        if isinstance(value, tuple):
            return [seconds(each) if setting.unit == "ms" else each for each in value]
        if isinstance(value, Enum):
            return value.value
        if setting.words:
            return setting.words[value]
        return seconds(value) if setting.unit == "ms" else value


def _rows() -> dict[str, Row]:
    hints = get_type_hints(QueueSettings, include_extras=True)
    return {field.name: Row(field.default, get_args(hints[field.name])[1]) for field in fields(QueueSettings)}


# By their names in the core, and by those in REST.
SETTINGS: dict[str, Row] = _rows()
_WITH_BOUNDS = tuple(
    (name, row.setting.least, row.setting.most, row) for name, row in SETTINGS.items() if row.setting.most
)
SAID: dict[str, str] = {row.setting.said: name for name, row in SETTINGS.items() if row.setting.said}
# The names that a description of a queue has, in their order: parts are objects.
SAID_NAMES: tuple[str, ...] = tuple(dict.fromkeys(said.partition(".")[0] for said in SAID))


def from_said(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings that are said as REST says them by their names in the core; what is not said is left out.

    >>> from_said({"visibility_timeout": 1.5, "tiers": {"mode": "strict", "weights": [8, 4, 2, 1, 0.5]}})
    {'lease_ms': 1500, 'is_strict': True, 'weights': (16, 8, 4, 2, 1)}
    """
    found: dict[str, Any] = {}
    for said, name in SAID.items():
        part, _, within = said.rpartition(".")
        among = words.get(part, {}) if part else words
        if within in among:
            found[name] = SETTINGS[name].from_said(among[within])
    return found


def as_said(settings: QueueSettings) -> dict[str, Any]:
    """Return all settings that REST has, as it says them."""
    found: dict[str, Any] = {}
    for said, name in SAID.items():
        part, _, within = said.rpartition(".")
        (found.setdefault(part, {}) if part else found)[within] = SETTINGS[name].as_said(getattr(settings, name))
    return found


def whole_weights(weights: Sequence[float]) -> tuple[int, ...]:
    """Return weights in the same ratios as whole numbers, as small as they can be.

    >>> whole_weights([8, 4, 2, 1, 0.5])
    (16, 8, 4, 2, 1)
    """
    # It takes longer to import than all the rest here, and only those who set weights need it.
    from fractions import Fraction  # noqa: PLC0415

    parts = [Fraction(weight).limit_denominator(1_000) for weight in weights]
    if not all(parts):
        raise BadSettings("weights has one below 1/2000, which is not told from 0")
    scale = lcm(*(part.denominator for part in parts))
    whole = [int(part * scale) for part in parts]
    divisor = gcd(*whole)
    found = tuple(number // divisor for number in whole)
    if max(found) > WEIGHT_MAX:
        raise BadSettings(f"weights as whole numbers are {found}; the greatest may be {WEIGHT_MAX}", limit=WEIGHT_MAX)
    return found


def milliseconds(seconds: float) -> int:
    """Return seconds as milliseconds; more than nothing is not nothing."""
    ms = round(seconds * 1_000)
    return 1 if not ms and seconds > 0 else ms


def seconds(ms: int) -> float:
    """Return milliseconds as seconds, whole where they are."""
    return ms // 1_000 if ms % 1_000 == 0 else ms / 1_000


def check_settings(queue: str, settings: QueueSettings) -> None:
    """Raise `BadSettings` or `BadName` for settings that a queue of this name cannot have."""
    if settings.retention_ms and settings.delay_ms >= settings.retention_ms:
        raise BadSettings(
            f"delay_ms is {settings.delay_ms}; it has to be below retention_ms, which is {settings.retention_ms}: "
            "messages would expire before they are due"
        )
    if settings.dead_letters == queue:
        raise BadSettings(f"dead_letters is {queue!r}; a queue is not its own")
    if settings.dead_letters:
        check_name(settings.dead_letters, field="dead_letters")
    elif is_dead_letters(queue) and settings.deliveries_max:
        raise BadSettings(
            f"deliveries_max is {settings.deliveries_max}; dead letters are not buried again: "
            "let it be 0, or say in dead_letters where to"
        )


def _read_choice(name: str, choices: type[Enum], value: object) -> Enum:
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(choice.value for choice in choices)
        raise BadSettings(f"{name} is one of {known}, not {value!r}") from None


def _check_bounds(name: str, value: int, setting: Setting) -> None:
    if not setting.least <= value <= setting.most:
        unit = f" {setting.unit}" if setting.unit else ""
        raise BadSettings(f"{name} is {value}; allowed are {setting.least:,} to {setting.most:,}{unit}")


# Of a queue for dead letters that is created with the first of them: they have nowhere to go.
DEAD_LETTER_SETTINGS = QueueSettings(deliveries_max=0)
