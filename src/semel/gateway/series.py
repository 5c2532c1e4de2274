"""Counters and histograms by their labels, as plain numbers: whoever reads them pays for the form.

prometheus-client's own take a lock and some seven calls for each number, which every request would pay
several times. These belong to one gateway, whose loop alone adds to them; a scrape reads them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client.core import Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from semel.kernel.clock import Clock

Labels = tuple[str | int, ...]


class _Number:
    __slots__ = ("count", "created_s")

    def __init__(self, created_s: float) -> None:
        self.count = 0
        self.created_s = created_s


class CounterSeries(Collector):
    """How often something happened, by these labels."""

    def __init__(self, name: str, what: str, labels: Sequence[str], clock: Clock) -> None:
        self._name, self._what, self._labels = name, what, tuple(labels)
        self._clock = clock
        self._numbers: dict[Labels, _Number] = {}

    def begin(self, *labels: str | int) -> None:
        """It has not happened yet with these labels, and that is shown."""
        self._numbers[labels] = _Number(self._clock.now_us() / 1e6)

    def add(self, *labels: str | int) -> None:
        """Once more."""
        number = self._numbers.get(labels)
        if number is None:
            number = self._numbers[labels] = _Number(self._clock.now_us() / 1e6)
        number.count += 1

    def collect(self) -> Iterator[Metric]:
        family = Metric(self._name, self._what, "counter")
        for values, number in list(self._numbers.items()):
            labels = _named(self._labels, values)
            family.add_sample(f"{self._name}_total", labels, number.count)
            family.add_sample(f"{self._name}_created", labels, number.created_s)
        yield family


class _Distribution:
    """How many were at most each bound, and what they come to."""

    __slots__ = ("counts", "created_s", "total")

    def __init__(self, bounds: int, created_s: float) -> None:
        self.counts = [0] * (bounds + 1)  # the last: above every bound
        self.total = 0.0
        self.created_s = created_s


class HistogramSeries(Collector):
    """How large something was, by these labels and up to these bounds."""

    def __init__(
        self, name: str, what: str, bounds: Sequence[float], labels: Sequence[str], clock: Clock
    ) -> None:
        self._name, self._what, self._labels = name, what, tuple(labels)
        self._bounds = tuple(bounds)
        self._clock = clock
        self._distributions: dict[Labels, _Distribution] = {}

    def observe(self, value: float, *labels: str | int) -> None:
        distribution = self._distributions.get(labels)
        if distribution is None:
            distribution = _Distribution(len(self._bounds), self._clock.now_us() / 1e6)
            self._distributions[labels] = distribution
        distribution.counts[bisect_left(self._bounds, value)] += 1
        distribution.total += value

    def collect(self) -> Iterator[Metric]:
        family = Metric(self._name, self._what, "histogram")
        bounds = [*map(floatToGoString, self._bounds), "+Inf"]
        for values, distribution in list(self._distributions.items()):
            labels = _named(self._labels, values)
            up_to = list(accumulate(distribution.counts))
            for bound, count in zip(bounds, up_to, strict=True):
                family.add_sample(f"{self._name}_bucket", {**labels, "le": bound}, count)
            family.add_sample(f"{self._name}_count", labels, up_to[-1])
            family.add_sample(f"{self._name}_sum", labels, distribution.total)
            family.add_sample(f"{self._name}_created", labels, distribution.created_s)
        yield family


def _named(names: Sequence[str], values: Labels) -> dict[str, str]:
    return dict(zip(names, map(str, values), strict=True))
