"""The OpenAPI document, the page that shows it and sends requests, and the landing page.

The page is plain files beside this module, with nothing from another server and
without a build. Its `Content-Security-Policy` allows nothing else, so that no message
shown on it can become a script.
"""

from functools import cache, partial
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from penstock.api.rest.openapi import document_bytes
from penstock.version import __version__

PAGES = {
    "/docs": ("docs.html", "text/html; charset=utf-8"),
    "/docs/docs.css": ("docs.css", "text/css; charset=utf-8"),
    "/docs/docs.js": ("docs.js", "text/javascript; charset=utf-8"),
    "/docs/view.js": ("view.js", "text/javascript; charset=utf-8"),
}

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Asked for again each time, and answered with 304 while it is the same: a new version is seen at once.
    "cache-control": "no-cache",
}


class _File(NamedTuple):
    body: bytes
    content_type: str
    tag: str


def routes() -> list[Route]:
    pages = [Route(path, partial(_page, path=path)) for path in PAGES]
    return [Route("/", _landing), Route("/openapi.json", _openapi), *pages]


async def _landing(request: Request) -> Response:
    """People are sent to the page; programs are told where things are."""
    if "text/html" in request.headers.get("accept", ""):
        return RedirectResponse("/docs", headers={"vary": "accept"})
    told = {"name": "penstock", "version": __version__, "openapi": "/openapi.json", "docs": "/docs"}
    return Response(msgspec.json.encode(told), media_type="application/json", headers={"vary": "accept"})


async def _openapi(request: Request) -> Response:
    return _answer(request, _openapi_file())


async def _page(request: Request, *, path: str) -> Response:
    return _answer(request, _page_file(path), {"content-security-policy": _POLICY})


def _answer(request: Request, file: _File, more: dict[str, str] | None = None) -> Response:
    headers = {"etag": file.tag, **_GUARDS, **(more or {})}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers={"content-type": file.content_type, **headers})


@cache
def _openapi_file() -> _File:
    return _file(document_bytes(), "application/json")


@cache
def _page_file(path: str) -> _File:
    name, content_type = PAGES[path]
    return _file((files(__package__) / "pages" / name).read_bytes(), content_type)


def _file(body: bytes, content_type: str) -> _File:
    return _File(body, content_type, f'"{blake2b(body, digest_size=12).hexdigest()}"')
