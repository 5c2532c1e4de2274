"""What a guarded call costs when the store is a millisecond away: a round trip takes 1 ms longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter

import semel
from bench.figures import Row, Unit
from bench.sides import AsyncCalls, Side, SyncCalls, ThreadedCalls

ROUND_TRIP_S = 0.001
CROWD = 64

# By their side: how they are called, and how many there are.
_CALLERS = {
    "sync": ("1 sync caller", 1),
    "async": ("1 async caller", 1),
    "threads": (f"{CROWD} threads", CROWD),
    "tasks": (f"{CROWD} tasks", CROWD),
}


def distant_rows(name: str, title: str, command: str) -> tuple[Row, ...]:
    """How far it really was, and then what a guarded call took."""
    nothing = f"{title} 1 ms away: one {command} by hand"
    empty = Row(f"{name}-distance-empty", nothing, Unit.MILLISECONDS, None, EmptyRoundTrips.name)
    return empty, *(row for side in _CALLERS for row in _rows(name, title, side))


def _rows(name: str, title: str, side: str) -> Iterator[Row]:
    called, callers = _CALLERS[side]
    work = f"{title} 1 ms away, {called}: guarded call"
    yield Row(f"{name}-distance-{side}-ms", work, Unit.MILLISECONDS, None, side, callers=callers)
    yield Row(f"{name}-distance-{side}-rate", f"{work}s", Unit.PER_SECOND, None, side)


class EmptyRoundTrips:
    """Round trips of one caller that ask for nothing."""

    name = "empty"

    def __init__(self, ask: Callable[[], object], close: Callable[[], None]) -> None:
        self._ask, self._close = ask, close
        self._round_trips = 0

    def round(self, count: int) -> float:
        self._round_trips += count
        began = perf_counter()
        for _ in range(count):
            self._ask()
        return (perf_counter() - began) / count

    def did(self) -> dict[str, int]:
        return {"round trips": self._round_trips}

    def close(self) -> None:
        self._close()


def distant_sides(url: Callable[[str], str]) -> Iterator[Side]:
    """`url(name)` is that of an empty store which is that far away."""
    yield SyncCalls("sync", semel.open(url("sync")))
    yield AsyncCalls("async", semel.open(url("async")))
    yield ThreadedCalls("threads", semel.open(url("threads")), CROWD)
    yield AsyncCalls("tasks", semel.open(url("tasks")), CROWD)
