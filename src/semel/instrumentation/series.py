"""Counters and histograms by their labels, as Prometheus reads them; kept as plain numbers.

prometheus-client's own take a lock and some seven calls for each number, which every request would pay
several times. A series belongs to one gateway, whose loop alone adds to it; a scrape reads it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from semel.instrumentation.numbers import AGE_SECONDS, Distribution
from semel.kernel.clock import Clock

Labels = tuple[str | int, ...]


class SeriesName(NamedTuple):
    """What is measured, and by which labels; without bounds it is counted only."""

    name: str
    what: str
    labels: tuple[str, ...]
    bounds: tuple[float, ...] = ()


# Of the gateway's keys and of tools alike.
RETRY_AGE = SeriesName(
    "semel_retry_age_seconds", "How old a key was when it was sent again.", ("tool",), AGE_SECONDS
)


class CountSince:
    """How often, since when."""

    __slots__ = ("count", "created_s")

    def __init__(self, count: int, created_s: float) -> None:
        self.count = count
        self.created_s = created_s


def counter(named: SeriesName, counts: Iterable[tuple[Labels, CountSince]]) -> Metric:
    """The counts by their labels, in the form of Prometheus."""
    family = Metric(named.name, named.what, "counter")
    for values, count in counts:
        labels = _named(named.labels, values)
        family.add_sample(f"{named.name}_total", labels, count.count)
        family.add_sample(f"{named.name}_created", labels, count.created_s)
    return family


def histogram(named: SeriesName, distributions: Iterable[tuple[Labels, Distribution]]) -> Metric:
    """The distributions by their labels, in the form of Prometheus."""
    family = Metric(named.name, named.what, "histogram")
    bounds = [*map(floatToGoString, named.bounds), "+Inf"]
    for values, distribution in distributions:
        labels = _named(named.labels, values)
        up_to = list(accumulate(distribution.counts))
        for bound, count in zip(bounds, up_to, strict=True):
            family.add_sample(f"{named.name}_bucket", {**labels, "le": bound}, count)
        family.add_sample(f"{named.name}_count", labels, up_to[-1])
        family.add_sample(f"{named.name}_sum", labels, distribution.total)
        family.add_sample(f"{named.name}_created", labels, distribution.created_s)
    return family


class CounterSeries(Collector):
    """How often something happened, by these labels."""

    def __init__(self, named: SeriesName, clock: Clock) -> None:
        self._named = named
        self._clock = clock
        self._counts: dict[Labels, CountSince] = {}

    def begin(self, *labels: str | int) -> None:
        """It has not happened yet with these labels, and that is shown."""
        self._counts[labels] = CountSince(0, self._clock.now_us() / 1e6)

    def add(self, *labels: str | int) -> None:
        """Once more."""
        count = self._counts.get(labels)
        if count is None:
            count = self._counts[labels] = CountSince(0, self._clock.now_us() / 1e6)
        count.count += 1

    def collect(self) -> Iterator[Metric]:
        yield counter(self._named, list(self._counts.items()))


class HistogramSeries(Collector):
    """How large something was, by these labels and up to these bounds."""

    def __init__(self, named: SeriesName, clock: Clock) -> None:
        self._named = named
        self._bounds = named.bounds
        self._clock = clock
        self._distributions: dict[Labels, Distribution] = {}

    def observe(self, value: float, *labels: str | int) -> None:
        distribution = self._distributions.get(labels)
        if distribution is None:
            distribution = Distribution(len(self._bounds), self._clock.now_us() / 1e6)
            self._distributions[labels] = distribution
        distribution.counts[bisect_left(self._bounds, value)] += 1
        distribution.total += value

    def collect(self) -> Iterator[Metric]:
        yield histogram(self._named, list(self._distributions.items()))


def _named(names: Sequence[str], values: Labels) -> dict[str, str]:
    return dict(zip(names, map(str, values), strict=True))
