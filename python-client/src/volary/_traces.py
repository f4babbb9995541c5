"""Continues the program's trace in the calls to a gateway."""

from __future__ import annotations

import sys


def trace_headers() -> dict[str, str]:
    """Returns the headers that make a call part of the current span of OpenTelemetry, such as `traceparent`.

    There are none if the program does not use OpenTelemetry, or if no span is current.
    """
    if "opentelemetry.trace" not in sys.modules:
        return {}
    from opentelemetry import propagate

    headers: dict[str, str] = {}
    propagate.inject(headers)
    return headers
