"""`RedrivePolicy` and `RedriveAllowPolicy`: which queue takes the dead letters of which.

    RedrivePolicy        {"deadLetterTargetArn": arn, "maxReceiveCount": 5}    on the source
    RedriveAllowPolicy   {"redrivePermission": "byQueue", "sourceQueueArns": [arn, …]}    on the target

The first is two settings of ours, `dead_letters` and `deliveries_max`; the second is
kept, and looked at when a queue names the target. A queue that names itself would move its
messages to itself: it buries nothing, and its policy is only kept.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from penstock.api.sqs.calling import Call
from penstock.api.sqs.errors import Refused, invalid
from penstock.api.sqs.kept import kept_of, with_attribute
from penstock.api.sqs.queue_attributes import ALLOW, REDRIVE, bad_value
from penstock.broker.access import Role
from penstock.contract.queue_settings import QueueSettings
from penstock.store.interface import Description, QueueNotFound

RECEIVE_COUNT_MAX = 1_000
SOURCES_MAX = 10
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")


async def apply(call: Call, queue: str, attributes: Mapping[str, str], settings: QueueSettings) -> QueueSettings:
    """Return settings as the two attributes make them, if they are among these."""
    if ALLOW in attributes:
        settings = _allow(attributes[ALLOW], settings)
    if REDRIVE not in attributes:
        return settings
    said, settings = attributes[REDRIVE], with_attribute(settings, REDRIVE, "")
    if not said:
        return replace(settings, dead_letters="", deliveries_max=0)
    target, count = _read(call, said)
    try:
        there = (await call.service.queue(target)).settings
    except QueueNotFound:
        raise _wrong(said, "Dead letter target does not exist.") from None
    if there.is_fifo is not settings.is_fifo:
        raise _wrong(said, "Dead-letter queue must be same type of queue as the source.")
    if not _is_allowed(there, call.arn(queue)):
        raise _wrong(said, "The redrive allow policy of the dead-letter queue does not allow this source.")
    if target == queue:
        settings = with_attribute(settings, REDRIVE, _policy(call, target, count))
        return replace(settings, dead_letters="", deliveries_max=0)
    return replace(settings, dead_letters=target, deliveries_max=count)


def show(call: Call, description: Description) -> dict[str, str]:
    """Return the attribute of a queue that buries, in a queue that exists."""
    target, count = description.dead_letters, description.settings.deliveries_max
    if not count or target is None:
        return {}
    return {REDRIVE: _policy(call, target, count)}


def _policy(call: Call, target: str, count: int) -> str:
    return msgspec.json.encode({"deadLetterTargetArn": call.arn(target), "maxReceiveCount": count}).decode()


def _read(call: Call, said: str) -> tuple[str, int]:
    policy = _object(said)
    if policy is None:
        raise _wrong(said, "Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        # AWS documents a default for the second, and refuses a policy without it: it may be there, misspelt.
        if policy.get(name) is None:
            raise _wrong(said, f"Redrive policy does not contain mandatory attribute: {name}.")
    arn, count = policy["deadLetterTargetArn"], policy["maxReceiveCount"]
    target = call.account.queue_of_arn(arn) if isinstance(arn, str) else None
    if target is None:
        raise _wrong(said, "Invalid value for deadLetterTargetArn.")
    call.caller.check(Role.SEND, target)
    if isinstance(count, str) and count.isascii() and count.isdigit():
        count = int(count[:9])
    if type(count) is not int or not 1 <= count <= RECEIVE_COUNT_MAX:
        raise _wrong(
            said,
            f"Invalid value for maxReceiveCount: {count}, "
            f"valid values are from 1 to {RECEIVE_COUNT_MAX} both inclusive.",
        )
    return target, count


def _allow(said: str, settings: QueueSettings) -> QueueSettings:
    if said:
        _check_allow(said)
    return with_attribute(settings, ALLOW, said)


def _check_allow(said: str) -> None:
    policy = _object(said)
    if policy is None or policy.get("redrivePermission") not in _PERMISSIONS:
        raise bad_value(ALLOW, f"redrivePermission is one of {', '.join(_PERMISSIONS)}.")
    sources = policy.get("sourceQueueArns")
    if (policy["redrivePermission"] == "byQueue") is not (sources is not None):
        raise bad_value(ALLOW, "sourceQueueArns belong to byQueue, and to nothing else.")
    is_list = isinstance(sources, list) and all(isinstance(each, str) for each in sources)
    if sources is not None and not (is_list and 1 <= len(sources) <= SOURCES_MAX):
        raise bad_value(ALLOW, f"sourceQueueArns is a list of 1 to {SOURCES_MAX} ARNs.")


def _is_allowed(target: QueueSettings, source_arn: str) -> bool:
    policy = _object(kept_of(target).attributes.get(ALLOW, "")) or {}
    permission = policy.get("redrivePermission", "allowAll")
    return permission == "allowAll" or (permission == "byQueue" and source_arn in policy.get("sourceQueueArns", []))


def _object(said: str) -> dict[str, Any] | None:
    try:
        found = msgspec.json.decode(said)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _wrong(said: str, reason: str) -> Refused:
    return invalid(REDRIVE, said, reason)
