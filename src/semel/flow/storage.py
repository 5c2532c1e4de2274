"""How many bytes a tenant keeps, and whether it may keep more.

The store is asked now and then; what this process has written since is added. So no write touches a counter
that all writes of a tenant would share, and the bound has some slack: what other gateways wrote meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from semel.errors import SemelError
from semel.flow.problems import Refused
from semel.stores.documents import Draft, Weigh

if TYPE_CHECKING:
    from semel.flow.document_store import DocumentStore

# How old a look may be: the next one notices what was swept, and what others wrote.
_LOOK_AGAIN_S = 300.0

# The pause after a look is this many times as long as the look, which reads something of each document.
_REST = 20

# Tenants remembered. One that is forgotten is looked at again when it writes.
_TENANTS_MAX = 10_000


@dataclass(slots=True)
class Weight:
    """What a tenant keeps, as of the last look."""

    bytes: int
    looked_at: float
    rest_until: float


class Storage:
    """The bound of every tenant; None: there is none."""

    def __init__(self, document_store: DocumentStore, bytes_max: int | None) -> None:
        self._document_store = document_store
        self._bytes_max = bytes_max
        self._weights: OrderedDict[str, Weight] = OrderedDict()
        self._looking: dict[str, asyncio.Task[Weight]] = {}

    async def objection(self, tenant: str, put: Iterable[Draft] = ()) -> Refused | None:
        """Why nothing new may be kept for the tenant; None if it may."""
        if self._bytes_max is None:
            return None
        more, weight = sum(len(draft.body) for draft in put), self._weights.get(tenant)
        if weight is None:
            weight = await self._look(tenant)
        now = self._document_store.clock.monotonic()
        if weight.bytes + more > self._bytes_max:
            if now >= weight.rest_until:
                weight = await self._look(tenant)
        elif now >= weight.looked_at + _LOOK_AGAIN_S:
            self._start_look(tenant)
        if weight.bytes + more <= self._bytes_max:
            return None
        return Refused(
            "tenant_storage_full",
            f"The tenant keeps {weight.bytes} bytes of at most {self._bytes_max}; no room for {more} more. "
            "Nothing was kept. What has ended is removed when its window closes; --tenant-bytes of the "
            "gateway is the bound.",
            current=weight.bytes,
            limit=self._bytes_max,
        )

    def wrote(self, tenant: str, put: Iterable[Draft]) -> None:
        """So much more is kept, at most: what was replaced is noticed with the next look."""
        if (weight := self._weights.get(tenant)) is not None:
            weight.bytes += sum(len(draft.body) for draft in put)

    async def _look(self, tenant: str) -> Weight:
        return await asyncio.shield(self._start_look(tenant))

    def _start_look(self, tenant: str) -> asyncio.Task[Weight]:
        """One look at a tenant at a time, however many wait for it."""
        task = self._looking.get(tenant)
        if task is None:
            task = self._looking[tenant] = asyncio.ensure_future(self._looked(tenant))
            task.add_done_callback(lambda done: self._ended(tenant, done))
        return task

    async def _looked(self, tenant: str) -> Weight:
        clock = self._document_store.clock
        began = clock.monotonic()
        size = await self._document_store.ask(Weigh(tenant))
        now = clock.monotonic()
        weight = self._weights[tenant] = Weight(size, now, now + _REST * (now - began))
        if len(self._weights) > _TENANTS_MAX:
            self._weights.popitem(last=False)
        return weight

    def _ended(self, tenant: str, task: asyncio.Task[Weight]) -> None:
        del self._looking[tenant]
        # One that nobody waited for: the store is away, and the next commit says so.
        if not task.cancelled() and isinstance(task.exception(), SemelError):
            self._weights.pop(tenant, None)
