"""Files of the package that a browser shows: pages, styles and scripts, without a build.

A page's `Content-Security-Policy` allows nothing from elsewhere and no script inside of a page, so that no message
shown on it can become one.
"""

from functools import cache
from hashlib import blake2b
from importlib.resources import files
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_GUARDS = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    # Asked for again each time, and answered with 304 while it is the same: a new version is seen at once.
    "cache-control": "no-cache",
}
CONTENT_TYPES = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


class PageFile(NamedTuple):
    body: bytes
    content_type: str
    tag: str


def answer(request: Request, file: PageFile, more: dict[str, str] | None = None) -> Response:
    """Answer with a file, or with 304 to a browser that has it."""
    headers = {"etag": file.tag, **_GUARDS, **(more or {})}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    return Response(file.body, headers={"content-type": file.content_type, **headers})


def answer_page(request: Request, file: PageFile, more: dict[str, str] | None = None) -> Response:
    """Answer with a page, or a part of one, under the policy."""
    return answer(request, file, {"content-security-policy": POLICY, **(more or {})})


@cache
def page_file(package: str, name: str) -> PageFile:
    """Return a file in the folder `pages` of a package."""
    return file_of((files(package) / "pages" / name).read_bytes(), CONTENT_TYPES[name.rpartition(".")[2]])


def file_of(body: bytes, content_type: str) -> PageFile:
    return PageFile(body, content_type, f'"{blake2b(body, digest_size=12).hexdigest()}"')
