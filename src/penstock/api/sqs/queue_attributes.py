"""Attributes of a queue: those that are settings of Penstock, those that are only kept, those that are counted.

Each attribute that can be set is one row of a table: its values, and its effect. `RedrivePolicy` and
`RedriveAllowPolicy` name other queues, and are in `policies`.

Attributes that only SQS has (tags, policies and the like) are kept in the labels of the queue's
settings and returned. Policies are not enforced and nothing is encrypted; the reference states this for
each attribute.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import msgspec

from penstock.api.sqs.errors import INVALID_ATTRIBUTE_NAME, INVALID_ATTRIBUTE_VALUE, Refused
from penstock.contract.queue_settings import DedupScope, QueueSettings
from penstock.store.interface import Counts, Description

MESSAGE_BYTES_MAX = 1_048_576
POLICY_CHARACTERS_MAX = 8_192
# What AWS tells of a queue that has a key and says nothing about it.
KEY_REUSE_S = "300"
WAIT = "ReceiveMessageWaitTimeSeconds"
SCOPE = "DeduplicationScope"
THROUGHPUT = "FifoThroughputLimit"
FIFO = "FifoQueue"
CONTENT = "ContentBasedDeduplication"
REDRIVE = "RedrivePolicy"
ALLOW = "RedriveAllowPolicy"
KEY = "KmsMasterKeyId"
KEY_REUSE = "KmsDataKeyReusePeriodSeconds"
MANAGED = "SqsManagedSseEnabled"
_WHOLE = re.compile(r"[0-9]{1,12}")
_KEY_ID = re.compile(r"[\x21-\x7e]{1,2048}")


@dataclass(frozen=True, slots=True)
class Whole:
    """A numeric setting: its name, how many of its units one unit of AWS has, and its bounds in units of AWS."""

    setting: str
    scale: int
    least: int
    most: int
    # What stands for 0.
    floor: int = 0


_NUMBERS = {
    "VisibilityTimeout": Whole("lease_ms", 1_000, 0, 43_200, floor=1),
    "DelaySeconds": Whole("delay_ms", 1_000, 0, 900),
    "MessageRetentionPeriod": Whole("retention_ms", 1_000, 60, 1_209_600),
    "MaximumMessageSize": Whole("body_bytes_max", 1, 1_024, MESSAGE_BYTES_MAX),
}
_FIFO_ONLY = {FIFO, CONTENT, SCOPE, THROUGHPUT}
_COUNTED = (
    "QueueArn",
    "ApproximateNumberOfMessages",
    "ApproximateNumberOfMessagesNotVisible",
    "ApproximateNumberOfMessagesDelayed",
    "CreatedTimestamp",
    "LastModifiedTimestamp",
)


def unknown(name: str) -> Refused:
    return Refused(INVALID_ATTRIBUTE_NAME, f"Unknown Attribute {name[:100]}.")


def bad_value(name: str, reason: str = "") -> Refused:
    more = f" Reason: {reason}" if reason else ""
    return Refused(INVALID_ATTRIBUTE_VALUE, f"Invalid value for the parameter {name}.{more}")


def _between(name: str, value: str, least: int, most: int) -> int:
    if not _WHOLE.fullmatch(value) or not least <= int(value) <= most:
        raise bad_value(name)
    return int(value)


def _is_true(name: str, value: str) -> bool:
    if value.lower() not in {"true", "false"}:
        raise bad_value(name)
    return value.lower() == "true"


def _check_json(name: str, value: str) -> None:
    if value:
        try:
            is_object = isinstance(msgspec.json.decode(value), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object or len(value) > POLICY_CHARACTERS_MAX:
            raise bad_value(name, "It is a JSON object.")


def _check_choice(*choices: str) -> Callable[[str, str], None]:
    def check(name: str, value: str) -> None:
        if value not in choices:
            raise bad_value(name)

    return check


def _check_number(least: int, most: int) -> Callable[[str, str], None]:
    def check(name: str, value: str) -> None:
        _between(name, value, least, most)

    return check


def _check_key_id(name: str, value: str) -> None:
    if value and not _KEY_ID.fullmatch(value):
        raise bad_value(name)


# What is kept as it was said, and how it is checked.
_KEPT: dict[str, Callable[[str, str], object]] = {
    WAIT: _check_number(0, 20),
    "Policy": _check_json,
    KEY: _check_key_id,
    KEY_REUSE: _check_number(60, 86_400),
    MANAGED: _is_true,
    SCOPE: _check_choice("queue", "messageGroup"),
    THROUGHPUT: _check_choice("perQueue", "perMessageGroupId"),
}
ATTRIBUTES = (*_NUMBERS, *_KEPT, FIFO, CONTENT, REDRIVE, ALLOW, *_COUNTED)


def apply(attributes: Mapping[str, str], settings: QueueSettings, *, now_s: int) -> QueueSettings:
    """Return settings as these attributes make them; those that name other queues are left to others."""
    found: dict[str, Any] = {}
    kept = dict(kept_of(settings).attributes)
    for name, value in attributes.items():
        _check_known(name, is_fifo=settings.is_fifo)
        if name in _NUMBERS:
            row = _NUMBERS[name]
            found[row.setting] = row.scale * _between(name, value, row.least, row.most) or row.floor
        elif name == CONTENT:
            found["dedup_scope"] = DedupScope.CONTENT if _is_true(name, value) else DedupScope.WINDOW
        elif name == FIFO:
            if not _is_true(name, value):
                raise bad_value(name, "Modifying queue type is not supported.")
        elif name in _KEPT:
            _KEPT[name](name, value)
            _put(kept, name, value)
    _check_together(kept, attributes)
    _end_other_encryption(kept, attributes)
    told = msgspec.structs.replace(kept_of(settings), attributes=kept, modified_at_s=now_s)
    return with_kept(replace(settings, **found), told)


def _put(kept: dict[str, str], name: str, value: str) -> None:
    kept.pop(name, None)
    if value:
        kept[name] = value


def _check_known(name: str, *, is_fifo: bool) -> None:
    if name not in ATTRIBUTES or name in _COUNTED or (name in _FIFO_ONLY and not is_fifo):
        raise unknown(name)


def _check_together(kept: dict[str, str], attributes: Mapping[str, str]) -> None:
    if kept.get(THROUGHPUT) == "perMessageGroupId" and kept.get(SCOPE) != "messageGroup":
        raise bad_value(THROUGHPUT, f"perMessageGroupId is allowed only where {SCOPE} is messageGroup.")
    if attributes.get(KEY) and attributes.get(MANAGED, "").lower() == "true":
        raise Refused(
            INVALID_ATTRIBUTE_NAME,
            "You can use one type of server-side encryption (SSE) at one time. "
            "You can either enable KMS SSE or SQS SSE.",
        )


def _end_other_encryption(kept: dict[str, str], attributes: Mapping[str, str]) -> None:
    """A queue has one kind of encryption: naming one ends the other."""
    if attributes.get(KEY):
        kept.pop(MANAGED, None)
    elif attributes.get(MANAGED, "").lower() == "true":
        kept.pop(KEY, None)


def show_settings(settings: QueueSettings) -> dict[str, str]:
    """Return the attributes that are settings or kept, but for `RedrivePolicy`."""
    found = {name: str(getattr(settings, row.setting) // row.scale) for name, row in _NUMBERS.items()}
    kept = kept_of(settings).attributes
    found |= {WAIT: "0", MANAGED: "false" if KEY in kept else "true"}
    if KEY in kept:
        found[KEY_REUSE] = KEY_REUSE_S
    else:
        kept = {name: value for name, value in kept.items() if name != KEY_REUSE}
    if settings.is_fifo:
        content = "true" if settings.dedup_scope is DedupScope.CONTENT else "false"
        found |= {FIFO: "true", CONTENT: content, SCOPE: "queue", THROUGHPUT: "perQueue"}
    return found | kept


def show_counts(description: Description, counts: Counts, arn: str) -> dict[str, str]:
    created_at_s = (description.created_at_ms or 0) // 1_000
    values = (
        arn,
        sum(counts.ready),
        counts.leased + counts.stuck,
        counts.delayed,
        created_at_s,
        # Not before it was made: its attributes are dated when the call comes, and another second may begin until then.
        max(kept_of(description.settings).modified_at_s, created_at_s),
    )
    return dict(zip(_COUNTED, map(str, values), strict=True))


def same(name: str, one: str, other: str) -> bool:
    """Whether two values of an attribute mean the same."""
    if name in {REDRIVE, ALLOW, "Policy"}:
        return one == other or _plain(one) == _plain(other)
    return one.lower() == other.lower() if name in {FIFO, CONTENT, MANAGED} else one == other


def _plain(policy: str) -> object:
    """Return what a policy says, its numbers as numbers: clients write them as text, too."""
    try:
        found = json.loads(policy)
    except (ValueError, RecursionError):
        return policy
    if isinstance(found, dict) and isinstance(found.get("maxReceiveCount"), str):
        return found | {"maxReceiveCount": _plain(found["maxReceiveCount"])}
    return found


class SqsQueueState(msgspec.Struct, omit_defaults=True, frozen=True):
    tags: dict[str, str] = {}
    # As they were set, by their names.
    attributes: dict[str, str] = {}
    modified_at_s: int = 0
    # A second purge has to wait, whatever happens to the server meanwhile.
    purged_at_ms: int = 0


class _Labels(msgspec.Struct, omit_defaults=True):
    """One place for each front end."""

    sqs: SqsQueueState = SqsQueueState()


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Labels).decode


@lru_cache(maxsize=1_024)
def _read(labels: str) -> SqsQueueState:
    try:
        return _decode(labels).sqs
    except ValueError:
        # Labels of another front end; SQS keeps nothing in them.
        return SqsQueueState()


def kept_of(settings: QueueSettings) -> SqsQueueState:
    """Return what is kept with a queue. It is cached and shared, so callers must not change it."""
    return _read(settings.labels) if settings.labels else SqsQueueState()


def with_kept(settings: QueueSettings, kept: SqsQueueState) -> QueueSettings:
    return replace(settings, labels=_encode(_Labels(kept)).decode())


def with_attribute(settings: QueueSettings, name: str, value: str) -> QueueSettings:
    """Return settings that keep one attribute with this value, or without it if that is empty."""
    kept = kept_of(settings)
    others = {other: said for other, said in kept.attributes.items() if other != name}
    attributes = {**others, name: value} if value else others
    return with_kept(settings, msgspec.structs.replace(kept, attributes=attributes))


def changing(change: Callable[[SqsQueueState], SqsQueueState]) -> Callable[[QueueSettings], QueueSettings]:
    """Return a change of settings that changes only what is kept."""
    return lambda settings: with_kept(settings, change(kept_of(settings)))
