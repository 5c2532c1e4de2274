"""The rows about the window of an entity: what a push costs, and what is carried."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from time import perf_counter

from bench.figures import Row, Unit, alone, at_most, times
from bench.plan import Experiment, ExperimentResources
from bench.sides import Side, Size
from semel.lab.runbooks import entity_traffic as traffic


class Pushes:
    """Fresh keys into a window that is full: each of them is remembered, and the oldest is forgotten."""

    def __init__(self, name: str, keys: int) -> None:
        self.name, self._keys = name, keys
        self._window = traffic.full_window(keys)
        self._next = keys

    def round(self, count: int) -> float:
        events = traffic.next_events(self._next, count)
        self._next += count
        push = self._window.push
        began = perf_counter()
        for key, at in events:
            push(key, at)
        return (perf_counter() - began) / count

    def did(self) -> dict[str, int]:
        return {"pushes": self._next - self._keys, "live keys": len(self._window)}

    def close(self) -> None:
        pass


def _pushes(resources: ExperimentResources) -> Iterator[Side]:
    yield Pushes("few", resources.small)
    yield Pushes("more", 1_000 if resources.quick else 100_000)
    yield Pushes("many", resources.large)


def _sizes(resources: ExperimentResources) -> Iterator[Side]:
    keys = 1_000 if resources.quick else 100_000
    tracemalloc.start()
    try:
        window = traffic.full_window(keys)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    yield Size("memory", held / keys, keys=len(window))
    yield Size("state", traffic.written_bytes(window.to_state()) / keys, keys=len(window))


def _years(resources: ExperimentResources) -> Iterator[Side]:
    for kind in (traffic.DAILY, traffic.HOSTILE):
        life = traffic.live(kind, 60 if resources.quick else traffic.DAYS)
        dropped = {"events": life.events, "dropped": life.window_dropped}
        yield Size(f"{kind.name}, window", life.last.window_bytes, keys=life.last.window_keys, **dropped)
        yield Size(f"{kind.name}, map", life.last.map_bytes, keys=life.last.map_keys, **dropped)


def _push_row(name: str, keys: str, side: str) -> Row:
    return alone(f"window-push-{name}", f"window: push with {keys} live keys", Unit.MICROSECONDS, side)


def _years_rows(kind: str) -> tuple[Row, Row]:
    what = f"three years of {kind} traffic"
    window, forever = f"{kind}, window", f"{kind}, map"
    work = f"window: a map that never forgets / the window, after {what}"
    return (
        alone(f"window-years-{kind}", f"window: state after {what}", Unit.BYTES, window),
        times(f"window-years-{kind}-map", work, None, forever, window),
    )


_FLAT_ROW = times(
    "window-flat", "window: push with 1 000 000 live keys / with 1 000", at_most(2), "many", "few"
)

EXPERIMENTS: tuple[Experiment, ...] = (
    Experiment(
        "window-push",
        (
            _push_row("few", "1 000", "few"),
            _push_row("more", "100 000", "more"),
            _push_row("many", "1 000 000", "many"),
            # What is left when a table outgrows the processor's caches.
            replace(_FLAT_ROW, extra=True),
        ),
        _pushes,
        operations=10_000,
        quick_operations=20,
        preparing="filling the windows",
    ),
    Experiment(
        "window-size",
        (
            alone("window-memory", "window: memory per live key, its text included", Unit.BYTES, "memory"),
            alone(
                "window-state", "window: state per live key as JSON, its text included", Unit.BYTES, "state"
            ),
        ),
        _sizes,
        operations=1,
        quick_operations=1,
        preparing="filling a window",
    ),
    Experiment(
        "window-years",
        (*_years_rows("daily"), *_years_rows("hostile")),
        _years,
        operations=1,
        quick_operations=1,
        preparing="living three years",
    ),
)
