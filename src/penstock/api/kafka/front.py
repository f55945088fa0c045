"""The front end as a whole: what a server that serves Kafka clients needs of it."""

import socket
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from penstock.api.kafka.calling import Service
from penstock.api.kafka.connection import Limits, Shared
from penstock.api.kafka.session import Session
from penstock.listening.buffers import BufferBudget
from penstock.listening.listener import Listener, listening
from penstock.runtime.interface import LogEventWriter

__all__ = ["Limits", "Service", "serving"]


@asynccontextmanager
async def serving(
    service: Service,
    sockets: Sequence[socket.socket],
    tls: ssl.SSLContext | None,
    limits: Limits,
    log_event: LogEventWriter,
    budget: BufferBudget,
) -> AsyncIterator[Listener[Shared]]:
    """Serve Kafka clients at these sockets until this ends."""
    shared = Shared(lambda connection: Session(service, connection), limits, log_event, budget)
    async with listening(sockets, shared, tls) as listener:
        yield listener
