"""Requests and results by AWS's names: one type for each.

Names are AWS's own in snake case (`QueueUrl` is `queue_url`). A missing text is empty: AWS
treats both alike, except for the two ids of a message. Nothing here checks more than the
type. Unknown names are ignored, as AWS does.
"""

from functools import cache

from msgspec import Struct, field

_SPECIAL = {
    "md5_of_body": "MD5OfBody",
    "md5_of_message_body": "MD5OfMessageBody",
    "md5_of_message_attributes": "MD5OfMessageAttributes",
    "md5_of_message_system_attributes": "MD5OfMessageSystemAttributes",
    "aws_account_ids": "AWSAccountIds",
    "queue_owner_aws_account_id": "QueueOwnerAWSAccountId",
}


def _name(name: str) -> str:
    return _SPECIAL.get(name) or "".join(part.capitalize() for part in name.split("_"))


class Shape(Struct, rename=_name, omit_defaults=True):
    """A structure of the service's model."""


class MessageAttributeValue(Shape):
    data_type: str = ""
    string_value: str | None = None
    binary_value: bytes | None = None
    string_list_values: list[str] = []
    binary_list_values: list[bytes] = []


Attributes = dict[str, MessageAttributeValue]


class CreateQueueRequest(Shape):
    queue_name: str = ""
    attributes: dict[str, str] = {}
    tags: dict[str, str] = field(default_factory=dict, name="tags")


class QueueUrlResult(Shape):
    queue_url: str


class QueueRequest(Shape):
    """What only names a queue: DeleteQueue, PurgeQueue, ListQueueTags."""

    queue_url: str = ""


class GetQueueUrlRequest(Shape):
    queue_name: str = ""
    queue_owner_aws_account_id: str = ""


class ListQueuesRequest(Shape):
    queue_name_prefix: str = ""
    next_token: str = ""
    max_results: int | None = None


class ListQueuesResult(Shape):
    queue_urls: list[str] = []
    next_token: str = ""


class ListDeadLetterSourceQueuesRequest(Shape):
    queue_url: str = ""
    next_token: str = ""
    max_results: int | None = None


class ListDeadLetterSourceQueuesResult(Shape):
    queue_urls: list[str] = field(name="queueUrls")
    next_token: str = ""


class GetQueueAttributesRequest(Shape):
    queue_url: str = ""
    attribute_names: list[str] = []


class GetQueueAttributesResult(Shape):
    attributes: dict[str, str] = {}


class SetQueueAttributesRequest(Shape):
    queue_url: str = ""
    attributes: dict[str, str] = {}


class TagQueueRequest(Shape):
    queue_url: str = ""
    tags: dict[str, str] = {}


class UntagQueueRequest(Shape):
    queue_url: str = ""
    tag_keys: list[str] = []


class ListQueueTagsResult(Shape):
    tags: dict[str, str] = {}


class AddPermissionRequest(Shape):
    queue_url: str = ""
    label: str = ""
    aws_account_ids: list[str] = []
    actions: list[str] = []


class RemovePermissionRequest(Shape):
    queue_url: str = ""
    label: str = ""


class SendMessageBatchRequestEntry(Shape):
    id: str = ""
    message_body: str = ""
    delay_seconds: int | None = None
    message_attributes: Attributes = {}
    message_system_attributes: Attributes = {}
    # None is not said; an empty one is an error.
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessageRequest(SendMessageBatchRequestEntry):
    queue_url: str = ""


class SendMessageResult(Shape, kw_only=True):
    md5_of_message_body: str
    md5_of_message_attributes: str = ""
    md5_of_message_system_attributes: str = ""
    message_id: str
    sequence_number: str = ""


class SendMessageBatchRequest(Shape):
    queue_url: str = ""
    entries: list[SendMessageBatchRequestEntry] = []


class SendMessageBatchResultEntry(SendMessageResult, kw_only=True):
    id: str


class BatchResultErrorEntry(Shape):
    id: str
    sender_fault: bool
    code: str
    message: str


class SendMessageBatchResult(Shape):
    # Left out when they are empty: the model says that both are there, and AWS itself leaves them out.
    successful: list[SendMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class ReceiveMessageRequest(Shape):
    queue_url: str = ""
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: int | None = None
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str = ""


class Message(Shape, kw_only=True):
    message_id: str
    receipt_handle: str
    md5_of_body: str
    body: str
    attributes: dict[str, str] = {}
    md5_of_message_attributes: str = ""
    message_attributes: Attributes = {}


class ReceiveMessageResult(Shape):
    messages: list[Message] = []


class DeleteMessageBatchRequestEntry(Shape):
    id: str = ""
    receipt_handle: str = ""


class DeleteMessageRequest(DeleteMessageBatchRequestEntry):
    queue_url: str = ""


class DeleteMessageBatchRequest(Shape):
    queue_url: str = ""
    entries: list[DeleteMessageBatchRequestEntry] = []


class DeleteMessageBatchResultEntry(Shape):
    id: str


class DeleteMessageBatchResult(Shape):
    successful: list[DeleteMessageBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class ChangeMessageVisibilityBatchRequestEntry(Shape):
    id: str = ""
    receipt_handle: str = ""
    visibility_timeout: int | None = None


class ChangeMessageVisibilityRequest(ChangeMessageVisibilityBatchRequestEntry):
    queue_url: str = ""


class ChangeMessageVisibilityBatchRequest(Shape):
    queue_url: str = ""
    entries: list[ChangeMessageVisibilityBatchRequestEntry] = []


class ChangeMessageVisibilityBatchResultEntry(Shape):
    id: str


class ChangeMessageVisibilityBatchResult(Shape):
    successful: list[ChangeMessageVisibilityBatchResultEntry] = []
    failed: list[BatchResultErrorEntry] = []


class StartMessageMoveTaskRequest(Shape):
    source_arn: str = ""
    destination_arn: str = ""
    max_number_of_messages_per_second: int | None = None


class StartMessageMoveTaskResult(Shape):
    task_handle: str


class ListMessageMoveTasksRequest(Shape):
    source_arn: str = ""
    max_results: int | None = None


class ListMessageMoveTasksResultEntry(Shape, kw_only=True):
    task_handle: str = ""
    status: str
    source_arn: str
    destination_arn: str = ""
    max_number_of_messages_per_second: int | None = None
    approximate_number_of_messages_moved: int
    approximate_number_of_messages_to_move: int | None = None
    failure_reason: str = ""
    started_timestamp: int


class ListMessageMoveTasksResult(Shape):
    results: list[ListMessageMoveTasksResultEntry]


class CancelMessageMoveTaskRequest(Shape):
    task_handle: str = ""


class CancelMessageMoveTaskResult(Shape):
    approximate_number_of_messages_moved: int


class Nothing(Shape):
    """The result of an action that has none."""


@cache
def names_of(kind: type[Struct]) -> dict[str, str]:
    """Return the fields of a structure by what AWS calls them, each with its name here."""
    return dict(zip(kind.__struct_encode_fields__, kind.__struct_fields__, strict=True))
