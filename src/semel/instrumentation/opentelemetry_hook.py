"""Calls for OpenTelemetry: a span for each, around the tool, and numbers.

The names of the numbers are such that an exporter to Prometheus makes those of `prometheus` out of them. No
argument, key or result is in a span, and no text of an error.
"""

from __future__ import annotations

from contextvars import Token
from weakref import WeakKeyDictionary

from opentelemetry import context, metrics, trace

from semel.instrumentation.hooks import CallEnded
from semel.instrumentation.numbers import AGE_SECONDS, CALL_SECONDS, DONE, REPLAYED, STAGES, tool_label

SPAN = "semel.call"

_NO_ERROR = (DONE, REPLAYED)


class OpenTelemetryHook:
    """What the tool traces is a child of the call's span. The global providers are told, or those given."""

    def __init__(
        self,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("semel", tracer_provider=tracer_provider)
        meter = metrics.get_meter("semel", meter_provider=meter_provider)
        self._calls = meter.create_counter("semel.calls", description="Calls of tools, by what was answered.")
        self._seconds = meter.create_histogram(
            "semel.call",
            "s",
            "How long calls of tools took: to claim the key, in the tool, to settle.",
            explicit_bucket_boundaries_advisory=CALL_SECONDS,
        )
        self._ages = meter.create_histogram(
            "semel.retry_age",
            "s",
            "How old a key was when it was sent again.",
            explicit_bucket_boundaries_advisory=AGE_SECONDS,
        )
        self._open: WeakKeyDictionary[CallEnded, tuple[trace.Span, Token[context.Context]]] = (
            WeakKeyDictionary()
        )

    def started(self, call: CallEnded) -> None:
        span = self._tracer.start_span(
            SPAN,
            attributes={
                "gen_ai.operation.name": "execute_tool",
                "gen_ai.tool.name": call.tool,
                "semel.version": call.version,
                "semel.class": call.class_,
            },
        )
        self._open[call] = span, context.attach(trace.set_span_in_context(span))

    def ended(self, call: CallEnded) -> None:
        self._count(call)
        span, token = self._open.pop(call, (None, None))
        if span is None or token is None:
            return  # it could not be started
        # A coroutine that is dropped is closed in another context, in which there is nothing to take off.
        if trace.get_current_span() is span:
            context.detach(token)
        if span.is_recording():
            _describe(span, call)
        span.end()

    def _count(self, call: CallEnded) -> None:
        tool = tool_label(call.tool)
        self._calls.add(1, {"tool": tool, "answer": call.answer})
        for stage, seconds in zip(STAGES, (call.claim_s, call.tool_s, call.settle_s), strict=True):
            if seconds:
                self._seconds.record(seconds, {"tool": tool, "stage": stage})
        if call.retry_age_s is not None:
            self._ages.record(call.retry_age_s, {"tool": tool})


def _describe(span: trace.Span, call: CallEnded) -> None:
    span.set_attributes(
        {
            "semel.answer": call.answer,
            "semel.replayed": call.replayed,
            "semel.claim_s": call.claim_s,
            "semel.tool_s": call.tool_s,
            "semel.settle_s": call.settle_s,
        }
    )
    if call.retry_age_s is not None:
        span.set_attribute("semel.retry_age_s", call.retry_age_s)
    if call.answer not in _NO_ERROR:
        span.set_attribute("error.type", call.answer)
        span.set_status(trace.StatusCode.ERROR, call.answer)
