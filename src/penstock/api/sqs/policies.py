"""The policies of a queue: redrive, redrive allow, and access.

    RedrivePolicy        {"deadLetterTargetArn": arn, "maxReceiveCount": 5}    on the source
    RedriveAllowPolicy   {"redrivePermission": "byQueue", "sourceQueueArns": [arn, …]}    on the target

The first sets `dead_letters` and `deliveries_max` of Penstock. The second is kept, and checked when a
queue names the target. A queue that names itself would move its messages to itself: it buries
nothing, and its policy is only kept.

AddPermission and RemovePermission change the statements of the access policy, which is kept and not enforced.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from msgspec import structs

from penstock.api.sqs.errors import OVER_LIMIT, Refused, invalid, missing
from penstock.api.sqs.queue_attributes import (
    ALLOW,
    POLICY_CHARACTERS_MAX,
    REDRIVE,
    SqsQueueState,
    bad_value,
    changing,
    kept_of,
    with_attribute,
)
from penstock.api.sqs.request import Request
from penstock.api.sqs.shapes import AddPermissionRequest, Nothing, RemovePermissionRequest
from penstock.broker.access import Role
from penstock.contract.queue_settings import QueueSettings
from penstock.store.errors import QueueNotFound
from penstock.store.interface import Description

RECEIVE_COUNT_MAX = 1_000
SOURCES_MAX = 10
_PERMISSIONS = ("allowAll", "denyAll", "byQueue")


async def apply_redrive_policy(
    request: Request, queue: str, attributes: Mapping[str, str], settings: QueueSettings
) -> QueueSettings:
    """Return settings as the two attributes make them, if they are among these."""
    if ALLOW in attributes:
        settings = _allow(attributes[ALLOW], settings)
    if REDRIVE not in attributes:
        return settings
    said, settings = attributes[REDRIVE], with_attribute(settings, REDRIVE, "")
    if not said:
        return replace(settings, dead_letters="", deliveries_max=0)
    target, count = _read(request, said)
    try:
        there = (await request.service.queue(target)).settings
    except QueueNotFound:
        raise _wrong(said, "Dead letter target does not exist.") from None
    if there.is_fifo is not settings.is_fifo:
        raise _wrong(said, "Dead-letter queue must be same type of queue as the source.")
    if not _is_allowed(there, request.arn(queue)):
        raise _wrong(said, "The redrive allow policy of the dead-letter queue does not allow this source.")
    if target == queue:
        settings = with_attribute(settings, REDRIVE, _redrive_policy(request, target, count))
        return replace(settings, dead_letters="", deliveries_max=0)
    return replace(settings, dead_letters=target, deliveries_max=count)


def show_redrive_policy(request: Request, description: Description) -> dict[str, str]:
    """Return the attribute of a queue that buries, in a queue that exists."""
    target, count = description.dead_letters, description.settings.deliveries_max
    if not count or target is None:
        return {}
    return {REDRIVE: _redrive_policy(request, target, count)}


def _redrive_policy(request: Request, target: str, count: int) -> str:
    return msgspec.json.encode({"deadLetterTargetArn": request.arn(target), "maxReceiveCount": count}).decode()


def _read(request: Request, said: str) -> tuple[str, int]:
    policy = _object(said)
    if policy is None:
        raise _wrong(said, "Redrive policy is not a valid JSON map.")
    for name in ("deadLetterTargetArn", "maxReceiveCount"):
        # AWS documents a default for the second, and refuses a policy without it: it may be there, misspelt.
        if policy.get(name) is None:
            raise _wrong(said, f"Redrive policy does not contain mandatory attribute: {name}.")
    arn, count = policy["deadLetterTargetArn"], policy["maxReceiveCount"]
    target = request.account.queue_of_arn(arn) if isinstance(arn, str) else None
    if target is None:
        raise _wrong(said, "Invalid value for deadLetterTargetArn.")
    request.caller.check(Role.SEND, target)
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


ACTIONS_MAX = 7
_LABEL = re.compile(r"[A-Za-z0-9_-]{1,80}")
_ACCOUNT = re.compile(r"[0-9]{12}")
_SHARED = {
    *("*", "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"),
    *("ListDeadLetterSourceQueues", "PurgeQueue", "ReceiveMessage", "SendMessage"),
}
# What a policy cannot give to another account.
_OWNERS = {
    *("AddPermission", "RemovePermission", "CreateQueue", "DeleteQueue", "ListQueues", "SetQueueAttributes"),
    *("ListQueueTags", "TagQueue", "UntagQueue"),
    *("StartMessageMoveTask", "ListMessageMoveTasks", "CancelMessageMoveTask"),
}


async def add_permission(request: Request, asked: AddPermissionRequest) -> Nothing:
    name = request.name(asked.queue_url)
    _check_permission(asked)
    arn = request.arn(name)
    principals = [f"arn:aws:iam::{each}:root" for each in asked.aws_account_ids]
    actions = [f"SQS:{each}" for each in asked.actions]
    statement = {
        "Sid": asked.label,
        "Effect": "Allow",
        "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
        "Action": actions[0] if len(actions) == 1 else actions,
        "Resource": arn,
    }

    def change(kept: SqsQueueState) -> SqsQueueState:
        policy = _access_policy(kept) or {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
        if any(each.get("Sid") == asked.label for each in policy["Statement"]):
            raise invalid("Label", asked.label, "Already exists.")
        policy["Statement"].append(statement)
        return _with(kept, policy)

    await request.queues.change(name, changing(change))
    await request.did("queue.change", name, detail=f"permission {asked.label}")
    return Nothing()


async def remove_permission(request: Request, asked: RemovePermissionRequest) -> Nothing:
    name = request.name(asked.queue_url)

    def change(kept: SqsQueueState) -> SqsQueueState:
        policy = _access_policy(kept) or {"Statement": []}
        left = [each for each in policy["Statement"] if each.get("Sid") != asked.label]
        if len(left) == len(policy["Statement"]):
            raise invalid("Label", asked.label, "can't find label.")
        return _with(kept, policy | {"Statement": left} if left else None)

    await request.queues.change(name, changing(change))
    await request.did("queue.change", name, detail=f"without permission {asked.label}")
    return Nothing()


def _check_permission(asked: AddPermissionRequest) -> None:
    if not _LABEL.fullmatch(asked.label):
        raise invalid("Label", asked.label, "Can only include alphanumeric characters, hyphens, or underscores.")
    if not asked.aws_account_ids:
        raise missing("AWSAccountIds")
    if not asked.actions:
        raise missing("Actions")
    for account in asked.aws_account_ids:
        if not _ACCOUNT.fullmatch(account):
            raise invalid("PrincipalId", account, "Unable to verify.")
    _check_actions(asked.actions)


def _check_actions(actions: list[str]) -> None:
    if len(actions) > ACTIONS_MAX:
        raise Refused(OVER_LIMIT, f"{len(actions)} Actions were found, maximum allowed is {ACTIONS_MAX}.")
    for action in actions:
        if action not in _SHARED:
            is_owners = action in _OWNERS
            reason = (
                "Only the queue owner is allowed to invoke this action." if is_owners else "There is no such action."
            )
            raise invalid("ActionName", f"SQS:{action}", reason)


def _access_policy(kept: SqsQueueState) -> dict[str, Any] | None:
    """Return the policy of a queue, its one statement as a list; None if its statements are not a list of objects."""
    said = kept.attributes.get("Policy")
    if not said:
        return None
    policy = msgspec.json.decode(said)
    statements = policy.get("Statement")
    if isinstance(statements, dict):
        statements = [statements]
    is_list = isinstance(statements, list) and all(isinstance(each, dict) for each in statements)
    return policy | {"Statement": statements} if is_list else None


def _with(kept: SqsQueueState, policy: dict[str, Any] | None) -> SqsQueueState:
    attributes = {name: value for name, value in kept.attributes.items() if name != "Policy"}
    if policy is not None:
        attributes["Policy"] = msgspec.json.encode(policy).decode()
        if len(attributes["Policy"]) > POLICY_CHARACTERS_MAX:
            raise Refused(OVER_LIMIT, f"The policy would have more than {POLICY_CHARACTERS_MAX} characters.")
    return structs.replace(kept, attributes=attributes)
