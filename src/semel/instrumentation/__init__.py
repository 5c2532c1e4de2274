"""Instrumentation: what becomes of the calls of this process, told to hooks.

hooks       who is told, `use` and `add`, and what: `CallEnded`
ready_made  hooks that are made when they are used
prometheus_hook, opentelemetry_hook, logging_hook   `prometheus`, `opentelemetry`, `logging`
numbers     what is counted by tool, as plain numbers   series  in the form of Prometheus

A hook is a callable that gets a `CallEnded`, or an object with `started(call)` and `ended(call)`.
"""

from __future__ import annotations

from semel.instrumentation.hooks import LISTENERS, CallEnded, CallHook, add, use
from semel.instrumentation.ready_made import ReadyMade

__all__ = ["CallEnded", "CallHook", "add", "logging", "opentelemetry", "prometheus", "use"]

prometheus = ReadyMade("prometheus_hook", "prometheus_hook", needs=("metrics", "prometheus_client"))
"""`semel_calls_total`, `semel_call_seconds` and `semel_retry_age_seconds` in prometheus-client's registry.

In use by itself from the first call on, where prometheus-client is installed. `prometheus(registry=…)` is the
same in another registry.
"""

opentelemetry = ReadyMade("opentelemetry_hook", "OpenTelemetryHook", needs=("otel", "opentelemetry.trace"))
"""A span `semel.call` for each call, and the same numbers as `prometheus` has.

`opentelemetry(tracer_provider=…, meter_provider=…)` takes others than the global providers.
"""

logging = ReadyMade("logging_hook", "LoggingHook")
"""A line on the logger `semel.calls` for each call: WARNING if it is in doubt, else DEBUG.

`logging(logger=…)` takes another logger.
"""

LISTENERS.by_default(prometheus)
