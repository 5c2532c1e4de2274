"""When to ask again for a slot: it follows how fast the tenant's slots have been freed lately.

Known to this process alone, and forgotten with it: what it ended itself, and what the bus told it of others.
Who is refused first is told when the next slot should be free; each further one a moment of its own after
that, so that those who were refused together do not come back together. More are asked back than slots were
freed: fewer are freed than could be where nobody comes to take them.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from dataclasses import dataclass, field

from semel.kernel.clock import Clock

# Tenants that are remembered, and freed slots of each: together less than a megabyte.
TENANTS_MAX = 1_000
FREED_MAX = 32

# What happened earlier says nothing about now.
_LATELY_S = 60.0

# Between two freed slots, where nobody knows better; and how far ahead moments are given away then.
_UNKNOWN_S = 0.1
_UNKNOWN_AHEAD_S = 1.0

# Nobody is sent away for longer: who comes back may find that runs end faster now, and few clients go on for
# minutes.
AHEAD_MAX_S = 10.0

# How many are asked back for each slot that is likely to be freed: some do not come, others come too early.
ASKED_BACK = 4


@dataclass(slots=True)
class TenantPace:
    """What is known of one tenant; times are of the monotonic clock."""

    freed: deque[float] = field(default_factory=lambda: deque(maxlen=FREED_MAX))
    # When a slot was freed that somebody wanted, and how long nobody had left: idle time says nothing.
    wanted: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=FREED_MAX))
    refused_since_freed: float | None = None  # the first
    refused_at: float = -_LATELY_S
    given_away: float = 0.0  # the last moment that somebody was told


class SlotPace:
    """All tenants of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._tenants: OrderedDict[str, TenantPace] = OrderedDict()

    def freed(self, tenant: str) -> None:
        """A run of the tenant has ended."""
        pace, now = self._of(tenant), self._clock.monotonic()
        if pace.refused_since_freed is not None:
            since = max(pace.refused_since_freed, pace.freed[-1] if pace.freed else 0.0)
            pace.wanted.append((now, now - since))
        else:
            pace.given_away = 0.0  # those who were told a moment are not there any more
        pace.freed.append(now)
        pace.refused_since_freed = None

    def retry_after_s(self, tenant: str) -> float:
        """How long the caller that is refused now should wait."""
        pace, now = self._of(tenant), self._clock.monotonic()
        if now - pace.refused_at >= _LATELY_S or pace.refused_since_freed is None:
            pace.refused_since_freed = now
        pace.refused_at = now
        gap_s, ahead_s = _gap_s(pace, now)
        step_s = gap_s / ASKED_BACK * (0.5 + self._clock.random())
        moment = max(now + gap_s * (0.75 + 0.5 * self._clock.random()), pace.given_away + step_s)
        if moment > now + ahead_s:
            moment = now + min(gap_s, ahead_s) * (0.5 + 0.5 * self._clock.random())  # the next lap
        pace.given_away = moment
        return moment - now

    def _of(self, tenant: str) -> TenantPace:
        if (pace := self._tenants.get(tenant)) is None:
            pace = self._tenants[tenant] = TenantPace()
            if len(self._tenants) > TENANTS_MAX:
                self._tenants.popitem(last=False)
        else:
            self._tenants.move_to_end(tenant)
        return pace

    def __len__(self) -> int:
        """How many tenants are remembered."""
        return len(self._tenants)


def _gap_s(pace: TenantPace, now: float) -> tuple[float, float]:
    """Between two freed slots, as it was lately or as long as nobody has left; and how far to look ahead."""
    while pace.freed and now - pace.freed[0] > _LATELY_S:
        pace.freed.popleft()
    while pace.wanted and now - pace.wanted[0][0] > _LATELY_S:
        pace.wanted.popleft()
    assert pace.refused_since_freed is not None
    nobody_left_s = now - pace.refused_since_freed
    if pace.wanted:
        usual_s, ahead_s = sum(gap for _, gap in pace.wanted) / len(pace.wanted), AHEAD_MAX_S
    elif len(pace.freed) > 1:
        usual_s, ahead_s = (pace.freed[-1] - pace.freed[0]) / (len(pace.freed) - 1), AHEAD_MAX_S
    else:
        is_slow = nobody_left_s > _UNKNOWN_AHEAD_S
        usual_s, ahead_s = _UNKNOWN_S, AHEAD_MAX_S if is_slow else _UNKNOWN_AHEAD_S
    return max(usual_s, nobody_left_s), ahead_s
