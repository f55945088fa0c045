"""OTLP: a collector hears of a message from its sender, from the server and from the worker, and of every metric."""

import asyncio
import re
import signal
import socket
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

import penstock
from penstock.client.message import Message
from penstock.client.tracing import OpenTelemetryMiddleware, instrument
from penstock.client.worker import Worker
from penstock.settings import BadSetting, ServerSettings
from tests.cli.servers import Served
from tests.server.collectors import Collector
from tests.waiting import wait_until


async def send_and_work(url: str, provider: TracerProvider) -> None:
    client = instrument(penstock.connect(url), tracer_provider=provider)
    worker = Worker(client)
    worker.use(OpenTelemetryMiddleware(tracer_provider=provider))

    @worker.handler("orders")
    async def ship(message: Message) -> None:
        pass

    async with client:
        await client.create_queue("orders", queue_size=10)
        await client.queue("orders").send("a lamp")
        await worker.run(until_idle=True)


def test_a_trace_goes_from_the_sender_over_the_server_to_the_worker(tmp_path: Path) -> None:
    provider = TracerProvider()
    with Collector() as collector, Served(tmp_path / "data", "--no-kafka", "--otlp-url", collector.url) as server:
        provider.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(endpoint=f"{collector.url}/v1/traces")))
        asyncio.run(send_and_work(server.url, provider))
        # What is left is sent before it ends.
        assert server.stop() == 0
        spans = collector.spans()

    sent, stored, worked = (spans[name] for name in ("send orders", "send_messages", "process orders"))
    assert stored.trace_id == sent.trace_id
    assert stored.parent_span_id == sent.span_id
    assert sent.start_time_unix_nano <= stored.start_time_unix_nano < stored.end_time_unix_nano
    said = {each.key: each.value.string_value or each.value.int_value for each in stored.attributes}
    assert said == {
        "http.request.method": "POST",
        "url.path": "/api/queues/orders/messages",
        "http.response.status_code": 201,
    }
    assert [(link.trace_id, link.span_id) for link in worked.links] == [(sent.trace_id, sent.span_id)]


def _sent(metrics: dict[str, Any]) -> float:
    metric = metrics.get("penstock_queue_sent_total")
    return 0.0 if metric is None else float(sum(point.as_double for point in metric.sum.data_points))


def test_every_line_of_the_metrics_page_is_exported_with_its_value(tmp_path: Path) -> None:
    options = ("--kafka-port", "0", "--node", "first", "--otlp-every-s", "1")
    with Collector() as collector, Served(tmp_path / "data", *options, "--otlp-url", collector.url) as server:
        with penstock.connect(server.url) as client:
            client.create_queue("orders", queue_size=10)
            client.queue("orders").send_many(["a", "b"])
        found = wait_until(lambda: told if _sent(told := collector.metrics()) == 2 else None)
        with urllib.request.urlopen(f"{server.url}/metrics", timeout=60) as answer:
            page = answer.read().decode()

    assert found["service"]["service.name"] == "penstock"
    assert found["service"]["service.instance.id"] == "first"
    told = set(re.findall(r"^(\w+?)(?:_bucket|_sum|_count)?(?:\{.*)? \S+$", page, re.MULTILINE))
    # Counted after the export: what was asked for the page itself.
    assert told - set(found) - {"penstock_failed_logins_total"} == set()
    (sent,) = found["penstock_queue_sent_total"].sum.data_points
    assert (sent.as_double, {each.key: each.value.string_value for each in sent.attributes}) == (2, {"queue": "orders"})
    assert found["penstock_queue_sent_total"].sum.is_monotonic
    assert [point.as_double for point in found["penstock_ready"].gauge.data_points] == [1]
    (commit,) = found["penstock_commit_seconds"].histogram.data_points
    assert sum(commit.bucket_counts) == commit.count > 0
    assert len(commit.bucket_counts) == len(commit.explicit_bounds) + 1


def test_a_collector_that_never_answers_holds_up_neither_requests_nor_the_end(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Served(tmp_path / "data", "--no-kafka", "--otlp-every-s", "1", "--otlp-url", url) as server:
            accepted, _ = silent.accept()
            with accepted, penstock.connect(server.url) as client:
                # An export waits now, and requests do not.
                client.create_queue("orders")
                assert client.queue("orders").send("a")
                assert server.stop(signal.SIGTERM) == 0


@pytest.mark.parametrize("url", ["collector:4318", "ftp://collector"])
def test_a_collector_without_an_http_address_is_refused(url: str) -> None:
    with pytest.raises(BadSetting, match="otlp_url"):
        ServerSettings(otlp_url=url)
