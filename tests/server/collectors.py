"""A collector that speaks OTLP over HTTP with protobuf, as far as to keep what it is told."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


class Collector(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Receiver)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self._told: list[tuple[str, Any]] = []
        self._thread = threading.Thread(target=self.serve_forever)

    def take(self, path: str, body: bytes) -> None:
        kinds: dict[str, Any] = {"/v1/metrics": ExportMetricsServiceRequest, "/v1/traces": ExportTraceServiceRequest}
        message = kinds[path]()
        message.ParseFromString(body)
        self._told.append((path, message))

    def metrics(self) -> dict[str, Any]:
        """Return the last metric of each name, and under `service` what the server says of itself."""
        found: dict[str, Any] = {}
        for path, message in list(self._told):
            for each in message.resource_metrics if path == "/v1/metrics" else ():
                found["service"] = {pair.key: pair.value.string_value for pair in each.resource.attributes}
                found |= {metric.name: metric for scope in each.scope_metrics for metric in scope.metrics}
        return found

    def spans(self) -> dict[str, Any]:
        """Return the last span of each name."""
        return {
            span.name: span
            for path, message in list(self._told)
            if path == "/v1/traces"
            for each in message.resource_spans
            for scope in each.scope_spans
            for span in scope.spans
        }

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        assert isinstance(self.server, Collector)
        assert self.headers["content-type"] == "application/x-protobuf"
        self.server.take(self.path, self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass
