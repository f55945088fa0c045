"""A client that calls the REST application in process: no network, and time is virtual.

    async with open_api() as api:
        answer = await api.post("/api/queues", {"queue_name": "orders"})
        assert answer.status == 201

Behind it are the real broker and the embedded store on a simulated disk.
"""

import asyncio
from collections.abc import AsyncIterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from penstock.api.rest.app import RestApplication
from penstock.api.rest.request import Service
from penstock.broker.access import Access
from penstock.broker.queues import Queues
from penstock.wire.frames import FRAME_TYPE
from tests.broker.brokers import open_broker
from tests.simulation.world import LogEvents

MSGPACK = "application/msgpack"
ORDERS = "/api/queues/orders"
REQUEST_BYTES_MAX = 32 * 1024 * 1024


class Response:
    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def value(self) -> Any:
        """The body, decoded by its content type."""
        if self.headers.get("content-type") == MSGPACK:
            return msgspec.msgpack.decode(self.body)
        return msgspec.json.decode(self.body)

    def __getitem__(self, name: str) -> Any:
        return self.value[name]

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:500]!r}"

    def is_problem(self, status: int, code: str, *, field: str | None = None, limit: float | str | None = None) -> bool:
        """Whether it is this problem, in the form that RFC 9457 wants, with this field and limit."""
        value = self.value
        assert self.headers["content-type"] == "application/problem+json", self
        assert value["status"] == self.status, self
        assert value["title"], self
        assert value["detail"], self
        found = (self.status, value["code"], value.get("field"), value.get("limit"))
        assert found == (status, code, field, limit), f"{found}: {value['detail']}"
        return True


class Api:
    def __init__(self, application: RestApplication, queues: Queues, log_events: LogEvents) -> None:
        self.application = application
        self.queues = queues
        self._log_events = log_events

    def forget_log_events(self, name: str) -> list[dict[str, object]]:
        """Return the log events of a name that was expected, and let them be no failure of the test."""
        found = [fields for event, fields in self._log_events.events if event.name == name]
        self._log_events.events = [each for each in self._log_events.events if each[0].name != name]
        return found

    async def get(self, path: str, /, *, headers: dict[str, str] | None = None, **query: object) -> Response:
        return await self.call("GET", path, query=query, headers=headers)

    async def post(
        self, path: str, value: object = None, /, *, headers: dict[str, str] | None = None, **query: object
    ) -> Response:
        return await self.call("POST", path, value, query=query, headers=headers)

    async def patch(self, path: str, value: object) -> Response:
        return await self.call("PATCH", path, value)

    async def delete(self, path: str, /, **query: object) -> Response:
        return await self.call("DELETE", path, query=query)

    async def msgpack(self, method: str, path: str, value: object = None, **query: object) -> Response:
        """Call with MessagePack both ways."""
        body = b"" if value is None else msgspec.msgpack.encode(value)
        headers = {"content-type": MSGPACK, "accept": MSGPACK}
        return await self.raw(method, path, body, headers=headers, query=query)

    async def frame(
        self, method: str, path: str, body: bytes = b"", *, query: dict[str, object] | None = None
    ) -> Response:
        """Call with frames both ways."""
        headers = {"content-type": FRAME_TYPE, "accept": FRAME_TYPE}
        return await self.raw(method, path, body, headers=headers, query=query)

    async def call(
        self,
        method: str,
        path: str,
        value: object = None,
        *,
        query: dict[str, object] | None = None,
        headers: dict[str, str] | None = None,
    ) -> Response:
        """Call with JSON; without a value there is no body."""
        body = b"" if value is None else msgspec.json.encode(value)
        given = {"content-type": "application/json"} if value is not None else {}
        return await self.raw(method, path, body, headers=given | (headers or {}), query=query)

    async def raw(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        query: dict[str, object] | None = None,
        query_string: bytes | None = None,
        connection: "Connection | None" = None,
        has_length: bool = True,
    ) -> Response:
        connection = connection or Connection()
        connection.begin(body)
        scope = _scope(method, path, headers or {}, query or {})
        if has_length and body and "content-length" not in (headers or {}):
            scope["headers"].append((b"content-length", b"%d" % len(body)))
        if query_string is not None:
            scope["query_string"] = query_string
        await self.application(scope, connection.receive, connection.send)
        return connection.response()


class Connection:
    """One connection, which a client may close while it waits."""

    def __init__(self, *, parts: int = 1) -> None:
        self._is_closed = asyncio.Event()
        self._parts = parts
        self._unread: list[dict[str, Any]] = []
        self._sent: list[MutableMapping[str, Any]] = []

    def begin(self, body: bytes) -> None:
        size = -(-len(body) // self._parts) or 1
        cuts = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
        self._unread = [
            {"type": "http.request", "body": part, "more_body": at < len(cuts) - 1} for at, part in enumerate(cuts)
        ]

    def close(self) -> None:
        self._is_closed.set()

    async def receive(self) -> dict[str, Any]:
        if self._unread:
            return self._unread.pop(0)
        await self._is_closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        self._sent.append(message)

    @property
    def was_answered(self) -> bool:
        return bool(self._sent)

    def response(self) -> Response:
        start, *rest = self._sent
        headers = {name.decode(): value.decode() for name, value in start["headers"]}
        body = b"".join(message["body"] for message in rest)
        assert headers.get("content-length") in {None, str(len(body))}
        return Response(start["status"], headers, body)


def _scope(method: str, path: str, headers: dict[str, str], query: dict[str, object]) -> MutableMapping[str, Any]:
    return {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": quote(path).encode(),
        "root_path": "",
        "query_string": urlencode(query).encode(),
        "headers": [(name.lower().encode(), value.encode()) for name, value in headers.items()],
    }


@asynccontextmanager
async def open_api(
    *,
    access: Access | None = None,
    request_bytes_max: int = REQUEST_BYTES_MAX,
    long_polls_max: int = 1_000,
    **settings: object,
) -> AsyncIterator[Api]:
    """Open a server with one queue, `orders`, whose settings are given in the words of REST."""
    async with open_broker(long_polls_max=long_polls_max) as broker:
        service = Service(broker.queues, access or Access.open(), request_bytes_max)
        api = Api(RestApplication(service, broker.log_events), broker.queues, broker.log_events)
        if access is None:
            made = await api.post("/api/queues", {"queue_name": "orders", **settings})
            assert made.status == 201, made
        yield api
        assert "rest.failed" not in broker.log_events.names(), broker.log_events.events


async def send(api: Api, *data: object, queue: str = "orders", **more: object) -> list[str]:
    """Send messages, and return their ids."""
    answer = await api.post(f"/api/queues/{queue}/messages", {"messages": [{"data": each, **more} for each in data]})
    assert answer.status == 201, answer
    return [each["message_id"] for each in answer["messages"]]


async def receive(
    api: Api, limit: int = 10, *, queue: str = "orders", visibility_timeout: float | None = None
) -> list[dict[str, Any]]:
    """Receive what is there now."""
    more = {} if visibility_timeout is None else {"visibility_timeout": visibility_timeout}
    answer = await api.call("GET", f"/api/queues/{queue}/messages", query={"limit": limit, **more})
    assert answer.status == 200, answer
    found: list[dict[str, Any]] = answer["messages"]
    return found


async def bury(api: Api, *data: object, queue: str = "orders") -> list[str]:
    """Send messages that fail once and are buried, and return their ids."""
    ids = await send(api, *data, queue=queue, max_deliveries=1)
    taken = await receive(api, len(ids), queue=queue)
    assert [each["message_id"] for each in taken] == ids
    receipts = [each["receipt"] for each in taken]
    done = await api.post(f"/api/queues/{queue}/release", {"receipts": receipts, "error": "boom", "delay_s": 0})
    assert done["done"] == len(ids)
    assert await receive(api, queue=queue) == []
    return ids
