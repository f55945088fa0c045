"""What can go wrong for a caller, each with a name of its own.

The server's errors are RFC 9457 problems with a code; `wire/problems.py` has the table. A code has a class here if
programs are likely to catch it; all others are a `PenstockError` with their `code`.
"""

from collections.abc import Mapping, Sequence

import msgspec
from msgspec import UNSET

from penstock.wire.problems import Problem


class PenstockError(Exception):
    """The server refused a request or could not do it; ``code`` says why, for programs."""

    def __init__(
        self,
        detail: str,
        *,
        code: str = "",
        status: int = 0,
        field: str | None = None,
        limit: float | str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code
        # 0 if the error is not from a server.
        self.status = status
        self.field = field
        self.limit = limit
        self.retry_after_s = retry_after_s
        # Of a `send_many` that failed: the ids of what was sent, None for the rest.
        self.sent: Sequence[str | None] = ()


class BadRequest(PenstockError):
    """A field of the request is wrong; ``field`` names it."""


class TooLarge(PenstockError):
    """A message or a request is larger than the server, or the queue, takes."""


class TransactionRequired(PenstockError):
    """The client or the connection has no transaction for this to be part of."""


class WrongDatabase(PenstockError):
    """The connection is to another database than that of the queue. Nothing was written."""


class Unauthorized(PenstockError):
    """A valid API key is needed."""


class Forbidden(PenstockError):
    """The key may not do this."""


class NotFound(PenstockError):
    """Nothing has this name."""


class QueueNotFound(NotFound):
    """There is no such queue."""


class TopicNotFound(NotFound):
    """There is no such topic."""


class GroupNotFound(NotFound):
    """There is no such consumer group."""


class MessageNotFound(NotFound):
    """The queue has no such message: it was settled, or is in another queue."""


class RedriveNotFound(NotFound):
    """There is no such redrive."""


class QueueExists(PenstockError):
    """There is a queue of this name, with other settings."""


class TopicExists(PenstockError):
    """There is a topic of this name, with other settings."""


class GroupNotEmpty(PenstockError):
    """The consumer group has members."""


class StaleReceipt(PenstockError):
    """The lease has ended: another consumer may have the message."""


class NotScheduled(PenstockError):
    """The message is due already, so it cannot be taken back."""


class QueueFull(PenstockError):
    """The queue has no room; ``retry_after_s`` says when to try again."""


class ServerBusy(PenstockError):
    """The server cannot do it now. Try again soon."""


class ServerError(PenstockError):
    """A bug in the server, or the answer is not from a Penstock server."""


class ConnectionFailed(PenstockError):
    """There was no answer. Whether the request was carried out is not known, unless ``is_sent`` is false."""

    is_sent = True


class DatabaseUnusable(PenstockError):
    """The database of the queues cannot be used as it is; the message says why. A retry does not help."""


class ClientClosed(PenstockError):
    """The client was closed before this was done."""


CODES: dict[str, type[PenstockError]] = {
    "bad_request": BadRequest,
    "bad_field": BadRequest,
    "unauthorized": Unauthorized,
    "forbidden": Forbidden,
    "too_many_queues": Forbidden,
    "not_found": NotFound,
    "queue_not_found": QueueNotFound,
    "message_not_found": MessageNotFound,
    "task_not_found": RedriveNotFound,
    "topics_disabled": NotFound,
    "topic_not_found": TopicNotFound,
    "topic_exists": TopicExists,
    "group_not_found": GroupNotFound,
    "group_not_empty": GroupNotEmpty,
    "request_timeout": ServerBusy,
    "queue_exists": QueueExists,
    "stale_receipt": StaleReceipt,
    "not_scheduled": NotScheduled,
    "body_too_large": TooLarge,
    "message_too_large": TooLarge,
    "queue_full": QueueFull,
    "too_many_waiting": ServerBusy,
    "journal_busy": ServerBusy,
    "unreachable": ServerBusy,
    "not_durable": ServerBusy,
    "outcome_unknown": ConnectionFailed,
    "stopping": ServerBusy,
    "storage_full": ServerBusy,
    "internal": ServerError,
}

# With any other code: nothing was done, and a retry may succeed.
_BUSY = (429, 502, 503, 504)

_problems = msgspec.json.Decoder(Problem)


def error_of(status: int, headers: Mapping[str, str], body: bytes) -> PenstockError:
    """Return the error of an answer of status 400 and above, also if our server did not write it."""
    retry_after = headers.get("retry-after", "")
    retry_after_s = float(retry_after) if retry_after.isdecimal() else None
    try:
        problem = _problems.decode(body)
    except msgspec.MsgspecError:
        # A proxy that has lost its server answers in its own words.
        failed = ServerBusy if status in _BUSY else ServerError
        return failed(f"an answer of status {status} that is no problem of a Penstock server", status=status)
    kind = CODES.get(problem.code, ServerBusy if status in _BUSY else PenstockError)
    return kind(
        problem.detail,
        code=problem.code,
        status=status,
        field=None if problem.field is UNSET else problem.field,
        limit=None if problem.limit is UNSET else problem.limit,
        retry_after_s=retry_after_s if problem.retry_after_s is UNSET else problem.retry_after_s,
    )


def bad_field(field: str, detail: str, *, limit: float | str | None = None) -> BadRequest:
    """An error that is found before anything is sent."""
    return BadRequest(detail, code="bad_field", status=400, field=field, limit=limit)
