"""Three years of an entity's life in a few seconds: what its window carries, and what a map without end does.

Daily traffic is a customer's: some twenty events a day, every fifth of them sent again six hours later.
Hostile traffic is a sender gone wild: only fresh keys, all day long.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from semel.windows.entity import DedupWindow

START = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)

# Three years, one of them a leap year.
DAYS = 3 * 365 + 1

# What Temporal takes as one payload by default; other engines and queues have bounds of their own.
PAYLOAD_BYTES_MAX = 2 << 20

_REPEATED, _REPEATED_AFTER = 5, timedelta(hours=6)


@dataclass(frozen=True)
class Traffic:
    """So many new keys a day, evenly spread; every fifth is sent again, if there are repeats."""

    name: str
    per_day: int
    repeats: bool
    max_keys: int | None

    def of_day(self, day: int) -> Iterator[tuple[str, datetime]]:
        apart = DAY / self.per_day
        late = _REPEATED_AFTER // apart
        for number in range(day * self.per_day, (day + 1) * self.per_day):
            at = START + number * apart
            yield key(number), at
            if self.repeats and number % _REPEATED == 0 and number >= late:
                yield key(number - late), at


DAILY = Traffic("daily", 20, repeats=True, max_keys=None)

# Every three minutes; and a bound, without which the window would hold three days of them.
HOSTILE = Traffic("hostile", 480, repeats=False, max_keys=500)


def key(number: int) -> str:
    """As long as a UUID."""
    return f"{number:08x}-0000-4000-8000-{number:012x}"


class ForeverMap:
    """What people write first: key → when it was seen, for ever."""

    def __init__(self) -> None:
        self.seen: dict[str, int] = {}
        self.state_bytes = len("{}")

    def push(self, key: str, now: datetime) -> bool:
        if key in self.seen:
            return False
        self.seen[key] = int(now.timestamp() * 1_000_000)
        # Counted as it grows: to write all of it each day would take longer than the three years.
        self.state_bytes += len(f'"{key}":{self.seen[key]},')
        return True


@dataclass(frozen=True)
class Sample:
    """How both stand at the end of a day."""

    day: int
    map_keys: int
    map_bytes: int
    window_keys: int
    window_bytes: int


@dataclass(frozen=True)
class Life:
    """What one entity has seen, day by day; and how many repeats each side dropped."""

    traffic: Traffic
    samples: tuple[Sample, ...]
    window: DedupWindow
    events: int
    map_dropped: int
    window_dropped: int

    @property
    def last(self) -> Sample:
        return self.samples[-1]

    @property
    def map_too_large_after(self) -> int | None:
        """The first day on which the map is more than one payload takes."""
        return next((one.day for one in self.samples if one.map_bytes > PAYLOAD_BYTES_MAX), None)


def live(traffic: Traffic, days: int = DAYS, max_age: str = "3d", every: int = 30) -> Life:
    """The entity's life, sampled every so many days and at its end."""
    window, forever = DedupWindow(max_age, traffic.max_keys), ForeverMap()
    samples: list[Sample] = []
    events = map_dropped = window_dropped = 0
    for day in range(days):
        for name, at in traffic.of_day(day):
            events += 1
            map_dropped += not forever.push(name, at)
            window_dropped += not window.push(name, at)
        if (day + 1) % every == 0 or day + 1 == days:
            samples.append(_sample(day + 1, forever, window))
    return Life(traffic, tuple(samples), window, events, map_dropped, window_dropped)


def _sample(day: int, forever: ForeverMap, window: DedupWindow) -> Sample:
    return Sample(day, len(forever.seen), forever.state_bytes, len(window), written_bytes(window.to_state()))


def written_bytes(state: Mapping[str, Any]) -> int:
    """The state as JSON without spaces, as engines carry it."""
    return len(json.dumps(state, separators=(",", ":")))


def full_window(keys: int) -> DedupWindow:
    """A window of so many live keys, a millisecond apart: the next one pushes the oldest out."""
    apart = timedelta(milliseconds=1)
    window = DedupWindow(apart * (keys - 1))
    for number in range(keys):
        window.push(key(number), START + number * apart)
    return window


def next_events(first: int, count: int) -> list[tuple[str, datetime]]:
    """The events that come after the first so many, made beforehand."""
    return [(key(number), START + timedelta(milliseconds=number)) for number in range(first, first + count)]
