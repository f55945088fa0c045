"""The console: its files, logging in, and what its pages ask beyond the REST API.

    GET  /                                     the page, for browsers
    GET  /console/{file}                       its styles and scripts
    …    /api/console/…                        what the table below has, with the checks and the problems of REST

What the pages say of settings comes from the tables in `contract/`: meanings, units, bounds and defaults.

Its pages call the REST API for everything else. A browser that has logged in shows a cookie instead of a key
(`broker/sessions.py`). What is served here is for these pages alone, and may change with them.
"""

from collections.abc import Callable
from functools import cache
from importlib.resources import files
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request as PageRequest
from starlette.responses import Response
from starlette.routing import Route

from penstock.api.console import messages, offsets
from penstock.api.console.dead_letters import DeadLetters
from penstock.api.console.keys import KeyBook, KeyOperations
from penstock.api.console.monitor import EVERY_MS, Monitor
from penstock.api.front import answer_page, page_file
from penstock.api.rest.errors import Refused, bad_field
from penstock.api.rest.openapi import is_for_people, where_things_are
from penstock.api.rest.request import Answer, Operation, Request, Service, instant
from penstock.broker.access import INCLUDED, Role
from penstock.broker.sessions import AGE_MS, COOKIE, Sessions, is_own_page
from penstock.contract.messages import OUTCOMES, PRIORITIES, STATES, WaitReason
from penstock.contract.queue_settings import PARTS, SAID, SETTINGS, Row, Who
from penstock.contract.topic_settings import TOPIC_SETTINGS, TopicSettings, as_said
from penstock.core.queue.explain import SENTENCES
from penstock.version import __version__
from penstock.wire.problems import CODES
from penstock.wire.queue_settings import SETTING_NAMES

FOLDER = "/api/console"
BRIEF_POINTS, BRIEF_QUEUES_MAX = 30, 100
_JSON = b"application/json"


class TrendsQuery(Struct, forbid_unknown_fields=True):
    queues: Annotated[str, Meta(min_length=1, max_length=10_000)]


class Console:
    def __init__(self, service: Service, monitor: Monitor, book: KeyBook | None, *, is_secure: bool) -> None:
        assert service.sessions is not None
        self.service = service
        self._sessions: Sessions = service.sessions
        self._monitor = monitor
        self._keys = None if book is None else KeyOperations(book)
        # Whether browsers reach the server by HTTPS, itself or a proxy before it.
        self._is_secure = is_secure
        self._dead_letters = DeadLetters(service.queues.placement, service.queues.now_ms)
        self._names = frozenset(each.name for each in (files(__package__) / "pages").iterdir())

    def routes(self) -> list[Route]:
        return [Route("/", self._page), Route("/console/{name}", self._file)]

    def operations(self) -> list[Operation]:
        found = [
            _bound("GET", "/session", self.session),
            _bound("POST", "/session", self.begin_session),
            _bound("DELETE", "/session", self.end_session),
            _bound("GET", "/help", self.help),
            _bound("GET", "/overview", self.overview),
            _bound("GET", "/trends", self.brief_trends),
            _bound("GET", "/queues/{queue}/trends", self.trends),
            _bound("GET", "/queues/{queue}/messages", messages.messages, Role.READ),
            _bound("GET", "/queues/{queue}/messages/{message_id}", messages.message, Role.READ),
            _bound("GET", "/queues/{queue}/messages/{message_id}/body", messages.body, Role.READ),
            _bound("GET", "/queues/{queue}/dead-letters", self._dead_letters.groups, Role.READ),
            _bound("POST", "/queues/{queue}/dead-letters/redrive", self._dead_letters.redrive, Role.ADMIN),
            _bound("GET", "/queues/{queue}/history", messages.search, Role.READ),
            _bound("POST", "/offsets", offsets.reset_offsets, Role.RECEIVE),
        ]
        if self._keys is not None:
            found += [
                _bound("GET", "/keys", self._keys.show, Role.ADMIN),
                _bound("POST", "/keys", self._keys.create, Role.ADMIN),
                _bound("POST", "/keys/{key_id}/rotate", self._keys.rotate, Role.ADMIN),
                _bound("DELETE", "/keys/{key_id}", self._keys.revoke, Role.ADMIN),
            ]
        return found

    async def _page(self, request: PageRequest) -> Response:
        if is_for_people(request):
            return answer_page(request, page_file(__package__, "index.html"), {"vary": "accept"})
        return where_things_are()

    async def _file(self, request: PageRequest) -> Response:
        name = request.path_params["name"]
        if name not in self._names:
            return Response("there is no such file\n", status_code=404, media_type="text/plain")
        return answer_page(request, page_file(__package__, name))

    async def session(self, request: Request) -> Answer:
        """Say who asks, and what they may do: buttons of others are shown as such."""
        caller = request.caller
        found = self._sessions.find(request.headers) if request.via == "console" else None
        value = {
            "name": caller.name,
            "is_open": self.service.access.is_open,
            "has_session": found is not None,
            "ends_at": None if found is None else instant(found.ends_at_ms),
            "grants": [{"role": each.role.name.lower(), "queue": each.pattern} for each in caller.grants],
            "includes": {
                role.name.lower(): sorted(each.name.lower() for each in included) for role, included in INCLUDED.items()
            },
            "version": __version__,
            "has_topics": self.service.streams is not None,
            "has_keys": self._keys is not None,
            "request_bytes_max": self.service.request_bytes_max,
        }
        return Answer(value, headers=((b"cache-control", b"no-store"),))

    async def begin_session(self, request: Request) -> Answer:
        """Give a browser that shows a key a cookie that stands for it."""
        if not is_own_page(request.headers):
            raise Refused("cross_site", "only the console of this server logs in here", field="X-Penstock-Console")
        if self.service.access.is_open or request.via == "console":
            return await self.session(request)
        token = self._sessions.begin(request.caller)
        return Answer({"name": request.caller.name}, status=201, headers=(self._cookie(token, AGE_MS // 1_000),))

    async def end_session(self, request: Request) -> Answer:
        self._sessions.end(request.headers)
        return Answer(None, status=204, headers=(self._cookie("", 0),))

    def _cookie(self, token: str, age_s: int) -> tuple[bytes, bytes]:
        secure = "; Secure" if self._is_secure else ""
        said = f"{COOKIE}={token}; Path=/; Max-Age={age_s}; HttpOnly; SameSite=Strict{secure}"
        return b"set-cookie", said.encode()

    async def help(self, _: Request) -> Answer:
        return Answer(settings_help(), content_type=_JSON)

    async def overview(self, request: Request) -> Answer:
        """Return all queues, topics and groups that the caller may see, or 304 for a look that the browser has."""
        tag, body = await self._monitor.overview(request.caller)
        headers = ((b"etag", tag), (b"cache-control", b"no-store"))
        if request.headers.get(b"if-none-match") == tag:
            return Answer(b"", status=304, headers=headers, content_type=_JSON)
        return Answer(body, headers=(*headers, (b"content-encoding", b"gzip")), content_type=_JSON)

    async def brief_trends(self, request: Request) -> Answer:
        """Return what small charts of some queues show."""
        asked: TrendsQuery = request.query(TrendsQuery)
        names = asked.queues.split(",")
        if len(names) > BRIEF_QUEUES_MAX:
            raise bad_field(f"{len(names)} queues; up to {BRIEF_QUEUES_MAX} are shown", "queues", BRIEF_QUEUES_MAX)
        seen = [name for name in names if request.caller.may_list(name)]
        value = {name: self._monitor.trends.brief(name, BRIEF_POINTS) for name in seen}
        return Answer({"every_s": EVERY_MS / 1_000, "queues": value})

    async def trends(self, request: Request) -> Answer:
        """Return where a queue has been in the last minutes."""
        queue = await request.queue(Role.SEE)
        times, points = self._monitor.trends.of(queue)
        columns: list[Any] = [list(column) for column in zip(*points, strict=True)]
        tiers = len(PRIORITIES)
        value = {
            "every_s": EVERY_MS / 1_000,
            "times_ms": times[-len(points) :] if points else [],
            "ready": columns[:tiers],
            "age_s": columns[tiers : 2 * tiers],
            "in_flight": columns[2 * tiers] if columns else [],
            "delayed": columns[2 * tiers + 1] if columns else [],
            "rates": columns[2 * tiers + 2 :],
        }
        return Answer(value)


def _bound(method: str, path: str, run: Callable[..., Any], role: Role = Role.SEE) -> Operation:
    return Operation(method=method, path=FOLDER + path, role=role, name="console", summary="", run=run)


@cache
def settings_help() -> bytes:
    """Return it as JSON; it is the same for as long as the server runs."""
    queue = [{"name": name, **_said(SETTINGS[SAID[name]])} for name in SETTING_NAMES]
    defaults = as_said(TopicSettings())
    topic = [
        {
            "name": setting.said,
            "help": setting.help,
            "unit": "s" if setting.unit == "ms" else setting.unit,
            "least": setting.least / 1_000 if setting.unit == "ms" else setting.least,
            "most": setting.most,
            "default": defaults.get(setting.said),
            "may_be_none": bool(setting.none),
        }
        for setting in TOPIC_SETTINGS.values()
        if setting.said
    ]
    return msgspec.json.encode(
        {
            "queue": queue,
            "parts": PARTS,
            "topic": topic,
            "priorities": PRIORITIES,
            "states": STATES,
            "outcomes": OUTCOMES,
            "wait_reasons": {reason.value: SENTENCES[reason] for reason in WaitReason},
            "remedies": {code.name: code.remedy for code in CODES.values()},
        }
    )


def _said(row: Row) -> dict[str, object]:
    setting = row.setting
    is_time = setting.unit == "ms"
    default = row.as_said(row.default)
    kind = (
        "choice"
        if setting.words
        else "switch"
        if isinstance(row.default, bool)
        else "name"
        if isinstance(row.default, str)
        else "list"
        if isinstance(row.default, tuple)
        else "number"
    )
    return {
        "help": setting.help,
        "kind": kind,
        "unit": "s" if is_time else setting.unit,
        "least": setting.least / 1_000 if is_time else setting.least,
        "most": setting.most / 1_000 if is_time else setting.most,
        "is_whole": not is_time and not setting.is_ratio,
        "words": setting.words,
        "default": default,
        "is_fixed": setting.who is not Who.OWNER,
    }
