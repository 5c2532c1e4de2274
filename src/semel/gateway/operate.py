"""Handlers for those who run the gateway: is it alive, is it ready, what did it count."""

from __future__ import annotations

import asyncio

from semel.errors import SemelError
from semel.gateway import metrics
from semel.gateway.exchange import HttpReply, data
from semel.gateway.services import Services
from semel.kernel.answers import HealthJson
from semel.stores.documents import Fetch

# A balancer asks every few seconds; a store that needs longer than this for one read serves nobody.
_READY_S = 1.0


async def healthz(_: Services) -> HttpReply[HealthJson]:
    """The process answers. Whether it can do its work is another question."""
    return data({"status": "alive"})


async def readyz(services: Services) -> HttpReply[HealthJson]:
    reasons = await trouble(services)
    services.metrics.ready(not reasons)
    health: HealthJson = {"status": "unready" if reasons else "ready", "reasons": reasons}
    return data(health)._replace(status=503 if reasons else 200)


async def trouble(services: Services) -> list[str]:
    """Why no work should be sent here, in words; nothing if it should."""
    reasons = []
    if services.stopping.is_set():
        reasons.append("gateway: stopping")
    if not await _store_answers(services):
        reasons.append("store: does not answer")
    if not services.bus.healthy:
        reasons.append("bus: takes no messages, they wait in the outbox")
    return reasons


async def _store_answers(services: Services) -> bool:
    try:
        async with asyncio.timeout(_READY_S):
            await services.store.aask(Fetch("default", ("tenant",)))
    except (SemelError, TimeoutError):
        return False
    return True


async def metrics_text(services: Services) -> HttpReply[str]:
    return HttpReply(services.metrics.text(), media=metrics.MEDIA)
