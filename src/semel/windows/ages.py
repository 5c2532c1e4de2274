"""How late keys come again, counted: what a window has to cover can be read off these counts.

Pure. An age is counted under the first bound that is longer, so a window as long as a bound covers everything
counted up to it. The bounds are durations that a person would write as a window, those by default among them.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from semel.kernel.durations import microseconds

# Seldom more than a third longer than the one before: closer would be more exact than retries are regular.
# The last is the longest duration there is.
_BOUNDS = {
    "s": (1, 2, 3, 5, 7, 10, 15, 20, 30, 45, 60, 90),
    "m": (2, 3, 4, 5, 7, 10, 15, 20, 30, 45, 60, 90),
    "h": (2, 3, 4, 5, 6, 8, 10, 12, 15, 18, 21, 24, 30, 36, 42, 48, 60),
    "d": (
        3, 4, 5, 6, 7, 8, 10, 12, 14, 17, 21, 25, 30, 36, 45, 60, 75, 90, 120, 180, 365, 730, 3_650, 36_525,
    ),
}  # fmt: skip
BOUNDS_US = tuple(microseconds(f"{length}{unit}") for unit, lengths in _BOUNDS.items() for length in lengths)

# A retry is late if less than this part of its window was left: the next one like it may come after the end.
_LATE_PART = 10

# More windows than a tool has had in the memory of those who ask.
_WINDOWS_MAX = 4


class Met(NamedTuple):
    """Retries that met a settled key under one window: how many, how many of them late, and the last."""

    retries: int
    late: int
    last_us: int


@dataclass(slots=True)
class Ages:
    """Retries of one tool: how many of each age, and how they met the windows that it had."""

    counts: dict[int, int] = field(default_factory=dict)  # by bound
    windows: dict[int | None, Met] = field(default_factory=dict)  # by length; None: for ever
    first_us: int = 0  # when the first and the last retry came
    last_us: int = 0

    @property
    def retries(self) -> int:
        return sum(self.counts.values())

    @property
    def window_us(self) -> int | None:
        """The window that was met last; None if it is for ever, or none was met."""
        return max(self.windows, key=lambda length: self.windows[length].last_us, default=None)

    def saw(self, times_us: Sequence[int], since_us: int) -> None:
        """Retries came at these times, of a key that has been there since then."""
        self._saw(times_us, since_us, min(times_us), max(times_us))

    def met(self, times_us: Sequence[int], settled_us: int, ends_us: int | None) -> None:
        """Retries came at these times, of a key whose window reaches from `settled_us` to `ends_us`."""
        first_us, last_us = min(times_us), max(times_us)
        self._saw(times_us, settled_us, first_us, last_us)
        late, length_us = 0, None
        if ends_us is not None:
            length_us = ends_us - settled_us
            late_from_us = ends_us - length_us // _LATE_PART
            if last_us >= late_from_us:
                late = sum(time_us >= late_from_us for time_us in times_us)
        self._meet(length_us, Met(len(times_us), late, last_us))

    def _saw(self, times_us: Sequence[int], since_us: int, first_us: int, last_us: int) -> None:
        # Retries of a moment are mostly of one age: then nobody looks at each.
        bound_us = bound_above(last_us - since_us)
        if bound_us == bound_above(first_us - since_us):
            self.counts[bound_us] = self.counts.get(bound_us, 0) + len(times_us)
        else:
            for time_us in times_us:
                bound_us = bound_above(time_us - since_us)
                self.counts[bound_us] = self.counts.get(bound_us, 0) + 1
        self._span(first_us, last_us)

    def absorb(self, other: Ages) -> None:
        """What the other counted is counted here too."""
        if not other.counts:
            return
        for bound_us, count in other.counts.items():
            self.counts[bound_us] = self.counts.get(bound_us, 0) + count
        for length_us, met in other.windows.items():
            self._meet(length_us, met)
        self._span(other.first_us, other.last_us)

    def _span(self, first_us: int, last_us: int) -> None:
        self.first_us = min(self.first_us, first_us) if self.first_us else first_us
        self.last_us = max(self.last_us, last_us)

    def _meet(self, length_us: int | None, met: Met) -> None:
        before = self.windows.get(length_us, Met(0, 0, 0))
        self.windows[length_us] = Met(
            before.retries + met.retries, before.late + met.late, max(before.last_us, met.last_us)
        )
        if len(self.windows) > _WINDOWS_MAX:
            del self.windows[min(self.windows, key=lambda length: self.windows[length].last_us)]


def bound_above(age_us: int) -> int:
    """The first bound that is longer; clocks that disagree make no age below nothing."""
    return BOUNDS_US[min(bisect_right(BOUNDS_US, age_us), len(BOUNDS_US) - 1)]


def covering_us(counts: Mapping[int, int], per_mille: int = 999) -> int:
    """The shortest bound that covers so many of a thousand retries; there has to be one."""
    total, covered = sum(counts.values()), 0
    for bound_us in sorted(counts):
        covered += counts[bound_us]
        if covered * 1_000 >= total * per_mille:
            return bound_us
    raise ValueError("no retries were counted")


def later_than(counts: Mapping[int, int], window_us: int) -> int:
    """How many retries certainly came after a window of this length."""
    return sum(count for bound_us, count in counts.items() if _begin(bound_us) >= window_us)


def _begin(bound_us: int) -> int:
    """The youngest age that is counted under the bound, as far as the present bounds tell."""
    below = [each for each in BOUNDS_US if each < bound_us]
    return below[-1] if below else 0


def as_data(ages: Ages) -> dict[str, Any]:
    """For JSON."""
    return {
        "counts": sorted(ages.counts.items()),
        "windows": [[length_us, *met] for length_us, met in ages.windows.items()],
        "first_us": ages.first_us,
        "last_us": ages.last_us,
    }


def from_data(data: Mapping[str, Any]) -> Ages:
    return Ages(
        counts={int(bound_us): int(count) for bound_us, count in data["counts"]},
        windows={length_us: Met(*met) for length_us, *met in data["windows"]},
        first_us=data["first_us"],
        last_us=data["last_us"],
    )
