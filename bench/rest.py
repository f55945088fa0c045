"""Our side over plain HTTP: objects in JSON or MessagePack, as a program without the SDK sends and receives them.

Every message is encoded for each send and decoded on each receive, and so is what surrounds it: ids, receipts and
results. In MessagePack an object comes back as the JSON text it is kept as, so that is decoded, too. Connections are
those of the SDK's own transport, which the rows of the SDK are measured with as well.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec

from bench.processes import Server
from bench.sdk import QUEUE
from penstock.client.caller import Headers
from penstock.client.http import Address, HttpTransport
from penstock.core.queue.message import Drafts

ANSWER_S_MAX = 30.0
_ROOT = "/api/queues"
# About as large as the bodies of the other rows: 256 bytes of JSON.
ITEM = {
    "order": 1_234_567,
    "customer": "c_5e8a1f70",
    "placed_at": "2024-05-17T09:30:00.000Z",
    "lines": [{"article": "teapot", "count": 2, "price": 24.5}, {"article": "cup", "count": 6, "price": 7.25}],
    "is_gift": False,
    "note": "Ring twice, please; the dog is friendly, the door is not.",
}


class Leased(NamedTuple):
    rows: list[dict[str, Any]]
    objects: list[dict[str, Any]]

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return self.objects

    def receipts(self) -> list[str]:
        return [row["receipt"] for row in self.rows]


@dataclass(frozen=True, slots=True)
class Format:
    content_type: str
    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    # What the data of a message is when it comes back.
    decode_data: Callable[[Any], dict[str, Any]]

    def opened(self, server: Server) -> "AbstractAsyncContextManager[RestQueue]":
        return _opened(self, server)


JSON = Format("application/json", msgspec.json.encode, msgspec.json.decode, lambda data: data)
MSGPACK = Format("application/msgpack", msgspec.msgpack.encode, msgspec.msgpack.decode, msgspec.json.decode)


class RestQueue:
    """One queue of a server. The names of queues are there for the looks only."""

    def __init__(self, transport: HttpTransport, form: Format) -> None:
        headers: Headers = (("content-type", form.content_type), ("accept", form.content_type))
        self._ask = partial(transport.request, "POST", headers=headers, timeout_s=ANSWER_S_MAX, is_repeatable=False)
        self._form = form

    async def create(self) -> None:
        await self._call(_ROOT, {"queue_name": QUEUE})

    async def send(self, _queue: str, drafts: Drafts, /) -> None:
        count = len(drafts.bodies)
        sent = await self._call(f"{_ROOT}/{QUEUE}/messages", {"messages": [{"data": ITEM} for _ in range(count)]})
        assert len(sent["messages"]) == count

    async def lease(self, _queue: str, /, *, want: int) -> Leased | None:
        rows = (await self._call(f"{_ROOT}/{QUEUE}/lease", {"limit": want}))["messages"]
        decode_data = self._form.decode_data
        return Leased(rows, [decode_data(row["data"]) for row in rows]) if rows else None

    async def ack(self, _queue: str, receipts: list[str], /) -> None:
        settled = await self._call(f"{_ROOT}/{QUEUE}/ack", {"receipts": receipts})
        assert settled["done"] == len(settled["results"]) == len(receipts)

    async def _call(self, path: str, value: object) -> Any:
        answer = await self._ask(path, body=self._form.encode(value))
        assert answer.status in (200, 201), answer
        return self._form.decode(answer.body)


@asynccontextmanager
async def _opened(form: Format, server: Server) -> AsyncIterator[RestQueue]:
    transport = HttpTransport(Address.of(server.url))
    try:
        queue = RestQueue(transport, form)
        await queue.create()
        yield queue
    finally:
        await transport.close()
