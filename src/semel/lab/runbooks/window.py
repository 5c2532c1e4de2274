"""`semel runbook window`: an entity's window stays small and fast, and what it forgets it gives back.

Pure computation: three simulated years, and windows of up to a million keys. Needs no server.
"""

from __future__ import annotations

import gc
import json
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from time import perf_counter
from typing import Any

from semel.lab.runbooks import entity_traffic as traffic
from semel.lab.runbooks.entity_traffic import DAILY, DAYS, HOSTILE, Life
from semel.lab.runbooks.runbook import Runbook
from semel.lab.runbooks.window_work import WindowWork, measure
from semel.windows.entity import DedupWindow

SIZES = (1_000, 10_000, 100_000, 1_000_000)

# Searching the keys would make it a hundred times as much. Times are shown and decide nothing: they are those
# of a machine and of whoever else is on it. `make bench` measures more closely.
_MORE_MAX = 2

# The best of some turns: whatever disturbs only makes it slower.
_TURNS, _PUSHES = 20, 500

# Tables are made anew when they are mostly empty, so some bytes stay.
_LEFT_MAX = 0.05


@dataclass(frozen=True)
class Cost:
    """What a window of so many live keys costs."""

    keys: int
    push_us: float
    evict_us: float  # per key, many at once
    state_bytes: float  # per key


@dataclass(frozen=True)
class WindowFigures:
    """Everything that was measured."""

    lives: tuple[Life, ...]
    costs: tuple[Cost, ...]
    works: tuple[WindowWork, ...]

    def data(self) -> dict[str, Any]:
        return {
            "lives": [
                {"traffic": life.traffic.name, "samples": [asdict(sample) for sample in life.samples]}
                for life in self.lives
            ],
            "costs": [asdict(cost) for cost in self.costs],
            "works": [asdict(work) for work in self.works],
        }


def window(book: Runbook, days: int = DAYS, sizes: Sequence[int] = SIZES) -> WindowFigures:
    """The figures; the checks are added to `book`."""
    daily, hostile = traffic.live(DAILY, days), traffic.live(HOSTILE, days)
    _check_daily(book, daily)
    _check_hostile(book, hostile)
    _check_restart(book, hostile.window)
    _check_memory(book, sizes[-2])
    works = measure(sizes[0]), measure(sizes[-2])
    _check_works(book, *works)
    costs = tuple(_cost(size) for size in sizes)
    return WindowFigures((daily, hostile), costs, works)


def _check_daily(book: Runbook, life: Life) -> None:
    dropped, expected = life.window_dropped, life.map_dropped
    book.check(
        "daily: every repeat is dropped, as by a map that never forgets",
        dropped == expected > 0,
        f"{dropped:,} of {expected:,}",
    )
    # Those of three days, and the one that is exactly three days old.
    most = 3 * DAILY.per_day + 1
    held = max(sample.window_keys for sample in life.samples)
    book.check("daily: never more keys than three days bring", held <= most, f"{held} keys, at most {most}")


def _check_hostile(book: Runbook, life: Life) -> None:
    bound = HOSTILE.max_keys or 0
    held = max(sample.window_keys for sample in life.samples)
    book.check("hostile: never more keys than the bound", held <= bound, f"{held} keys, at most {bound}")
    since = life.window.covered_since
    oldest = life.window.first_seen(traffic.key(life.last.map_keys - bound))
    book.check("hostile: covered_since names the oldest key that is left", since == oldest is not None, since)
    carried = max(sample.window_bytes for sample in life.samples)
    day = life.map_too_large_after
    map_says = f"the map is too large from day {day} on" if day else "so does the map, still"
    book.check(
        "hostile: the state fits into one payload of 2 MiB at any time",
        carried <= traffic.PAYLOAD_BYTES_MAX,
        f"at most {carried:,} bytes; {map_says}",
    )


def _check_restart(book: Runbook, window: DedupWindow) -> None:
    state = window.to_state()
    again = DedupWindow.from_state(json.loads(json.dumps(state)))
    same = again.to_state() == state and again.covered_since == window.covered_since
    book.check("a restart by way of JSON changes nothing", same, f"{len(again)} keys")


def _check_memory(book: Runbook, keys: int) -> None:
    gc.collect()
    tracemalloc.start()
    try:
        window = traffic.full_window(keys)
        full, _ = tracemalloc.get_traced_memory()
        evicted = window.evict(traffic.START + timedelta(days=DAYS))
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    book.check("evict forgets all that is too old", evicted == keys and len(window) == 0, f"{evicted:,} keys")
    seen = f"{full / keys:.0f} bytes per key before; {left:,} of {full:,} bytes left"
    book.check("the memory of what is forgotten is given back", left < full * _LEFT_MAX, seen)


def _check_works(book: Runbook, few: WindowWork, many: WindowWork) -> None:
    _check_flat(book, "push", many.keys, few.push, many.push)
    _check_flat(book, "evict, per key", many.keys, few.evict, many.evict)


def _check_flat(book: Runbook, what: str, keys: int, few: float, many: float) -> None:
    name = f"{what}: does not grow with the window"
    book.check(name, many <= few * _MORE_MAX, f"{many:.1f} steps with {keys:,} keys, {few:.1f} with few")


def _cost(keys: int) -> Cost:
    window = traffic.full_window(keys)
    push_us = min(_timed_pushes(window, keys + turn * _PUSHES) for turn in range(_TURNS))
    state_bytes = traffic.written_bytes(window.to_state()) / keys
    evict_us = min(_timed_eviction(window, keys // _TURNS) for _ in range(_TURNS))
    return Cost(keys, push_us, evict_us, state_bytes)


def _timed_eviction(window: DedupWindow, keys: int) -> float:
    """Time goes on until so many are too old."""
    since = window.covered_since or traffic.START
    later = since + window.max_age + timedelta(milliseconds=keys)
    return _timed_us(lambda: window.evict(later))


def _timed_pushes(window: DedupWindow, first: int) -> float:
    events = traffic.next_events(first, _PUSHES)

    def push_all() -> int:
        for key, at in events:
            window.push(key, at)
        return len(events)

    return _timed_us(push_all)


def _timed_us(work: Callable[[], int]) -> float:
    """Microseconds for each of as many as the work says it did."""
    began = perf_counter()
    done = work()
    return (perf_counter() - began) / max(done, 1) * 1e6
