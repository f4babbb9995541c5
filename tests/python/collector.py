"""A collector of OpenTelemetry traces, which keeps the spans that it is sent over gRPC."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from processes import until

_EXPORT = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"


class Span(NamedTuple):
    """A span: ids are hexadecimal, and times are nanoseconds since 1970."""

    service: str
    name: str
    trace_id: str
    span_id: str
    parent_id: str
    start: int
    end: int
    attributes: dict[str, Any]


class Collector(grpc.GenericRpcHandler):
    """Takes spans at `uri`. `headers` are those of the last call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spans: list[Span] = []
        self.headers: dict[str, str] = {}
        self.uri = ""

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        if handler_call_details.method != _EXPORT:
            return None
        return grpc.unary_unary_rpc_method_handler(
            self._export,
            request_deserializer=ExportTraceServiceRequest.FromString,
            response_serializer=ExportTraceServiceResponse.SerializeToString,
        )

    def _export(self, request: ExportTraceServiceRequest, context: grpc.ServicerContext) -> ExportTraceServiceResponse:
        with self._lock:
            self.headers = {key: str(value) for key, value in context.invocation_metadata()}
            for resource in request.resource_spans:
                names = {it.key: it.value.string_value for it in resource.resource.attributes}
                for scope in resource.scope_spans:
                    self._spans.extend(_span(names["service.name"], span) for span in scope.spans)
        return ExportTraceServiceResponse()

    def spans(self) -> list[Span]:
        """Returns the spans that came so far."""
        with self._lock:
            return list(self._spans)

    def await_trace(self, trace_id: str, *names: str) -> list[Span]:
        """Waits until spans with these names have come in a trace, and returns the trace's spans.

        A name that is given twice must have come twice.
        """

        def trace() -> list[Span]:
            return [span for span in self.spans() if span.trace_id == trace_id]

        def missing() -> Counter[str]:
            return Counter(names) - Counter(span.name for span in trace())

        try:
            until(lambda: not missing(), "all spans have come")
        except AssertionError:
            came = [(span.service, span.name) for span in trace()]
            others = Counter((span.service, span.name, span.trace_id) for span in self.spans()[-50:])
            pytest.fail(f"trace {trace_id} has {came} and lacks {missing()}; the last spans of all: {others}")
        return trace()


def _span(service: str, span: Any) -> Span:
    values = {it.key: getattr(it.value, it.value.WhichOneof("value")) for it in span.attributes}
    ids = span.trace_id.hex(), span.span_id.hex(), span.parent_span_id.hex()
    return Span(service, span.name, *ids, span.start_time_unix_nano, span.end_time_unix_nano, values)


@contextmanager
def collector() -> Iterator[Collector]:
    """Runs a collector on a free port."""
    collector = Collector()
    server = grpc.server(ThreadPoolExecutor(2))
    server.add_generic_rpc_handlers((collector,))
    collector.uri = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        yield collector
    finally:
        server.stop(None)
