"""The reference pages of the REST API: made from its OpenAPI document, and from the table of problems."""

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from penstock.api.rest.openapi import EXAMPLES, document_bytes, problem_codes
from penstock.api.rest.operations import OPERATIONS
from penstock.wire.problems import CODES

Schema = dict[str, Any]

_MADE = "then run `python -m tests.docs.reference`."
_OPENING = """\
# REST

What a server answers to. It describes itself, too: `/openapi.json` is this page for programs, and `/docs` one that can
be tried in a browser.

- Bodies are JSON, or MessagePack with `Content-Type` and `Accept: application/msgpack`; there `data` is bytes on the
  way out. Whole numbers are written without a point. A body has to say its `Content-Type`, and is not compressed.
- `{queue}` is the name of a queue or its id, which begins with `q_`.
- Times are seconds. Instants are RFC 3339 in UTC; where one is sent, seconds since 1970 will do.
- A server with keys wants one as `Authorization: Bearer <key>`; each operation says which role the key needs.
- A server on loopback answers to the names of loopback only, and not to pages of other sites.
- An error is an RFC 9457 problem with a `code`: [all of them](errors.md). Every operation may answer with
  `bad_request`, `unauthorized`, `forbidden`, `not_acceptable`, `request_timeout`, `internal`, `journal_busy`,
  `stopping` and `storage_full`; those of its own are listed with it.
"""


def rest_page() -> str:
    document: dict[str, Any] = msgspec.json.decode(document_bytes())
    lines = [_OPENING]
    for tag in document["tags"]:
        lines += [f"## {tag['name'].capitalize()}", "", tag["description"], ""]
        for operation in OPERATIONS:
            if operation.tag == tag["name"]:
                described = document["paths"][operation.path][operation.method.lower()]
                lines += _operation(operation.name, f"{operation.method} {operation.path}", described, document)
    lines += ["## Types", "", "What has to be there is marked with an asterisk.", ""]
    for name, schema in sorted(document["components"]["schemas"].items()):
        if not name.endswith("Query"):
            lines += _type(name, schema)
    source = "src/penstock/api/rest/operations.py"
    lines += [f"This page is made from [`{source}`](../../{source}) and the types it names: change those, {_MADE}", ""]
    return "\n".join(lines)


def errors_page() -> str:
    lines = [
        "# Errors",
        "",
        "Whatever goes wrong, a server answers with an RFC 9457 problem, `application/problem+json`. `code` is for",
        "programs and stays; `detail` is for people and may change. `field` says which field is meant, `limit` what it",
        "may be at most. Where trying again may help, `retry_after_s` and the header `Retry-After` say when.",
        "",
        "| code | status | meaning | again? | what to do |",
        "|---|---|---|---|---|",
    ]
    for code in CODES.values():
        again = "yes" if code.is_retryable else "no"
        lines.append(f"| `{code.name}` | {code.status} | {code.title}. | {again} | {code.remedy} |")
    source = "src/penstock/wire/problems.py"
    return "\n".join([*lines, "", f"This page is made from [`{source}`](../../{source}): change that, {_MADE}", ""])


def _operation(name: str, title: str, described: Schema, document: Schema) -> Iterator[str]:
    yield from (f"### {name}", "", f"`{title}`", "", f"{described['summary']} {described['description']}", "")
    if described["parameters"]:
        yield from ("| parameter | in | type | |", "|---|---|---|---|")
        for each in described["parameters"]:
            mark = "\\*" if each["required"] else ""
            text = _cell(each.get("description", "") + _default(each["schema"]))
            yield f"| `{each['name']}`{mark} | {each['in']} | {_cell(type_of(each['schema']))} | {text} |"
        yield ""
    if "requestBody" in described:
        content = described["requestBody"]["content"]
        optional = "" if described["requestBody"]["required"] else " It may be left out."
        yield from (f"Body: {_linked(content['application/json']['schema'])}.{optional}", "")
    for status, answer in described["responses"].items():
        if "content" in answer:
            yield from (f"Answer {status}: {_linked(answer['content']['application/json']['schema'])}.", "")
    yield from _own_problems(name)
    yield from _example(name, title)


def _own_problems(name: str) -> Iterator[str]:
    operation = next(each for each in OPERATIONS if each.name == name)
    codes = [code for code in problem_codes(operation) if code in operation.problems]
    if codes:
        yield from ("Problems: " + ", ".join(f"`{code}`" for code in codes) + ".", "")


def _example(name: str, title: str) -> Iterator[str]:
    example = EXAMPLES[name]
    method, _, path = title.partition(" ")
    query = "&".join(f"{key}={json.dumps(value).strip(chr(34))}" for key, value in example.query.items())
    asked = f"{method} {path.format(**example.parameters)}{'?' if query else ''}{query}"
    body = f"\n{json.dumps(example.body)}" if example.body is not None else ""
    yield from ("```text", asked + body, "", f"{example.status}", json.dumps(example.answer), "```", "")


def _type(name: str, schema: Schema) -> Iterator[str]:
    yield from (f"### {name}", "")
    if "description" in schema:
        yield from (" ".join(schema["description"].split()), "")
    if "enum" in schema:
        yield from (type_of(schema), "")
        return
    yield from ("| field | type | |", "|---|---|---|")
    for field, each in schema["properties"].items():
        mark = "\\*" if field in schema.get("required", ()) else ""
        yield f"| `{field}`{mark} | {_cell(type_of(each))} | {_cell(each.get('description', '') + _default(each))} |"
    yield ""


def type_of(schema: Schema) -> str:
    """Return a schema in a few words."""
    if "$ref" in schema:
        return _name(schema)
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(type_of(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {type_of(schema['items'])}{_bounds(schema)}"
    if "additionalProperties" in schema:
        return f"object of {type_of(schema['additionalProperties'])}"
    return f"{schema.get('format') or schema.get('type') or 'any JSON'}{_bounds(schema)}"


def _bounds(schema: Schema) -> str:
    for least, most, unit in (
        ("minimum", "maximum", ""),
        ("exclusiveMinimum", "maximum", ", not the first"),
        ("minLength", "maxLength", " characters"),
        ("minItems", "maxItems", " of them"),
    ):
        if most in schema and (least in schema or most != "maximum"):
            return f" ({schema.get(least, 0)} to {schema[most]}{unit})"
        if least in schema and most not in schema:
            return f" ({schema[least]} or more{unit})"
    return ""


def _default(schema: Schema) -> str:
    return f" Default `{json.dumps(schema['default'])}`." if schema.get("default") not in (None, {}, []) else ""


def _name(schema: Schema) -> str:
    name = schema["$ref"].rpartition("/")[2]
    return f"[{name}](#{name.lower()})"


def _linked(schema: Schema) -> str:
    return " or ".join(_name(each) for each in schema.get("anyOf", [schema]))


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
