"""One tenant's share of this process: one that sends much does not hold up the others."""

from __future__ import annotations

from collections import OrderedDict

from semel.flow.problems import Refused
from semel.kernel.clock import Clock

# Tenants remembered. One that is forgotten gets a full bucket again, which is what a quiet one has anyway.
_TENANTS_MAX = 10_000

# Bytes of a large body that cost as much as a small request: to read, to write and to keep them.
TOKEN_BYTES = 8 << 10


class RateLimit:
    """A bucket of tokens per tenant: `burst` at most, `rate_per_s` more each second, one for each request."""

    def __init__(self, rate_per_s: float, burst: float, clock: Clock) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # tokens, as of when

    def take(self, tenant: str, tokens_needed: float = 1) -> None:
        """So many tokens are gone; Refused `too_many_requests` if there is none.

        One is enough to begin: what a large body needs beyond what is there, the tenant owes.
        """
        if not self._rate_per_s:
            return
        now = self._clock.monotonic()
        tokens, since = self._buckets.get(tenant, (self._burst, now))
        tokens = min(self._burst, tokens + (now - since) * self._rate_per_s)
        if tokens < 1:
            raise Refused("too_many_requests", retry_after_s=(1 - tokens) / self._rate_per_s)
        self._buckets[tenant] = (tokens - tokens_needed, now)
        self._buckets.move_to_end(tenant)
        if len(self._buckets) > _TENANTS_MAX:
            self._buckets.popitem(last=False)

    def give_back(self, tenant: str) -> None:
        """A token that was taken is there again."""
        tokens, since = self._buckets.get(tenant, (self._burst, self._clock.monotonic()))
        self._buckets[tenant] = (min(self._burst, tokens + 1), since)

    def __len__(self) -> int:
        return len(self._buckets)
