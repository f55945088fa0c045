"""The actions of the service: one row for each, with the type of its request and what must be said."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from penstock.api.sqs import move_tasks, permissions, queues, receiving, sending, settling, shapes, tags
from penstock.api.sqs.calling import Call
from penstock.api.sqs.errors import missing
from penstock.api.sqs.shapes import Shape, names_of
from penstock.broker.access import Role


@dataclass(frozen=True, slots=True)
class Action:
    # What a caller needs on the queues that it is about.
    role: Role
    request: type[Shape]
    run: Callable[[Call, Any], Awaitable[Shape]]
    # By AWS's names, in the order in which they are missed.
    required: tuple[str, ...] = ("QueueUrl",)

    def check(self, asked: Shape) -> None:
        """Refuse a request that lacks what it must say."""
        for name in self.required:
            if getattr(asked, names_of(self.request)[name]) in {"", None}:
                raise missing(name)


ACTIONS: dict[str, Action] = {
    "AddPermission": Action(Role.ADMIN, shapes.AddPermissionRequest, permissions.add_permission, ("QueueUrl", "Label")),
    "CancelMessageMoveTask": Action(
        Role.ADMIN, shapes.CancelMessageMoveTaskRequest, move_tasks.cancel_message_move_task, ("TaskHandle",)
    ),
    "ChangeMessageVisibility": Action(
        Role.RECEIVE,
        shapes.ChangeMessageVisibilityRequest,
        settling.change_message_visibility,
        ("QueueUrl", "ReceiptHandle", "VisibilityTimeout"),
    ),
    "ChangeMessageVisibilityBatch": Action(
        Role.RECEIVE, shapes.ChangeMessageVisibilityBatchRequest, settling.change_message_visibility_batch
    ),
    "CreateQueue": Action(Role.ADMIN, shapes.CreateQueueRequest, queues.create_queue, ("QueueName",)),
    "DeleteMessage": Action(
        Role.RECEIVE, shapes.DeleteMessageRequest, settling.delete_message, ("QueueUrl", "ReceiptHandle")
    ),
    "DeleteMessageBatch": Action(Role.RECEIVE, shapes.DeleteMessageBatchRequest, settling.delete_message_batch),
    "DeleteQueue": Action(Role.ADMIN, shapes.QueueRequest, queues.delete_queue),
    "GetQueueAttributes": Action(Role.SEE, shapes.GetQueueAttributesRequest, queues.get_queue_attributes),
    "GetQueueUrl": Action(Role.SEE, shapes.GetQueueUrlRequest, queues.get_queue_url, ("QueueName",)),
    "ListDeadLetterSourceQueues": Action(
        Role.SEE, shapes.ListDeadLetterSourceQueuesRequest, move_tasks.list_dead_letter_source_queues
    ),
    "ListMessageMoveTasks": Action(
        Role.READ, shapes.ListMessageMoveTasksRequest, move_tasks.list_message_move_tasks, ("SourceArn",)
    ),
    "ListQueueTags": Action(Role.SEE, shapes.QueueRequest, tags.list_queue_tags),
    "ListQueues": Action(Role.SEE, shapes.ListQueuesRequest, queues.list_queues, ()),
    "PurgeQueue": Action(Role.ADMIN, shapes.QueueRequest, queues.purge_queue),
    "ReceiveMessage": Action(Role.RECEIVE, shapes.ReceiveMessageRequest, receiving.receive_message),
    "RemovePermission": Action(
        Role.ADMIN, shapes.RemovePermissionRequest, permissions.remove_permission, ("QueueUrl", "Label")
    ),
    "SendMessage": Action(Role.SEND, shapes.SendMessageRequest, sending.send_message, ("QueueUrl", "MessageBody")),
    "SendMessageBatch": Action(Role.SEND, shapes.SendMessageBatchRequest, sending.send_message_batch),
    "SetQueueAttributes": Action(Role.ADMIN, shapes.SetQueueAttributesRequest, queues.set_queue_attributes),
    "StartMessageMoveTask": Action(
        Role.ADMIN, shapes.StartMessageMoveTaskRequest, move_tasks.start_message_move_task, ("SourceArn",)
    ),
    "TagQueue": Action(Role.ADMIN, shapes.TagQueueRequest, tags.tag_queue),
    "UntagQueue": Action(Role.ADMIN, shapes.UntagQueueRequest, tags.untag_queue),
}
