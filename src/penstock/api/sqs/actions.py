"""The actions of the service: one row for each, with the type of its request and what must be said."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from penstock.api.sqs import move_tasks, permissions, queues, receiving, sending, settling, shapes, tags
from penstock.api.sqs.calling import Call
from penstock.api.sqs.errors import missing
from penstock.api.sqs.shapes import Shape, names_of


@dataclass(frozen=True, slots=True)
class Action:
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
    "AddPermission": Action(shapes.AddPermissionRequest, permissions.add_permission, ("QueueUrl", "Label")),
    "CancelMessageMoveTask": Action(
        shapes.CancelMessageMoveTaskRequest, move_tasks.cancel_message_move_task, ("TaskHandle",)
    ),
    "ChangeMessageVisibility": Action(
        shapes.ChangeMessageVisibilityRequest,
        settling.change_message_visibility,
        ("QueueUrl", "ReceiptHandle", "VisibilityTimeout"),
    ),
    "ChangeMessageVisibilityBatch": Action(
        shapes.ChangeMessageVisibilityBatchRequest, settling.change_message_visibility_batch
    ),
    "CreateQueue": Action(shapes.CreateQueueRequest, queues.create_queue, ("QueueName",)),
    "DeleteMessage": Action(shapes.DeleteMessageRequest, settling.delete_message, ("QueueUrl", "ReceiptHandle")),
    "DeleteMessageBatch": Action(shapes.DeleteMessageBatchRequest, settling.delete_message_batch),
    "DeleteQueue": Action(shapes.QueueRequest, queues.delete_queue),
    "GetQueueAttributes": Action(shapes.GetQueueAttributesRequest, queues.get_queue_attributes),
    "GetQueueUrl": Action(shapes.GetQueueUrlRequest, queues.get_queue_url, ("QueueName",)),
    "ListDeadLetterSourceQueues": Action(
        shapes.ListDeadLetterSourceQueuesRequest, move_tasks.list_dead_letter_source_queues
    ),
    "ListMessageMoveTasks": Action(
        shapes.ListMessageMoveTasksRequest, move_tasks.list_message_move_tasks, ("SourceArn",)
    ),
    "ListQueueTags": Action(shapes.QueueRequest, tags.list_queue_tags),
    "ListQueues": Action(shapes.ListQueuesRequest, queues.list_queues, ()),
    "PurgeQueue": Action(shapes.QueueRequest, queues.purge_queue),
    "ReceiveMessage": Action(shapes.ReceiveMessageRequest, receiving.receive_message),
    "RemovePermission": Action(shapes.RemovePermissionRequest, permissions.remove_permission, ("QueueUrl", "Label")),
    "SendMessage": Action(shapes.SendMessageRequest, sending.send_message, ("QueueUrl", "MessageBody")),
    "SendMessageBatch": Action(shapes.SendMessageBatchRequest, sending.send_message_batch),
    "SetQueueAttributes": Action(shapes.SetQueueAttributesRequest, queues.set_queue_attributes),
    "StartMessageMoveTask": Action(
        shapes.StartMessageMoveTaskRequest, move_tasks.start_message_move_task, ("SourceArn",)
    ),
    "TagQueue": Action(shapes.TagQueueRequest, tags.tag_queue),
    "UntagQueue": Action(shapes.UntagQueueRequest, tags.untag_queue),
}
