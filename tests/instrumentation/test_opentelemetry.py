"""Spans and numbers as OpenTelemetry's own exporters see them."""

from __future__ import annotations

import asyncio
import logging
from typing import Any, NamedTuple

import pytest
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

import semel
from semel import ToolCall, errors, instrumentation
from tests.tools import a_step, another_process, declared


class Exported(NamedTuple):
    tracer: trace.Tracer
    spans: InMemorySpanExporter
    reader: InMemoryMetricReader

    def calls(self) -> list[Any]:
        return [span for span in self.spans.get_finished_spans() if span.name == "semel.call"]

    def points(self, name: str) -> dict[tuple[Any, ...], Any]:
        """The data points of a metric, by the values of their attributes."""
        data = self.reader.get_metrics_data()
        assert data is not None
        [metric] = [
            metric
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
        ]
        return {tuple(sorted((point.attributes or {}).items())): point for point in metric.data.data_points}


@pytest.fixture
def exported(no_hooks: None) -> Exported:
    spans, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    meters = MeterProvider(metric_readers=[reader])
    instrumentation.use(instrumentation.opentelemetry(tracer_provider=tracers, meter_provider=meters))
    return Exported(tracers.get_tracer("test"), spans, reader)


def test_a_call_is_one_span_with_the_tools_name_and_our_words(exported, ledger, clock, way):
    def pay(to: str) -> str:
        clock.advance("5s")
        return to

    tool = way.tool(version="2.1.0")(pay)
    with a_step(ledger):
        way.call(tool, "a")
        clock.advance("1m")
        way.call(tool, "a")
    done, replayed = exported.calls()
    assert dict(done.attributes) == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "pay",
        "semel.version": "2.1.0",
        "semel.class": "write-non-idempotent",
        "semel.answer": "done",
        "semel.replayed": False,
        "semel.claim_s": 0,
        "semel.tool_s": 5,
        "semel.settle_s": 0,
    }
    assert replayed.attributes["semel.answer"] == "replayed"
    assert replayed.attributes["semel.retry_age_s"] == 60
    assert {each.status.status_code for each in (done, replayed)} == {trace.StatusCode.UNSET}


@pytest.mark.parametrize("by", ["plain", "call", "acall"])
def test_what_the_tool_traces_is_a_child_of_the_call_and_the_call_of_its_caller(exported, ledger, way, by):
    def pay(to: str) -> str:
        with exported.tracer.start_as_current_span("downstream"):
            return to

    tool = way.tool()(pay)

    async def make() -> None:
        with exported.tracer.start_as_current_span("caller"):
            called = tool("a") if by == "plain" else getattr(tool, by)(ToolCall({"to": "a"}))
            if way.is_async or by == "acall":
                await called
            with exported.tracer.start_as_current_span("afterwards"):
                pass

    with a_step(ledger):
        asyncio.run(make())
    spans = {span.name: span for span in exported.spans.get_finished_spans()}
    assert spans["downstream"].parent.span_id == spans["semel.call"].context.span_id
    assert spans["semel.call"].parent.span_id == spans["caller"].context.span_id
    assert spans["afterwards"].parent.span_id == spans["caller"].context.span_id
    assert spans["caller"].parent is None


def test_a_call_without_a_value_is_an_error_with_its_code_and_no_text(exported, ledger, way):
    def pay(to: str) -> None:
        raise LookupError("error-canary")

    tool = way.tool()(pay)
    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(errors.EffectFailed):
                way.call(tool, "argument-canary")
    for span, replayed in zip(exported.calls(), (False, True), strict=True):
        assert span.attributes["error.type"] == "EFFECT_FAILED"
        assert span.attributes["semel.replayed"] is replayed
        assert (span.status.status_code, span.status.description) == (trace.StatusCode.ERROR, "EFFECT_FAILED")
        assert "canary" not in span.to_json()


def test_no_key_is_in_a_span(exported, ledger):
    with a_step(ledger):
        result = declared(name="pay")(lambda to: to).call(ToolCall({"to": "argument-canary"}))
    [span] = exported.calls()
    assert result.key not in span.to_json()
    assert "canary" not in span.to_json()


def test_calls_stages_and_ages_are_numbers_named_as_those_of_prometheus(exported, ledger, clock):
    def pay(to: str) -> str:
        clock.advance("5s")
        return to

    tool = declared()(pay)
    for each in (ledger, another_process(ledger)):
        with a_step(each):
            tool("a")
            clock.advance("1m")
    counted = {key: point.value for key, point in exported.points("semel.calls").items()}
    assert counted == {
        (("answer", "done"), ("tool", "pay")): 1,
        (("answer", "replayed"), ("tool", "pay")): 1,
    }
    seconds = exported.points("semel.call")[("stage", "tool"), ("tool", "pay")]
    assert (seconds.count, seconds.sum) == (1, 5)
    assert 2.5 in seconds.explicit_bounds
    assert exported.points("semel.retry_age")[(("tool", "pay"),)].sum == 60


def test_calls_at_once_have_a_span_each(exported, ledger):
    async def pay(to: str) -> str:
        await asyncio.sleep(0)
        with exported.tracer.start_as_current_span(f"downstream {to}"):
            return to

    tool = declared()(pay)

    async def both() -> None:
        await asyncio.gather(*(tool(str(number)) for number in range(10)))

    with a_step(ledger):
        asyncio.run(both())
    calls = {span.context.span_id for span in exported.calls()}
    parents = {
        span.parent.span_id
        for span in exported.spans.get_finished_spans()
        if span.name.startswith("downstream")
    }
    assert len(calls) == 10
    assert parents == calls


def test_a_coroutine_that_is_closed_elsewhere_ends_its_span_and_nobody_complains(exported, ledger, caplog):
    async def pay(to: str) -> None:
        await asyncio.Event().wait()

    with a_step(ledger), caplog.at_level(logging.DEBUG):
        called = declared()(pay)("a")

        async def begin() -> None:
            called.send(None)

        asyncio.run(begin())
        called.close()  # in another context
    [span] = exported.calls()
    assert span.attributes["semel.answer"] == "OUTCOME_UNKNOWN"
    assert [line for line in caplog.records if line.name.startswith("opentelemetry")] == []
    assert trace.get_current_span() is trace.INVALID_SPAN


def test_a_span_that_is_not_sampled_costs_no_attributes_and_the_numbers_are_kept(no_hooks, ledger):
    from opentelemetry.sdk.trace.sampling import ALWAYS_OFF

    reader = InMemoryMetricReader()
    hook = instrumentation.opentelemetry(
        tracer_provider=TracerProvider(sampler=ALWAYS_OFF),
        meter_provider=MeterProvider(metric_readers=[reader]),
    )
    instrumentation.use(hook)
    with a_step(ledger):
        declared(name="pay")(lambda to: to)("a")
    assert reader.get_metrics_data() is not None


def test_the_hook_is_given_by_its_name(no_hooks, ledger):
    """Without providers: the global ones, which do nothing here."""
    instrumentation.add(instrumentation.opentelemetry)
    instrumentation.add(instrumentation.opentelemetry)
    with a_step(ledger):
        assert declared(name="pay")(lambda to: to)("a") == "a"


def test_the_public_name_is_the_same_however_it_is_reached() -> None:
    assert semel.instrumentation is instrumentation
