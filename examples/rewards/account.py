"""What a customer's workflow carries from run to run, and the rules of points and tiers: plain data."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# From so many points on.
TIERS = (("gold", 5_000), ("silver", 1_000), ("bronze", 0))


@dataclass
class Event:
    """Points for a customer. The key is the sender's, and the same each time it sends the event again."""

    key: str | None
    points: int


@dataclass
class Settings:
    """What a test makes small; in production these are product decisions."""

    # How late a sender may repeat itself: three days are longer than a weekend.
    window_s: float = 3 * 86_400
    # A sender gone wild must not make the state grow: so many keys are about half of what Temporal takes.
    keys_max: int = 20_000
    # After so long without a new event the account lapses.
    inactivity_s: float = 365 * 86_400
    # A worker that takes a workflow over reads the history of its run: so much takes it about a second.
    events_per_run: int = 2_000
    # How long Temporal waits before it believes that the worker with a message is gone.
    notice_timeout_s: float = 60


@dataclass
class Notice:
    """A message that is still to be sent. It is named by its place in the customer's life."""

    number: int
    text: str


@dataclass
class Account:
    customer: str
    settings: Settings = field(default_factory=Settings)
    points: int = 0
    tier: str = "bronze"
    events: int = 0
    duplicates: int = 0
    runs: int = 1
    notices: int = 0
    unsent: list[Notice] = field(default_factory=list)
    undelivered: list[Notice] = field(default_factory=list)
    lapses_at: str | None = None
    window: dict[str, Any] | None = None

    def credit(self, event: Event) -> None:
        """The points are added; where they lead to another tier, a notice waits to be sent."""
        self.events += 1
        self.points += event.points
        tier = tier_of(self.points)
        if tier != self.tier:
            self.tier = tier
            self.announce(f"You are {tier} now.")

    def announce(self, text: str) -> None:
        self.notices += 1
        self.unsent.append(Notice(self.notices, text))


def tier_of(points: int) -> str:
    return next((name for name, least in TIERS if points >= least), TIERS[-1][0])
