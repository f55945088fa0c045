"""Every error that is answered, in one table: from our exceptions to Kafka's numbers."""

from collections import Counter

from kio.schema.errors import ErrorCode

from penstock.broker.access import NotAllowed, TooManyQueuesMade
from penstock.broker.consumer_groups import (
    BadGroupName,
    BadOffset,
    BadSessionTimeout,
    FencedInstance,
    GroupFull,
    GroupNotEmpty,
    GroupNotFound,
    GroupsStopping,
    IllegalGeneration,
    InconsistentProtocol,
    MemberIdNeeded,
    MemberTooLarge,
    MetadataTooLarge,
    NotCoordinator,
    PartitionUnknown,
    RebalanceInProgress,
    TooManyGroups,
    TooManyOffsets,
    TopicSubscribed,
    UnknownMember,
)
from penstock.broker.topics import StoreForbids, StoreUnreachable
from penstock.contract.topic_settings import BadTopicSettings
from penstock.log.interface import LogBusy, LogClosed, LogFull, OffsetOutOfRange
from penstock.streams.compression import UnpackedTooLarge, UnsupportedCodec
from penstock.streams.interface import (
    BadTopicName,
    PartitionNotFound,
    PartitionsCannotShrink,
    TooManyPartitions,
    TopicExists,
    TopicNotFound,
)
from penstock.streams.produce_checks import (
    BadTimestamp,
    CorruptBatch,
    InvalidRecord,
    KeylessRecord,
    MessageTooLarge,
    TransactionsUnsupported,
)
from penstock.streams.producer_state import OutOfOrderSequence, ProducerFenced


class TopicNotAllowed(NotAllowed):
    """The key does not have the role on this topic."""


class GroupNotAllowed(NotAllowed):
    """The key does not have the role on this group."""


class BadRequest(Exception):
    """The request cannot be carried out; the message says why."""


class BadAcks(Exception):
    """A number of acknowledgements that there is not."""


class BadConfig(Exception):
    """A setting of a topic is not known here, or cannot have this value; the message says which."""


class BadReplication(Exception):
    """A number of replicas that one broker cannot have."""


class BadAssignment(Exception):
    """Replicas on brokers that there are not."""


class NoTransactions(Exception):
    """Transactions are not offered here."""


_CODES: dict[type[Exception], ErrorCode] = {
    TopicNotAllowed: ErrorCode.topic_authorization_failed,
    GroupNotAllowed: ErrorCode.group_authorization_failed,
    NotAllowed: ErrorCode.cluster_authorization_failed,
    TooManyQueuesMade: ErrorCode.policy_violation,
    NoTransactions: ErrorCode.unsupported_version,
    BadRequest: ErrorCode.invalid_request,
    BadAcks: ErrorCode.invalid_required_acks,
    BadConfig: ErrorCode.invalid_config,
    BadReplication: ErrorCode.invalid_replication_factor,
    BadAssignment: ErrorCode.invalid_replica_assignment,
    TopicExists: ErrorCode.topic_already_exists,
    TopicNotFound: ErrorCode.unknown_topic_or_partition,
    PartitionNotFound: ErrorCode.unknown_topic_or_partition,
    BadTopicName: ErrorCode.invalid_topic_exception,
    BadTopicSettings: ErrorCode.invalid_config,
    TooManyPartitions: ErrorCode.policy_violation,
    PartitionsCannotShrink: ErrorCode.invalid_partitions,
    CorruptBatch: ErrorCode.corrupt_message,
    InvalidRecord: ErrorCode.invalid_record,
    # Clients take "corrupt" for something that happened on the way, and try again; this does not get better.
    KeylessRecord: ErrorCode.invalid_record,
    MessageTooLarge: ErrorCode.message_too_large,
    UnpackedTooLarge: ErrorCode.message_too_large,
    UnsupportedCodec: ErrorCode.unsupported_compression_type,
    BadTimestamp: ErrorCode.invalid_timestamp,
    TransactionsUnsupported: ErrorCode.unsupported_version,
    OutOfOrderSequence: ErrorCode.out_of_order_sequence_number,
    ProducerFenced: ErrorCode.invalid_producer_epoch,
    OffsetOutOfRange: ErrorCode.offset_out_of_range,
    LogFull: ErrorCode.kafka_storage_error,
    LogBusy: ErrorCode.request_timed_out,
    LogClosed: ErrorCode.not_leader_or_follower,
    BadGroupName: ErrorCode.invalid_group_id,
    BadOffset: ErrorCode.offset_out_of_range,
    MemberIdNeeded: ErrorCode.member_id_required,
    UnknownMember: ErrorCode.unknown_member_id,
    IllegalGeneration: ErrorCode.illegal_generation,
    RebalanceInProgress: ErrorCode.rebalance_in_progress,
    FencedInstance: ErrorCode.fenced_instance_id,
    InconsistentProtocol: ErrorCode.inconsistent_group_protocol,
    BadSessionTimeout: ErrorCode.invalid_session_timeout,
    GroupFull: ErrorCode.group_max_size_reached,
    GroupsStopping: ErrorCode.coordinator_not_available,
    NotCoordinator: ErrorCode.not_coordinator,
    TooManyGroups: ErrorCode.coordinator_not_available,
    MemberTooLarge: ErrorCode.invalid_request,
    GroupNotFound: ErrorCode.group_id_not_found,
    GroupNotEmpty: ErrorCode.non_empty_group,
    TopicSubscribed: ErrorCode.group_subscribed_to_topic,
    MetadataTooLarge: ErrorCode.offset_metadata_too_large,
    TooManyOffsets: ErrorCode.policy_violation,
    PartitionUnknown: ErrorCode.unknown_topic_or_partition,
    StoreUnreachable: ErrorCode.request_timed_out,
    StoreForbids: ErrorCode.kafka_storage_error,
}
REFUSALS = tuple(_CODES)
# How often each was answered by this process, by its name: for metrics.
ANSWERED: Counter[str] = Counter()
_BY_KIND: dict[type, ErrorCode] = {**_CODES}

# For members of a group, what a disk cannot take now is a coordinator that cannot be had now: they know what to do.
_COORDINATOR: dict[type, ErrorCode] = {
    LogFull: ErrorCode.coordinator_not_available,
    LogBusy: ErrorCode.coordinator_not_available,
    LogClosed: ErrorCode.coordinator_not_available,
    StoreUnreachable: ErrorCode.coordinator_not_available,
}


def code_of(error: Exception) -> ErrorCode:
    """Return Kafka's number for one of `REFUSALS`."""
    for kind in type(error).__mro__:
        code = _BY_KIND.get(kind)
        if code is not None:
            ANSWERED[code.name] += 1
            return code
    raise AssertionError(f"{type(error).__name__} is no refusal")


def group_code_of(error: Exception) -> ErrorCode:
    code = next((_COORDINATOR[kind] for kind in type(error).__mro__ if kind in _COORDINATOR), None)
    if code is None:
        return code_of(error)
    ANSWERED[code.name] += 1
    return code


def code_of_row(error: Exception | None) -> int:
    """Return the number for a row of which an error is None if all is well."""
    return 0 if error is None else group_code_of(error)
