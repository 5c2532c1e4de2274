"""Bodies on their way in: each in good time, and none of them holds up a stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from semel.flow.problems import Problem

# For all of a body: what a slow line needs for the largest, and no more than an abandoned one is waited for.
BODY_S = 60.0


class Arrivals:
    """Who is being listened to, in one gateway."""

    def __init__(self) -> None:
        self._limits: set[asyncio.Timeout] = set()
        self._stopping = False

    @asynccontextmanager
    async def one(self) -> AsyncIterator[None]:
        """What is awaited in here arrives in time; else a Problem, and nothing was done."""
        try:
            async with asyncio.timeout(0 if self._stopping else BODY_S) as limit:
                self._limits.add(limit)
                try:
                    yield
                finally:
                    self._limits.discard(limit)
        except TimeoutError:
            raise Problem("gateway_stopping" if self._stopping else "request_timeout") from None

    def stop(self) -> None:
        """Nobody is listened to any longer: what has not arrived was not begun, and can be sent elsewhere."""
        self._stopping = True
        now = asyncio.get_running_loop().time()
        for limit in tuple(self._limits):
            limit.reschedule(now)
