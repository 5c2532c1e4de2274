"""Replays and conflicts of this process, minute by minute, for the last hour."""

from __future__ import annotations

from typing import NamedTuple

from semel.kernel.clock import Clock

MINUTES = 60


class MinuteCounts(NamedTuple):
    """Oldest minute first; the last one is under way."""

    replays: list[int]
    conflicts: list[int]


class LastHour:
    """A ring of minutes: it takes the same memory however much is counted."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._minute = self._now()
        self._replays, self._conflicts = [0] * MINUTES, [0] * MINUTES

    def _now(self) -> int:
        return int(self._clock.monotonic() // 60)

    def _turn(self) -> int:
        """The place of this minute; minutes that nothing was counted in are empty."""
        now = self._now()
        for minute in range(max(self._minute + 1, now - MINUTES + 1), now + 1):
            self._replays[minute % MINUTES] = self._conflicts[minute % MINUTES] = 0
        self._minute = now
        return now % MINUTES

    def replayed(self) -> None:
        self._replays[self._turn()] += 1

    def conflicted(self) -> None:
        self._conflicts[self._turn()] += 1

    def read(self) -> MinuteCounts:
        first = self._turn() + 1
        return MinuteCounts(
            self._replays[first:] + self._replays[:first], self._conflicts[first:] + self._conflicts[:first]
        )
