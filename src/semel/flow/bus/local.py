"""The bus within one process, without a server.

A message counts as taken when every consumer of this process has acknowledged it. Until then it stays in the
outbox, so a process that dies delivers it again after its restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence

from semel.flow.bus.base import Bus, BusUnavailable, is_about
from semel.flow.outbox import TAKEN
from semel.kernel.clock import Clock
from semel.questions.job import Message


class LocalBus(Bus):
    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self._started = False
        self._by_consumer: dict[str, LocalSubscription] = {}

    @property
    def healthy(self) -> bool:
        return self._started

    async def start(self) -> None:
        self._started = True
        for subscription in self._by_consumer.values():
            subscription.closed = False

    async def stop(self) -> None:
        self._started = False
        for subscription in self._by_consumer.values():
            subscription.close()

    def publish(self, message: Message) -> Awaitable[None]:
        if not self._started:
            raise BusUnavailable("The bus is not running.")
        self._wake(message)
        matching = [
            subscription
            for subscription in self._by_consumer.values()
            if is_about(message.type, subscription.about)
        ]
        return self._delivered(message, matching) if matching else TAKEN

    async def _delivered(self, message: Message, matching: Sequence[LocalSubscription]) -> None:
        await asyncio.gather(*(subscription.deliver(message) for subscription in matching))

    async def subscribe(self, name: str, about: str = "", *, ack_wait_s: float = 60.0) -> LocalSubscription:
        del ack_wait_s  # who does not answer here has died together with the bus
        return self._by_consumer.setdefault(name, LocalSubscription(about, self.clock))


class LocalSubscription:
    """The messages on their way to one consumer."""

    def __init__(self, about: str, clock: Clock) -> None:
        self.about = about
        self.closed = False
        self._clock = clock
        self._queue: asyncio.Queue[LocalDelivery] = asyncio.Queue()
        self._open: set[asyncio.Future[None]] = set()

    async def deliver(self, message: Message) -> None:
        """The consumer has acknowledged the message."""
        if self.closed:
            raise BusUnavailable("The bus was stopped.")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open.add(done)
        self._queue.put_nowait(LocalDelivery(message, 1, done, self))
        try:
            await done
        finally:
            self._open.discard(done)

    def put_back(self, delivery: LocalDelivery) -> None:
        self._queue.put_nowait(delivery)

    async def next(self, seconds: float) -> LocalDelivery | None:
        waiting = asyncio.ensure_future(self._queue.get())
        try:
            done, _ = await asyncio.wait((waiting,), timeout=seconds)
        finally:
            if not waiting.done():
                waiting.cancel()
        return waiting.result() if done else None

    def close(self) -> None:
        """Whoever sends gets BusUnavailable: it did not arrive."""
        self.closed = True
        for done in self._open:
            if not done.done():
                done.set_exception(BusUnavailable("The bus was stopped."))


class LocalDelivery:
    def __init__(
        self, message: Message, count: int, done: asyncio.Future[None], subscription: LocalSubscription
    ) -> None:
        self.message = message
        self.count = count
        self._done = done
        self._subscription = subscription

    async def ack(self) -> None:
        if not self._done.done():
            self._done.set_result(None)

    async def again(self, seconds: float) -> None:
        later = LocalDelivery(self.message, self.count + 1, self._done, self._subscription)
        asyncio.get_running_loop().call_later(seconds, self._subscription.put_back, later)

    async def keep(self) -> None:
        pass
