"""How old keys are when they come again: what a window has to cover is read off these ages."""

from __future__ import annotations

import asyncio

from semel.errors import SemelError
from semel.gateway.services import Services
from semel.ledger.request_keys import key_record
from semel.windows.age_counters import KEY, Subject
from semel.windows.ages import Ages


class RetryAges:
    """Looks ages up beside the answer, one at a time: a storm of replays costs the store no second storm."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._looking: asyncio.Task[None] | None = None

    def look_up(self, tenant: str, scope: str, key: str) -> None:
        """The age of this key is observed soon, unless another one is being looked up."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.ensure_future(self._observe(tenant, scope, key))

    async def _observe(self, tenant: str, scope: str, key: str) -> None:
        flow, metrics = self._services.flow, self._services.metrics
        id_ = flow.keys.id(tenant, scope, key)
        try:
            document = (await flow.document_store.fetch(tenant, id_)).get(id_)
            now_us = await flow.document_store.now_us()
        except SemelError:
            return  # an age less is no loss
        if document is None:
            return
        record = key_record(document)
        metrics.retried(scope, max(0, now_us - record.created_us) / 1e6)
        ages = Ages()
        ages.met([now_us], record.created_us, record.expires_us)
        metrics.ages.add(Subject(tenant, KEY, scope), ages)
