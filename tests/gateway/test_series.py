"""Numbers by their labels read as prometheus-client's own do."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.exposition import generate_latest

from semel.instrumentation.series import CounterSeries, HistogramSeries, SeriesName
from semel.kernel.clock import SYSTEM
from semel.testing import FakeClock

BOUNDS = (0.0005, 0.25, 1, 2.5, 86_400)
WORDS = st.text(st.characters(codec="utf-8"), max_size=5)
VALUES = st.floats(0, 1e6) | st.sampled_from(BOUNDS)


def text_of(registry: CollectorRegistry) -> str:
    """As it is scraped, but for the moments at which numbers began."""
    return re.sub(r"(?m)^(\w+_created\{.*\}) \S+$", r"\1", generate_latest(registry).decode())


@given(st.lists(st.tuples(WORDS, WORDS)))
def test_a_counter_reads_as_prometheus_has_it(happened: list[tuple[str, str]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    series = CounterSeries(SeriesName("semel_claims", "What\nhappened.", ("tool", "answer")), SYSTEM)
    ours.register(series)
    counter = Counter("semel_claims", "What\nhappened.", ("tool", "answer"), registry=theirs)
    for labels in happened:
        series.add(*labels)
        counter.labels(*labels).inc()
    assert text_of(ours) == text_of(theirs)


@given(st.lists(st.tuples(VALUES, WORDS)))
def test_a_histogram_reads_as_prometheus_has_it(seen: list[tuple[float, str]]) -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    series = HistogramSeries(SeriesName("semel_waits_seconds", "How long.", ("tool",), BOUNDS), SYSTEM)
    ours.register(series)
    histogram = Histogram("semel_waits_seconds", "How long.", ("tool",), buckets=BOUNDS, registry=theirs)
    for value, tool in seen:
        series.observe(value, tool)
        histogram.labels(tool).observe(value)
    assert text_of(ours) == text_of(theirs)


def test_a_counter_says_when_it_began() -> None:
    clock, registry = FakeClock(), CollectorRegistry()
    series = CounterSeries(SeriesName("semel_starts", "Starts.", ("outcome",)), clock)
    registry.register(series)
    began_s = clock.now_us() / 1e6
    series.begin("admitted")
    clock.advance("1m")
    series.add("admitted")
    labels = {"outcome": "admitted"}
    assert registry.get_sample_value("semel_starts_total", labels) == 1
    assert registry.get_sample_value("semel_starts_created", labels) == began_s
