"""The OpenAPI 3.1 document, made from the table of operations and the types in it.

The types that are described here are those that decode requests and encode answers,
so the document cannot say something else. What a type cannot say (that one of two
fields has to be there, what a header means) is in `described.py`, and what a request
looks like is in `examples.py`; tests hold both against the server.

Frames are named and not described: they are columns of bytes, for the SDK.
"""

import re
import types
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Union, get_args, get_origin

import msgspec

from penstock.api.rest.calling import Operation
from penstock.api.rest.described import (
    ANSWER_HEADERS,
    ARROWED,
    BATCHED,
    BATCHES_TAKEN,
    BODY_OPTIONAL,
    FRAMED,
    HEADERS,
    LEASES,
    NAME_CHARACTERS,
    PATH_PARAMETERS,
    PRIORITY,
    QUERY_PARAMETERS,
    REQUEST_HEADERS,
    STATUSES,
    TAGS,
    TYPES,
    Schema,
)
from penstock.api.rest.examples import EXAMPLES, LINKS, problem_example
from penstock.api.rest.formats import ARROW_TYPE, BATCHES_TYPE
from penstock.api.rest.operations import OPERATIONS
from penstock.broker.access import spoken
from penstock.contract.names import NAME_PATTERN
from penstock.version import __version__
from penstock.wire.frames import FRAME_TYPE
from penstock.wire.problems import CODES, PROBLEM_TYPE, Problem

_REFERENCE = "#/components/schemas/{name}"
_BOTH_FORMATS = ("application/json", "application/msgpack")
_PARAMETER = re.compile(r"{(\w+)}")
_INSTANT = re.compile(r"(_at|_until|^until|^at)$")
_INTRODUCTION = """\
A durable message queue. Send messages to a queue, receive them, ack them; what is not acked in time comes back.

Requests and answers are JSON, or MessagePack with `Content-Type` and `Accept: application/msgpack`: there `data` is \
bytes. Every error is an RFC 9457 problem with a `code` for programs. A server that has keys wants one as \
`Authorization: Bearer <key>`; one on this machine only may have none."""


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
    for field, each in schema.get("properties", {}).items():
        if field == "priority" and "anyOf" in each:
            each["anyOf"] = PRIORITY
        for option in each.get("anyOf", [each]):
            # In a query an instant is text of some length, which may be seconds as well.
            if option.get("type") == "string" and "maxLength" not in option and _INSTANT.search(field):
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
    failing = ("internal", "busy", "stopping", "storage_full")
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
        "examples": {code: {"summary": CODES[code].title, "value": problem_example(code)} for code in codes},
    }
    lines = [f"`{code}`: {CODES[code].title}. {CODES[code].remedy}" for code in codes]
    found: dict[str, Any] = {"description": "\n\n".join(lines), "content": {PROBLEM_TYPE: content}}
    if any(CODES[code].is_retryable for code in codes):
        found["headers"] = {"Retry-After": {"$ref": "#/components/headers/Retry-After"}}
    return found
