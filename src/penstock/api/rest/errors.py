"""Exceptions of the server to RFC 9457 problems: one table, read once for each error."""

import math
from collections.abc import Callable

import msgspec

from penstock.broker.access import KeyNeeded, KeyUnknown, NotAllowed, RateLimited, TooManyQueuesMade
from penstock.broker.consumer_groups import BadGroupName, GroupNotEmpty, GroupNotFound, NotCoordinator
from penstock.broker.long_polls import TooManyWaiting
from penstock.broker.queues import MessageNotFound, NotLeased, NotScheduled, Stopping
from penstock.broker.redrives import TaskNotFound, TooManyRedrives
from penstock.contract.limits import BATCH_BYTES_MAX, QUEUE_NAME_CHARACTERS_MAX
from penstock.contract.names import BadName
from penstock.contract.queue_settings import SETTINGS, BadSettings
from penstock.contract.topic_settings import TOPIC_SETTINGS, BadTopicSettings
from penstock.core.queue.deduplication import BadSender, SenderFenced, SendForgotten
from penstock.core.queue.message import BadDraft, BodyTooLarge, DueTooLate
from penstock.core.queue.queue import QueueFull
from penstock.frame import BadFrame
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.store.errors import (
    DeadLettersShared,
    NotConfirmed,
    NotWrittenYet,
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
    ShardNotFound,
    StoreForbids,
    StoreRefuses,
    StoreUnreachable,
)
from penstock.store.placement import NoMatchingRoute
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
    MessageTooLarge,
    TransactionsUnsupported,
)
from penstock.streams.producer_state import OutOfOrderSequence, ProducerFenced, ProducerUnknown
from penstock.wire.problems import CODES, Problem
from penstock.wire.words import rule_of

_encode = msgspec.json.Encoder().encode
_BUSY_S = 0.2
_WAITING_S = 1.0
# What a client sent is in it, and need not come back whole.
_DETAIL_CHARACTERS_MAX = 1_000


class Refused(Exception):
    """A request that this front end refuses itself, with the problem that says why."""

    def __init__(
        self,
        code: str,
        detail: str,
        *,
        field: str | None = None,
        limit: float | str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.problem = problem(code, detail, field=field, limit=limit, retry_after_s=retry_after_s)


def problem(
    code: str,
    detail: str,
    *,
    field: str | None = None,
    limit: float | str | None = None,
    retry_after_s: float | None = None,
) -> Problem:
    known = CODES[code]
    return Problem(
        title=known.title,
        status=known.status,
        code=code,
        detail=detail if len(detail) <= _DETAIL_CHARACTERS_MAX else f"{detail[:_DETAIL_CHARACTERS_MAX]}…",
        field=msgspec.UNSET if field is None else field,
        limit=msgspec.UNSET if limit is None else limit,
        retry_after_s=msgspec.UNSET if retry_after_s is None else retry_after_s,
    )


def problem_of(error: Exception) -> Problem | None:
    """Return the problem that an exception is to a client; None for a bug of the server."""
    if isinstance(error, Refused):
        return error.problem
    for kind in type(error).__mro__:
        make = _PROBLEMS.get(kind)
        if make is not None:
            return make(error)
    return None


def bad_field(detail: str, field: str, limit: float | str | None = None) -> Refused:
    return Refused("bad_field", detail, field=field, limit=limit)


def encode_problem(found: Problem) -> tuple[bytes, list[tuple[bytes, bytes]]]:
    """Return the body of a problem, and the headers that belong to it."""
    headers = [(b"content-type", b"application/problem+json")]
    if found.retry_after_s is not msgspec.UNSET:
        # Whole seconds are all that the header can say; the body is exact.
        headers.append((b"retry-after", b"%d" % max(1, math.ceil(found.retry_after_s))))
    if found.status == 401:
        headers.append((b"www-authenticate", b'Bearer realm="penstock"'))
    return _encode(found), headers


def _invalid(error: Exception) -> Problem:
    rule = rule_of(str(error))
    if not rule.field:
        return problem("bad_request", rule.words)
    return problem("bad_field", str(rule), field=rule.field, limit=rule.limit)


def _plain(code: str) -> Callable[[Exception], Problem]:
    return lambda error: problem(code, str(error))


def _named(code: str, field: str) -> Callable[[Exception], Problem]:
    return lambda error: problem(code, str(error), field=field)


def _setting(error: Exception) -> Problem:
    """The core begins with the name of the setting; here it has another."""
    assert isinstance(error, BadSettings)
    name, _, rest = str(error).partition(" ")
    said = SETTINGS[name].setting.said if name in SETTINGS else ""
    return problem("bad_field", f"{said or name} {rest}", field=said or None, limit=error.limit)


def _topic_setting(error: Exception) -> Problem:
    assert isinstance(error, BadTopicSettings)
    setting = TOPIC_SETTINGS.get(error.field)
    said = setting.said if setting else ""
    return problem("bad_field", f"{said or error.field} {error.reason}", field=said or None)


def _name(error: Exception) -> Problem:
    field = "dead_letter_queue" if str(error).startswith("dead_letters ") else "queue_name"
    return problem("bad_field", str(error), field=field, limit=QUEUE_NAME_CHARACTERS_MAX)


def _draft(error: Exception) -> Problem:
    """What a front end cannot check before, as it depends on the queue and the store."""
    text = str(error)
    if "BATCH_BYTES_MAX" in text:
        return problem("body_too_large", text, field="messages", limit=BATCH_BYTES_MAX)
    if "size_max" in text:
        return problem("bad_field", text.replace("size_max", "queue_size"), field="messages")
    return problem("bad_field", text, field="messages")


def _due_too_late(error: Exception) -> Problem:
    assert isinstance(error, DueTooLate)
    kept_s = error.retention_ms / 1_000
    detail = f"it is due after retention_s of the queue, {kept_s:g} s from now: it would expire before that"
    return problem("bad_field", detail, field=f"messages[{error.row}].delay_s", limit=kept_s)


def _too_large(error: Exception) -> Problem:
    assert isinstance(error, BodyTooLarge)
    detail = f"{error.size_bytes} bytes; max_message_bytes of the queue is {error.limit_bytes}"
    return problem("message_too_large", detail, field=f"messages[{error.row}].data", limit=error.limit_bytes)


def _full(error: Exception) -> Problem:
    assert isinstance(error, QueueFull)
    return problem("queue_full", str(error), field="queue_size", retry_after_s=error.retry_after_ms / 1_000)


def _too_fast(error: Exception) -> Problem:
    assert isinstance(error, RateLimited)
    return problem("rate_limited", str(error), retry_after_s=error.retry_after_ms / 1_000)


def _too_many(code: str) -> Callable[[Exception], Problem]:
    def make(error: Exception) -> Problem:
        assert isinstance(error, TooManyWaiting | TooManyRedrives)
        return problem(code, str(error), limit=error.most, retry_after_s=_WAITING_S)

    return make


_PROBLEMS: dict[type[BaseException], Callable[[Exception], Problem]] = {
    msgspec.ValidationError: _invalid,
    msgspec.DecodeError: _plain("bad_request"),
    RecursionError: lambda _: problem("bad_request", "the body is nested too deeply"),
    BadFrame: _plain("bad_request"),
    QueueNotFound: _plain("queue_not_found"),
    MessageNotFound: _plain("message_not_found"),
    TaskNotFound: _plain("task_not_found"),
    TopicNotFound: _plain("topic_not_found"),
    TopicExists: _plain("topic_exists"),
    BadTopicName: _named("bad_field", "topic_name"),
    BadTopicSettings: _topic_setting,
    PartitionNotFound: _named("partition_not_found", "partition"),
    PartitionsCannotShrink: _named("partitions_cannot_shrink", "partitions"),
    TooManyPartitions: _named("bad_field", "partitions"),
    MessageTooLarge: _named("message_too_large", "records"),
    InvalidRecord: _named("record_refused", "records"),
    CorruptBatch: _named("bad_field", "records"),
    BadTimestamp: _named("bad_field", "records"),
    TransactionsUnsupported: _named("bad_field", "records"),
    UnsupportedCodec: _named("bad_field", "records"),
    UnpackedTooLarge: _named("message_too_large", "records"),
    OutOfOrderSequence: _named("out_of_order_sequence", "base_sequence"),
    ProducerFenced: _named("producer_fenced", "producer_epoch"),
    ProducerUnknown: _named("producer_unknown", "producer_id"),
    GroupNotFound: _plain("group_not_found"),
    GroupNotEmpty: _plain("group_not_empty"),
    # Another server coordinates it, so it has members.
    NotCoordinator: _plain("group_not_empty"),
    BadGroupName: _named("bad_field", "group"),
    ShardNotFound: _named("shard_not_found", "shard"),
    NotWrittenYet: _named("bad_field", "before"),
    QueueExists: _plain("queue_exists"),
    NotLeased: _plain("not_leased"),
    NotScheduled: _plain("not_scheduled"),
    DeadLettersShared: _plain("dead_letters_shared"),
    BadName: _name,
    NoMatchingRoute: _named("bad_field", "queue_name"),
    BadSettings: _setting,
    BodyTooLarge: _too_large,
    DueTooLate: _due_too_late,
    BadDraft: _draft,
    BadSender: _named("bad_field", "sender"),
    SenderFenced: _plain("sender_fenced"),
    SendForgotten: _plain("send_expired"),
    QueueFull: _full,
    TooManyWaiting: _too_many("too_many_waiting"),
    RateLimited: _too_fast,
    TooManyRedrives: _too_many("too_many_redrives"),
    KeyNeeded: _plain("unauthorized"),
    KeyUnknown: _plain("unauthorized"),
    NotAllowed: _plain("forbidden"),
    TooManyQueuesMade: _plain("too_many_queues"),
    Stopping: lambda error: problem("stopping", str(error), retry_after_s=1.0),
    LogClosed: lambda _: problem("stopping", "the server is stopping", retry_after_s=1.0),
    LogBusy: lambda error: problem("journal_busy", str(error), retry_after_s=_BUSY_S),
    # What the database says may name hosts and users, and is for the operator.
    StoreUnreachable: lambda _: problem("unreachable", "the database does not answer", retry_after_s=_WAITING_S),
    OutcomeUnknown: _plain("outcome_unknown"),
    NotConfirmed: lambda error: problem("not_durable", str(error), retry_after_s=_WAITING_S),
    # Its sentences name no host or user.
    StoreRefuses: lambda error: problem("unreachable", str(error), retry_after_s=_WAITING_S),
    StoreForbids: _plain("forbidden"),
    LogFull: lambda error: problem("storage_full", str(error), retry_after_s=_WAITING_S),
    # The stores raise it for a request beyond a limit.
    ValueError: _plain("bad_request"),
}
