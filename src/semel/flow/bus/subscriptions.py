"""Who waits for which doorbell, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from semel.kernel.clock import Clock

# Rings that nobody was there to hear. A lost one costs a look at the store, so the oldest may go.
_MISSED_MAX = 10_000

Button = tuple[str, str]  # tenant, topic


class Subscriptions:
    """Used on one event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: dict[Button, set[asyncio.Future[None]]] = {}
        self._missed: dict[Button, None] = {}

    def ring(self, tenant: str, topic: str) -> None:
        """Whoever waits goes on. If nobody does, the next one need not wait: it may be between two looks."""
        button = tenant, topic
        if waiting := self._waiting.get(button):
            _wake(waiting)
            return
        self._missed[button] = None
        if len(self._missed) > _MISSED_MAX:
            del self._missed[next(iter(self._missed))]

    def ring_all(self, tenant: str) -> None:
        """Whoever waits for anything of the tenant goes on."""
        for button, waiting in self._waiting.items():
            if button[0] == tenant:
                _wake(waiting)

    async def wait(self, tenant: str, topics: Iterable[str], seconds: float) -> None:
        buttons = [(tenant, topic) for topic in topics]
        missed = [button for button in buttons if button in self._missed]
        for button in missed:
            del self._missed[button]
        if missed:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        for button in buttons:
            self._waiting.setdefault(button, set()).add(woken)
        try:
            await self._clock.await_future(woken, seconds)
        finally:
            self._leave(buttons, woken)

    def _leave(self, buttons: list[Button], woken: asyncio.Future[None]) -> None:
        for button in buttons:
            if waiting := self._waiting.get(button):
                waiting.discard(woken)
                if not waiting:
                    del self._waiting[button]


def _wake(waiting: set[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
