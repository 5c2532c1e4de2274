"""So many at a time, tenant by tenant, in the order in which they come."""

from __future__ import annotations

import asyncio
from collections import deque


class TenantTurns:
    """At most `at_once` of a tenant go on; used on one event loop. Where nobody waits, a turn is a number."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._taken: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    async def take(self, tenant: str) -> None:
        """The turn is the caller's, who gives it back. Cancelled meanwhile, it has none."""
        taken = self._taken.get(tenant, 0)
        if taken < self._at_once:
            self._taken[tenant] = taken + 1
        else:
            await self._wait(tenant)

    def give_back(self, tenant: str) -> None:
        """It goes to whoever has waited longest."""
        line = self._waiting.get(tenant, ())
        while line:
            next_one = line.popleft()
            if not line:
                del self._waiting[tenant]
            if not next_one.done():  # else it was cancelled
                next_one.set_result(None)
                return
        self._taken[tenant] -= 1
        if not self._taken[tenant]:
            del self._taken[tenant]

    async def _wait(self, tenant: str) -> None:
        given = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(tenant, deque()).append(given)
        try:
            await given
        except asyncio.CancelledError:
            if not given.cancelled():
                self.give_back(tenant)  # it came at the same moment
            raise

    def __len__(self) -> int:
        """How many tenants have somebody here."""
        return len(self._taken)
