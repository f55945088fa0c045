"""Traces and metrics by the conventions of OpenTelemetry for messaging.

    send orders (PRODUCER) ──traceparent, tracestate in the attributes──► process orders (CONSUMER), linked to it

The work is not a child of the send but linked to it: it may run days later, and twice. OpenTelemetry is imported when
one of these is made, and need not be installed otherwise (`pip install penstock[opentelemetry]`).

The conventions are in development and may change: https://opentelemetry.io/docs/specs/semconv/messaging/
"""

import time
from collections.abc import Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from penstock.client.client import Client
from penstock.client.message import Message
from penstock.client.queue import Queue
from penstock.wire.messages import Draft

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from opentelemetry.context import Context
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

SYSTEM = "penstock"
_SCOPE = "penstock.client"
_TRACE_ATTRIBUTES = ("traceparent", "tracestate")


class OpenTelemetryMiddleware:
    """A span `process <queue>` around the work on each message, linked to its send; its duration, and a count."""

    def __init__(
        self, *, tracer_provider: "TracerProvider | None" = None, meter_provider: "MeterProvider | None" = None
    ) -> None:
        from opentelemetry import metrics, trace  # noqa: PLC0415 - an extra, which most do without.
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            "messaging.process.duration", unit="s", description="How long the work on a message took."
        )
        self._consumed = meter.create_counter(
            "messaging.client.consumed.messages", unit="{message}", description="Messages that were worked on."
        )

    async def __call__(self, message: Message, call_next: "Callable[[Message], Awaitable[None]]") -> None:
        attributes = _attributes("process", "process", message.queue)
        began_s = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"process {message.queue}",
            kind=self._trace.SpanKind.CONSUMER,
            links=self._links(message),
            attributes={
                **attributes,
                "messaging.message.id": message.id,
                "messaging.message.body.size": len(message.body),
                "penstock.message.delivery_count": message.delivery_count,
            },
        ) as span:
            try:
                await call_next(message)
            except Exception as error:
                attributes["error.type"] = _name(error)
                span.set_attribute("error.type", attributes["error.type"])
                raise
            finally:
                self._durations.record(time.perf_counter() - began_s, attributes)
                self._consumed.add(1, attributes)

    def _links(self, message: Message) -> "list[Any]":
        """The context of the send, if there was one. Other programs may have put anything there."""
        said = message.attributes
        carrier = {name: value for name in _TRACE_ATTRIBUTES if isinstance(value := said.get(name), str)}
        span = self._trace.get_current_span(self._propagator.extract(carrier))
        context = span.get_span_context()
        return [self._trace.Link(context)] if context.is_valid else []


def instrument(
    client: Client,
    *,
    tracer_provider: "TracerProvider | None" = None,
    meter_provider: "MeterProvider | None" = None,
) -> Client:
    """Let the queues of a client trace what they send: a span `send <queue>`, whose context travels in the attributes.

    Returns the same client. Its synchronous API traces, too, if it is made after this.
    """
    tracing, plain = _SendTracing(tracer_provider, meter_provider), client.watch

    def watch(queue: Queue) -> Queue:
        return TracedQueue(queue if plain is None else plain(queue), tracing)

    client.watch = watch
    return client


class TracedQueue(Queue):
    """A queue whose sends are traced."""

    __slots__ = ("_tracing",)

    def __init__(self, queue: Queue, tracing: "_SendTracing") -> None:
        super().__init__(queue.name, queue._outbox)
        self._tracing = tracing
        # Requests of the client carry the trace, so that a server can tell of them.
        queue._outbox.caller.trace = tracing.headers

    # Both are plain functions that return a coroutine: it may run in another thread, which has another context.

    def send(self, data: object, **said: Any) -> Coroutine[Any, Any, str]:
        return self._send_one(data, said, self._tracing.current())

    def send_many(self, items: Iterable[object], **said: Any) -> Coroutine[Any, Any, Sequence[str]]:
        return self._send_all(list(items), said, self._tracing.current())

    async def _send_one(self, data: object, said: dict[str, Any], parent: "Context") -> str:
        with self._tracing.span(self.name, 1, parent) as (span, carrier):
            said["attributes"] = {**carrier, **(said.get("attributes") or {})}
            message_id = await super().send(data, **said)
            span.set_attribute("messaging.message.id", message_id)
            return message_id

    async def _send_all(self, items: list[object], said: dict[str, Any], parent: "Context") -> Sequence[str]:
        with self._tracing.span(self.name, len(items), parent) as (span, carrier):
            span.set_attribute("messaging.batch.message_count", len(items))
            return await super().send_many([_with_attributes(item, carrier) for item in items], **said)


class _SendTracing:
    def __init__(self, tracer_provider: "TracerProvider | None", meter_provider: "MeterProvider | None") -> None:
        from opentelemetry import context, metrics, trace  # noqa: PLC0415 - an extra, which most do without.
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )

        self.current = context.get_current
        self._trace = trace
        self._propagator = TraceContextTextMapPropagator()
        self._tracer = trace.get_tracer(_SCOPE, tracer_provider=tracer_provider)
        meter = metrics.get_meter(_SCOPE, meter_provider=meter_provider)
        self._durations = meter.create_histogram(
            "messaging.client.operation.duration", unit="s", description="How long a send took."
        )
        self._sent = meter.create_counter(
            "messaging.client.sent.messages", unit="{message}", description="Messages that were to be sent."
        )

    def headers(self) -> tuple[tuple[str, str], ...]:
        """The trace that runs now, if one does. Sends that share a request are told as the first of them."""
        carrier: dict[str, str] = {}
        self._propagator.inject(carrier)
        return tuple(carrier.items())

    @contextmanager
    def span(self, queue: str, count: int, parent: "Context") -> "Iterator[tuple[Span, dict[str, str]]]":
        """Open a span, and yield it with what is to travel with the message."""
        attributes = _attributes("send", "send", queue)
        began_s = time.perf_counter()
        with self._tracer.start_as_current_span(
            f"send {queue}", context=parent, kind=self._trace.SpanKind.PRODUCER, attributes=attributes
        ) as span:
            carrier: dict[str, str] = {}
            self._propagator.inject(carrier)
            try:
                yield span, carrier
            except Exception as error:
                attributes["error.type"] = _name(error)
                span.set_attribute("error.type", attributes["error.type"])
                raise
            finally:
                self._durations.record(time.perf_counter() - began_s, attributes)
                self._sent.add(count, attributes)


def _with_attributes(item: object, carrier: dict[str, str]) -> Draft:
    if not isinstance(item, Draft):
        return Draft(data=item, attributes={**carrier})
    said = {} if item.attributes is UNSET else item.attributes
    return msgspec.structs.replace(item, attributes={**carrier, **said})


def _attributes(name: str, kind: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }


def _name(error: Exception) -> str:
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"
