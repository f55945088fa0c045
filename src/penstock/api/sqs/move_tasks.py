"""Dead letters: which queues they come from, and the tasks that move them back.

A move task is a redrive of the broker. Its handle is the id of the redrive, as a UUID, and
the ARN of the queue it empties. On the embedded store redrives live in the server's memory, so
a restart ends a redrive and removes it from the list. A redrive that left letters behind because
their queue is gone has ended for Penstock, and has failed for AWS.
"""

from base64 import b64decode, b64encode
from uuid import UUID

import msgspec

from penstock.api.sqs.errors import (
    INVALID_PARAMETER_VALUE,
    QUEUE_DOES_NOT_EXIST,
    RESOURCE_NOT_FOUND,
    UNSUPPORTED_OPERATION,
    Refused,
    invalid,
    refused_of,
)
from penstock.api.sqs.queue_attributes import REDRIVE, kept_of
from penstock.api.sqs.queues import LIST_MAX, read_token, token
from penstock.api.sqs.request import Request, check_between
from penstock.api.sqs.shapes import (
    CancelMessageMoveTaskRequest,
    CancelMessageMoveTaskResult,
    ListDeadLetterSourceQueuesRequest,
    ListDeadLetterSourceQueuesResult,
    ListMessageMoveTasksRequest,
    ListMessageMoveTasksResult,
    ListMessageMoveTasksResultEntry,
    StartMessageMoveTaskRequest,
    StartMessageMoveTaskResult,
)
from penstock.broker.access import ANONYMOUS_ADMIN, Caller, Role
from penstock.broker.redrives import RedriveRequest, State, Task, TaskNotFound
from penstock.contract.limits import PAGE_MAX
from penstock.store.errors import QueueNotFound

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
