"""The OpenAPI document is one, says what the table of operations says, and its examples fit."""

import re
from collections.abc import Iterator
from typing import Any

import jsonschema_rs
import msgspec
import pytest
from schemathesis.specs.openapi.definitions import OPENAPI_31_VALIDATOR

from penstock.api.rest.openapi import (
    ANSWER_HEADERS,
    ARROWED,
    BODY_OPTIONAL,
    EXAMPLES,
    FRAMED,
    LEASES,
    LINKS,
    REQUEST_HEADERS,
    TAGS,
    document,
    document_bytes,
    problem_codes,
)
from penstock.api.rest.operations import OPERATIONS
from penstock.api.rest.request import Operation
from penstock.contract.names import BadName, check_name
from penstock.wire.problems import CODES

DOCUMENT: dict[str, Any] = msgspec.json.decode(document_bytes())
BY_NAME = {operation.name: operation for operation in OPERATIONS}

every_operation = pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.name)


def described(operation: Operation) -> dict[str, Any]:
    found: dict[str, Any] = DOCUMENT["paths"][operation.path][operation.method.lower()]
    return found


def validator(schema: dict[str, Any]) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator({**schema, "components": DOCUMENT["components"]})


def everything(value: Any) -> Iterator[Any]:
    yield value
    for each in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from everything(each)


def test_the_document_is_valid_open_api() -> None:
    assert [str(error) for error in OPENAPI_31_VALIDATOR.iter_errors(DOCUMENT)] == []


def test_every_schema_of_the_document_is_valid_json_schema() -> None:
    for name, schema in DOCUMENT["components"]["schemas"].items():
        assert jsonschema_rs.meta.is_valid(schema), name


def test_every_reference_leads_to_something() -> None:
    references = {each["$ref"] for each in everything(DOCUMENT) if isinstance(each, dict) and "$ref" in each}

    assert references
    for reference in references:
        place: Any = DOCUMENT
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]


def test_the_document_is_made_once() -> None:
    assert document_bytes() is document_bytes()


def test_names_of_operations_and_tags_are_known_and_used_once() -> None:
    named = {*FRAMED, *LEASES, *ARROWED, *BODY_OPTIONAL, *ANSWER_HEADERS, *REQUEST_HEADERS, *EXAMPLES}
    linked = {name for name, _ in LINKS} | {link.target for links in LINKS.values() for link in links}

    assert len(BY_NAME) == len(OPERATIONS)
    assert (named | linked) - BY_NAME.keys() == set()
    assert {operation.tag for operation in OPERATIONS} == TAGS.keys()


@every_operation
def test_an_operation_is_described_as_the_table_has_it(operation: Operation) -> None:
    found = described(operation)
    in_path = [each["name"] for each in found["parameters"] if each["in"] == "path"]
    in_query = {each["name"] for each in found["parameters"] if each["in"] == "query"}

    assert found["operationId"] == operation.name
    assert in_path == re.findall(r"{(\w+)}", operation.path)
    assert in_query == set(operation.query.__struct_fields__ if operation.query else ())
    assert ("requestBody" in found) is (operation.body is not None)
    assert {str(status) for status in operation.answers} <= found["responses"].keys()
    assert {str(CODES[code].status) for code in operation.problems} <= found["responses"].keys()
    assert all(each["description"] for each in found["parameters"])


@every_operation
def test_a_problem_names_every_code_it_may_have(operation: Operation) -> None:
    said = set()
    for answer in described(operation)["responses"].values():
        if "$ref" in answer:
            shared = DOCUMENT["components"]["responses"][answer["$ref"].rpartition("/")[2]]
            content = shared["content"]["application/problem+json"]
            check = validator(content["schema"])
            assert all(check.is_valid(example["value"]) for example in content["examples"].values())
            assert not check.is_valid({**next(iter(content["examples"].values()))["value"], "code": "unheard_of"})
            said |= set(content["schema"]["allOf"][1]["properties"]["code"]["enum"])

    assert said == set(problem_codes(operation))


@every_operation
def test_every_operation_has_an_example_that_fits_its_types(operation: Operation) -> None:
    example = EXAMPLES[operation.name]
    if operation.body is not None:
        check = validator(described(operation)["requestBody"]["content"]["application/json"]["schema"])
        check.validate(example.body)
    answer = described(operation)["responses"][str(example.status)]
    if operation.answers[example.status] is not None:
        validator(answer["content"]["application/json"]["schema"]).validate(example.answer)
    for parameter in described(operation)["parameters"]:
        if "example" in parameter:
            validator(parameter["schema"]).validate(parameter["example"])


def test_a_draft_says_data_in_one_way_only() -> None:
    check = validator({"$ref": "#/components/schemas/Draft"})

    assert check.is_valid({"data": 0})
    assert check.is_valid({"data_base64": "aGk="})
    assert not check.is_valid({})
    assert not check.is_valid({"data": None})
    assert not check.is_valid({"data": "a", "data_base64": "aGk="})
    assert not check.is_valid({"data": "a", "delay_s": 1, "scheduled_at": 2_000_000_000})


@pytest.mark.parametrize(
    ("priority", "is_good"), [("high", True), ("4", True), (0, True), (5, False), ("URGENT", False)]
)
def test_a_priority_is_a_name_or_a_number(priority: object, is_good: bool) -> None:
    assert validator({"$ref": "#/components/schemas/Draft"}).is_valid({"data": "", "priority": priority}) is is_good


@pytest.mark.parametrize(
    ("name", "is_good"),
    [("orders", True), ("a" * 80 + ".dead", True), ("a" * 81, False), ("q_1", False), (".a", False), ("a/b", False)],
)
def test_a_name_in_the_document_is_one_that_a_queue_may_have(name: str, is_good: bool) -> None:
    assert validator({"$ref": "#/components/schemas/CreateQueue"}).is_valid({"queue_name": name}) is is_good
    try:
        check_name(name)
    except BadName:
        assert not is_good


def test_a_document_can_be_made_of_some_operations() -> None:
    found = document(OPERATIONS[:1])

    assert list(found["paths"]) == [OPERATIONS[0].path]
    assert "Received" not in found["components"]["schemas"]
