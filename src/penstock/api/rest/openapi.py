"""The OpenAPI 3.1 document, made from the table of operations and the types in it; and the page that shows it.

The document describes the same types that decode requests and encode answers, so it cannot differ
from the server. The tables at the end of this file hold what a type cannot express: parameters of
paths, headers, formats, and fields that exclude each other. Tests hold both against the server.

The examples, in `openapi_examples.json`, tell one story in the order of that file: a queue is created, messages are
sent, received and settled. A test plays the story on a fresh server and compares every answer. Times and receipts
differ from run to run. In the file the text `=name` stands for something that examples share, and the key `=` merges
such objects.

Frames are named and not described: they are columns of bytes, for the SDK.

The page is plain files in `pages/`, without a build and with nothing from another server (`api/front.py`).
"""

import re
import types
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from typing import Any, NamedTuple, Union, get_args, get_origin

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from penstock.api.front import CONTENT_TYPES, PageFile, answer, answer_page, file_of, page_file
from penstock.api.rest.operations import OPERATIONS
from penstock.api.rest.request import ARROW_TYPE, BATCHES_TYPE, Operation
from penstock.broker.access import spoken
from penstock.contract.messages import PRIORITIES
from penstock.contract.names import NAME_PATTERN
from penstock.contract.queue_settings import QueueSettings, as_said
from penstock.version import __version__
from penstock.wire.frames import FRAME_TYPE
from penstock.wire.problems import CODES, PROBLEM_TYPE, Problem

Schema = dict[str, Any]

_REFERENCE = "#/components/schemas/{name}"
_BOTH_FORMATS = ("application/json", "application/msgpack")
_PARAMETER = re.compile(r"{(\w+)}")
_INSTANT = re.compile(r"(_at|_until|^until|^at)$")
_INTRODUCTION = """\
A durable message queue. Send messages to a queue, receive them, ack them; what is not acked in time comes back.

Requests and answers are JSON, or MessagePack with `Content-Type` and `Accept: application/msgpack`: there `data` is \
bytes. Every error is an RFC 9457 problem with a `code` for programs. A server that has keys wants one as \
`Authorization: Bearer <key>`; one on this machine only may have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One request and its answer."""

    # What stands in the path and in the query.
    parameters: dict[str, str] = field(default_factory=lambda: {"queue": "orders"})
    query: dict[str, Any] = field(default_factory=dict)
    body: Any = None
    status: int = 200
    answer: Any = None


class Link(NamedTuple):
    """What can be asked next, and where in this answer its parameters are."""

    target: str
    parameters: dict[str, str]


def _examples() -> dict[str, Example]:
    kept = msgspec.json.decode((files(__package__) / "openapi_examples.json").read_bytes())
    settings = QueueSettings(size_max=100_000, lease_ms=60_000, dead_letters="orders.dead")
    shared: dict[str, Any] = {"settings": as_said(settings)}
    for name, value in kept["shared"].items():
        shared[name] = _expanded(value, shared)
    return {name: Example(**_expanded(value, shared)) for name, value in kept["examples"].items()}


def _expanded(value: Any, shared: dict[str, Any]) -> Any:
    if isinstance(value, str) and value.startswith("="):
        return shared[value[1:]]
    if isinstance(value, list):
        return [_expanded(each, shared) for each in value]
    if not isinstance(value, dict):
        return value
    found: dict[str, Any] = {}
    for name, each in value.items():
        if name == "=":
            for merged in each:
                found |= shared[merged]
        else:
            found[name] = _expanded(each, shared)
    return found


EXAMPLES = _examples()


@cache
def document_bytes() -> bytes:
    """Return the document as JSON, which is made once."""
    return msgspec.json.encode(document())


def document(operations: Iterable[Operation] = OPERATIONS) -> dict[str, Any]:
    operations = tuple(operations)
    schemas = _Schemas(operations)
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, schemas)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Penstock",
            "version": __version__,
            "summary": "Queues over HTTP",
            "description": _INTRODUCTION,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "/", "description": "This server"}],
        "security": [{"key": []}, {}],
        "tags": [{"name": tag, "description": TAGS.get(tag, tag)} for tag in dict.fromkeys(o.tag for o in operations)],
        "paths": paths,
        "components": {
            "schemas": schemas.components,
            "responses": _problem_answers(operations),
            "headers": HEADERS,
            "securitySchemes": {
                "key": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "An API key, as `penstock key create` prints it.",
                }
            },
        },
    }


class _Schemas:
    """The schema of every type in the table, by type, and those that others refer to."""

    def __init__(self, operations: tuple[Operation, ...]) -> None:
        kinds = list(dict.fromkeys([Problem, *_kinds(operations)]))
        found, self.components = msgspec.json.schema_components(kinds, ref_template=_REFERENCE)
        self._by_kind = dict(zip(kinds, found, strict=True))
        for name, schema in self.components.items():
            _mend(name, schema)

    def of(self, kind: Any) -> Schema:
        """Return the schema of a body or an answer, which may be one of several types."""
        members = _members(kind)
        if len(members) == 1:
            return dict(self._by_kind[members[0]])
        return {"anyOf": [self._by_kind[each] for each in members]}

    def properties(self, kind: Any) -> Iterator[tuple[str, Schema, bool]]:
        """Yield name, schema and whether it has to be there, for every field of a struct."""
        schema = self.components[kind.__name__]
        for name, each in schema["properties"].items():
            yield name, each, name in schema.get("required", ())


def _kinds(operations: tuple[Operation, ...]) -> Iterator[Any]:
    for operation in operations:
        for kind in (operation.query, operation.body, *operation.answers.values()):
            yield from _members(kind)


def _members(kind: Any) -> tuple[Any, ...]:
    """The structs of a union, which msgspec reads one by one; nothing for None."""
    if kind is None:
        return ()
    return get_args(kind) if get_origin(kind) in {Union, types.UnionType} else (kind,)


def _mend(name: str, schema: Schema) -> None:
    """Say of a type what the type itself cannot."""
    if not schema.get("required"):
        schema.pop("required", None)
    for of_field, each in schema.get("properties", {}).items():
        if of_field == "priority" and "anyOf" in each:
            each["anyOf"] = PRIORITY
        for option in each.get("anyOf", [each]):
            # In a query an instant is text of some length, which may be seconds as well.
            if option.get("type") == "string" and "maxLength" not in option and _INSTANT.search(of_field):
                option["format"] = "date-time"
            if option.get("pattern") == NAME_CHARACTERS:
                option["pattern"] = NAME_PATTERN
    schema.update(TYPES.get(name, {}))


def _operation(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    example = EXAMPLES.get(operation.name)
    found: dict[str, Any] = {
        "operationId": operation.name,
        "tags": [operation.tag],
        "summary": operation.summary,
        "description": f"A key needs the {spoken(operation.role, quote='`')}.",
        "parameters": list(_parameters(operation, schemas)),
        "responses": _answers(operation, schemas),
    }
    if operation.body is not None:
        schema = schemas.of(operation.body)
        content: dict[str, Any] = {name: {"schema": schema} for name in _BOTH_FORMATS}
        if example is not None and example.body is not None:
            content["application/json"]["example"] = example.body
        if operation.name in FRAMED:
            content[FRAME_TYPE] = {}
        if operation.name in BATCHES_TAKEN:
            content[BATCHES_TYPE] = {}
        found["requestBody"] = {"required": operation.name not in BODY_OPTIONAL, "content": content}
    return found


def _parameters(operation: Operation, schemas: _Schemas) -> Iterator[dict[str, Any]]:
    example = EXAMPLES.get(operation.name)
    values = {} if example is None else {**example.parameters, **example.query}
    for name in _PARAMETER.findall(operation.path):
        schema = PATH_PARAMETERS[name]
        yield _parameter(name, schema, where="path", is_required=True) | _example(values, name)
    if operation.query is not None:
        for name, schema, is_required in schemas.properties(operation.query):
            yield _parameter(name, schema, where="query", is_required=is_required) | _example(values, name)
    for name, schema in REQUEST_HEADERS.get(operation.name, {}).items():
        yield _parameter(name, schema, where="header", is_required=False)


def _parameter(name: str, schema: Schema, *, where: str, is_required: bool) -> dict[str, Any]:
    schema = dict(schema)
    found: dict[str, Any] = {"name": name, "in": where, "required": is_required}
    description = schema.pop("description", None) or QUERY_PARAMETERS[name]
    return {**found, "description": description, "schema": schema}


def _example(values: dict[str, Any], name: str) -> dict[str, Any]:
    return {"example": values[name]} if name in values else {}


def _answers(operation: Operation, schemas: _Schemas) -> dict[str, Any]:
    found: dict[str, Any] = {}
    example = EXAMPLES.get(operation.name)
    for status, kind in operation.answers.items():
        answer: dict[str, Any] = {"description": STATUSES.get(status, "Done.")}
        if kind is not None:
            answer["content"] = {name: {"schema": schemas.of(kind)} for name in _BOTH_FORMATS}
            if example is not None and status == example.status and example.answer is not None:
                answer["content"]["application/json"]["example"] = example.answer
        _add_frames(answer, operation)
        if links := LINKS.get((operation.name, status)):
            answer["links"] = {
                each.target: {"operationId": each.target, "parameters": each.parameters} for each in links
            }
        if headers := ANSWER_HEADERS.get(operation.name):
            answer["headers"] = {name: {"$ref": f"#/components/headers/{name}"} for name in headers}
        found[str(status)] = answer
    if operation.name in LEASES:
        found["204"] = {"description": "There was no message, and a frame was asked for."}
    return found | _problems(operation)


def _add_frames(answer: dict[str, Any], operation: Operation) -> None:
    for name, spoken_by in ((FRAME_TYPE, FRAMED), (ARROW_TYPE, ARROWED), (BATCHES_TYPE, BATCHED)):
        if operation.name in spoken_by:
            answer.setdefault("content", {})[name] = {}


def _problems(operation: Operation) -> dict[str, Any]:
    """The answers for problems, by status: each says which codes it may have."""
    by_status: dict[int, list[str]] = {}
    for code in problem_codes(operation):
        by_status.setdefault(CODES[code].status, []).append(code)
    return {
        str(status): {"$ref": f"#/components/responses/{'_or_'.join(codes)}"}
        for status, codes in sorted(by_status.items())
    }


def _problem_answers(operations: tuple[Operation, ...]) -> dict[str, Any]:
    """The answers that operations refer to, each once."""
    found = {}
    for operation in operations:
        for reference in _problems(operation).values():
            name = reference["$ref"].rpartition("/")[2]
            found[name] = _problem(name.split("_or_"))
    return found


def problem_codes(operation: Operation) -> list[str]:
    """Return every code an operation may answer with, those that every operation may included."""
    with_body = ("body_too_large", "unsupported_media_type") if operation.body is not None else ()
    everywhere = ("bad_request", "unauthorized", "forbidden", "not_acceptable", "request_timeout")
    failing = ("internal", "journal_busy", "stopping", "storage_full")
    known = {*operation.problems, *with_body, *everywhere, *failing}
    if operation.query is not None:
        known.add("bad_field")
    return [code for code in CODES if code in known]


def _problem(codes: list[str]) -> dict[str, Any]:
    content = {
        "schema": {
            "allOf": [
                {"$ref": _REFERENCE.format(name="Problem")},
                {"properties": {"code": {"enum": codes}}},
            ]
        },
        "examples": {code: {"summary": CODES[code].title, "value": _problem_example(code)} for code in codes},
    }
    lines = [f"`{code}`: {CODES[code].title}. {CODES[code].remedy}" for code in codes]
    found: dict[str, Any] = {"description": "\n\n".join(lines), "content": {PROBLEM_TYPE: content}}
    if any(CODES[code].is_retryable for code in codes):
        found["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return found


def _problem_example(code: str) -> dict[str, Any]:
    known = CODES[code]
    return {
        "type": "about:blank",
        "title": known.title,
        "status": known.status,
        "code": code,
        "detail": _DETAILS.get(code, known.title[0].lower() + known.title[1:]),
        **_MORE.get(code, {}),
    }


TAGS = {
    "queues": "Queues: create, list, describe, change, purge, delete.",
    "messages": "Messages: send, receive, ack, release, extend, inspect.",
    "operating": "For operators: escalations, redrives of dead letters, and the history of settled messages.",
    "topics": "Topics and their consumer groups, for people: programs that produce and consume speak Kafka.",
}

STATUSES = {200: "Done.", 201: "Created, and on disk.", 202: "Started.", 204: "Done; the answer has no body."}

FRAMED = frozenset(
    {"send_messages", "receive_messages", "lease_messages", "ack_messages", "release_messages", "extend_messages"}
)
LEASES = frozenset({"receive_messages", "lease_messages"})
ARROWED = frozenset({"read_history", "read_shard_history", "list_live_messages"})
BATCHED = frozenset({"browse_records"})
# Those that take record batches.
BATCHES_TAKEN = frozenset({"produce_records"})
BODY_OPTIONAL = frozenset({"lease_messages", "requeue_message", "begin_redrive", "create_producers"})

PATH_PARAMETERS: dict[str, Schema] = {
    "queue": {
        "description": "The name of a queue, or its id, which begins with `q_`.",
        "type": "string",
        "minLength": 1,
        "maxLength": 85,
        "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]*$",
    },
    "message_id": {
        "description": "The id of a message, as returned by send or receive.",
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "pattern": "^[0-9a-f]+-[0-9a-f]+$",
    },
    "topic": {
        "description": "The name of a topic.",
        "type": "string",
        "minLength": 1,
        "maxLength": 249,
        "pattern": r"^(?!\.{1,2}$)[A-Za-z0-9._-]+$",
    },
    "group": {
        "description": "The name of a consumer group. A name with a slash cannot be used here.",
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
    },
    "task_id": {
        "description": "The id of a task, as returned when it was started.",
        "type": "string",
        "minLength": 1,
        "maxLength": 64,
        "pattern": "^r_[0-9a-f]+$",
    },
}

# Parameters of queries whose types do not say it themselves.
QUERY_PARAMETERS: dict[str, str] = {
    "bodies": "Include bodies and attributes.",
    "columns": "Of an Arrow stream: only these columns, comma separated, in this order.",
    "cursor": "`next_cursor` of the previous page; by default the first page.",
    "group": "Only messages of this group.",
    "limit": "The most to return.",
    "offset": "`next_offset` of the previous page; by default the first that is kept.",
    "partition": "The number of a partition, from 0 on.",
    "prefix": "Only names that begin with this.",
    "rows": "The approximate number of rows: whole frames are counted.",
    "since": "Settled at this instant or later: RFC 3339, or seconds since 1970.",
    "told": "First write all settled messages to the history, and return the offset up to which it is complete.",
    "until": "Only rows below this offset.",
    "visibility_timeout": "Seconds for which they are hidden from others. By default the setting of the queue.",
    "wait_s": "Seconds to wait for a message if there is none.",
    "with_dead_letters": "Also delete its dead-letter queue, unless other queues bury there.",
}

REQUEST_HEADERS: dict[str, dict[str, Schema]] = {
    "send_messages": {
        "Idempotency-Key": {
            "description": "A repeat with the same key sends nothing again: it returns the ids of the first send.",
            "type": "string",
            "minLength": 1,
            "maxLength": 256,
        }
    }
}

HEADERS: dict[str, Any] = {
    "Retry-After": {
        "description": "Whole seconds to wait before trying again; `retry_after_s` in the body is exact.",
        "schema": {"type": "integer", "minimum": 1},
    },
    "Location": {"description": "Where the queue is.", "schema": {"type": "string"}},
    "Penstock-Next-Offset": {
        "description": "The `offset` of the next page. An Arrow stream has no other place for it.",
        "schema": {"type": "integer", "minimum": 0},
    },
    "Cache-Control": {"description": "Not cached by any proxy.", "schema": {"const": "no-store"}},
}

ANSWER_HEADERS: dict[str, tuple[str, ...]] = {
    "create_queue": ("Location",),
    "receive_messages": ("Cache-Control",),
    "lease_messages": ("Cache-Control",),
    "read_history": ("Penstock-Next-Offset",),
    "read_shard_history": ("Penstock-Next-Offset",),
}


def _any_case(word: str) -> str:
    """Return a pattern for a word in any case; JSON Schema has no flag for it."""
    return "".join(f"[{letter}{letter.lower()}]" for letter in word)


PRIORITY: list[Schema] = [
    {"type": "string", "pattern": f"^({'|'.join([*map(_any_case, PRIORITIES), '[0-4]'])})$"},
    {"type": "integer", "minimum": 0, "maximum": 4},
]

# How the name of a queue looks, by its type and by all its rules: "q_" begins an id, and a last ".dead" is not counted.
NAME_CHARACTERS = r"^[A-Za-z0-9_.-]+$"

# What is true of a type, and its fields one by one do not say.
TYPES: dict[str, Schema] = {
    "Draft": {
        "oneOf": [{"required": ["data"]}, {"required": ["data_base64"]}],
        "not": {"required": ["delay_s", "scheduled_at"]},
    },
    "Escalate": {"oneOf": [{"required": ["message_ids"]}, {"required": ["filter"]}]},
    "NewRecord": {"not": {"anyOf": [{"required": ["key", "key_base64"]}, {"required": ["value", "value_base64"]}]}},
    "Redrive": {"not": {"required": ["message_ids", "filter"]}},
    "Nothing": {"required": ["message"], "additionalProperties": False},
}

_MADE = {"queue": "$response.body#/queue_name"}
_SAME = {"queue": "$request.path.queue"}
_MESSAGE = {**_SAME, "message_id": "$response.body#/message_id"}
_CREATED = tuple(Link(name, _MADE) for name in ("get_queue", "send_messages", "receive_messages", "delete_queue"))

_TASK_OF = {**_SAME, "task_id": "$response.body#/task_id"}

# By operation and status.
LINKS: dict[tuple[str, int], tuple[Link, ...]] = {
    ("create_queue", 201): _CREATED,
    ("create_queue", 200): _CREATED,
    ("send_messages", 201): (
        Link("receive_messages", _SAME),
        *(Link(name, _MESSAGE) for name in ("ack_message", "get_message", "explain_message")),
    ),
    ("begin_redrive", 202): (Link("get_redrive", _TASK_OF), Link("end_redrive", _TASK_OF)),
    ("begin_redrive", 200): (Link("get_redrive", _TASK_OF),),
    ("receive_messages", 200): (Link("ack_message", {**_MESSAGE, "receipt": "$response.body#/receipt"}),),
}

# Of some problems, what an example says.
_DETAILS = {
    "bad_field": "limit: it has to be at most 1000",
    "queue_not_found": "there is no queue 'orders'",
    "queue_full": "queue 'orders' is full",
}
_MORE: dict[str, dict[str, Any]] = {
    "bad_field": {"field": "limit", "limit": 1_000},
    "queue_full": {"field": "queue_size", "retry_after_s": 1.5},
    "body_too_large": {"limit": 16_777_216},
}


_PAGES = {
    "/docs": "docs.html",
    "/docs/docs.css": "docs.css",
    "/docs/docs.js": "docs.js",
    "/docs/view.js": "view.js",
}
PAGES = {path: (name, CONTENT_TYPES[name.rpartition(".")[2]]) for path, name in _PAGES.items()}


def routes() -> list[Route]:
    pages = [Route(path, partial(_page, path=path)) for path in PAGES]
    return [Route("/", _landing), Route("/openapi.json", _openapi), *pages]


async def _landing(request: Request) -> Response:
    """People are sent to the page; programs are told where things are."""
    if is_for_people(request):
        return RedirectResponse("/docs", headers={"vary": "accept"})
    return where_things_are()


def is_for_people(request: Request) -> bool:
    return "text/html" in request.headers.get("accept", "")


def where_things_are() -> Response:
    told = {"name": "penstock", "version": __version__, "openapi": "/openapi.json", "docs": "/docs"}
    return Response(msgspec.json.encode(told), media_type="application/json", headers={"vary": "accept"})


async def _openapi(request: Request) -> Response:
    return answer(request, _openapi_file())


async def _page(request: Request, *, path: str) -> Response:
    return answer_page(request, page_file(__package__, PAGES[path][0]))


@cache
def _openapi_file() -> PageFile:
    return file_of(document_bytes(), "application/json")
