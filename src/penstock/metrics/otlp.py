"""What a server tells by OTLP: the numbers of its metrics page every now and then, and a span for each traced request.

    /metrics page ──▶ points ──▶ POST …/v1/metrics      gathered in turns; read and sent by a thread
    a request with `traceparent` ──▶ a span ──▶ POST …/v1/traces      in batches, by a thread of the SDK

A collector that is slow or gone holds up nothing: an export is given up after `EXPORT_S`, and spans beyond those that
the SDK keeps are dropped. OpenTelemetry is imported when one of these is made (`pip install penstock[opentelemetry]`).
The SDK reads OTEL_EXPORTER_OTLP_HEADERS and the like by itself.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from prometheus_client.metrics_core import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from penstock.version import __version__

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric

EXPORT_S = 10
_SCOPE = "penstock.server"
_TRACEPARENT = b"traceparent"
Scope = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Target:
    """Where a collector is, how often it is told the metrics, and which server tells it."""

    url: str
    every_s: int
    instance: str

    def resource(self) -> Any:
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 - an extra, which most do without.

        said = {"service.name": "penstock", "service.version": __version__, "service.instance.id": self.instance}
        return Resource.create(said)


class RequestSpans:
    """A span for each request that came with a sampled `traceparent`, as a child of the one that it names."""

    def __init__(self, target: Target, name_of: Callable[[Scope], str]) -> None:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.trace import SpanKind, Status, StatusCode, get_current_span  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._name_of = name_of
        self._provider = TracerProvider(resource=target.resource(), shutdown_on_exit=False)
        exporter = OTLPSpanExporter(endpoint=f"{target.url}/v1/traces", timeout=EXPORT_S)
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer(_SCOPE)
        self._extract, self._current = TraceContextTextMapPropagator().extract, get_current_span
        self._kind, self._failed = SpanKind.SERVER, Status(StatusCode.ERROR)

    def count(self, scope: Scope, status: int, seconds: float) -> None:
        """Make the span of a request that has been answered."""
        parent = next((value for name, value in scope["headers"] if name == _TRACEPARENT), None)
        if parent is None:
            return
        context = self._extract({"traceparent": parent.decode("latin-1")})
        said = self._current(context).get_span_context()
        if not said.is_valid or not said.trace_flags.sampled:
            return
        ended_ns = time.time_ns()
        span = self._tracer.start_span(
            self._name_of(scope),
            context=context,
            kind=self._kind,
            start_time=ended_ns - int(seconds * 1e9),
            attributes={
                "http.request.method": scope["method"],
                "url.path": scope["path"],
                "http.response.status_code": status,
            },
        )
        if status >= 500:
            span.set_status(self._failed)
        span.end(ended_ns)

    def close(self) -> None:
        """Send what is left, and end the thread; it may take as long as an export."""
        self._provider.shutdown()


@asynccontextmanager
async def exporting(target: Target, page: Callable[[], Awaitable[bytes]]) -> AsyncIterator[None]:
    """Export what ``page`` returns, again and again and once more at the end."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter  # noqa: PLC0415

    exporter = OTLPMetricExporter(endpoint=f"{target.url}/v1/metrics", timeout=EXPORT_S)
    resource, began_ns = target.resource(), time.time_ns()

    async def export() -> None:
        text = (await page()).decode()
        await asyncio.to_thread(lambda: exporter.export(_data(text, resource, began_ns), timeout_millis=EXPORT_S * 1e3))

    async def export_all() -> None:
        while True:
            await asyncio.sleep(target.every_s)
            await export()

    async with asyncio.TaskGroup() as tasks:
        running = tasks.create_task(export_all())
        try:
            yield
        finally:
            running.cancel()
            await export()
            await asyncio.to_thread(exporter.shutdown)


def _data(text: str, resource: Any, began_ns: int) -> Any:
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics  # noqa: PLC0415
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope  # noqa: PLC0415

    metrics = list(as_metrics(text_string_to_metric_families(text), began_ns, time.time_ns()))
    scope = ScopeMetrics(InstrumentationScope(_SCOPE, __version__), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def as_metrics(families: Iterable[Family], began_ns: int, now_ns: int) -> "Iterable[Metric]":
    """Turn families of Prometheus into metrics of OpenTelemetry, with the names that the page has."""
    from opentelemetry.sdk.metrics.export import (  # noqa: PLC0415
        AggregationTemporality,
        Gauge,
        Histogram,
        Metric,
        NumberDataPoint,
        Sum,
    )

    for family in families:
        if family.type == "histogram":
            points = _histogram_points(family, began_ns, now_ns)
            yield Metric(family.name, family.documentation, "", Histogram(points, AggregationTemporality.CUMULATIVE))
            continue
        numbers = [
            NumberDataPoint(dict(each.labels), began_ns, now_ns, float(each.value))
            for each in family.samples
            if not each.name.endswith("_created")
        ]
        if family.type == "counter" and numbers:
            data: Any = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
            yield Metric(family.samples[0].name, family.documentation, "", data)
        elif numbers:
            yield Metric(family.name, family.documentation, "", Gauge(numbers))


def _histogram_points(family: Family, began_ns: int, now_ns: int) -> list[Any]:
    from opentelemetry.sdk.metrics.export import HistogramDataPoint  # noqa: PLC0415

    buckets: dict[tuple[tuple[str, str], ...], list[tuple[float, float]]] = {}
    sums: dict[tuple[tuple[str, str], ...], float] = {}
    for each in family.samples:
        key = tuple(sorted((name, value) for name, value in each.labels.items() if name != "le"))
        if each.name.endswith("_bucket"):
            buckets.setdefault(key, []).append((float(each.labels["le"]), each.value))
        elif each.name.endswith("_sum"):
            sums[key] = each.value
    points = []
    for key, found in buckets.items():
        upto = [int(count) for _, count in found]
        # Prometheus counts what is not above a bound, OpenTelemetry what is between two.
        counts = [count - before for count, before in zip(upto, [0, *upto], strict=False)]
        bounds = [bound for bound, _ in found[:-1]]
        # The smallest and the largest value are not known.
        unknown: Any = None
        total = sums.get(key, 0.0)
        points.append(
            HistogramDataPoint(dict(key), began_ns, now_ns, upto[-1], total, counts, bounds, unknown, unknown)
        )
    return points
