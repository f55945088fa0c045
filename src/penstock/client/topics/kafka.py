"""The way to Kafka's protocol: where the server is, who we are, one producer for a client.

aiokafka speaks it; it is imported here, when it is first needed, and its errors become ours here.
"""

import asyncio
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.client.errors import (
    BadRequest,
    ClientClosed,
    ConnectionFailed,
    Forbidden,
    PenstockError,
    ServerBusy,
    TooLarge,
    TopicNotFound,
    Unauthorized,
)


class KafkaMissing(PenstockError):
    """The server has no port for Kafka's protocol, or aiokafka is not installed; the message says which."""


@dataclass(frozen=True, slots=True)
class KafkaCredentials:
    """Who we are, and whether we are heard by others on the way."""

    key: str = ""
    is_tls: bool = False
    tls: ssl.SSLContext | None = None

    def options(self) -> dict[str, Any]:
        """Return what aiokafka is to be told. The user is the id of the key, the password all of it."""
        protocol = ("SASL_" if self.key else "") + ("SSL" if self.is_tls else "PLAINTEXT")
        options: dict[str, Any] = {"security_protocol": protocol}
        if self.is_tls:
            options["ssl_context"] = self.tls or ssl.create_default_context()
        if self.key:
            user = self.key.split("_")[1] if self.key.count("_") >= 2 else self.key
            options |= {"sasl_mechanism": "PLAIN", "sasl_plain_username": user, "sasl_plain_password": self.key}
        return options


def library() -> Any:
    """Return aiokafka."""
    try:
        import aiokafka  # noqa: PLC0415 - most clients need none of it.
    except ImportError as error:
        raise KafkaMissing('topics need aiokafka: pip install "penstock[kafka]"') from error
    return aiokafka


class KafkaConnections:
    """What the topics of one client share."""

    def __init__(self, credentials: KafkaCredentials) -> None:
        self.credentials = credentials
        self._producers: dict[str, Any] = {}
        self._starting = asyncio.Lock()
        self._open: set[Callable[[], Any]] = set()
        self._is_closed = False
        # Topics for dead letters that are known to be there.
        self.made: set[str] = set()

    async def producer(self, server: str) -> Any:
        """Return the producer for a server. The first call starts it.

        It is idempotent: a batch that is sent again, because an answer was lost, is there once.
        """
        async with self._starting:
            self.check_open()
            found = self._producers.get(server)
            if found is None:
                options = self.credentials.options()
                found = library().AIOKafkaProducer(
                    bootstrap_servers=server, enable_idempotence=True, linger_ms=2, **options
                )
                await start(found)
                self._producers[server] = found
            return found

    def check_open(self) -> None:
        if self._is_closed:
            raise ClientClosed("the client is closed")

    def add(self, close: Callable[[], Any]) -> None:
        """Remember what is to be closed with the client."""
        self.check_open()
        self._open.add(close)

    def discard(self, close: Callable[[], Any]) -> None:
        self._open.discard(close)

    async def close(self) -> None:
        self._is_closed = True
        for close in tuple(self._open):
            await close()
        producers, self._producers = self._producers, {}
        for producer in producers.values():
            await producer.stop()


async def start(part: "Startable") -> None:
    """Start a producer or a consumer of the library; one that cannot start is stopped, as it has things open."""
    try:
        with kafka_errors():
            await part.start()
    except BaseException:
        await part.stop()
        raise


class Startable(Protocol):
    async def start(self) -> None: ...

    async def stop(self) -> None: ...


@contextmanager
def kafka_errors() -> Iterator[None]:
    """Turn what aiokafka raises into errors of ours."""
    library()
    from aiokafka import errors  # noqa: PLC0415 - most clients need none of it.

    try:
        yield
    except errors.KafkaError as error:
        raise _error_of(error, errors) from error


def _error_of(error: Exception, errors: Any) -> PenstockError:
    kinds: list[tuple[Any, type[PenstockError]]] = [
        (errors.KafkaConnectionError, ConnectionFailed),
        (errors.KafkaTimeoutError, ConnectionFailed),
        (errors.RequestTimedOutError, ConnectionFailed),
        (errors.UnknownTopicOrPartitionError, TopicNotFound),
        (errors.MessageSizeTooLargeError, TooLarge),
        ((errors.TopicAuthorizationFailedError, errors.GroupAuthorizationFailedError), Forbidden),
        (errors.AuthenticationFailedError, Unauthorized),
        ((errors.InvalidTopicError, errors.InvalidGroupIdError), BadRequest),
    ]
    made = next((made for kind, made in kinds if isinstance(error, kind)), None)
    if made is None:
        made = ServerBusy if getattr(error, "retriable", False) else PenstockError
    return made(str(error) or type(error).__name__, code="kafka")
