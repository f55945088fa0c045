"""The page at /docs: served with care, and able to show every operation."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest
from starlette.routing import Router

from penstock import __version__
from penstock.api.rest.openapi import PAGES, document_bytes, routes
from penstock.api.rest.operations import OPERATIONS

PAGE_BYTES_MAX = 40_000
NODE = shutil.which("node")
FOLDER = Path(str(files("penstock.api.rest") / "pages"))


needs_node = pytest.mark.skipif(NODE is None, reason="runs the page without a browser: needs Node")


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes


async def get(path: str, *, method: str = "GET", **headers: str) -> Answer:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": b"",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await Router(routes(), redirect_slashes=False)(scope, receive, send)
    start, *parts = sent
    found = {name.decode(): value.decode() for name, value in start["headers"]}
    return Answer(start["status"], found, b"".join(part.get("body", b"") for part in parts))


@pytest.mark.parametrize("path", PAGES)
async def test_every_file_of_the_page_is_served_as_what_it_is(path: str) -> None:
    answer = await get(path)

    assert answer.status == 200
    assert answer.headers["content-type"] == PAGES[path][1]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; script-src 'self';")
    assert "unsafe" not in answer.headers["content-security-policy"]
    assert answer.body == (FOLDER / PAGES[path][0]).read_bytes()


@pytest.mark.parametrize("path", [*PAGES, "/openapi.json"])
async def test_a_file_that_is_still_the_same_is_not_sent_again(path: str) -> None:
    first = await get(path)
    again = await get(path, if_none_match=first.headers["etag"])
    other = await get(path, if_none_match='"other"')

    assert (again.status, again.body) == (304, b"")
    assert other.body == first.body
    assert first.headers["cache-control"] == "no-cache"


async def test_the_document_is_served_as_json() -> None:
    answer = await get("/openapi.json")

    assert answer.headers["content-type"] == "application/json"
    assert answer.body == document_bytes()


async def test_people_are_sent_to_the_page_and_programs_are_told_of_it() -> None:
    person = await get("/", accept="text/html,application/xhtml+xml,*/*;q=0.8")
    program = await get("/", accept="*/*")

    assert (person.status, person.headers["location"]) == (307, "/docs")
    told = {"name": "penstock", "version": __version__, "openapi": "/openapi.json", "docs": "/docs"}
    assert msgspec.json.decode(program.body) == told


def test_the_page_is_small_and_all_of_it_is_served() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}

    assert sum(sizes.values()) < PAGE_BYTES_MAX
    assert sizes.keys() == {name for name, _ in PAGES.values()}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_needs_no_other_server_and_has_nothing_that_its_policy_forbids() -> None:
    page = (FOLDER / "docs.html").read_text()
    tags = Tags()
    tags.feed(page)
    sources = [value for _, each in tags.found for name, value in each.items() if name in {"src", "href"}]
    labelled = re.findall(r"<label[^>]*>(?:(?!</label>).)*<input", page, re.DOTALL)

    assert not [name for _, each in tags.found for name in each if name.startswith("on") or name == "style"]
    assert all(value and value.startswith(("/", "#", "data:,")) for value in sources)
    assert {value for value in sources if value and value.startswith("/docs/")} == {"/docs/docs.css", "/docs/docs.js"}
    assert len(labelled) == sum(tag == "input" for tag, _ in tags.found)
    assert "<script>" not in page
    for name in ("docs.css", "docs.js", "view.js"):
        text = (FOLDER / name).read_text()
        assert not re.search(r"https?://|@import|innerHTML|insertAdjacentHTML|\beval\b|document\.write", text), name


def shown() -> dict[str, Any]:
    """Run the page in Node, and return what it shows."""
    assert NODE is not None
    script = Path(__file__).with_name("page.mjs")
    done = subprocess.run(
        [NODE, str(script), str(FOLDER)], input=document_bytes(), capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@needs_node
def test_the_page_shows_every_operation_and_a_command_for_it() -> None:
    found = shown()
    names = {operation.name for operation in OPERATIONS}

    assert found["version"] == __version__
    assert set(found["articles"]) == names
    assert {f"#{name}" for name in names} <= set(found["links"])
    assert found["curls"].keys() == names
    assert all(operation.summary.replace("`", "") in found["text"] for operation in OPERATIONS)
    assert "undefined" not in found["text"]
    assert "[object Object]" not in found["text"]
    assert found["curls"]["purge_queue"] == "curl \\\n  -X POST \\\n  'http://127.0.0.1:8080/api/queues/orders/purge'"
    assert "-H 'Content-Type: application/json'" in found["curls"]["send_messages"]


@needs_node
def test_a_form_of_the_page_sends_what_was_filled_in() -> None:
    found = shown()
    document, request = found["sent"]

    assert document == {"url": "/openapi.json"}
    assert request == {
        "url": "/api/queues/a%2Fb/messages",
        "method": "POST",
        "headers": {"Idempotency-Key": "k", "Authorization": "Bearer pk_1", "Content-Type": "application/json"},
        "body": '{"data": 1}',
        "credentials": "omit",
    }
    assert found["answer"] == '{\n  "fine": "<b>"\n}'
