"""Durations as people write them: `timedelta`, or a whole number with a unit."""

from __future__ import annotations

import re
from datetime import timedelta

_FORM = re.compile(r"([1-9][0-9]*)(ms|s|m|h|d)")
_UNIT_US = {"ms": 1_000, "s": 1_000_000, "m": 60_000_000, "h": 3_600_000_000, "d": 86_400_000_000}

# A century. Beyond it a duration is a typing error, and sums of it with a date would overflow 64 bits.
_US_MAX = 36_525 * _UNIT_US["d"]

Duration = timedelta | str


def microseconds(duration: Duration, what: str = "duration") -> int:
    """The duration in microseconds; ValueError, naming `what`, unless it is positive and well formed."""
    us = duration // timedelta(microseconds=1) if isinstance(duration, timedelta) else _parse(duration, what)
    if not 0 < us <= _US_MAX:
        raise ValueError(f"{what} must be longer than nothing and at most a century, not {duration!r}")
    return us


def _parse(text: str, what: str) -> int:
    match = _FORM.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(
            f"{what} must be a timedelta or a text such as '500ms', '30s', '15m', '24h', '7d', not {text!r}"
        )
    return int(match[1]) * _UNIT_US[match[2]]


def words(us: int) -> str:
    """The duration as a person would say it, in the largest unit that divides it."""
    for unit in ("d", "h", "m", "s", "ms"):
        if us and us % _UNIT_US[unit] == 0:
            return f"{us // _UNIT_US[unit]}{unit}"
    return f"{us / 1000:g}ms"
