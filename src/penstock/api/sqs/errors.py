"""The errors of the service: shape in JSON, code in the query protocol, status; and the server's exceptions as errors.

Current SDKs read the shape (`__type`), and the older code from a header beside it;
older SDKs read the code from XML. Programs compare either, so both are AWS's own.
"""

from collections.abc import Callable
from typing import NamedTuple

from penstock.broker.access import KeyNeeded, KeyUnknown, NotAllowed, RateLimited, TooManyQueuesMade
from penstock.broker.long_polls import TooManyWaiting
from penstock.broker.queues import Stopping
from penstock.broker.redrives import TooManyRedrives
from penstock.contract.names import BadName
from penstock.contract.queue_settings import BadSettings
from penstock.core.queue.message import BadDraft
from penstock.core.queue.queue import QueueFull
from penstock.log.interface import LogBusy, LogClosed, LogFull
from penstock.store.errors import (
    OutcomeUnknown,
    QueueExists,
    QueueNotFound,
    StoreForbids,
    StoreRefuses,
    StoreUnreachable,
)

# What a client sent is in it, and need not come back whole.
_MESSAGE_CHARACTERS_MAX = 1_000


class Kind(NamedTuple):
    shape: str
    code: str
    status: int = 400
    is_sender: bool = True


_OLD = "AWS.SimpleQueueService."

BATCH_ENTRY_IDS_NOT_DISTINCT = Kind("BatchEntryIdsNotDistinct", f"{_OLD}BatchEntryIdsNotDistinct")
BATCH_REQUEST_TOO_LONG = Kind("BatchRequestTooLong", f"{_OLD}BatchRequestTooLong")
EMPTY_BATCH_REQUEST = Kind("EmptyBatchRequest", f"{_OLD}EmptyBatchRequest")
INVALID_ADDRESS = Kind("InvalidAddress", "InvalidAddress", 404)
INVALID_ATTRIBUTE_NAME = Kind("InvalidAttributeName", "InvalidAttributeName")
INVALID_ATTRIBUTE_VALUE = Kind("InvalidAttributeValue", "InvalidAttributeValue")
INVALID_BATCH_ENTRY_ID = Kind("InvalidBatchEntryId", f"{_OLD}InvalidBatchEntryId")
INVALID_MESSAGE_CONTENTS = Kind("InvalidMessageContents", "InvalidMessageContents")
INVALID_SECURITY = Kind("InvalidSecurity", "InvalidSecurity", 403)
MESSAGE_NOT_INFLIGHT = Kind("MessageNotInflight", f"{_OLD}MessageNotInflight")
OVER_LIMIT = Kind("OverLimit", "OverLimit", 403)
PURGE_QUEUE_IN_PROGRESS = Kind("PurgeQueueInProgress", f"{_OLD}PurgeQueueInProgress", 403)
QUEUE_DELETED_RECENTLY = Kind("QueueDeletedRecently", f"{_OLD}QueueDeletedRecently")
QUEUE_DOES_NOT_EXIST = Kind("QueueDoesNotExist", f"{_OLD}NonExistentQueue")
QUEUE_NAME_EXISTS = Kind("QueueNameExists", "QueueAlreadyExists")
RECEIPT_HANDLE_IS_INVALID = Kind("ReceiptHandleIsInvalid", "ReceiptHandleIsInvalid", 404)
REQUEST_THROTTLED = Kind("RequestThrottled", "RequestThrottled", 403)
RESOURCE_NOT_FOUND = Kind("ResourceNotFoundException", "ResourceNotFoundException", 404)
TOO_MANY_ENTRIES = Kind("TooManyEntriesInBatchRequest", f"{_OLD}TooManyEntriesInBatchRequest")
UNSUPPORTED_OPERATION = Kind("UnsupportedOperation", f"{_OLD}UnsupportedOperation")

# In no model, and said by every service of AWS.
INVALID_PARAMETER_VALUE = Kind("InvalidParameterValueException", "InvalidParameterValue")
MISSING_PARAMETER = Kind("MissingRequiredParameterException", "MissingParameter")
SERIALIZATION = Kind("SerializationException", "SerializationException")
MALFORMED_QUERY = Kind("MalformedQueryString", "MalformedQueryString")
INVALID_ACTION = Kind("UnknownOperationException", "InvalidAction")
# Only in the query protocol: no action at all.
UNKNOWN_OPERATION = Kind("UnknownOperationException", "UnknownOperationException", 404)
MISSING_AUTHENTICATION = Kind("MissingAuthenticationTokenException", "MissingAuthenticationToken", 403)
UNRECOGNIZED_CLIENT = Kind("UnrecognizedClientException", "InvalidClientTokenId", 403)
INVALID_SIGNATURE = Kind("InvalidSignatureException", "SignatureDoesNotMatch", 403)
INCOMPLETE_SIGNATURE = Kind("IncompleteSignatureException", "IncompleteSignature", 400)
ACCESS_DENIED = Kind("AccessDeniedException", "AccessDenied", 403)
TOO_LARGE = Kind("RequestEntityTooLargeException", "RequestEntityTooLarge", 413)
UNAVAILABLE = Kind("ServiceUnavailableException", "ServiceUnavailable", 503, is_sender=False)
INTERNAL = Kind("InternalFailure", "InternalFailure", 500, is_sender=False)


class Refused(Exception):
    """A request, or an entry of a batch, that is answered with an error of the service."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message if len(message) <= _MESSAGE_CHARACTERS_MAX else f"{message[:_MESSAGE_CHARACTERS_MAX]}…"


def invalid(parameter: str, value: object, reason: str) -> Refused:
    """A parameter has a value it may not have.

    >>> invalid("WaitTimeSeconds", 21, "Must be >= 0 and <= 20, if provided.").message
    'Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.'
    """
    said = str(value)[:200]
    return Refused(INVALID_PARAMETER_VALUE, f"Value {said} for parameter {parameter} is invalid. Reason: {reason}")


def missing(parameter: str) -> Refused:
    return Refused(MISSING_PARAMETER, f"The request must contain the parameter {parameter}.")


def no_queue() -> Refused:
    return Refused(QUEUE_DOES_NOT_EXIST, "The specified queue does not exist.")


def refused_of(error: Exception) -> Refused | None:
    """Return the error that one of ours is to a client; None for a bug of the server."""
    if isinstance(error, Refused):
        return error
    for kind in type(error).__mro__:
        make = _REFUSALS.get(kind)
        if make is not None:
            return make(error)
    return None


def _as(kind: Kind) -> Callable[[Exception], Refused]:
    return lambda error: Refused(kind, str(error))


_REFUSALS: dict[type[BaseException], Callable[[Exception], Refused]] = {
    QueueNotFound: lambda _: no_queue(),
    QueueExists: _as(QUEUE_NAME_EXISTS),
    BadName: _as(INVALID_PARAMETER_VALUE),
    BadSettings: _as(INVALID_ATTRIBUTE_VALUE),
    BadDraft: _as(INVALID_PARAMETER_VALUE),
    # What every SDK waits after, and repeats.
    QueueFull: lambda _: Refused(REQUEST_THROTTLED, "The queue is full."),
    TooManyWaiting: _as(REQUEST_THROTTLED),
    RateLimited: _as(REQUEST_THROTTLED),
    TooManyRedrives: _as(REQUEST_THROTTLED),
    LogBusy: _as(REQUEST_THROTTLED),
    KeyNeeded: _as(MISSING_AUTHENTICATION),
    KeyUnknown: _as(UNRECOGNIZED_CLIENT),
    NotAllowed: _as(ACCESS_DENIED),
    TooManyQueuesMade: _as(OVER_LIMIT),
    Stopping: _as(UNAVAILABLE),
    LogClosed: lambda _: Refused(UNAVAILABLE, "The server is stopping."),
    OutcomeUnknown: lambda error: Refused(UNAVAILABLE, f"It is not known whether it was done: {error}."),
    StoreUnreachable: lambda _: Refused(UNAVAILABLE, "The database does not answer."),
    StoreRefuses: _as(UNAVAILABLE),
    StoreForbids: _as(ACCESS_DENIED),
    LogFull: lambda _: Refused(UNAVAILABLE, "The disk of the server is full."),
    # The stores raise it for a request beyond a limit.
    ValueError: _as(INVALID_PARAMETER_VALUE),
}
