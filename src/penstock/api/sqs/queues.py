"""Queues as SQS has them: create, find, list, empty, delete; their attributes, and their tags, which are only kept.

A move task moves dead letters back: a redrive of the broker. Its handle is the id of the redrive, as a UUID, and the
ARN of the queue it empties. On the embedded store redrives live in the server's memory, so a restart ends a redrive and
removes it from the list. A redrive that left letters behind because their queue is gone has ended for Penstock, and has
failed for AWS.
"""

import re
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Mapping
from dataclasses import replace
from uuid import UUID

import msgspec
from msgspec import structs

from penstock.api.sqs import policies, queue_attributes
from penstock.api.sqs.errors import (
    INVALID_PARAMETER_VALUE,
    PURGE_QUEUE_IN_PROGRESS,
    QUEUE_DELETED_RECENTLY,
    QUEUE_DOES_NOT_EXIST,
    QUEUE_NAME_EXISTS,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    Refused,
    invalid,
    missing,
    no_queue,
    refused_of,
)
from penstock.api.sqs.queue_attributes import (
    ALLOW,
    ATTRIBUTES,
    FIFO,
    REDRIVE,
    SqsQueueState,
    changing,
    kept_of,
    unknown,
    with_attribute,
    with_kept,
)
from penstock.api.sqs.request import Request, check_between
from penstock.api.sqs.shapes import (
    CancelMessageMoveTaskRequest,
    CancelMessageMoveTaskResult,
    CreateQueueRequest,
    GetQueueAttributesRequest,
    GetQueueAttributesResult,
    GetQueueUrlRequest,
    ListDeadLetterSourceQueuesRequest,
    ListDeadLetterSourceQueuesResult,
    ListMessageMoveTasksRequest,
    ListMessageMoveTasksResult,
    ListMessageMoveTasksResultEntry,
    ListQueuesRequest,
    ListQueuesResult,
    ListQueueTagsResult,
    Nothing,
    QueueRequest,
    QueueUrlResult,
    SetQueueAttributesRequest,
    StartMessageMoveTaskRequest,
    StartMessageMoveTaskResult,
    TagQueueRequest,
    UntagQueueRequest,
)
from penstock.broker.access import ANONYMOUS_ADMIN, Caller, Role
from penstock.broker.queues import visible_queues
from penstock.broker.redrives import RedriveRequest, State, Task, TaskNotFound
from penstock.contract.limits import PAGE_MAX
from penstock.contract.queue_settings import DAY_MS, DedupScope, QueueSettings
from penstock.store.errors import QueueExists, QueueNotFound
from penstock.store.interface import Description

LIST_MAX = 1_000
PURGE_MS = 60_000
# After this many receives without a delete, a message of a standard queue moves to its back.
BACK_AFTER = 3
# What AWS keeps messages for, unless told otherwise.
RETENTION_MS = 4 * DAY_MS
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")
_ALL = "All"


async def create_queue(request: Request, asked: CreateQueueRequest) -> QueueUrlResult:
    name, now_ms = asked.queue_name, request.queues.now_ms()
    is_fifo = _check_name(name, asked.attributes)
    request.caller.check(request.role, name)
    check_tags(asked.tags)
    settings = QueueSettings(
        is_fifo=is_fifo,
        opens_early=is_fifo,
        deliveries_max=0,
        back_after_deliveries=0 if is_fifo else BACK_AFTER,
        retention_ms=RETENTION_MS,
        dedup_scope=DedupScope.WINDOW,
    )
    settings = with_kept(settings, SqsQueueState(asked.tags))
    settings = queue_attributes.apply(asked.attributes, settings, now_s=now_ms // 1_000)
    try:
        there: Description | None = await request.queues.placement.of(name).describe(name)
    except QueueNotFound:
        there = None
    if there is None:
        if request.service.has_cooldowns and request.service.deletions.has(name, now_ms):
            raise Refused(
                QUEUE_DELETED_RECENTLY,
                "You must wait 60 seconds after deleting a queue before you can create another with the same name.",
            )
        settings = await policies.apply_redrive_policy(request, name, asked.attributes, settings)
        there = await _make(request, name, settings)
    if there is not None:
        _check_same(request, there, asked.attributes)
    request.service.forget(name)
    return QueueUrlResult(request.url(name))


async def _make(request: Request, name: str, settings: QueueSettings) -> Description | None:
    """Make a queue; return the one that another has made meanwhile."""
    try:
        is_new = await request.queues.create(name, settings, caller=request.caller)
        if is_new:
            await request.did("queue.create", name)
    except QueueExists:
        return await request.queues.placement.of(name).describe(name)
    return None


def _check_name(name: str, attributes: Mapping[str, str]) -> bool:
    """Return whether a queue of this name is to be FIFO."""
    said = attributes.get(FIFO, "false").lower()
    if said == "true":
        if not _FIFO_NAME.fullmatch(name):
            raise Refused(
                INVALID_PARAMETER_VALUE,
                "The name of a FIFO queue can only include alphanumeric characters, hyphens, or underscores, "
                "must end with .fifo suffix and be 1 to 80 in length.",
            )
        return True
    if not _NAME.fullmatch(name):
        raise Refused(
            INVALID_PARAMETER_VALUE,
            "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length",
        )
    return False


def _check_same(request: Request, there: Description, attributes: Mapping[str, str]) -> None:
    """Refuse to make a queue that is there with other attributes; what is not said is not compared."""
    kept = kept_of(there.settings).attributes
    shown = kept | queue_attributes.show_settings(there.settings) | policies.show_redrive_policy(request, there)
    for name, value in attributes.items():
        if not queue_attributes.same(name, value, shown.get(name, "")):
            raise Refused(
                QUEUE_NAME_EXISTS,
                f"A queue already exists with the same name and a different value for attribute {name}",
            )


async def get_queue_url(request: Request, asked: GetQueueUrlRequest) -> QueueUrlResult:
    owner = asked.queue_owner_aws_account_id
    if owner and owner != request.account.id:
        raise no_queue()
    request.caller.check(request.role, asked.queue_name)
    # The store knows no name that is not one.
    await request.service.queue(asked.queue_name)
    return QueueUrlResult(request.url(asked.queue_name))


async def list_queues(request: Request, asked: ListQueuesRequest) -> ListQueuesResult:
    check_between("MaxResults", asked.max_results, 1, LIST_MAX)
    prefix, after = asked.queue_name_prefix, read_token(asked.next_token)
    most = asked.max_results or LIST_MAX
    names = await visible_queues(request.queues.placement, request.caller, prefix=prefix, after=after, most=most)
    # A token is a promise: there is none unless something follows, nor for who did not ask for pages.
    is_full = asked.max_results is not None and len(names) == most
    is_more = is_full and await visible_queues(
        request.queues.placement, request.caller, prefix=prefix, after=names[-1], most=1
    )
    return ListQueuesResult([request.url(name) for name in names], token(names[-1]) if is_more else "")


def token(name: str) -> str:
    return urlsafe_b64encode(name.encode()).decode()


def read_token(text: str) -> str:
    """Return where a page begins.

    >>> read_token(token("orders"))
    'orders'
    """
    try:
        return b64decode(text, altchars=b"-_", validate=True).decode()
    except ValueError:
        raise invalid("NextToken", text, "It is not a token of this service.") from None


async def delete_queue(request: Request, asked: QueueRequest) -> Nothing:
    name = request.name(asked.queue_url)
    await request.queues.delete(name, with_dead_letters=False, caller=request.caller)
    await request.did("queue.delete", name)
    request.service.forget(name)
    request.service.deletions.note(name, request.queues.now_ms())
    return Nothing()


async def purge_queue(request: Request, asked: QueueRequest) -> Nothing:
    name, now_ms = request.name(asked.queue_url), request.queues.now_ms()

    def claim(kept: SqsQueueState) -> SqsQueueState:
        if request.service.has_cooldowns and kept.purged_at_ms <= now_ms < kept.purged_at_ms + PURGE_MS:
            raise Refused(
                PURGE_QUEUE_IN_PROGRESS, f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."
            )
        return structs.replace(kept, purged_at_ms=now_ms)

    # Noted first: of two that ask at once, one purges.
    await request.queues.change(name, changing(claim))
    purged = await request.queues.placement.of(name).purge(name)
    await request.did("queue.purge", name, detail=f"{purged} messages")
    request.service.forget(name)
    return Nothing()


async def get_queue_attributes(request: Request, asked: GetQueueAttributesRequest) -> GetQueueAttributesResult:
    for name in asked.attribute_names:
        if name not in ATTRIBUTES and name != _ALL:
            raise unknown(name)
    description, counts = await request.queues.describe(request.name(asked.queue_url))
    found = queue_attributes.show_counts(description, counts, request.arn(description.queue))
    found |= queue_attributes.show_settings(description.settings) | policies.show_redrive_policy(request, description)
    if _ALL not in asked.attribute_names:
        found = {name: value for name, value in found.items() if name in asked.attribute_names}
    return GetQueueAttributesResult(found)


async def set_queue_attributes(request: Request, asked: SetQueueAttributesRequest) -> Nothing:
    name = request.name(asked.queue_url)
    if not asked.attributes:
        raise missing("Attributes")
    settings = (await request.queues.placement.of(name).describe(name)).settings
    now_s = request.queues.now_ms() // 1_000
    # Other queues are looked at before; then nothing is awaited while the settings are read and written.
    redriven = await policies.apply_redrive_policy(request, name, asked.attributes, settings)

    def change(old: QueueSettings) -> QueueSettings:
        new = queue_attributes.apply(asked.attributes, old, now_s=now_s)
        return _with_redrive(new, redriven, asked.attributes)

    await request.queues.change(name, change, caller=request.caller)
    await request.did(
        "queue.change", name, detail=", ".join(f"{key}={value}" for key, value in asked.attributes.items())
    )
    request.service.forget(name)
    return Nothing()


def _with_redrive(new: QueueSettings, redriven: QueueSettings, attributes: Mapping[str, str]) -> QueueSettings:
    if REDRIVE in attributes:
        new = replace(new, dead_letters=redriven.dead_letters, deliveries_max=redriven.deliveries_max)
    for name in {REDRIVE, ALLOW} & attributes.keys():
        new = with_attribute(new, name, kept_of(redriven).attributes.get(name, ""))
    return new


TAGS_MAX = 50
KEY_CHARACTERS_MAX = 128
VALUE_CHARACTERS_MAX = 256


def check_tags(tags: dict[str, str]) -> None:
    if len(tags) > TAGS_MAX:
        raise Refused(INVALID_PARAMETER_VALUE, f"Too many tags: {len(tags)}. A queue has at most {TAGS_MAX}.")
    for key, value in tags.items():
        if not 1 <= len(key) <= KEY_CHARACTERS_MAX or len(value) > VALUE_CHARACTERS_MAX or key.startswith("aws:"):
            raise Refused(
                INVALID_PARAMETER_VALUE,
                f"The tag {key[:KEY_CHARACTERS_MAX]!r} is invalid. A key has 1 to {KEY_CHARACTERS_MAX} characters and "
                f"does not begin with aws:, a value has at most {VALUE_CHARACTERS_MAX}.",
            )


async def tag_queue(request: Request, asked: TagQueueRequest) -> Nothing:
    name = request.name(asked.queue_url)
    if not asked.tags:
        raise missing("Tags")

    def change(kept: SqsQueueState) -> SqsQueueState:
        tags = kept.tags | asked.tags
        check_tags(tags)
        return structs.replace(kept, tags=tags)

    await request.queues.change(name, changing(change))
    await request.did("queue.change", name, detail=f"tags {', '.join(asked.tags)}")
    return Nothing()


async def untag_queue(request: Request, asked: UntagQueueRequest) -> Nothing:
    name = request.name(asked.queue_url)
    if not asked.tag_keys:
        raise missing("TagKeys")

    def change(kept: SqsQueueState) -> SqsQueueState:
        tags = {key: value for key, value in kept.tags.items() if key not in asked.tag_keys}
        return structs.replace(kept, tags=tags)

    await request.queues.change(name, changing(change))
    await request.did("queue.change", name, detail=f"without tags {', '.join(asked.tag_keys)}")
    return Nothing()


async def list_queue_tags(request: Request, asked: QueueRequest) -> ListQueueTagsResult:
    return ListQueueTagsResult(kept_of((await request.describe(asked.queue_url)).settings).tags)


RATE_MAX = 500
TASKS_MAX = 10
_STATES = {State.DONE: "COMPLETED", State.STOPPED: "CANCELLED", State.FAILED: "FAILED"}
_TASK = "r_"


class _Handle(msgspec.Struct):
    task_id: str = msgspec.field(name="taskId")
    source_arn: str = msgspec.field(name="sourceArn")


async def list_dead_letter_source_queues(
    request: Request, asked: ListDeadLetterSourceQueuesRequest
) -> ListDeadLetterSourceQueuesResult:
    check_between("MaxResults", asked.max_results, 1, LIST_MAX)
    name, after = request.name(asked.queue_url), read_token(asked.next_token)
    await request.queues.placement.of(name).describe(name)
    most = asked.max_results or LIST_MAX
    found = await _sources(request, name, after=after, most=most, seen_by=request.caller)
    is_full = asked.max_results is not None and len(found) == most
    is_more = is_full and await _sources(request, name, after=found[-1], most=1, seen_by=request.caller)
    return ListDeadLetterSourceQueuesResult([request.url(each) for each in found], token(found[-1]) if is_more else "")


async def _sources(
    request: Request, dead_letters: str, *, after: str = "", most: int, seen_by: Caller = ANONYMOUS_ADMIN
) -> list[str]:
    """Return the names of queues that bury in this one, of those that a caller may see."""
    found: list[str] = []
    while names := await request.queues.placement.queues(after=after, most=PAGE_MAX):
        for name in names:
            if seen_by.may_list(name) and await _buries_in(request, name, dead_letters):
                found.append(name)
                if len(found) == most:
                    return found
        after = names[-1]
    return found


async def _buries_in(request: Request, name: str, dead_letters: str) -> bool:
    try:
        description = await request.queues.placement.of(name).describe(name)
    except QueueNotFound:
        # Deleted since it was listed.
        return False
    if name == dead_letters:
        return REDRIVE in kept_of(description.settings).attributes
    return description.dead_letters == dead_letters and description.settings.deliveries_max > 0


async def start_message_move_task(request: Request, asked: StartMessageMoveTaskRequest) -> StartMessageMoveTaskResult:
    check_between("MaxNumberOfMessagesPerSecond", asked.max_number_of_messages_per_second, 1, RATE_MAX)
    source = await _queue_of(request, asked.source_arn, "SourceArn")
    into = None
    if asked.destination_arn:
        into = await _queue_of(request, asked.destination_arn, "DestinationArn", role=Role.SEND)
    if not await _sources(request, source, most=1):
        raise Refused(INVALID_PARAMETER_VALUE, "Source queue must be configured as a Dead Letter Queue.")
    if into == source:
        raise invalid("DestinationArn", asked.destination_arn, "Source and destination are the same queue.")
    if any(task.state is State.RUNNING for task in await request.queues.redrives.all_of(source)):
        raise Refused(
            INVALID_PARAMETER_VALUE,
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time.",
        )
    order = RedriveRequest(into=into, rate_per_s=asked.max_number_of_messages_per_second)
    task = await request.queues.redrives.begin(source, order, caller=request.caller)
    await request.did("queue.redrive", source, detail=task.id)
    return StartMessageMoveTaskResult(_handle_text(request, task))


async def list_message_move_tasks(request: Request, asked: ListMessageMoveTasksRequest) -> ListMessageMoveTasksResult:
    check_between("MaxResults", asked.max_results, 1, TASKS_MAX)
    source = await _queue_of(request, asked.source_arn, "SourceArn")
    tasks = (await request.queues.redrives.all_of(source))[: asked.max_results or 1]
    return ListMessageMoveTasksResult([_shown(request, task) for task in tasks])


async def cancel_message_move_task(
    request: Request, asked: CancelMessageMoveTaskRequest
) -> CancelMessageMoveTaskResult:
    try:
        handle = msgspec.json.decode(b64decode(asked.task_handle, validate=True), type=_Handle)
    except ValueError:
        raise Refused(INVALID_PARAMETER_VALUE, "Value for parameter TaskHandle is invalid.") from None
    source = await _queue_of(request, handle.source_arn, "SourceArn")
    try:
        task = await request.queues.redrives.look(source, f"{_TASK}{UUID(handle.task_id).int:x}")
    except (TaskNotFound, ValueError):
        raise Refused(RESOURCE_NOT_FOUND, "Task does not exist.") from None
    if task.state is not State.RUNNING:
        raise Refused(UNSUPPORTED_OPERATION, "Only active tasks can be cancelled.")
    task = await request.queues.redrives.end(task)
    await request.did("queue.stop_redrive", source, detail=task.id)
    return CancelMessageMoveTaskResult(task.moved_total)


async def _queue_of(request: Request, arn: str, parameter: str, *, role: Role | None = None) -> str:
    name = request.account.queue_of_arn(arn)
    try:
        if name is not None:
            request.caller.check(role or request.role, name)
            await request.queues.placement.of(name).describe(name)
            return name
    except QueueNotFound:
        pass
    raise Refused(RESOURCE_NOT_FOUND, f"The resource that you specified for the {parameter} parameter doesn't exist.")


def _handle_text(request: Request, task: Task) -> str:
    task_id = str(UUID(int=int(task.id.removeprefix(_TASK), 16)))
    return b64encode(msgspec.json.encode(_Handle(task_id, request.arn(task.dead_letters)))).decode()


def _shown(request: Request, task: Task) -> ListMessageMoveTasksResultEntry:
    is_running = task.state is State.RUNNING
    status = "CANCELLING" if task.told_to_stop.is_set() else "RUNNING"
    failure = _failure(task)
    rate = task.order.rate_per_s
    return ListMessageMoveTasksResultEntry(
        task_handle=_handle_text(request, task) if is_running else "",
        status=status if is_running else "FAILED" if failure else _STATES[task.state],
        source_arn=request.arn(task.dead_letters),
        destination_arn=request.arn(task.order.into) if task.order.into else "",
        max_number_of_messages_per_second=None if rate is None else int(rate),
        approximate_number_of_messages_moved=task.moved_total,
        approximate_number_of_messages_to_move=None if task.remaining is None else task.moved_total + task.remaining,
        failure_reason=failure,
        started_timestamp=task.started_at_ms,
    )


def _failure(task: Task) -> str:
    """Return the code of why a task has failed, "" if it has not."""
    if task.state is State.FAILED:
        refused = refused_of(task.cause) if task.cause is not None else None
        return task.error or "" if refused is None else refused.kind.code
    if task.state is State.STOPPED and task.reason is not None:
        return task.reason
    return QUEUE_DOES_NOT_EXIST.code if task.state is State.DONE and task.without_origin else ""
