"""The SQS front end in virtual time, on the real broker and a simulated disk: minutes pass in no time.

async with open_sqs() as sqs:
    url = (await sqs("CreateQueue", QueueName="orders"))["QueueUrl"]
    await elapse(300)
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from penstock.api.sqs.app import SqsApplication
from penstock.api.sqs.request import Account, Service
from penstock.api.sqs.signature import Credentials
from penstock.broker.access import Access
from penstock.broker.queues import Queues
from tests.api.asgi import Connection, Response
from tests.broker.brokers import open_broker

HOST = "queues.test"


class Failed(Exception):
    """A call was answered with an error."""

    def __init__(self, answer: Response) -> None:
        super().__init__(answer)
        self.code = answer.headers["x-amzn-query-error"].partition(";")[0]
        self.message = answer.value["message"]
        self.status = answer.status


class Sqs:
    def __init__(self, application: SqsApplication, service: Service) -> None:
        self.application = application
        self.service = service

    @property
    def queues(self) -> Queues:
        return self.service.queues

    async def __call__(self, action: str, /, **asked: Any) -> Any:
        """Call an action in JSON, and return its result."""
        headers = {"x-amz-target": f"AmazonSQS.{action}", "content-type": "application/x-amz-json-1.0"}
        answer = await self.raw("POST", "/", msgspec.json.encode(asked), headers=headers)
        if answer.status != 200:
            raise Failed(answer)
        return msgspec.json.decode(answer.body)

    async def raw(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        *,
        headers: dict[str, str] | None = None,
        query: bytes = b"",
        connection: Connection | None = None,
    ) -> Response:
        connection = connection or Connection()
        connection.begin(body)
        given = {"host": HOST, "content-length": str(len(body))} | (headers or {})
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "scheme": "http",
            "query_string": query,
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in given.items()],
        }
        await self.application(scope, connection.receive, connection.send)
        return connection.response()

    async def make(self, name: str = "orders", **attributes: str) -> str:
        """Make a queue, and return its URL."""
        url: str = (await self("CreateQueue", QueueName=name, Attributes=attributes))["QueueUrl"]
        return url

    async def receive(self, url: str, **more: Any) -> list[dict[str, Any]]:
        asked = {"MessageSystemAttributeNames": ["All"], "MessageAttributeNames": ["All"], "MaxNumberOfMessages": 10}
        found: list[dict[str, Any]] = (await self("ReceiveMessage", QueueUrl=url, **(asked | more))).get("Messages", [])
        return found

    async def refused(self, action: str, /, **asked: Any) -> str:
        """Return the code that a call is refused with."""
        try:
            result = await self(action, **asked)
        except Failed as error:
            return error.code
        raise AssertionError(f"{action} was answered with {result}")


@asynccontextmanager
async def open_sqs(
    *,
    access: Access | None = None,
    credentials: Credentials | None = None,
    request_bytes_max: int = 16 * 1_024 * 1_024,
    long_polls_max: int = 1_000,
    has_cooldowns: bool = False,
) -> AsyncIterator[Sqs]:
    async with open_broker(long_polls_max=long_polls_max) as broker:
        service = Service(
            queues=broker.queues,
            access=access or Access.open(),
            account=Account(),
            credentials=credentials,
            request_bytes_max=request_bytes_max,
            has_cooldowns=has_cooldowns,
        )
        yield Sqs(SqsApplication(service, broker.log_events), service)
        assert "sqs.failed" not in broker.log_events.names(), broker.log_events.events
