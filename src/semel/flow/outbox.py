"""Messages leave: written with what they announce, sent until the bus has taken them, then forgotten.

What this process wrote is sent from memory, once it is committed. What was sent is forgotten in the next
commit of its tenant, or a moment later in one of its own. A look round at the store finds what is left of
others: of processes that died, or that send nothing themselves. It lets a moment pass first, in which whoever
wrote a message sends it. Should both send it, it arrives twice under one id.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import suppress
from typing import Any

from semel.errors import SemelError
from semel.flow.document_store import DocumentStore
from semel.questions import job_index
from semel.questions.job import Message, message_of
from semel.stores.documents import Document, Draft, Scan, Tenants

log = logging.getLogger("semel")

# Sent and forgotten in one go.
_BATCH = 200

# Sent messages that one commit of a tenant takes along: more would hold up whoever waits for it.
_ALONG_MAX = 20

# For how long a sent message waits for a commit of its tenant that takes it along.
_LINGER_S = 0.2

# How old a message is before others than its writer look at it: to send it takes less, and to forget it.
_LEFT_US = 500_000

# Until what could not be forgotten is tried again.
_AGAIN_S = 1.0

# Written and not yet sent, in memory. Beyond, they are left to the look round.
_FRESH_MAX = 10_000

# To forget what was sent, when the process stops.
_LAST_S = 2.0

Send = Callable[[Message], Awaitable[None]]


class TakenAtOnce:
    """What `send` may answer: the bus has taken the message, and there is nothing to wait for."""

    def __await__(self) -> Generator[Any, Any, None]:
        return
        yield


TAKEN = TakenAtOnce()


class Outbox:
    """`send` returns once the bus has taken the message for good, and raises if it has not."""

    def __init__(self, document_store: DocumentStore, send: Send) -> None:
        self._document_store = document_store
        self._send = send
        self._fresh: list[tuple[str, Draft]] = []  # written by this process: tenant, message
        self._sent: dict[str, dict[str, float]] = {}  # by tenant: ids still in the store, and since when
        self._wake = asyncio.Event()

    # --- what commits tell, and take along ---------------------------------------------------------

    def written(self, tenant: str, messages: Sequence[Draft]) -> None:
        """These are in the store: they are sent sooner than at the next look round."""
        if len(self._fresh) < _FRESH_MAX:
            self._fresh += [(tenant, message) for message in messages]
            self._wake.set()

    def take_along(self, tenant: str) -> dict[str, float]:
        """What a commit of this tenant may forget besides; nobody else does meanwhile."""
        sent = self._sent.pop(tenant, {})
        if len(sent) > _ALONG_MAX:
            ids = list(sent)
            self._sent[tenant] = {id_: sent[id_] for id_ in ids[_ALONG_MAX:]}
            return {id_: sent[id_] for id_ in ids[:_ALONG_MAX]}
        return sent

    def not_forgotten(self, tenant: str, taken: dict[str, float]) -> None:
        """The commit that took these along was perhaps not carried out."""
        self._sent[tenant] = taken | self._sent.get(tenant, {})

    # --- looking round -------------------------------------------------------------------------------

    async def run_once(self, left_us: int = 0) -> int:
        """How many messages were sent, of all tenants: those that are at least so old."""
        upto_us = await self._document_store.now_us() - left_us if left_us else None
        tenants = await self._document_store.ask(Tenants(job_index.OUTBOX, upto_us))
        return sum([await self.send_of(tenant, upto_us) for tenant in tenants])

    async def send_of(self, tenant: str, upto_us: int | None = None) -> int:
        """All that the tenant has in its outbox is sent, in the order in which it was written."""
        sent = 0
        while True:
            query = Scan(tenant, job_index.OUTBOX, _BATCH, upto=upto_us)
            documents = list((await self._document_store.scan(query)).documents)
            if not documents:
                return sent
            sent_before = self._sent.get(tenant, {})
            gone = await self._send_all([each for each in documents if each.id not in sent_before])
            sent += len(gone)
            gone += [each.id for each in documents if each.id in sent_before]
            if gone:
                await self._document_store.commit(tenant, {}, drop=tuple(gone))
            self._no_longer(tenant, gone)
            if len(gone) < len(documents) or len(documents) < _BATCH:
                return sent

    def _no_longer(self, tenant: str, gone: Sequence[str]) -> None:
        """These were sent and forgotten: neither is to be done again."""
        if sent := self._sent.pop(tenant, None):
            self._sent[tenant] = {id_: since for id_, since in sent.items() if id_ not in gone}
        if self._fresh:
            self._fresh = [each for each in self._fresh if each[1].id not in gone]

    # --- sending -------------------------------------------------------------------------------------

    async def pass_on(self) -> None:
        """What was written here is sent, and what was sent a while ago is forgotten."""
        if self._fresh:
            await self._send_fresh()
        await self._forget(self._document_store.clock.monotonic() - _LINGER_S)

    async def _send_fresh(self) -> None:
        """What this process wrote is sent; what the bus does not take is left to the next look round."""
        fresh, self._fresh = self._fresh, []
        sending = [self._sending(tenant, message) for tenant, message in fresh]
        if waiting := [each for each in sending if each is not None]:
            await asyncio.gather(*waiting, return_exceptions=True)

    def _sending(self, tenant: str, message: Draft) -> Awaitable[None] | None:
        """What is left to wait for."""
        try:
            sending = self._send(message_of(message.body))
        except SemelError:
            return None
        if sending is TAKEN:
            self._was_sent(tenant, message)
            return None
        return self._send_written(tenant, message, sending)

    async def _send_written(self, tenant: str, message: Draft, sending: Awaitable[None]) -> None:
        await sending
        # At once, because the process may be asked to stop while it waits for the others.
        self._was_sent(tenant, message)

    def _was_sent(self, tenant: str, message: Draft) -> None:
        self._sent.setdefault(tenant, {})[message.id] = self._document_store.clock.monotonic()

    async def _send_all(self, messages: Sequence[Document | Draft]) -> list[str]:
        """The ids of those that the bus has taken."""
        results = await asyncio.gather(*map(self._send_one, messages), return_exceptions=True)
        return [each.id for each, result in zip(messages, results, strict=True) if result is None]

    async def _send_one(self, document: Document | Draft) -> None:
        try:
            message = message_of(document.body)
        except (ValueError, TypeError):
            log.error("semel: the document %s is damaged, and is left as it is", document.id)
            raise
        await self._send(message)

    async def _forget(self, before: float) -> None:
        """What was sent before this time, and no commit has taken along, is forgotten."""
        lingering = [
            tenant for tenant, sent in self._sent.items() if next(iter(sent.values()), before) <= before
        ]
        await asyncio.gather(*map(self._forget_of, lingering))

    async def _forget_of(self, tenant: str) -> None:
        while taken := self._sent.pop(tenant, None):
            ids = tuple(taken)
            try:
                await self._document_store.commit(tenant, {}, drop=ids[:_BATCH])
            except BaseException:
                # Not at once: the store is away, for all tenants.
                later = self._document_store.clock.monotonic() + _AGAIN_S
                self.not_forgotten(tenant, dict.fromkeys(taken, later))
                raise
            if len(ids) > _BATCH:
                self.not_forgotten(tenant, {id_: taken[id_] for id_ in ids[_BATCH:]})

    # --- for ever --------------------------------------------------------------------------------------

    async def run(self, every_s: float = 1.0) -> None:
        """Forever: at once what is written here, and everything at every look round."""
        clock = self._document_store.clock
        next_round = clock.monotonic()
        try:
            while True:
                try:
                    if clock.monotonic() >= next_round:
                        next_round = clock.monotonic() + every_s
                        await self.run_once(_LEFT_US)
                    await self.pass_on()
                except SemelError:
                    pass  # the store or the bus is away: the next round comes
                except Exception:
                    log.exception("messages could not be sent; the next round tries again")
                self._wake.clear()
                if not self._fresh:
                    await self._rest(max(0.01, self._next_look(next_round) - clock.monotonic()))
        finally:
            # Whatever goes wrong here, the stop goes on: then they are sent again.
            with suppress(Exception):
                async with asyncio.timeout(_LAST_S):
                    await self._forget(clock.monotonic())

    def _next_look(self, next_round: float) -> float:
        """When there is something to do if nothing is written."""
        since = [next(iter(sent.values())) for sent in self._sent.values() if sent]
        return min([next_round, *(each + _LINGER_S for each in since)])

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
