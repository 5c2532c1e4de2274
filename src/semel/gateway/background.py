"""What goes on besides requests: messages leave, time passes, records are swept, what was counted is kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from semel.errors import SemelError
from semel.flow.forgetting import close_windows
from semel.gateway import operate, problems
from semel.gateway.services import Services
from semel.kernel.record import State
from semel.ledger.sweep import Sweeper
from semel.questions import job_index
from semel.stores.base import CountUnsettled
from semel.stores.documents import Count, Tenants

# A lapsed record reads as in doubt, swept or not; sweeping only has to keep up.
_SWEEP_EVERY_S = 5.0

# A gateway that is killed loses the ages of so long. Windows are chosen from months of them.
_AGES_EVERY_S = 10.0

# When the gateway stops they are merged once more, but a store that is away does not hold it up.
_AGES_LAST_S = 2.0

# Nor does it when the last events are sealed; that takes milliseconds.
_SEAL_LAST_S = 5.0

# As often as Prometheus usually looks.
_GAUGES_EVERY_S = 15.0
_GAUGES_TAKE_S = 10.0

# What is written a moment ago is on its way, or sent and about to be forgotten (semel.flow.outbox).
_SENT_WITHIN_US = 2_000_000

# Between two attempts at work that fails: soon, and not in a tight circle.
_AGAIN_S = 1.0


# What goes on where the store's messages and times are the business of others.
_ALONE = ("sweep", "probes")


def background(services: Services, *, alone: bool = False) -> list[tuple[str, Coroutine[Any, Any, None]]]:
    """What runs until it is cancelled. None of it is needed for safety, and any number of gateways may."""
    if not services.clock.runs:
        return []
    works: dict[str, Callable[[], Coroutine[Any, Any, None]]] = {
        "outbox": services.flow.outbox.run,
        "upkeep": services.flow.upkeep.run,
        "sweep": lambda: _sweep(services),
        "gauges": lambda: _gauges(services),
        "ages": lambda: _ages(services),
    }
    if services.prober is not None:
        works["probes"] = services.prober.run
    return [
        (name, _going(services, name, work)) for name, work in works.items() if not alone or name in _ALONE
    ]


async def _going(services: Services, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """The work is begun again whatever ends it: one damaged document does not stop what is due for others."""
    while True:
        try:
            await work()
        except Exception as error:
            problems.note("background work failed", services.clock, error, work=name)
        await services.clock.asleep(_AGAIN_S)


async def _sweep(services: Services) -> None:
    sweeper = Sweeper(services.store, (close_windows,))
    try:
        while True:
            try:
                await asyncio.to_thread(sweeper.run_once, services.stopping.is_set)
            except SemelError:
                pass  # the store is away: what is due stays due
            await services.clock.asleep(_SWEEP_EVERY_S)
    finally:
        # Perhaps no other process seals what was written last. Whatever goes wrong here, the stop goes on.
        with suppress(Exception):
            await _seal_rest(services, sweeper)


async def _seal_rest(services: Services, sweeper: Sweeper) -> None:
    clock = services.clock
    stop_at = clock.monotonic() + _SEAL_LAST_S
    async with asyncio.timeout(_SEAL_LAST_S):
        await asyncio.to_thread(sweeper.seal, lambda: clock.monotonic() >= stop_at)


async def _ages(services: Services) -> None:
    try:
        while True:
            await services.clock.asleep(_AGES_EVERY_S * (0.75 + 0.5 * services.clock.random()))
            await merge_ages(services)
    finally:
        # Whatever goes wrong here, the stop goes on.
        with suppress(Exception):
            async with asyncio.timeout(_AGES_LAST_S):
                await merge_ages(services)


async def merge_ages(services: Services) -> None:
    """Ages that were counted are in the store, if it takes them."""
    with suppress(SemelError):  # the store is away: they are kept for the next time
        await asyncio.to_thread(services.metrics.ages.merge, services.store)


async def _gauges(services: Services) -> None:
    while True:
        await read_gauges(services)
        await services.clock.asleep(_GAUGES_EVERY_S)


async def read_gauges(services: Services) -> None:
    """The gauges are as of now; those that could not be read in time stay as they were."""
    services.metrics.ready(not await operate.trouble(services))
    try:
        async with asyncio.timeout(_GAUGES_TAKE_S):
            counts = await services.store.aask(CountUnsettled(frozenset((State.IN_DOUBT,))))
            services.metrics.in_doubt({(each.tenant, each.tool): count for each, count in counts.items()})
            services.metrics.unpublished(await _unpublished(services))
    except (SemelError, TimeoutError):
        pass


async def _unpublished(services: Services) -> int:
    """Of tenants that have a message older than it takes to send and forget one."""
    store = services.store
    upto_us = await services.flow.document_store.now_us() - _SENT_WITHIN_US
    tenants = await store.aask(Tenants(job_index.OUTBOX, upto_us))
    return sum([await store.aask(Count(tenant, job_index.OUTBOX)) for tenant in tenants])
