"""A clock that only moves when it is told to, and chance that repeats."""

from __future__ import annotations

import asyncio
import random
import threading
import time

from semel.kernel.clock import Happening
from tests.patience import PATIENCE_S as PATIENCE_S

# Some day in 2023: far from zero, so that a step back stays a plausible time.
START_US = 1_700_000_000_000_000


class FakeClock:
    """Time stands still between two calls of `advance`; a negative advance is a clock that was set back."""

    runs = False

    def __init__(self, now_us: int = START_US, seed: int = 0) -> None:
        self._now_us = now_us
        self._monotonic = 0.0
        self._chance = random.Random(seed)
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now_us += round(seconds * 1_000_000)
            self._monotonic += max(0.0, seconds)

    def now_us(self) -> int:
        return self._now_us

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self.advance(seconds)
        time.sleep(0)  # Whoever sleeps lets others run.

    async def asleep(self, seconds: float) -> None:
        self.advance(seconds)
        await asyncio.sleep(0)

    def wait(self, event: Happening, seconds: float) -> bool:
        return event.wait(PATIENCE_S)

    async def await_future(self, future: asyncio.Future[None], seconds: float) -> bool:
        done, _ = await asyncio.wait((future,), timeout=PATIENCE_S)
        return bool(done)

    def random(self) -> float:
        with self._lock:
            return self._chance.random()

    def token(self, times: int = 1) -> bytes:
        with self._lock:
            return self._chance.randbytes(16 * times)
