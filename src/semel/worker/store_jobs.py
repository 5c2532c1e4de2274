"""Jobs straight from a store. What time brings is done here too, so a worker needs no gateway beside it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from semel.errors import StoreUnavailable
from semel.flow.assembly import Flow, Policy
from semel.flow.bus.base import Bus
from semel.flow.bus.local import LocalBus
from semel.flow.document_store import LeftToOthers
from semel.flow.inbox import KEPT_US
from semel.flow.problems import Refused
from semel.flow.values import Caller
from semel.stores.base import Store
from semel.worker.job_source import LOST, Away, JobReport, Leased, Lost, leased_of

T = TypeVar("T")


class StoreJobs:
    """`kept_us` is for how long ended runs are kept: the same as at the gateways on this store."""

    def __init__(
        self, store: Store, bus: Bus, tenant: str, worker_id: str, kept_us: int | None = KEPT_US
    ) -> None:
        self._bus = bus
        self._flow = Flow(store, Policy(kept_us=kept_us), send=bus.publish, wait=bus.wait)
        self._caller = Caller(tenant, worker_id)
        self._worker_id = worker_id
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def tenant(self) -> str:
        return self._caller.tenant

    async def open(self) -> None:
        await self._bus.start()
        works = [self._flow.upkeep.run()]
        if isinstance(self._bus, LocalBus):
            # Messages are left to the gateway, whose bus others listen to; but what one job leads to is here.
            self._flow.document_store.messages = LeftToOthers(self._bus.subscriptions.wake_all)
        else:
            works.append(self._flow.outbox.run())
        self._tasks = [asyncio.ensure_future(work) for work in works]

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._bus.stop()

    async def lease(self, topics: Sequence[str], count: int, lease_s: float, wait_s: float) -> list[Leased]:
        jobs = self._flow.jobs
        answer = await _answer_to(lambda: jobs.lease(self._caller, topics, count, lease_s, self._worker_id))
        if not answer["jobs"]:
            # Waited for out here, where a stop can end it: it must not end in the middle of a lease.
            await self._bus.wait(self._caller.tenant, topics, wait_s)
        return [leased_of(each) for each in answer["jobs"]]

    def hurry(self) -> None:
        self._bus.subscriptions.wake_all(self._caller.tenant)

    async def heartbeat(self, leased: Leased, lease_s: float) -> None:
        job_id, fence = leased.job.job_id, leased.fence
        await _answer_to(lambda: self._flow.jobs.heartbeat(self._caller, job_id, fence, lease_s))

    async def report(self, leased: Leased, report: JobReport) -> None:
        job_id, fence = leased.job.job_id, leased.fence
        await _answer_to(
            lambda: self._flow.jobs.result(
                self._caller, job_id, fence, report.status, report.result, report.error
            )
        )


async def _answer_to(request: Callable[[], Awaitable[T]]) -> T:
    try:
        return await request()
    except StoreUnavailable as away:
        raise Away(away.message) from away
    except Refused as problem:
        if problem.code in LOST:
            raise Lost() from problem
        raise
