"""`semel runbook admission`: no rejection poisons a key, no key starts two runs, no limit is exceeded."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

from semel.client import Answer, AsyncGateway, Problem, RecordAnswer, RunAnswer, RunStartedAnswer
from semel.kernel.clock import SYSTEM
from semel.lab.runbooks.runbook import Runbook
from semel.lab.runbooks.served import ServedGateway, outcome, seen


async def admission(server: ServedGateway, book: Runbook) -> None:
    """Works in a tenant of its own where it may name one, else in the key's if nobody is at work there.

    The limit of the tenant is what it was before, and what was begun has ended.
    """
    mark = SYSTEM.token().hex()[:12]
    workflow = f"runbook-{mark}"
    if server.dev:
        server = replace(server, tenant=f"runbook-{mark}")
    async with server.gateway() as gateway:
        before = await _free_tenant(gateway, book)
        if before is None:
            return
        try:
            if await _define(gateway, book, workflow):
                await _one_slot(gateway, book, workflow, mark, before.name)
                await _crowd(gateway, book, workflow, mark, before.name)
        finally:
            await _end_all(gateway, workflow)
            await outcome(gateway.workflows.delete(workflow))
            await outcome(gateway.tenants.put(before.name, before.max_concurrent_runs))


class TenantLimit(NamedTuple):
    """Whose slots are counted, and how many it has."""

    name: str
    max_concurrent_runs: int


async def _free_tenant(gateway: AsyncGateway, book: Runbook) -> TenantLimit | None:
    """The tenant as it is, if nobody is held up by a change of its limit; else it is told why not."""
    answer = await outcome(gateway.tenants.get())
    book.check("the tenant and its limit are told", isinstance(answer, Answer), seen(answer))
    if isinstance(answer, Problem):
        return None
    tenant = TenantLimit(answer.tenant, answer.max_concurrent_runs)
    live = [run async for run in gateway.runs.list(status="running", limit=_SOME)]
    live += [run async for run in gateway.runs.list(status="waiting", limit=_SOME)]
    reason = (
        f"{len(live)} live runs of at most {tenant.max_concurrent_runs} in tenant {tenant.name}. Its "
        "limit would be 1 for a while, and others would be refused: nothing was begun. Use the key of a "
        "tenant that is set aside: semel keys create --tenant runbook --role admin --principal NAME"
    )
    return tenant if book.check("nobody is at work in the tenant", not live, reason) else None


# Enough to see that somebody is at work.
_SOME = 50


async def _one_slot(gateway: AsyncGateway, book: Runbook, workflow: str, mark: str, tenant: str) -> None:
    """Limit 1; fill it; 429 with a key; free it; the same key starts a run; the record maps to it."""
    limited = await outcome(gateway.tenants.put(tenant, 1))
    if not book.check("the tenant's limit is 1 run", isinstance(limited, Answer), seen(limited)):
        return
    first = await _start(gateway, workflow, f"first-{mark}")
    book.check("the only slot is filled", isinstance(first, Answer), seen(first))
    key = f"second-{mark}"
    await _is_refused(gateway, book, workflow, key)
    kept = [record.raw for record in await _records(gateway, key)]
    book.check("the refused key left nothing behind", kept == [], kept)
    run_id = first.run_id if isinstance(first, RunStartedAnswer) else ""
    ended = await outcome(gateway.runs.complete(run_id, "succeeded"))
    book.check("the run ends and frees its slot", isinstance(ended, Answer), seen(ended))
    started = await _start(gateway, workflow, key)
    fresh = isinstance(started, Answer) and not started.replayed
    book.check("the same key starts a run now", fresh, seen(started))
    again = await _start(gateway, workflow, key)
    same = isinstance(again, Answer) and again.replayed and seen(again) == seen(started)
    book.check("once more it is answered the same, as a replay", same, seen(again))
    maps = [record.run_id for record in await _records(gateway, key)]
    book.check("the key's record maps to the new run", maps == [getattr(started, "run_id", None)], maps)
    other = await _start(gateway, workflow, key, {"other": "payload"})
    reused = _code(other) == "idempotency_key_reused"
    book.check("the key with another payload is refused", reused, seen(other))


async def _is_refused(gateway: AsyncGateway, book: Runbook, workflow: str, key: str) -> None:
    refused = await _start(gateway, workflow, key)
    full = _code(refused) == "max_concurrent_runs_reached" and _status(refused) == 429
    book.check("the next start is refused with 429", full, seen(refused))
    problem = refused if isinstance(refused, Problem) else Problem()
    book.check("429 says when to come back", problem.retry_after_s is not None, problem.retry_after_s)
    whose = tuple(problem.details.get(name) for name in ("scope", "current", "limit"))
    book.check("429 says that the tenant is full", whose == ("tenant", 1, 1), whose)


async def _crowd(gateway: AsyncGateway, book: Runbook, workflow: str, mark: str, tenant: str) -> None:
    """Limit 2 and ten at once: two and eight; twenty with one key: one run."""
    await _end_all(gateway, workflow)
    limited = await outcome(gateway.tenants.put(tenant, 2))
    if not book.check("the tenant's limit is 2 runs", isinstance(limited, Answer), seen(limited)):
        return
    answers = await asyncio.gather(
        *(_start(gateway, workflow, f"crowd-{mark}-{number}") for number in range(10))
    )
    codes = Counter(_status(answer) for answer in answers)
    book.check("limit 2, ten starts at once: 2 × 200 and 8 × 429", codes == {200: 2, 429: 8}, dict(codes))
    await _end_all(gateway, workflow)
    repeats = await asyncio.gather(*(_start(gateway, workflow, f"same-{mark}") for _ in range(20)))
    runs = {answer.run_id for answer in repeats if isinstance(answer, RunStartedAnswer)}
    codes = Counter(_status(answer) for answer in repeats)
    # Under the lock strategy some are told that the first one is still on its way.
    good = len(runs) == 1 and set(codes) <= {200, 409}
    book.check("twenty callers with one key: one run", good, f"{len(runs)} run, answers {dict(codes)}")


async def _define(gateway: AsyncGateway, book: Runbook, workflow: str) -> bool:
    answer = await outcome(gateway.workflows.put(workflow))
    return book.check("a workflow of our own", isinstance(answer, Answer), seen(answer))


async def _start(
    gateway: AsyncGateway, workflow: str, key: str, body: dict[str, Any] | None = None
) -> RunStartedAnswer | Problem:
    return await outcome(gateway.runs.start(workflow, body or {}, key))


async def _records(gateway: AsyncGateway, key: str) -> list[RecordAnswer]:
    return [record async for record in gateway.records.list(scope="run", key=key)]


async def _end_all(gateway: AsyncGateway, workflow: str) -> None:
    live: list[RunAnswer] = [run async for run in gateway.runs.list(workflow_id=workflow, status="running")]
    for run in live:
        await outcome(gateway.runs.cancel(run.run_id))


def _status(outcome: Answer | Problem) -> int | None:
    return outcome.status if isinstance(outcome, Problem) else 200


def _code(outcome: Answer | Problem) -> str:
    return outcome.code if isinstance(outcome, Problem) else ""
