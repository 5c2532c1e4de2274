"""How much a window does, counted instead of timed: lines that run, and how often a key is looked at.

A stopwatch on a busy machine measures the machine. These counts are the same on every run: a push that
searched its keys would look at all of them, by a loop in Python or in C, since a key counts its comparisons.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import Any

from semel.lab.runbooks import entity_traffic as traffic
from semel.windows.entity import DedupWindow

_PUSHES = 200


@dataclass(frozen=True)
class WindowWork:
    """What a window of so many live keys does for one push of a new key, and for each key that it forgets."""

    keys: int
    push: float
    evict: float


class _WatchedKey(str):
    """A key that counts who looks at it."""

    __slots__ = ()
    looks = 0

    def __hash__(self) -> int:
        _WatchedKey.looks += 1
        return str.__hash__(self)

    def __eq__(self, other: object) -> bool:
        _WatchedKey.looks += 1
        return str.__eq__(self, other)


def measure(keys: int) -> WindowWork:
    window = _full(keys)
    events = [(_WatchedKey(name), at) for name, at in traffic.next_events(keys, _PUSHES)]

    def push_all() -> None:
        for key, at in events:
            window.push(key, at)

    push = _steps(push_all) / _PUSHES
    since, gone = window.covered_since or traffic.START, max(1, keys // 2)
    later = since + window.max_age + timedelta(milliseconds=gone)
    before = len(window)
    evict = _steps(lambda: window.evict(later))
    return WindowWork(keys, push, evict / max(1, before - len(window)))


def _full(keys: int) -> DedupWindow:
    """As `traffic.full_window`, of keys that count."""
    apart = timedelta(milliseconds=1)
    window = DedupWindow(apart * (keys - 1), None)
    for number in range(keys):
        window.push(_WatchedKey(traffic.key(number)), traffic.START + number * apart)
    return window


def _steps(work: Callable[[], object]) -> int:
    """Lines that run, and looks at keys."""
    lines, looks = 0, _WatchedKey.looks

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal lines
        del frame, arg
        lines += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return lines + _WatchedKey.looks - looks
