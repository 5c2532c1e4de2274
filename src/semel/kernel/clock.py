"""Time and randomness. Nothing else in Semel reads a clock or draws numbers, so a test can replace both."""

from __future__ import annotations

import asyncio
import os
import random
import time
from datetime import UTC, datetime, timedelta
from os import urandom
from time import time_ns
from typing import Protocol, overload


class Happening(Protocol):
    """What a thread can wait for."""

    def is_set(self) -> bool: ...

    def wait(self, seconds: float, /) -> bool: ...


class Clock(Protocol):
    """Where time and random numbers come from."""

    runs: bool
    """Whether time passes by itself. Where it does not, nothing is done in the background."""

    def now_us(self) -> int:
        """Microseconds since 1970, by the wall clock."""

    def monotonic(self) -> float:
        """Seconds that never step back; only differences mean something."""

    def sleep(self, seconds: float) -> None: ...

    async def asleep(self, seconds: float) -> None: ...

    def wait(self, event: Happening, seconds: float) -> bool:
        """Whether the event came within so many seconds."""

    async def await_future(self, future: asyncio.Future[None], seconds: float) -> bool:
        """Whether the future was done within so many seconds; it is never cancelled by this."""

    def random(self) -> float:
        """Evenly from 0 up to 1: for jitter."""

    def token(self, times: int = 1) -> bytes:
        """16 bytes that nobody can guess; or so many times 16, in one draw."""


# Our own generator, not the module's: a program or its tests may have seeded that one.
_generator = random.Random()
os.register_at_fork(after_in_child=_generator.seed)


class SystemClock:
    """The machine's own clock and randomness."""

    runs = True
    now_us = staticmethod(lambda: time_ns() // 1000)
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    random = staticmethod(_generator.random)
    token = staticmethod(lambda times=1: urandom(16 * times))

    async def asleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def wait(self, event: Happening, seconds: float) -> bool:
        return event.wait(seconds)

    async def await_future(self, future: asyncio.Future[None], seconds: float) -> bool:
        done, _ = await asyncio.wait((future,), timeout=seconds)
        return bool(done)


SYSTEM: Clock = SystemClock()

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@overload
def rfc3339(us: int) -> str: ...
@overload
def rfc3339(us: int | None) -> str | None: ...
def rfc3339(us: int | None) -> str | None:
    """The instant as people and JSON read it: UTC with `Z`."""
    if us is None:
        return None
    return (_EPOCH + timedelta(microseconds=us)).isoformat(timespec="microseconds").replace("+00:00", "Z")
