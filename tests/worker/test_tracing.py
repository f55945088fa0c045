"""Traces and metrics of sends and of work, seen by the real SDK of OpenTelemetry."""

from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, get_current_span

import penstock
from penstock.client.message import Message
from penstock.client.tracing import OpenTelemetryMiddleware, instrument
from penstock.client.worker import Reject
from penstock.wire.messages import Draft
from tests.worker.stage import staged

pytestmark = pytest.mark.real_time


class Telemetry:
    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.tracers = TracerProvider()
        self.tracers.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self.meters = MeterProvider([self._reader])

    def options(self) -> dict[str, Any]:
        return {"tracer_provider": self.tracers, "meter_provider": self.meters}

    def spans(self, name: str) -> list[ReadableSpan]:
        return [span for span in self._exporter.get_finished_spans() if span.name == name]

    def metrics(self) -> dict[str, list[Any]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        return {
            metric.name: list(metric.data.data_points)
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }


async def test_the_work_on_a_message_is_linked_to_its_send() -> None:
    telemetry = Telemetry()
    async with staged() as stage:
        instrument(stage.client, **telemetry.options())
        stage.worker.use(OpenTelemetryMiddleware(**telemetry.options()))
        inside: list[int] = []

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            inside.append(get_current_span().get_span_context().span_id)

        with telemetry.tracers.get_tracer("test").start_as_current_span("checkout") as checkout:
            message_id = await stage.client.queue("orders").send({"order": 1}, attributes={"shop": "north"})
        await stage.worker.run(until_idle=True)

    (sent,), (worked,) = telemetry.spans("send orders"), telemetry.spans("process orders")
    assert (sent.kind, worked.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    assert sent.parent is not None
    assert sent.parent.span_id == checkout.get_span_context().span_id
    (link,) = worked.links
    assert sent.context is not None
    assert (link.context.trace_id, link.context.span_id) == (sent.context.trace_id, sent.context.span_id)
    assert worked.context is not None
    assert inside == [worked.context.span_id]
    assert dict(worked.attributes or {}) == {
        "messaging.system": "penstock",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": "orders",
        "messaging.message.id": message_id,
        "messaging.message.body.size": 11,
        "penstock.message.delivery_count": 1,
    }
    assert dict(sent.attributes or {})["messaging.message.id"] == message_id
    assert worked.status.status_code is StatusCode.UNSET


async def test_attributes_of_the_sender_stay_beside_the_trace() -> None:
    telemetry = Telemetry()
    async with staged() as stage:
        queue = instrument(stage.client, **telemetry.options()).queue("orders")
        await queue.send("one", attributes={"shop": "north"})
        await queue.send_many(["two", Draft(data="three", attributes={"shop": "south"}), {"number": 4}])
        batch = await queue.receive(limit=10)
        found = [message.attributes for message in batch]
    assert [each.get("shop") for each in found] == ["north", None, "south", None]
    assert found[3]["content_type"] == "application/json"
    single, many = telemetry.spans("send orders")
    contexts = [each["traceparent"].split("-") for each in found]
    assert single.context is not None
    assert many.context is not None
    assert [int(span_id, 16) for _, _, span_id, _ in contexts] == [single.context.span_id] + [many.context.span_id] * 3
    assert dict(many.attributes or {})["messaging.batch.message_count"] == 3


async def test_failed_work_is_named_in_the_span_and_in_the_metrics() -> None:
    telemetry = Telemetry()
    async with staged() as stage:
        stage.worker.use(OpenTelemetryMiddleware(**telemetry.options()))
        await stage.queue.send_many(["good", "bad"])

        @stage.worker.handler("orders")
        async def work(message: Message) -> None:
            if message.text == "bad":
                raise Reject("no such customer")

        await stage.worker.run(until_idle=True)
    failed = [span for span in telemetry.spans("process orders") if "error.type" in (span.attributes or {})]
    (span,) = failed
    assert span.status.status_code is StatusCode.ERROR
    assert dict(span.attributes or {})["error.type"] == "penstock.client.worker.settings.Reject"
    metrics = telemetry.metrics()
    counts = {
        point.attributes.get("error.type"): point.value for point in metrics["messaging.client.consumed.messages"]
    }
    assert counts == {None: 1, "penstock.client.worker.settings.Reject": 1}
    assert {point.count for point in metrics["messaging.process.duration"]} == {1}


async def test_a_send_that_fails_is_an_error_in_its_span() -> None:
    telemetry = Telemetry()
    async with staged() as stage:
        queue = instrument(stage.client, **telemetry.options()).queue("nowhere")
        with pytest.raises(penstock.QueueNotFound):
            await queue.send("x")
    (span,) = telemetry.spans("send nowhere")
    assert dict(span.attributes or {})["error.type"] == "penstock.client.errors.QueueNotFound"
    (point,) = telemetry.metrics()["messaging.client.sent.messages"]
    assert (point.value, point.attributes["error.type"]) == (1, "penstock.client.errors.QueueNotFound")


@pytest.mark.parametrize("parent", ["", "nonsense", "00-0-0-0", 7, "00-" + "f" * 32 + "-" + "0" * 16 + "-01"])
async def test_a_trace_that_cannot_be_read_is_no_link(parent: str | int) -> None:
    telemetry = Telemetry()
    async with staged() as stage:
        stage.worker.use(OpenTelemetryMiddleware(**telemetry.options()))
        await stage.queue.send("x", attributes={"traceparent": parent})

        @stage.worker.handler("orders")
        async def work(message: Message) -> None: ...

        await stage.worker.run(until_idle=True)
    (span,) = telemetry.spans("process orders")
    assert span.links == ()


def test_the_synchronous_face_sends_in_the_context_of_its_caller(tmp_path: Path) -> None:
    telemetry = Telemetry()
    with instrument(penstock.connect(f"file:{tmp_path}/data"), **telemetry.options()) as client:
        client.create_queue("orders")
        with telemetry.tracers.get_tracer("test").start_as_current_span("checkout") as checkout:
            client.queue("orders").send("x")
    (span,) = telemetry.spans("send orders")
    assert span.parent is not None
    assert span.parent.span_id == checkout.get_span_context().span_id
