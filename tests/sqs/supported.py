"""What is supported of SQS, and how it differs: each claim with the test that shows it.

The reference page is made from these rows (`python -m tests.docs.reference`). A test
holds them to what there is: every name of the service's model has a row, every test that
is named here exists, is not left out, and mentions what it is named for. So nothing
is on the page that no test shows; whether they pass is what the tests say.
"""

from typing import NamedTuple


class Difference(NamedTuple):
    """A sentence or two of the page, and the test that shows it to be true."""

    text: str
    test: str


class Row(NamedTuple):
    # By AWS's names. What is true of one is true of all.
    names: tuple[str, ...]
    # One for each name or one for all.
    tests: tuple[str, ...]
    differences: tuple[Difference, ...] = ()


def _row(names: str, tests: str, *differences: tuple[str, str]) -> Row:
    """Write a row: names and tests are words; tests are without the `test_` that all have."""
    return Row(
        tuple(names.split()),
        tuple(f"test_{test}" for test in tests.split()),
        tuple(Difference(text, f"test_{test}") for text, test in differences),
    )


_RESTART = "rules_tasks_and_attempts_are_forgotten_by_a_restart"
_LATE = "the_visibility_of_what_is_not_in_flight_cannot_be_changed"
_BURIED = "a_message_received_too_often_is_moved_with_its_id_its_time_and_its_count"
_NO_POLICE = ("The policy is changed and kept. It is not enforced.", "a_policy_is_kept_and_not_enforced")

ACTIONS = (
    _row("AddPermission RemovePermission", "permissions_become_statements_of_the_policy", _NO_POLICE),
    _row(
        "CancelMessageMoveTask",
        "a_move_task_may_have_a_destination_a_rate_and_an_end",
        (
            "Returns when the task has stopped: it is `CANCELLED` then, and hardly ever `CANCELLING`.",
            "a_move_task_may_have_a_destination_a_rate_and_an_end",
        ),
    ),
    _row(
        "ChangeMessageVisibility ChangeMessageVisibilityBatch",
        "a_message_whose_visibility_is_zero_comes_back_at_once a_batch_of_changes_answers_for_each",
        (
            "`MessageNotInflight` for a message that was made visible by zero and not received since.",
            _LATE,
        ),
        (
            "By an older handle of the message, too, and after its time has passed until it is received again.",
            "an_older_handle_changes_the_visibility_of_its_message",
        ),
    ),
    _row(
        "CreateQueue",
        "making_a_queue_again_compares_only_what_is_said",
        ("A name may not begin with `q_`.", "a_name_that_begins_as_ids_do_is_refused"),
    ),
    _row(
        "DeleteMessage DeleteMessageBatch",
        "a_deleted_message_is_gone_and_deleting_it_again_is_no_error a_batch_of_deletes_answers_for_each",
    ),
    _row(
        "DeleteQueue",
        "a_deleted_queue_is_gone_and_its_name_is_free_at_once",
        (
            "At once, not within a minute, and its name is free at once.",
            "a_deleted_queue_is_gone_and_its_name_is_free_at_once",
        ),
        (
            "With `sqs_cooldowns` the name is free after 60 s, as with AWS.",
            "a_server_that_waits_as_aws_does_refuses_a_second_purge_and_a_name_for_a_minute",
        ),
        ("That rule is forgotten when the server restarts.", _RESTART),
    ),
    _row(
        "GetQueueAttributes",
        "only_the_attributes_that_are_asked_for_are_told",
        ("Counts are exact.", "counts_tell_where_messages_are"),
        ("A message that rests after a failure counts as delayed.", "a_message_that_rests_counts_as_delayed"),
    ),
    _row(
        "GetQueueUrl ListQueues",
        "a_queue_is_called_by_the_address_that_its_maker_has_reached queues_are_listed_by_prefix_and_in_pages",
        ("Also for queues that REST made.", "what_rest_sends_sqs_receives"),
        (
            "There is one account: another one has no queues.",
            "a_queue_that_is_not_there_is_an_error_of_its_own_everywhere",
        ),
    ),
    _row("ListDeadLetterSourceQueues", "the_sources_of_a_dead_letter_queue_are_listed_in_pages"),
    _row(
        "ListMessageMoveTasks",
        "a_move_task_sends_dead_letters_back_where_they_came_from",
        ("A task is forgotten when the server restarts.", _RESTART),
    ),
    _row("ListQueueTags TagQueue UntagQueue", "tags_are_kept_changed_and_removed"),
    _row(
        "PurgeQueue",
        "a_purge_removes_everything_and_may_be_repeated_at_once",
        (
            "At once, and again at once. Messages in flight go, too.",
            "a_purge_removes_everything_and_may_be_repeated_at_once",
        ),
        (
            "With `sqs_cooldowns` once in 60 s, as with AWS.",
            "a_server_that_waits_as_aws_does_refuses_a_second_purge_and_a_name_for_a_minute",
        ),
    ),
    _row(
        "ReceiveMessage",
        "what_was_sent_is_received_with_the_digest_of_its_body",
        (
            "`ReceiveRequestAttemptId` is remembered for 5 minutes in memory: not after a restart.",
            _RESTART,
        ),
        (
            "`OverLimit` at 120,000 in flight, for all who receive from a standard queue.",
            "a_standard_queue_hands_out_no_more_than_aws_would",
        ),
        (
            "FIFO: a group is served again as soon as its first message is visible, up to the next in flight.",
            "a_group_is_open_again_as_soon_as_its_first_message_is_visible",
        ),
    ),
    _row(
        "SendMessage SendMessageBatch",
        "what_was_sent_is_received_with_the_digest_of_its_body a_batch_answers_for_each_of_its_entries",
        (
            "In a batch, a message larger than `MaximumMessageSize` of its queue fails; AWS may let it pass.",
            "a_batch_fails_for_what_is_larger_than_its_queue_allows",
        ),
        ("A delay not shorter than the retention is refused.", "a_delay_as_long_as_the_retention_is_refused"),
    ),
    _row(
        "SetQueueAttributes",
        "every_attribute_that_can_be_set_is_read_back",
        (
            "Seen at once, and within a second where it came another way than through SQS.",
            "attributes_are_in_force_at_once_and_changes_of_others_within_a_second",
        ),
    ),
    _row(
        "StartMessageMoveTask",
        "a_move_task_sends_dead_letters_back_where_they_came_from",
        (
            "Messages that were sent straight to the dead-letter queue stay there, and the task is `COMPLETED`.",
            "what_was_sent_straight_to_a_dead_letter_queue_stays_there",
        ),
    ),
)

QUEUE_ATTRIBUTES = (
    _row("VisibilityTimeout", "a_received_message_is_hidden_for_its_visibility_timeout"),
    _row(
        "DelaySeconds",
        "delays_are_the_queues_or_the_messages_own",
        ("Has to be below `MessageRetentionPeriod`.", "a_delay_as_long_as_the_retention_is_refused"),
    ),
    _row(
        "MessageRetentionPeriod MaximumMessageSize",
        "every_attribute_that_can_be_set_is_read_back body_and_attributes_together_are_within_the_limit_of_the_queue",
    ),
    _row("ReceiveMessageWaitTimeSeconds", "a_long_poll_ends_with_the_first_message_or_with_its_time"),
    _row(
        "RedrivePolicy",
        "a_redrive_allow_policy_says_who_may_bury_here",
        ("A queue made through SQS buries nothing without it.", "a_queue_without_a_policy_buries_nothing"),
        (
            "A queue that names itself keeps its messages.",
            "a_queue_may_name_itself_as_its_dead_letter_queue_and_keeps_its_messages",
        ),
    ),
    _row(
        "RedriveAllowPolicy",
        "a_redrive_allow_policy_says_who_may_bury_here",
        (
            "Looked at when a queue names this one in its `RedrivePolicy`; not later.",
            "who_may_bury_is_asked_when_the_policy_is_set",
        ),
    ),
    _row("FifoQueue ContentBasedDeduplication", "a_fifo_queue_is_told_by_its_attribute_and_its_name"),
    _row("DeduplicationScope", "an_id_counts_in_all_groups_or_within_one"),
    _row(
        "FifoThroughputLimit",
        "high_throughput_needs_ids_that_count_within_a_group",
        ("Kept and told.", "high_throughput_needs_ids_that_count_within_a_group"),
    ),
    _row(
        "Policy",
        "every_attribute_that_can_be_set_is_read_back",
        ("Kept, not enforced.", "a_policy_is_kept_and_not_enforced"),
    ),
    _row(
        "KmsMasterKeyId KmsDataKeyReusePeriodSeconds SqsManagedSseEnabled",
        "every_attribute_that_can_be_set_is_read_back",
        ("Kept and told.", "every_attribute_that_can_be_set_is_read_back"),
        (
            "`SqsManagedSseEnabled` is `true` for a new queue, as with AWS: it is told, and nothing is encrypted.",
            "a_key_ends_the_encryption_of_a_new_queue_and_alone_tells_how_long_it_is_used",
        ),
    ),
    _row("QueueArn CreatedTimestamp", "a_new_queue_has_the_attributes_that_aws_gives_it"),
    _row(
        "LastModifiedTimestamp",
        "a_new_queue_has_the_attributes_that_aws_gives_it",
        ("A change that did not come through SQS does not move it.", "only_a_change_through_sqs_is_dated"),
    ),
    _row(
        "ApproximateNumberOfMessages ApproximateNumberOfMessagesNotVisible ApproximateNumberOfMessagesDelayed",
        "counts_tell_where_messages_are",
        ("Exact.", "counts_tell_where_messages_are"),
    ),
)

MESSAGE = (
    _row(
        "MessageId",
        _BURIED,
        (
            "A UUID, made of the two numbers of the id in REST.",
            "the_id_of_a_message_is_a_uuid_of_the_id_in_rest",
        ),
        ("It stays when the message is moved.", _BURIED),
    ),
    _row(
        "ReceiptHandle",
        "a_handle_is_good_for_its_own_queue_only",
        (
            "Standard: deletes until the message is received again.",
            "a_handle_of_a_standard_queue_deletes_until_the_message_is_received_again",
        ),
        (
            "FIFO: deletes until its visibility timeout passes.",
            "a_handle_of_a_fifo_queue_has_expired_with_its_visibility",
        ),
    ),
    _row(
        "Body",
        "what_was_sent_is_received_with_the_digest_of_its_body",
        (
            "Of a message that REST sent as bytes it is base64, and the message attribute `penstock.encoding` says so.",
            "what_rest_sends_sqs_receives",
        ),
    ),
    _row(
        "MD5OfBody MD5OfMessageAttributes",
        "what_was_sent_is_received_with_the_digest_of_its_body only_the_message_attributes_that_are_asked_for_are_told",
    ),
    _row(
        "MessageAttributes",
        "message_attributes_of_every_type_come_back_exactly",
        (
            "`penstock.priority` sets the priority.",
            "an_attribute_sets_the_priority_of_a_message",
        ),
        ("`penstock.sqs` is refused.", "a_message_attribute_that_cannot_be_is_refused"),
    ),
    _row("Attributes", "only_the_system_attributes_that_are_asked_for_are_told"),
)

SYSTEM_ATTRIBUTES = (
    _row(
        "SenderId",
        "only_the_system_attributes_that_are_asked_for_are_told",
        ("The account.", "the_sender_of_every_message_is_the_account"),
    ),
    _row(
        "SentTimestamp",
        _BURIED,
        ("Of a dead letter, when it was first sent.", _BURIED),
        (
            "The retention of a dead letter starts again, also on standard queues.",
            "the_retention_of_a_dead_letter_starts_again",
        ),
    ),
    _row(
        "ApproximateReceiveCount",
        "only_the_system_attributes_that_are_asked_for_are_told",
        ("Exact. Of a dead letter, with the receives before.", _BURIED),
        (
            "It starts again when a message is moved back.",
            "a_move_task_sends_dead_letters_back_where_they_came_from",
        ),
    ),
    _row("ApproximateFirstReceiveTimestamp", "only_the_system_attributes_that_are_asked_for_are_told"),
    _row(
        "SequenceNumber",
        "a_message_of_a_fifo_queue_tells_its_group_its_id_and_its_sequence",
        (
            "Rises within a queue.",
            "a_message_of_a_fifo_queue_tells_its_group_its_id_and_its_sequence",
        ),
    ),
    _row("MessageDeduplicationId", "a_message_of_a_fifo_queue_tells_its_group_its_id_and_its_sequence"),
    _row(
        "MessageGroupId",
        "only_the_system_attributes_that_are_asked_for_are_told",
        (
            "Also of a message on a standard queue; more about that below.",
            "only_the_system_attributes_that_are_asked_for_are_told",
        ),
    ),
    _row("AWSTraceHeader", "message_attributes_of_every_type_come_back_exactly"),
    _row("DeadLetterQueueSourceArn", _BURIED),
)
