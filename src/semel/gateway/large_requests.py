"""One after the other, tenant by tenant: what is costly of one tenant waits for that tenant alone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from semel.flow.problems import Refused


class LargeRequests:
    """At most `capacity` requests of a tenant are here at once, and one of them has the turn."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._present: dict[str, int] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    @contextmanager
    def entry(self, tenant: str) -> Iterator[None]:
        """One more is here, with or without the turn; Refused `too_many_requests` if that is one too many."""
        present = self._present.get(tenant, 0)
        if present >= self._capacity:
            raise Refused("too_many_requests", "Too many large requests of the tenant wait.", retry_after_s=1)
        self._present[tenant] = present + 1
        try:
            yield
        finally:
            self._present[tenant] -= 1
            if not self._present[tenant]:
                del self._present[tenant]
                self._locks.pop(tenant, None)

    @asynccontextmanager
    async def turn(self, tenant: str) -> AsyncIterator[None]:
        """Nobody else of the tenant has it. Only inside an `entry`."""
        async with self._locks.setdefault(tenant, asyncio.Lock()):
            yield

    def __len__(self) -> int:
        """How many tenants have somebody here."""
        return len(self._present)
