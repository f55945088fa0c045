"""The application: routes to operations, and turns every exception into an answer.

Sending, leasing and settling are the hot path: one look at the path finds them, and they
run without a framework. Starlette routes everything else, from the same table
(`operations.py`) that the OpenAPI document is made of.
"""

import traceback
from collections.abc import Awaitable, Callable, Sequence
from typing import Any
from urllib.parse import unquote

from starlette.exceptions import HTTPException
from starlette.routing import Route, Router

from penstock.api.front import ClientDisconnected, Receive, Scope, Send
from penstock.api.rest.errors import encode_problem, problem, problem_of
from penstock.api.rest.openapi import routes as service_routes
from penstock.api.rest.operations import HOT, OPERATIONS
from penstock.api.rest.request import Answer, Operation, Request, Service, encode
from penstock.contract.names import is_name
from penstock.runtime.interface import LogEventWriter
from penstock.telemetry import REQUEST_ID, REST_FAILED
from penstock.wire.problems import Problem

# Of what these name, other servers may know more.
_TOPICS = "topics"
_FRONT = "/api/queues/"
_GROUPS = b"/api/groups/"
# What the operations that messages go through are counted as, beside those of other front ends.
VERBS = {
    "send_messages": "send",
    "receive_messages": "receive",
    "lease_messages": "receive",
    "ack_messages": "ack",
    "ack_message": "ack",
    "release_messages": "release",
    "cancel_message": "cancel",
    "extend_messages": "extend",
}
# What can be done with one consumer group, by its method.
OF_GROUPS = {each.method: each for each in OPERATIONS if each.path == "/api/groups/{group}"}


class RestApplication:
    """An ASGI application; ``routes`` are those of others at the same port, and ``operations`` more of this kind."""

    def __init__(
        self,
        service: Service,
        log_event: LogEventWriter,
        *,
        routes: Sequence[Route] = (),
        operations: Sequence[Operation] = (),
    ) -> None:
        self._service = service
        self._log_event = log_event
        self._operations = (*OPERATIONS, *operations)
        self._router = Router(
            [*map(self._route, _paths(self._operations)), *routes, *service_routes()], redirect_slashes=False
        )

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] != "http":
            raise RuntimeError(f"{scope['type']} is not spoken here")
        if b"%" in scope.get("raw_path", b"") and b"%2f" in scope["raw_path"].lower():
            operation, parameters = _with_slash(scope)
            if operation is None:
                return _send_problem(send, problem("not_found", "a path with an escaped slash leads nowhere"))
        else:
            operation, parameters = hot(scope)
        if operation is not None:
            return self._answer(operation, parameters, scope, receive, send)
        return self._route_to(scope, receive, send)

    async def _route_to(self, scope: Scope, receive: Receive, send: Send) -> None:
        # Starlette raises for what it cannot route only inside of an application.
        scope["app"] = self
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            await _send_problem(send, _routing_problem(error, scope), error.headers)

    def _mistake(self, scope: Scope, error: Exception) -> Problem:
        request_id, trace = scope.get(REQUEST_ID), "".join(traceback.format_exception(error))
        self._log_event(REST_FAILED, path=scope["path"], request_id=request_id, error=trace)
        return problem("internal", f"the server made a mistake; its log says which for the request {request_id}")

    def _count_refusal(self, queue: str, operation: str, code: str, count: int) -> None:
        name = "" if code == "queue_not_found" or not is_name(queue) else queue
        self._service.queues.traffic.refused(name, VERBS.get(operation, "other"), code, count)

    def _route(self, path: str) -> Route:
        operations = {each.method: each for each in self._operations if each.path == path}
        route = Route(path, _Endpoint(self._answer, operations), methods=list(operations))
        assert route.methods is not None
        # A HEAD that receives messages would lose them.
        route.methods.discard("HEAD")
        return route

    async def _run_on_topics(self, operation: Operation, request: Request) -> Answer:
        if self._service.streams is not None:
            await self._service.streams.topics.refresh()
        return await operation.run(request)

    async def _answer(
        self, operation: Operation, parameters: dict[str, str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        request = None
        try:
            request = Request(self._service, scope, receive, parameters)
            run = self._run_on_topics(operation, request) if operation.tag == _TOPICS else operation.run(request)
            answer = await run
            if answer.content_type is None:
                body, content_type = encode(answer.value, request.form)
            else:
                assert isinstance(answer.value, bytes)
                body, content_type = answer.value, answer.content_type
            if request.caller.rate is not None:
                self._service.access.charge(request.caller, len(body))
        except ClientDisconnected:
            return
        except Exception as error:
            found = problem_of(error)
            if found is None:
                found = self._mistake(scope, error)
            if "queue" in parameters:
                count = 1 if request is None else request.messages
                self._count_refusal(parameters["queue"], operation.name, found.code, count)
            await _send_problem(send, found)
            return
        headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), *answer.headers]
        if answer.status in {204, 304}:
            headers, body = list(answer.headers), b""
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": body})


class _Endpoint:
    """The operations of a path as an ASGI application, which Starlette calls as it is."""

    def __init__(self, answer: Callable[..., Awaitable[None]], operations: dict[str, Operation]) -> None:
        self._answer = answer
        self._operations = operations

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(self._operations[scope["method"]], scope["path_params"], scope, receive, send)


def _with_slash(scope: Scope) -> tuple[Operation | None, dict[str, str]]:
    """Find the operation of a path with an escaped slash. Only a consumer group has a name with one in it.

    Anywhere else it would part the path where nothing before us saw it parted.
    """
    group = scope["raw_path"].removeprefix(_GROUPS)
    if group == scope["raw_path"] or b"/" in group:
        return None, {}
    operation = OF_GROUPS.get(scope["method"])
    return operation, {"group": unquote(group.decode("ascii", "replace"))}


def hot(scope: Scope) -> tuple[Operation | None, dict[str, str]]:
    """Return the operation of a request and its parameters, if it is one that messages go through."""
    path = scope["path"]
    if not path.startswith(_FRONT):
        return None, {}
    queue, _, verb = path[len(_FRONT) :].partition("/")
    operation = HOT.get((scope["method"], verb))
    return operation, {"queue": queue} if operation is not None else {}


def _paths(operations: Sequence[Operation]) -> list[str]:
    """Each path once, the literal ones before those with parameters, which would take them."""
    return sorted(dict.fromkeys(each.path for each in operations), key=lambda path: path.count("{"))


async def _send_problem(send: Send, found: Problem, more: Any = None) -> None:
    body, headers = encode_problem(found)
    headers.append((b"content-length", b"%d" % len(body)))
    headers += [(name.lower().encode(), value.encode()) for name, value in (more or {}).items()]
    await send({"type": "http.response.start", "status": found.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _routing_problem(error: HTTPException, scope: Scope) -> Problem:
    path = unquote(scope["path"])[:200]
    if error.status_code == 405:
        return problem("method_not_allowed", f"{scope['method']} is not for {path}")
    return problem("not_found", f"there is nothing at {path}; /docs lists what there is")
