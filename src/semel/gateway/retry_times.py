"""`Retry-After` in whole seconds, as HTTP has it, and spread all the same.

A number of seconds that everyone is told alike brings everyone back together. So what is meant is rounded up,
and a second or two are added where that is needed: two refusals in a row of one tenant never have the same
number, and never name the same second.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import NamedTuple

from semel.kernel.clock import Clock

# Added at most: with three numbers to choose from, one is neither the last number nor the last second.
SPREAD_S = 2

# Those who were refused last; of others the next refusal may say what the last one said.
TENANTS_MAX = 1_000


class ToldMoment(NamedTuple):
    seconds: int
    moment: float  # of the monotonic clock


class RetryTimes:
    """What each tenant was told last, by this process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last: OrderedDict[str | None, ToldMoment] = OrderedDict()

    def seconds(self, tenant: str | None, wanted_s: float | None) -> int:
        """At least what is wanted; None for the tenant where nobody knows it."""
        least, now = max(1, math.ceil(wanted_s or 0)), self._clock.monotonic()
        last = self._last.pop(tenant, None)
        choices = range(least, least + SPREAD_S + 1)
        chosen = next(seconds for seconds in choices if _is_new(seconds, now, last))
        self._last[tenant] = ToldMoment(chosen, now + chosen)
        if len(self._last) > TENANTS_MAX:
            self._last.popitem(last=False)
        return chosen

    def __len__(self) -> int:
        return len(self._last)


def _is_new(seconds: int, now: float, last: ToldMoment | None) -> bool:
    return last is None or (seconds != last.seconds and abs(now + seconds - last.moment) >= 0.5)
