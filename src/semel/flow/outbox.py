"""Messages leave: written with what they announce, sent until the bus has taken them, then forgotten."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from semel.errors import SemelError
from semel.flow.document_store import DocumentStore
from semel.questions import job_index
from semel.questions.job import Message, message_of
from semel.stores.documents import Document, Scan, Tenants

log = logging.getLogger("semel")

# Sent and forgotten in one go.
_BATCH = 200

Send = Callable[[Message], Awaitable[None]]


class Outbox:
    """`send` returns once the bus has taken the message for good, and raises if it has not."""

    def __init__(self, document_store: DocumentStore, send: Send) -> None:
        self._document_store = document_store
        self._send = send
        self._nudged: dict[str, None] = {}
        self._wake = asyncio.Event()

    def nudge(self, tenant: str) -> None:
        """There is something to send for this tenant: sooner than at the next look round."""
        self._nudged[tenant] = None
        self._wake.set()

    async def run_once(self) -> int:
        """How many messages were sent, of all tenants."""
        tenants = await self._document_store.ask(Tenants(job_index.OUTBOX))
        return sum([await self.send_of(tenant) for tenant in tenants])

    async def send_of(self, tenant: str) -> int:
        """All that the tenant has in its outbox is sent, in the order in which it was written."""
        sent = 0
        while True:
            scanned = await self._document_store.scan(Scan(tenant, job_index.OUTBOX, _BATCH))
            documents = list(scanned.documents)
            if not documents:
                return sent
            results = await asyncio.gather(
                *(self._send_one(each) for each in documents), return_exceptions=True
            )
            gone = tuple(each.id for each, result in zip(documents, results, strict=True) if result is None)
            if gone:
                await self._document_store.commit(tenant, {}, drop=gone)
            sent += len(gone)
            if len(gone) < len(documents) or len(documents) < _BATCH:
                return sent

    async def _send_one(self, document: Document) -> None:
        try:
            message = message_of(document.body)
        except (ValueError, TypeError):
            log.error("semel: the document %s is damaged, and is left as it is", document.id)
            raise
        await self._send(message)

    async def run(self, every_s: float = 1.0) -> None:
        """Forever: at once what is nudged, and everything at every look round."""
        clock = self._document_store.clock
        next_round = clock.monotonic()
        while True:
            try:
                if clock.monotonic() >= next_round:
                    next_round = clock.monotonic() + every_s
                    await self.run_once()
                while self._nudged:
                    await self.send_of(self._nudged.popitem()[0])
            except SemelError:
                pass  # the store or the bus is away: the next round comes
            except Exception:
                log.exception("messages could not be sent; the next round tries again")
            self._wake.clear()
            if not self._nudged:
                await self._rest(max(0.01, next_round - clock.monotonic()))

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
