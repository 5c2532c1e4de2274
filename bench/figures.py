"""What was measured: samples, figures, goals, and the report that holds them."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal


class Unit(Enum):
    """What a figure says, made of the seconds that one operation of each side took in one round."""

    TIMES = "×"  # as long as the other side takes
    RATE = "× the rate"  # as many per second as the other side
    MICROSECONDS = "µs"
    MILLISECONDS = "ms"
    PER_SECOND = "/s"
    BYTES = "B"  # of a side whose rounds are not seconds but bytes

    def of(self, ours_s: float, other_s: float) -> float:
        if self is Unit.TIMES:
            return ours_s / other_s
        if self is Unit.RATE:
            return other_s / ours_s
        if self is Unit.PER_SECOND:
            return 1 / ours_s
        if self is Unit.BYTES:
            return ours_s
        return ours_s * (1e6 if self is Unit.MICROSECONDS else 1e3)

    def spelled(self, value: float) -> str:
        if self in (Unit.PER_SECOND, Unit.BYTES):
            return f"{value:,.0f} {self.value}".replace(",", " ")
        return f"{value:.2f} {self.value}"


@dataclass(frozen=True)
class Goal:
    """The bound that a figure should keep."""

    sense: Literal["≤", "≥"]
    value: float

    def reached_by(self, figure: float) -> bool:
        return figure <= self.value if self.sense == "≤" else figure >= self.value


def at_most(value: float) -> Goal:
    return Goal("≤", value)


def at_least(value: float) -> Goal:
    return Goal("≥", value)


@dataclass(frozen=True)
class Row:
    """One line of the table: one side alone, or in proportion to another one of the same rounds."""

    name: str
    work: str
    unit: Unit
    goal: Goal | None
    side: str
    against: str | None = None
    # What the other side does not do and ours does: a comparison names it.
    leaves_out: str = ""
    # Besides the goals: shown in a table of its own.
    extra: bool = False


def times(name: str, work: str, goal: Goal | None, side: str, against: str, leaves_out: str = "") -> Row:
    """How many times as long the side takes as the other one."""
    return Row(name, work, Unit.TIMES, goal, side, against, leaves_out, extra=goal is None)


def rate(name: str, work: str, goal: Goal | None, side: str, against: str, leaves_out: str = "") -> Row:
    """How many times as much the side does in a second."""
    return Row(name, work, Unit.RATE, goal, side, against, leaves_out, extra=goal is None)


def alone(name: str, work: str, unit: Unit, side: str) -> Row:
    """A side by itself, which depends on the machine: without a goal."""
    return Row(name, work, unit, None, side, extra=True)


@dataclass(frozen=True)
class Figure:
    """A row with its value in every round."""

    row: Row
    rounds: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median: half of the rounds were better, half were worse."""
        return statistics.median(self.rounds)

    @property
    def spread(self) -> tuple[float, float]:
        """Between these two values lies the middle half of the rounds."""
        if len(self.rounds) < 2:
            return self.rounds[0], self.rounds[0]
        low, _, high = statistics.quantiles(self.rounds, n=4, method="inclusive")
        return low, high

    @property
    def verdict(self) -> str:
        if self.row.goal is None:
            return ""
        return "reached" if self.row.goal.reached_by(self.value) else "missed"


def figure(row: Row, samples: Mapping[str, Sequence[float]]) -> Figure:
    """The row's value in every round. The two sides of a ratio are of one round: they met the same noise."""
    ours = samples[row.side]
    other = samples[row.against] if row.against else ours
    return Figure(row, tuple(row.unit.of(a, b) for a, b in zip(ours, other, strict=True)))


@dataclass
class BenchReport:
    """Everything that one run measured, and where."""

    quick: bool
    machine: dict[str, str]
    figures: list[Figure] = field(default_factory=list)
    # What each side left behind, read back from its store: the proof that it did the work.
    did: dict[str, dict[str, dict[str, int]]] = field(default_factory=dict)
    # Why rows that were asked for are not here, a line each.
    left_out: list[str] = field(default_factory=list)

    @property
    def missed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.verdict == "missed"]
