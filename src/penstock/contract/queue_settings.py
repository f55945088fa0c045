"""What can be set for one queue, and how it is written down.

Settings travel as JSON in `QueueCreated` and `QueueChanged`. A name that is not
there has its default; a name that is not known is refused, because a setting
that is silently ignored is worse than an error. `docs/reference/queue-settings.md`
is made from this file: the comment above a setting is its meaning.
"""

import json
from dataclasses import asdict, dataclass, fields
from enum import Enum
from typing import Any

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

TIERS = 5

SECOND_MS = 1_000
MINUTE_MS = 60 * SECOND_MS
DAY_MS = 24 * 60 * MINUTE_MS


class BadSettings(ValueError):
    """A setting is unknown, of the wrong kind or out of bounds; the message names it."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of one queue. A list has one number for each tier, CRITICAL first."""

    # Whether a group is in order and leased to one worker at a time; otherwise groups only share fairly. It is chosen
    # when a queue is created, and stays.
    is_fifo: bool = False
    # Whether a group of a FIFO queue is served again as soon as its first message is visible, although later ones are
    # still leased, as AWS has it; otherwise it waits for all of them. It is chosen when a queue is created, and stays.
    opens_early: bool = False
    # How long a lease lasts, if whoever leases does not say.
    lease_ms: int = 30 * SECOND_MS
    # How long a message rests before its first delivery, if it has no time of its own.
    delay_ms: int = 0
    # How long a message that is not in flight is kept, counted from when it was sent to this queue or came to it; 0
    # keeps it until it is settled.
    retention_ms: int = 0
    # How often a message is delivered before it is buried, if it has no limit of its own; 0 never buries, whatever
    # limits the messages have.
    deliveries_max: int = 5
    # From which delivery on a message of a standard queue whose lease lapses goes behind the others of its tier, as one
    # that was released does, and not back to its place; 0 never.
    back_after_deliveries: int = 0
    # How long a message rests at most if it is released without a delay after its first delivery; each further delivery
    # doubles it. How long it does rest is drawn each time, between 0 and that, unless `has_jitter` is off.
    backoff_ms_base: int = SECOND_MS
    # What the doubling of `backoff_ms_base` never exceeds.
    backoff_ms_max: int = 15 * MINUTE_MS
    # Whether the rest after a failure is drawn: messages that one outage failed do not come back as a herd. Without it
    # each rests for as long as `backoff_ms_base` and its doubling say.
    has_jitter: bool = True
    # The queue to bury in; "" is the name of this one with `.dead` after it.
    dead_letters: str = ""
    # How long an id keeps a second message of the same id away.
    dedup_scope: DedupScope = DedupScope.LIVE
    # How long the window of the scopes `window` and `content` is.
    dedup_window_ms: int = 5 * MINUTE_MS
    # Whether a tier is served only when all above it are empty, whatever the weights.
    is_strict: bool = False
    # By which the tiers share what is leased while all of them have messages.
    weights: tuple[int, ...] = (16, 8, 4, 2, 1)
    # How long a message waits in a tier before it moves up by one; 0 never. That of CRITICAL has no effect.
    aging_ms: tuple[int, ...] = (0, 0, 0, 30 * MINUTE_MS, 60 * MINUTE_MS)
    # How many messages the queue holds, leased and resting ones too, before it refuses sends; 0 is without a bound.
    size_max: int = 0
    # How large a body may be. A send with a larger one is refused as a whole.
    body_bytes_max: int = BODY_BYTES_MAX
    # Of `size_max`, in percent, what a tier leaves free for the others. With 0 for all, every tier may fill the queue.
    reserve_percent: tuple[int, ...] = (0, 0, 0, 0, 0)
    # How much of what is leased, in percent, a group of a standard queue may hold before it is noisy: then it is served
    # only when nothing quiet waits. 100 lets none be noisy by it.
    noisy_percent: int = 10
    # How many messages a group holds at least when it is noisy by `noisy_percent`.
    noisy_leased_min: int = 30
    # How much of the time for which messages of groups were held lately, in percent, a group may take before it is
    # noisy, however few it holds; 100 lets none be noisy by it.
    noisy_time_percent: int = 10
    # Whether nothing is leased. Sends are accepted, and what is leased already may be acked, released and extended.
    is_paused: bool = False
    # What is told of a message when it is settled.
    history: History = History.FACTS
    # What a front end keeps with the queue for itself, such as tags: a text of at most `LABELS_CHARACTERS_MAX`
    # characters that nothing else looks into.
    labels: str = ""

    def __post_init__(self) -> None:
        _between("lease_ms", self.lease_ms, 1, LEASE_MS_MAX)
        _between("delay_ms", self.delay_ms, 0, DURATION_MS_MAX)
        _between("retention_ms", self.retention_ms, 0, RETENTION_MS_MAX)
        _between("deliveries_max", self.deliveries_max, 0, DELIVERIES_MAX)
        _between("back_after_deliveries", self.back_after_deliveries, 0, DELIVERIES_MAX)
        _between("backoff_ms_base", self.backoff_ms_base, 0, DURATION_MS_MAX)
        _between("backoff_ms_max", self.backoff_ms_max, 0, DURATION_MS_MAX)
        _between("dedup_window_ms", self.dedup_window_ms, 1, DURATION_MS_MAX)
        _between("size_max", self.size_max, 0, 2**40)
        _between("body_bytes_max", self.body_bytes_max, 1, BODY_BYTES_MAX)
        _between("noisy_percent", self.noisy_percent, 1, 100)
        _between("noisy_leased_min", self.noisy_leased_min, 1, NOISY_LEASED_MAX)
        _between("noisy_time_percent", self.noisy_time_percent, 1, 100)
        if len(self.labels) > LABELS_CHARACTERS_MAX:
            raise BadSettings(f"labels has {len(self.labels)} characters; at most {LABELS_CHARACTERS_MAX} are kept")
        _for_each_tier("weights", self.weights, 1, WEIGHT_MAX)
        _for_each_tier("aging_ms", self.aging_ms, 0, DURATION_MS_MAX)
        _for_each_tier("reserve_percent", self.reserve_percent, 0, 99)

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
        known = values.keys() & _DEFAULTS.keys() if may_be_newer else values.keys()
        return cls(**{name: _read(name, values[name]) for name in known})


_DEFAULTS: dict[str, Any] = {field.name: field.default for field in fields(QueueSettings)}


def _read(name: str, value: Any) -> Any:
    if name not in _DEFAULTS:
        raise BadSettings(f"there is no setting {name!r}")
    default = _DEFAULTS[name]
    if isinstance(default, Enum):
        return _read_choice(name, type(default), value)
    if isinstance(default, tuple):
        if not isinstance(value, list) or not all(type(part) is int for part in value):
            raise BadSettings(f"{name} is a list of {TIERS} whole numbers, not {value!r}")
        return tuple(value)
    if type(value) is not type(default):
        raise BadSettings(f"{name} is a {type(default).__name__}, not {value!r}")
    return value


def _read_choice(name: str, choices: type[Enum], value: object) -> Enum:
    try:
        return choices(value)
    except ValueError:
        known = ", ".join(choice.value for choice in choices)
        raise BadSettings(f"{name} is one of {known}, not {value!r}") from None


def _between(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise BadSettings(f"{name} is {value}; it is between {least} and {most}")


def _for_each_tier(name: str, values: tuple[int, ...], least: int, most: int) -> None:
    if len(values) != TIERS:
        raise BadSettings(f"{name} has {len(values)} numbers; there are {TIERS} tiers")
    for value in values:
        _between(name, value, least, most)
