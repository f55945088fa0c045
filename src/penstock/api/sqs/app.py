"""The application: a request in either protocol to an action, and an answer in the same protocol.

    X-Amz-Target: AmazonSQS.…      JSON 1.0
    Action=… in the form or URL    query, answered in XML, or in JSON if the client accepts only JSON

`ACTIONS` is the table of the actions, with the role, the type and the required parameters of each.

Access is decided here. If the server has credentials, a request must be signed with them. A server
that has keys for REST and no credentials for SQS refuses every request of SQS.
"""

import traceback
import uuid
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from penstock.api.front import (
    OPERATION,
    ClientDisconnected,
    ClientPresence,
    Receive,
    Scope,
    Send,
    TooLong,
    read_body,
    source_of,
)
from penstock.api.sqs import json_protocol, policies, query_protocol, queues, receive, send, settle, shapes
from penstock.api.sqs.errors import (
    ACCESS_DENIED,
    INTERNAL,
    INVALID_ACTION,
    INVALID_SIGNATURE,
    MISSING_AUTHENTICATION,
    QUEUE_DOES_NOT_EXIST,
    SERIALIZATION,
    TOO_LARGE,
    UNKNOWN_OPERATION,
    UNRECOGNIZED_CLIENT,
    Refused,
    missing,
    refused_of,
)
from penstock.api.sqs.query_protocol import FORM_TYPE, Form
from penstock.api.sqs.request import Request, Service, front_of, is_queue_path
from penstock.api.sqs.shapes import Shape, names_of
from penstock.api.sqs.signature import Claim, Signed, access_key_of, check_claim, check_signature
from penstock.broker.access import ANONYMOUS_ADMIN, Caller, Grant, Role
from penstock.contract.names import is_name
from penstock.runtime.interface import LogEventWriter
from penstock.telemetry import REQUEST_ID, SQS_FAILED

# Who signs with the pair of the settings.
OWNER = Caller("sqs_access_key_id", (Grant(Role.ADMIN, "*"),))
_TARGET = b"x-amz-target"
_TRACE = b"x-amzn-trace-id"
TRACE_CHARACTERS_MAX = 512
_OF_THE_SERVICE = {"CreateQueue", "ListQueues"}
_OURS = {b"same-origin", b"none"}
_NO_CREDENTIALS = (
    "This server has keys, which SDKs of AWS cannot sign with, and no credentials for SQS: "
    "make a pair with penstock key create --sqs, or tell it sqs_access_key_id and sqs_secret_access_key."
)


# Where the request is kept, in the scope, once it was read.
_ASKED = "penstock.sqs.asked"
# What the actions that messages go through are counted as, beside those of other front ends.
_VERBS = {
    "SendMessage": "send",
    "SendMessageBatch": "send",
    "ReceiveMessage": "receive",
    "DeleteMessage": "ack",
    "DeleteMessageBatch": "ack",
    "ChangeMessageVisibility": "extend",
    "ChangeMessageVisibilityBatch": "extend",
}


def is_for_sqs(scope: Scope) -> bool:
    """Whether a request is one of SQS: REST has nothing to post to at these paths, nor a query at the root."""
    path, method = scope["path"], scope["method"]
    if is_queue_path(path):
        return method in {"POST", "GET"}
    return path == "/" and (method == "POST" or (method == "GET" and b"Action=" in scope["query_string"]))


class Asked(NamedTuple):
    """A request, as far as its protocol goes. ``form`` is None in JSON."""

    name: str
    body: bytes
    form: Form | None


class SqsApplication:
    def __init__(self, service: Service, log_event: LogEventWriter) -> None:
        self._service = service
        self._log_event = log_event

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = str(uuid.uuid4())
        try:
            status, body, more = await self._answer(scope, receive, headers, request_id)
        except ClientDisconnected:
            return
        except Exception as error:
            refused = refused_of(error) or self._mistake(scope, error)
            self._count_refusal(scope, refused)
            status, body, more = _encode_error(refused, request_id, headers)
        content_type = _content_type(headers, body)
        answer_headers = [
            (b"content-type", content_type),
            (b"content-length", b"%d" % len(body)),
            (b"x-amzn-requestid", request_id.encode()),
            *more,
        ]
        await send({"type": "http.response.start", "status": status, "headers": answer_headers})
        await send({"type": "http.response.body", "body": body})

    async def _answer(
        self, scope: Scope, receive: Receive, headers: dict[bytes, bytes], request_id: str
    ) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
        _check_no_page(headers)
        try:
            caller, body = await self._authenticated(scope, headers, receive)
        except Refused as refused:
            self._record_failed_login(scope, headers, refused)
            raise
        access = self._service.access
        access.admit(caller)
        access.charge(caller, len(body))
        asked = _read(scope, headers, body)
        action = ACTIONS.get(asked.name)
        if action is None or _is_misplaced(scope, asked):
            if not asked.name and scope["method"] == "GET":
                raise Refused(UNKNOWN_OPERATION, "There is no action.")
            raise Refused(INVALID_ACTION, f"The action {asked.name[:100]} is not valid for this endpoint.")
        scope[OPERATION] = f"sqs.{asked.name}"
        shape = _decode(asked, action)
        scope[_ASKED] = shape
        action.check(shape)
        presence = ClientPresence(scope, receive, partial(self._service.access.watch, caller))
        front = self._front(scope, headers)
        request = Request(self._service, caller, action.role, front=front, presence=presence, trace=_trace(headers))
        result = await action.run(request, shape)
        for entry in getattr(result, "failed", ()):
            self._count(scope, shape, entry.code.rpartition(".")[2], 1)
        if asked.form is None:
            encoded = json_protocol.encode(result)
        else:
            encode = query_protocol.encode_as_json if _is_json_wanted(headers) else query_protocol.encode
            encoded = encode(asked.name, result, request_id)
        access.charge(caller, len(encoded))
        return 200, encoded, []

    async def _body(self, headers: dict[bytes, bytes], receive: Receive) -> bytes:
        most = self._service.request_bytes_max
        if headers.get(b"content-encoding", b"identity") != b"identity":
            raise Refused(SERIALIZATION, "Bodies are taken as they are, not compressed.")
        if int(headers.get(b"content-length", b"0")) > most:
            raise _too_large(int(headers[b"content-length"]), most)
        try:
            return await read_body(receive, most)
        except TooLong as error:
            raise _too_large(error.size_bytes, most) from None

    def _pairs(self, key_id: str) -> list[tuple[str, Caller]]:
        """Return the secrets of an access key id, and who signs with each: the pair of the settings, or of a key."""
        ours = self._service.credentials
        if ours is not None and key_id == ours.key_id:
            return [(ours.secret, OWNER)]
        return self._service.access.sqs_pairs(key_id)

    def _claimed(self, scope: Scope) -> tuple[Signed, Claim] | None:
        """Return what is still to be verified with the body; None on a server without access control."""
        service = self._service
        if service.credentials is None and service.access.is_open:
            return None
        if service.credentials is None and not service.access.has_sqs_keys:
            raise Refused(MISSING_AUTHENTICATION, _NO_CREDENTIALS)
        signed = Signed(
            scope["method"],
            scope.get("raw_path", scope["path"].encode()).decode("latin-1"),
            scope["query_string"].decode("latin-1"),
            [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]],
            b"",
        )
        now_ms = service.queues.now_ms()
        return signed, check_claim(signed, self._pairs, region=service.account.region, now_ms=now_ms)

    async def _authenticated(self, scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> tuple[Caller, bytes]:
        """Return the caller and the body. An unknown caller is refused by its headers, before the body is read."""
        claimed = self._claimed(scope)
        body = await self._body(headers, receive)
        if claimed is None:
            return ANONYMOUS_ADMIN, body
        signed, claim = claimed
        pairs = self._pairs(claim.key_id)
        return pairs[check_signature(signed._replace(body=body), claim, [secret for secret, _ in pairs])][1], body

    def _count_refusal(self, scope: Scope, refused: Refused) -> None:
        shape = scope.get(_ASKED)
        if shape is not None:
            # Each message of a batch that is refused as a whole.
            self._count(scope, shape, refused.kind.shape, len(getattr(shape, "entries", ())) or 1)

    def _count(self, scope: Scope, shape: Shape, code: str, count: int) -> None:
        url = getattr(shape, "queue_url", "")
        if not url:
            return
        try:
            name = self._service.account.queue_of_url(url)
        except Refused:
            name = ""
        is_there = is_name(name) and code != QUEUE_DOES_NOT_EXIST.shape
        operation = _VERBS.get(scope[OPERATION].removeprefix("sqs."), "other")
        self._service.queues.traffic.refused(name if is_there else "", operation, code, count)

    def _record_failed_login(self, scope: Scope, headers: dict[bytes, bytes], refused: Refused) -> None:
        if refused.kind in (UNRECOGNIZED_CLIENT, INVALID_SIGNATURE):
            said = access_key_of((headers.get(b"authorization") or scope["query_string"] or b"").decode("latin-1"))
            self._service.queues.activity.failed_login(via="sqs", said=said, source=source_of(scope))

    def _front(self, scope: Scope, headers: dict[bytes, bytes]) -> str:
        scheme = str(scope.get("scheme", "http"))
        if self._service.is_behind_proxy and headers.get(b"x-forwarded-proto") in {b"http", b"https"}:
            scheme = headers[b"x-forwarded-proto"].decode()
        return front_of(scheme, headers.get(b"host", b"").decode("latin-1"))

    def _mistake(self, scope: Scope, error: Exception) -> Refused:
        request_id, trace = scope.get(REQUEST_ID), "".join(traceback.format_exception(error))
        self._log_event(SQS_FAILED, path=scope["path"], request_id=request_id, error=trace)
        return Refused(INTERNAL, "The server made a mistake; its log says which.")


def _trace(headers: dict[bytes, bytes]) -> str:
    """Return what the header for tracing says, which messages are sent with that say nothing themselves."""
    said = headers.get(_TRACE, b"").decode("latin-1")
    return said if len(said) <= TRACE_CHARACTERS_MAX and said.isascii() and said.isprintable() else ""


def _too_large(size_bytes: int, most: int) -> Refused:
    return Refused(TOO_LARGE, f"A request of {size_bytes} bytes or more; the limit is {most}.")


def _check_no_page(headers: dict[bytes, bytes]) -> None:
    """A page of another site may send a form, or load an image, without asking us. No SDK is a page."""
    site = headers.get(b"sec-fetch-site")
    if site not in _OURS and (site is not None or b"origin" in headers):
        raise Refused(ACCESS_DENIED, "A page of another site asks; let a program ask instead.")


def _read(scope: Scope, headers: dict[bytes, bytes], body: bytes) -> Asked:
    target = headers.get(_TARGET)
    if target is not None:
        name = json_protocol.action_of(target.decode("latin-1"))
        return Asked(name or target.decode("latin-1"), body, None)
    form = query_protocol.read_form(scope["query_string"])
    if scope["method"] == "POST" and headers.get(b"content-type", FORM_TYPE).split(b";")[0].strip() == FORM_TYPE:
        form |= query_protocol.read_form(body)
    if is_queue_path(scope["path"]):
        form.setdefault("QueueUrl", scope["path"])
    return Asked(form.get("Action", ""), body, form)


def _decode(asked: Asked, action: "Action") -> Shape:
    if asked.form is None:
        return json_protocol.decode(asked.body, action.request)
    return query_protocol.decode(asked.form, action.request)


def _is_misplaced(scope: Scope, asked: Asked) -> bool:
    """Whether an action that is about no queue was asked for at the URL of one, where AWS does not know it."""
    return scope["method"] == "GET" and asked.name in _OF_THE_SERVICE and is_queue_path(scope["path"])


def _is_json_wanted(headers: dict[bytes, bytes]) -> bool:
    return query_protocol.is_json_wanted(headers.get(b"accept", b""))


def _encode_error(
    refused: Refused, request_id: str, headers: dict[bytes, bytes]
) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    if _TARGET in headers:
        body, more = json_protocol.encode_error(refused)
        return refused.kind.status, body, more
    body = query_protocol.encode_error(refused, request_id, is_json=_is_json_wanted(headers))
    return refused.kind.status, body, []


def _content_type(headers: dict[bytes, bytes], body: bytes) -> bytes:
    if _TARGET in headers:
        return json_protocol.CONTENT_TYPE
    # An error may be XML although JSON was wanted.
    return query_protocol.JSON_TYPE if body.startswith(b"{") else query_protocol.CONTENT_TYPE


@dataclass(frozen=True, slots=True)
class Action:
    # What a caller needs on the queues that it is about.
    role: Role
    request: type[Shape]
    run: Callable[[Request, Any], Awaitable[Shape]]
    # By AWS's names, in the order in which they are missed.
    required: tuple[str, ...] = ("QueueUrl",)

    def check(self, asked: Shape) -> None:
        """Refuse a request that lacks what it must say."""
        for name in self.required:
            if getattr(asked, names_of(self.request)[name]) in {"", None}:
                raise missing(name)


ACTIONS: dict[str, Action] = {
    "AddPermission": Action(Role.ADMIN, shapes.AddPermissionRequest, policies.add_permission, ("QueueUrl", "Label")),
    "CancelMessageMoveTask": Action(
        Role.ADMIN, shapes.CancelMessageMoveTaskRequest, queues.cancel_message_move_task, ("TaskHandle",)
    ),
    "ChangeMessageVisibility": Action(
        Role.RECEIVE,
        shapes.ChangeMessageVisibilityRequest,
        settle.change_message_visibility,
        ("QueueUrl", "ReceiptHandle", "VisibilityTimeout"),
    ),
    "ChangeMessageVisibilityBatch": Action(
        Role.RECEIVE, shapes.ChangeMessageVisibilityBatchRequest, settle.change_message_visibility_batch
    ),
    "CreateQueue": Action(Role.ADMIN, shapes.CreateQueueRequest, queues.create_queue, ("QueueName",)),
    "DeleteMessage": Action(
        Role.RECEIVE, shapes.DeleteMessageRequest, settle.delete_message, ("QueueUrl", "ReceiptHandle")
    ),
    "DeleteMessageBatch": Action(Role.RECEIVE, shapes.DeleteMessageBatchRequest, settle.delete_message_batch),
    "DeleteQueue": Action(Role.ADMIN, shapes.QueueRequest, queues.delete_queue),
    "GetQueueAttributes": Action(Role.SEE, shapes.GetQueueAttributesRequest, queues.get_queue_attributes),
    "GetQueueUrl": Action(Role.SEE, shapes.GetQueueUrlRequest, queues.get_queue_url, ("QueueName",)),
    "ListDeadLetterSourceQueues": Action(
        Role.SEE, shapes.ListDeadLetterSourceQueuesRequest, queues.list_dead_letter_source_queues
    ),
    "ListMessageMoveTasks": Action(
        Role.READ, shapes.ListMessageMoveTasksRequest, queues.list_message_move_tasks, ("SourceArn",)
    ),
    "ListQueueTags": Action(Role.SEE, shapes.QueueRequest, queues.list_queue_tags),
    "ListQueues": Action(Role.SEE, shapes.ListQueuesRequest, queues.list_queues, ()),
    "PurgeQueue": Action(Role.ADMIN, shapes.QueueRequest, queues.purge_queue),
    "ReceiveMessage": Action(Role.RECEIVE, shapes.ReceiveMessageRequest, receive.receive_message),
    "RemovePermission": Action(
        Role.ADMIN, shapes.RemovePermissionRequest, policies.remove_permission, ("QueueUrl", "Label")
    ),
    "SendMessage": Action(Role.SEND, shapes.SendMessageRequest, send.send_message, ("QueueUrl", "MessageBody")),
    "SendMessageBatch": Action(Role.SEND, shapes.SendMessageBatchRequest, send.send_message_batch),
    "SetQueueAttributes": Action(Role.ADMIN, shapes.SetQueueAttributesRequest, queues.set_queue_attributes),
    "StartMessageMoveTask": Action(
        Role.ADMIN, shapes.StartMessageMoveTaskRequest, queues.start_message_move_task, ("SourceArn",)
    ),
    "TagQueue": Action(Role.ADMIN, shapes.TagQueueRequest, queues.tag_queue),
    "UntagQueue": Action(Role.ADMIN, shapes.UntagQueueRequest, queues.untag_queue),
}
