"""AddPermission and RemovePermission: statements of the policy of a queue, which is kept and not enforced."""

import re
from typing import Any

import msgspec
from msgspec import structs

from penstock.api.sqs.calling import Call
from penstock.api.sqs.errors import OVER_LIMIT, Refused, invalid, missing
from penstock.api.sqs.kept import Kept, changing
from penstock.api.sqs.queue_attributes import POLICY_CHARACTERS_MAX
from penstock.api.sqs.shapes import AddPermissionRequest, Nothing, RemovePermissionRequest

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


async def add_permission(call: Call, asked: AddPermissionRequest) -> Nothing:
    name = call.name(asked.queue_url)
    _check(asked)
    arn = call.arn(name)
    principals = [f"arn:aws:iam::{each}:root" for each in asked.aws_account_ids]
    actions = [f"SQS:{each}" for each in asked.actions]
    statement = {
        "Sid": asked.label,
        "Effect": "Allow",
        "Principal": {"AWS": principals[0] if len(principals) == 1 else principals},
        "Action": actions[0] if len(actions) == 1 else actions,
        "Resource": arn,
    }

    def change(kept: Kept) -> Kept:
        policy = _policy(kept) or {"Version": "2008-10-17", "Id": f"{arn}/SQSDefaultPolicy", "Statement": []}
        if any(each.get("Sid") == asked.label for each in policy["Statement"]):
            raise invalid("Label", asked.label, "Already exists.")
        policy["Statement"].append(statement)
        return _with(kept, policy)

    await call.queues.change(name, changing(change))
    await call.did("queue.change", name, detail=f"permission {asked.label}")
    return Nothing()


async def remove_permission(call: Call, asked: RemovePermissionRequest) -> Nothing:
    name = call.name(asked.queue_url)

    def change(kept: Kept) -> Kept:
        policy = _policy(kept) or {"Statement": []}
        left = [each for each in policy["Statement"] if each.get("Sid") != asked.label]
        if len(left) == len(policy["Statement"]):
            raise invalid("Label", asked.label, "can't find label.")
        return _with(kept, policy | {"Statement": left} if left else None)

    await call.queues.change(name, changing(change))
    await call.did("queue.change", name, detail=f"without permission {asked.label}")
    return Nothing()


def _check(asked: AddPermissionRequest) -> None:
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


def _policy(kept: Kept) -> dict[str, Any] | None:
    """Return the policy of a queue, its one statement as a list; what somebody set without any is begun anew."""
    said = kept.attributes.get("Policy")
    if not said:
        return None
    policy = msgspec.json.decode(said)
    statements = policy.get("Statement")
    if isinstance(statements, dict):
        statements = [statements]
    is_list = isinstance(statements, list) and all(isinstance(each, dict) for each in statements)
    return policy | {"Statement": statements} if is_list else None


def _with(kept: Kept, policy: dict[str, Any] | None) -> Kept:
    attributes = {name: value for name, value in kept.attributes.items() if name != "Policy"}
    if policy is not None:
        attributes["Policy"] = msgspec.json.encode(policy).decode()
        if len(attributes["Policy"]) > POLICY_CHARACTERS_MAX:
            raise Refused(OVER_LIMIT, f"The policy would have more than {POLICY_CHARACTERS_MAX} characters.")
    return structs.replace(kept, attributes=attributes)
