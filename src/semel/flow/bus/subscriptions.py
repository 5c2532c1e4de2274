"""Who waits for jobs of which topic, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from semel.kernel.clock import Clock

# Topics whose message came while nobody waited. A lost one costs a look at the store: the oldest may go.
_MISSED_MAX = 10_000

TenantTopic = tuple[str, str]


class Subscriptions:
    """Used on one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[TenantTopic, set[asyncio.Future[None]]] = {}
        self._missed: dict[TenantTopic, None] = {}

    def wake(self, tenant: str, topic: str) -> None:
        """Whoever waits goes on. If nobody does, the next one need not wait: it may be between two looks."""
        key = tenant, topic
        if waiting := self._waiting.get(key):
            _wake(waiting)
            return
        self._missed[key] = None
        if len(self._missed) > _MISSED_MAX:
            del self._missed[next(iter(self._missed))]

    def wake_all(self, tenant: str) -> None:
        """Whoever waits for anything of the tenant goes on."""
        for key, waiting in self._waiting.items():
            if key[0] == tenant:
                _wake(waiting)

    async def wait(self, tenant: str, topics: Iterable[str], seconds: float) -> None:
        keys = [(tenant, topic) for topic in topics]
        missed = [key for key in keys if key in self._missed]
        for key in missed:
            del self._missed[key]
        if missed:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for key in keys:
            self._waiting.setdefault(key, set()).add(woken)
        try:
            await self._clock.await_future(woken, seconds)
        finally:
            self._leave(keys, woken)

    def _leave(self, keys: list[TenantTopic], woken: asyncio.Future[None]) -> None:
        for key in keys:
            if waiting := self._waiting.get(key):
                waiting.discard(woken)
                if not waiting:
                    del self._waiting[key]


def _wake(waiting: set[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
