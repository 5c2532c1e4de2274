"""Calls for Prometheus. A scrape reads the plain numbers; a call pays for nothing of their form.

Where processes share a folder (`PROMETHEUS_MULTIPROC_DIR`) prometheus-client reads its own metrics and no
others, so these are kept there, for some twenty microseconds a call.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Histogram, start_http_server
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from semel.instrumentation.hooks import CallEnded, Hook, NumbersHook
from semel.instrumentation.numbers import CALL_SECONDS, STAGES, every_tool, tool_label
from semel.instrumentation.series import RETRY_AGE, CountSince, SeriesName, counter, histogram

log = logging.getLogger("semel")

CALLS = SeriesName("semel_calls", "Calls of tools, by what was answered.", ("tool", "answer"))
SECONDS = SeriesName(
    "semel_call_seconds",
    "How long calls of tools took: to claim the key, in the tool, to settle.",
    ("tool", "stage"),
    CALL_SECONDS,
)


def prometheus_hook(registry: CollectorRegistry = REGISTRY) -> Hook:
    """The hook that shows the calls of this process in the registry."""
    return MultiprocessMetrics(registry) if _shares_a_folder() else PrometheusNumbers(registry)


def serve(host: str, port: int) -> str:
    """Serves the registry of prometheus-client over HTTP, until the process ends; the address to scrape.

    OSError if nobody can listen there.
    """
    server, _ = start_http_server(port, host)
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{server.server_port}/metrics"


def _shares_a_folder() -> bool:
    return "PROMETHEUS_MULTIPROC_DIR" in os.environ or "prometheus_multiproc_dir" in os.environ


class PrometheusNumbers(NumbersHook, Collector):
    """The numbers of all tools of this process, in the form of Prometheus."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._registered = False

    def begin(self) -> None:
        try:
            self._registry.register(self)
            self._registered = True
        except ValueError as taken:
            log.warning("semel: calls are not shown in this registry, which has their names: %s", taken)

    def end(self) -> None:
        if self._registered:
            self._registry.unregister(self)
            self._registered = False

    def describe(self) -> Iterator[Metric]:
        yield from (counter(CALLS, ()), histogram(SECONDS, ()), histogram(RETRY_AGE, ()))

    def collect(self) -> Iterator[Metric]:
        tools = every_tool()
        yield counter(
            CALLS,
            (
                ((tool, answer), CountSince(count, numbers.created_s))
                for tool, numbers in tools
                for answer, count in numbers.every_answer()
            ),
        )
        yield histogram(
            SECONDS,
            (
                ((tool, stage), distribution)
                for tool, numbers in tools
                for stage, distribution in zip(STAGES, numbers.stages, strict=True)
                if any(distribution.counts)
            ),
        )
        yield histogram(
            RETRY_AGE, (((tool,), numbers.ages) for tool, numbers in tools if any(numbers.ages.counts))
        )


class MultiprocessMetrics:
    """The same as prometheus-client's own metrics, which are added up over all processes of a folder."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._calls = Counter(CALLS.name, CALLS.what, CALLS.labels, registry=registry)
        self._seconds, self._ages = (
            Histogram(series.name, series.what, series.labels, buckets=series.bounds, registry=registry)
            for series in (SECONDS, RETRY_AGE)
        )

    def __call__(self, call: CallEnded) -> None:
        tool = tool_label(call.tool)
        self._calls.labels(tool, call.answer).inc()
        for stage, seconds in zip(STAGES, (call.claim_s, call.tool_s, call.settle_s), strict=True):
            if seconds:
                self._seconds.labels(tool, stage).observe(seconds)
        if call.retry_age_s is not None:
            self._ages.labels(tool).observe(call.retry_age_s)
