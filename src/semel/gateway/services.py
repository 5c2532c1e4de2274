"""What handlers call, put together from settings and a store."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from semel.flow.assembly import Flow, Policy
from semel.flow.bus import open_bus
from semel.flow.bus.base import Bus
from semel.flow.lock import LockPolicy
from semel.gateway.auth import ApiKeys
from semel.gateway.bounded_process import Apart
from semel.gateway.cursors import Cursors
from semel.gateway.metrics import Metrics
from semel.gateway.probes import prober_of
from semel.gateway.settings import GatewaySettings
from semel.kernel.clock import Clock
from semel.ledger.probing import Prober
from semel.stores.base import Store


@dataclass(frozen=True, slots=True)
class Services:
    """Everything that a handler may need."""

    settings: GatewaySettings
    store: Store
    flow: Flow
    bus: Bus
    metrics: Metrics
    cursors: Cursors
    api_keys: ApiKeys
    prober: Prober | None  # if the settings name modules with probes
    apart: Apart  # processes for what users can make costly
    stopping: asyncio.Event  # set once the gateway begins to stop: long waits end early

    @property
    def clock(self) -> Clock:
        return self.store.clock


def assemble(settings: GatewaySettings, store: Store, bus: Bus | None = None) -> Services:
    """The services on this store. Nothing is started."""
    bus, metrics, apart = bus or open_bus(settings.bus, store.clock), Metrics(store.clock), Apart()

    async def wait(tenant: str, topics: Sequence[str], seconds: float) -> None:
        await bus.wait(tenant, list(topics), seconds)

    flow = Flow(
        store,
        _policy(settings),
        send=bus.publish,
        wait=wait,
        cleanup_failed=metrics.cleanup_failed,
        lock_listener=metrics.lock() if settings.admission == "lock" else None,
        checks=apart,
        waited=metrics.admission_waited,
    )
    bus.run_ended = flow.slots.freed
    api_keys = ApiKeys(flow.document_store)
    return Services(
        settings=settings,
        store=store,
        flow=flow,
        bus=bus,
        metrics=metrics,
        cursors=Cursors(store.secret_key),
        api_keys=api_keys,
        prober=prober_of(settings.probes, store),
        apart=apart,
        stopping=asyncio.Event(),
    )


def _policy(settings: GatewaySettings) -> Policy:
    lock = LockPolicy(settings.lock_retry, settings.lock_wait_us, settings.lock_ttl_us)
    return Policy(settings.admission, lock, settings.run_key_window_us, settings.tenant_bytes)
