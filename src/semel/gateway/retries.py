"""How old keys are when they come again: what a window has to cover is read off these ages."""

from __future__ import annotations

import asyncio
from datetime import datetime

from semel.clock import rfc3339
from semel.errors import SemelError
from semel.gateway.services import Services


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
        flow = self._services.flow
        try:
            record = await flow.keys.find(tenant, scope, key)
            now = rfc3339(await flow.cabinet.now_us())
        except SemelError:
            return  # an age less is no loss
        if record is not None and now is not None:
            age = datetime.fromisoformat(now) - datetime.fromisoformat(record["created_at"])
            self._services.metrics.retried(scope, max(0.0, age.total_seconds()))
