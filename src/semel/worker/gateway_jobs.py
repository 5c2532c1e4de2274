"""Jobs through a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Literal, cast

from semel.client import AsyncGateway, Problem
from semel.errors import SemelError
from semel.worker.job_source import LOST, Away, JobReport, Leased, Lost, leased_of

# Beyond what a gateway is asked to wait for: a busy one needs a while to answer.
_ANSWER = "15s"

# The worker and its attempts come back by themselves, at their own pace, and tell when they have to.
_TRIES = 1

# Refusals that somebody else has to mend: meanwhile the gateway is as good as away.
_TROUBLE = frozenset({"store_corrupt", "tenant_storage_full"})


class WorkerRefused(SemelError):
    """The gateway refused."""


async def tenant_at(server: str, api_key: str | None, named: str | None) -> str:
    """The tenant that a worker with this key works for: the key's own; under --dev the named one.

    WorkerRefused if another is named. Nothing is leased by asking.
    """
    async with _gateway(server, api_key, named) as gateway:
        try:
            return (await gateway.tenants.get()).tenant
        except Problem as problem:
            if problem.code == "tenant_mismatch":
                raise _other_tenant(str(named), problem.tenant) from None
            raise _refusal(problem, server) from problem


def _gateway(server: str, api_key: str | None, tenant: str | None) -> AsyncGateway:
    return AsyncGateway(server, api_key, tenant=tenant, within=_ANSWER, try_for=_ANSWER, tries=_TRIES)


def _other_tenant(named: str, own: str | None) -> WorkerRefused:
    whose = f"the tenant {own}" if own else "another tenant"
    refused = WorkerRefused(
        f"The API key is of {whose}, not of {named}. Nothing was leased.",
        corrective_action="Leave --tenant out: the key says which tenant it works for.",
    )
    refused.code = "tenant_mismatch"
    return refused


class GatewayJobs:
    """Who the worker is, and of which tenant, the API key says; every request names the tenant."""

    def __init__(self, server: str, api_key: str | None, worker_id: str, tenant: str) -> None:
        self.tenant = tenant
        self._server = server
        self._api_key = api_key
        self._worker_id = worker_id
        self._gateway = _gateway(server, api_key, tenant)

    async def open(self) -> None:
        """Somebody answers there, and serves this tenant."""
        await tenant_at(self._server, self._api_key, self.tenant)

    async def close(self) -> None:
        await self._gateway.aclose()

    async def lease(self, topics: Sequence[str], count: int, lease_s: float, wait_s: float) -> list[Leased]:
        async with self._refusals_raised():
            answer = await self._gateway.jobs.lease(
                topics, count, lease_s, worker_id=self._worker_id, wait_s=wait_s
            )
        return [leased_of(each) for each in answer.raw["jobs"]]

    def hurry(self) -> None:
        """It cannot: a request that is given up might have leased something."""

    async def heartbeat(self, leased: Leased, lease_s: float) -> None:
        async with self._refusals_raised():
            await self._gateway.jobs.heartbeat(leased.job.job_id, leased.fence, lease_s)

    async def report(self, leased: Leased, report: JobReport) -> None:
        try:
            await self._report(leased, report)
        except WorkerRefused as refused:
            if refused.code != "request_invalid" or "traceback" not in (report.error or {}):
                raise
            # A gateway of an earlier version takes none; the failure itself is as it was.
            plain = {name: value for name, value in (report.error or {}).items() if name != "traceback"}
            await self._report(leased, report._replace(error=plain))

    async def _report(self, leased: Leased, report: JobReport) -> None:
        status = cast("Literal['succeeded', 'failed']", report.status)
        async with self._refusals_raised():
            await self._gateway.jobs.result(
                leased.job.job_id, leased.fence, status, report.result, report.error
            )

    @asynccontextmanager
    async def _refusals_raised(self) -> AsyncIterator[None]:
        try:
            yield
        except Problem as problem:
            raise _refusal(problem, self._server) from problem


def _refusal(problem: Problem, server: str) -> SemelError:
    """What a refusal means to a worker: the job is lost, nobody is there, or the worker may not."""
    if problem.code in LOST:
        return Lost()
    if problem.retriable or problem.code in _TROUBLE:
        answered = f"{server} answers {problem.status} {problem.code}."
        return Away(problem.message if problem.status is None else answered)
    refused = WorkerRefused(problem.message)
    refused.code = problem.code
    return refused
