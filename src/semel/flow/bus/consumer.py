"""A consumer: each message handled once, by its inbox; what fails too often is put aside as a dead letter.

What a handler writes as documents is committed together with the inbox and lands exactly once. Any other
effect it has happens at least once, so it belongs into a tool contract.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

from semel.errors import StoreUnavailable
from semel.flow.bus.base import Bus, BusUnavailable, Delivery, Subscription
from semel.flow.dead_letters import letter
from semel.flow.document_store import DocumentStore
from semel.flow.inbox import KEPT_US, Busy, Claimed, Handled, Inbox
from semel.questions.job import Message
from semel.stores.documents import Draft

log = logging.getLogger("semel.flow.bus")

# After so many failed deliveries a message is a dead letter: chance has passed, a person has to look.
DELIVERIES_MAX = 5

# How long handling one message may take.
LIMIT_S = 30.0

# A claim outlasts its handler by this, and the broker waits as much longer: no two handle a message at once.
_MARGIN_S = 10.0

# Between two looks at a store that is away, or at a message that another consumer has.
_LOOK_AGAIN_S = 1.0

_BACKOFF_S, _BACKOFF_MAX_S = 1.0, 30.0

Handle = Callable[[Message], Awaitable[Iterable[Draft] | None]]
T = TypeVar("T")


class Consumer:
    """Several processes may run the consumer of one name: each message goes to one of them."""

    def __init__(
        self,
        bus: Bus,
        document_store: DocumentStore,
        name: str,
        handle: Handle,
        *,
        about: str = "",
        deliveries_max: int = DELIVERIES_MAX,
        limit_s: float = LIMIT_S,
        backoff_s: float = _BACKOFF_S,
        kept_us: int | None = KEPT_US,
    ) -> None:
        self.name = name
        self._bus = bus
        self._document_store = document_store
        self._clock = document_store.clock
        self._handle = handle
        self._about = about
        self._deliveries_max = deliveries_max
        self._limit_s = limit_s
        self._backoff_s = backoff_s
        self._kept_us = kept_us
        self._inbox = Inbox(document_store, name, kept_us)
        self._line: Subscription | None = None

    async def run(self) -> None:
        """Forever. A bus that is away costs delay, nothing else."""
        while True:
            try:
                await self.run_once(_LOOK_AGAIN_S)
            except BusUnavailable:
                await self._clock.asleep(_LOOK_AGAIN_S)

    async def run_once(self, seconds: float = 0.1) -> bool:
        """Whether a message came within so many seconds; it has been dealt with."""
        if self._line is None:
            patience_s = self._limit_s + 2 * _MARGIN_S
            self._line = await self._bus.subscribe(self.name, self._about, ack_wait_s=patience_s)
        delivery = await self._line.next(seconds)
        if delivery is not None:
            await self._take(delivery)
        return delivery is not None

    async def _take(self, delivery: Delivery) -> None:
        claimed = await self._claim(delivery)
        if isinstance(claimed, Handled):
            await delivery.ack()
        elif delivery.count > self._deliveries_max:
            # Its handler never came back to say that it failed: the process died of it each time.
            await self._bury(delivery, claimed, "The consumer did not survive it.")
        else:
            await self._attempt(delivery, claimed)

    async def _claim(self, delivery: Delivery) -> Claimed | Handled:
        """Waits while somebody else is at it. Waiting is no failed delivery, so it must not count as one."""
        lease_us = int((self._limit_s + _MARGIN_S) * 1_000_000)
        while True:
            claimed = await self._insist(delivery, lambda: self._inbox.claim(delivery.message, lease_us))
            if not isinstance(claimed, Busy):
                return claimed
            await self._pause(delivery)

    async def _attempt(self, delivery: Delivery, claimed: Claimed) -> None:
        try:
            drafts = tuple(await self._handled(delivery.message) or ())
        except Exception as wrong:
            await self._failed(delivery, claimed, wrong)
            return
        if await self._insist(delivery, lambda: self._inbox.settle(claimed, drafts)):
            await delivery.ack()
        else:
            await delivery.again(self._backoff_s)  # frozen past the claim: whoever took over decides

    async def _handled(self, message: Message) -> Iterable[Draft] | None:
        async with asyncio.timeout(self._limit_s):
            return await self._handle(message)

    async def _failed(self, delivery: Delivery, claimed: Claimed, wrong: Exception) -> None:
        # Its text may quote what belongs in no log; the dead letter has it.
        log.warning("consumer %s failed on a %s: %s", self.name, delivery.message.type, type(wrong).__name__)
        if delivery.count >= self._deliveries_max:
            await self._bury(delivery, claimed, f"{type(wrong).__name__}: {wrong}")
            return
        await self._insist(delivery, lambda: self._inbox.release(claimed))
        await delivery.again(min(self._backoff_s * 2 ** (delivery.count - 1), _BACKOFF_MAX_S))

    async def _bury(self, delivery: Delivery, claimed: Claimed, error: str) -> None:
        """Put aside, where people can read and retry it; the bus need not care for it any more."""
        now_us = await self._insist(delivery, self._document_store.now_us)
        dead = letter(self.name, delivery.message, delivery.count, error, now_us)
        drafts = (dead.draft(self._kept_us),)
        await self._insist(delivery, lambda: self._inbox.release(claimed, drafts))
        await delivery.ack()

    # --- a store that is away ---------------------------------------------------------------------

    async def _insist(self, delivery: Delivery, ask: Callable[[], Awaitable[T]]) -> T:
        """The store's answer, however long it is away: its absence says nothing about the message."""
        while True:
            try:
                return await ask()
            except StoreUnavailable:
                await self._pause(delivery)

    async def _pause(self, delivery: Delivery) -> None:
        await delivery.keep()
        await self._clock.asleep(_LOOK_AGAIN_S)
