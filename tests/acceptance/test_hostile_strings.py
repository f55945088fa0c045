"""Every string of every REST operation, with what no database and no file name takes: a clear answer, and never 500.

The fields are read from the types of the operations, so that a new one is tried without a line here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args
from urllib.parse import quote, quote_from_bytes, urlencode

import pytest
from msgspec import inspect

from penstock.api.rest.openapi import EXAMPLES, Example
from penstock.api.rest.operations import OPERATIONS
from penstock.api.rest.request import Operation
from tests.acceptance.raw_http import RawAnswer, ask, request
from tests.cli.servers import Served
from tests.postgres.servers import shared_server

HOSTILE = {"nul": "a\0b", "surrogate": "a\ud800b", "long": "x" * 10_000}
# Problems that say which thing is not there, or that the body or the query is no text at all.
WITHOUT_FIELD = {"bad_request", "not_found", "shard_not_found", "topics_disabled", "group_not_empty", "not_dead_letter"}

_TEXTS = (inspect.StrType, inspect.EnumType, inspect.LiteralType, inspect.BytesType, inspect.AnyType, inspect.RawType)

_PARAMETER = re.compile(r"{(\w+)}")

Place = tuple[str | int, ...]


@pytest.fixture(scope="module", params=["embedded", "postgres"])
def port(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder: Path = tmp_path_factory.mktemp("served") / "data"
    options = [] if request.param == "embedded" else ["--store", shared_server().new_database()]
    with Served(folder, "--kafka", "--kafka-port", "0", *options) as served:
        port = int(served.url.rpartition(":")[2])
        for path, body in (
            ("/api/queues", {"queue_name": "orders"}),
            # A redrive is looked for in a queue that is there.
            ("/api/queues", {"queue_name": "orders.dead"}),
            ("/api/queues/orders/messages", {"data": "a"}),
            ("/api/topics", {"topic_name": "events"}),
        ):
            assert ask(port, _request("POST", path, body)).status == 201
        yield port


@pytest.mark.parametrize("hostile", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)
def test_no_string_makes_an_operation_fail(operation: Operation, hostile: str, port: int) -> None:
    if operation.name in {"delete_queue", "delete_topic"} and "{" in operation.path:
        # They take no string but the name of what the other requests need.
        assert _is_clear(ask(port, request(operation.method, _path(operation, _example(operation), hostile))))
        return
    answers = [(sent, ask(port, sent)) for sent in _requests(operation, hostile)]
    assert not [(sent[:300], answer.body) for sent, answer in answers if not _is_clear(answer)]


def test_every_kind_of_string_is_tried() -> None:
    tried = {(name, place) for name in EXAMPLES for place in _places(_operation(name))}
    assert ("send_messages", ("attributes", "x")) in tried
    assert ("send_messages", ("group",)) in tried
    assert ("escalate_messages", ("reason",)) in tried
    assert len(tried) > 40


def _is_clear(answer: RawAnswer) -> bool:
    if answer.status < 300:
        return True
    problem = answer.json
    is_named = "field" in problem or problem["code"] in WITHOUT_FIELD or problem["code"].endswith("_not_found")
    return answer.status < 500 and is_named


def _requests(operation: Operation, hostile: str) -> Iterator[bytes]:
    """Requests with the string in one place each."""
    example = _example(operation)
    good = _path(operation, example)
    for parameter in _PARAMETER.findall(operation.path):
        # One at a time: a queue that is not there would hide the rest.
        yield _request(operation.method, _path(operation, example, hostile, parameter), example.body)
    for name in () if operation.query is None else _strings(inspect.type_info(operation.query)):
        query = {**{key: str(value) for key, value in example.query.items()}, str(name[0]): _raw(hostile)}
        yield _request(operation.method, f"{good}?{urlencode(query)}", example.body)
    for place in _places(operation):
        body = json.loads(json.dumps(example.body or {}))
        yield _request(operation.method, good, _with(body, place, hostile))


def _places(operation: Operation) -> list[Place]:
    # A body may be one of several types, which no tag tells apart.
    kinds = [] if operation.body is None else get_args(operation.body) or [operation.body]
    return [place for kind in kinds for place in _strings(inspect.type_info(kind))]


def _operation(name: str) -> Operation:
    return next(operation for operation in OPERATIONS if operation.name == name)


def _example(operation: Operation) -> Example:
    return EXAMPLES.get(operation.name) or Example()


def _path(operation: Operation, example: Example, name: str | None = None, only: str | None = None) -> str:
    path = operation.path
    for parameter, value in {"task_id": "r_1", "message_id": "1-1", "shard": "0", **example.parameters}.items():
        is_good = name is None or only not in {None, parameter}
        text = quote(value) if is_good else quote_from_bytes(_raw(name or ""))
        path = path.replace(f"{{{parameter}}}", text)
    return path


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _request(method: str, path: str, body: Any) -> bytes:
    return request(method, path, b"" if body is None else json.dumps(body).encode())


def _with(value: Any, place: Place, text: str) -> Any:
    """Return a value with a text at a place, below whatever has to be made on the way."""
    if not place:
        return text
    head, *rest = place
    if head == "{key}":
        return {text: "x"}
    if isinstance(head, int):
        return [_with(None, tuple(rest), text)]
    return {**(value if isinstance(value, dict) else {}), head: _with((value or {}).get(head), tuple(rest), text)}


def _strings(kind: inspect.Type) -> Iterator[Place]:
    """Where a type has strings: names of fields, 0 for a list, and what an object with free keys has."""
    match kind:
        case inspect.StructType():
            yield from ((field.encode_name, *place) for field in kind.fields for place in _strings(field.type))
        case inspect.UnionType():
            yield from (place for each in kind.types for place in _strings(each))
        case inspect.Metadata():
            yield from _strings(kind.type)
        case inspect.DictType():
            yield from [("{key}",), *(("x", *place) for place in _strings(kind.value_type))]
        case inspect.ListType() | inspect.VarTupleType():
            yield from ((0, *place) for place in _strings(kind.item_type))
        case _ if isinstance(kind, _TEXTS):
            yield ()
