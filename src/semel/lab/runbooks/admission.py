"""`semel runbook admission`: no rejection poisons a key, no key starts two runs, no limit is exceeded."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import replace
from typing import Any, NamedTuple

import httpx

from semel.kernel.clock import SYSTEM
from semel.lab.runbooks.runbook import Runbook
from semel.lab.runbooks.served import ServedGateway


async def admission(server: ServedGateway, book: Runbook) -> None:
    """Works in a tenant of its own where it may name one, else in the key's if nobody is at work there.

    The limit of the tenant is what it was before, and what was begun has ended.
    """
    mark = SYSTEM.token().hex()[:12]
    workflow = f"runbook-{mark}"
    if server.dev:
        server = replace(server, tenant=f"runbook-{mark}")
    async with server.client() as client:
        before = await _free_tenant(client, book)
        if before is None:
            return
        try:
            if await _define(client, book, workflow):
                await _one_slot(client, book, workflow, mark, before.name)
                await _crowd(client, book, workflow, mark, before.name)
        finally:
            await _end_all(client, workflow)
            await client.delete(f"/api/v1/workflows/{workflow}")
            await _limit(client, before.name, before.max_concurrent_runs)


class Tenant(NamedTuple):
    """Whose slots are counted, and how many it has."""

    name: str
    max_concurrent_runs: int


async def _free_tenant(client: httpx.AsyncClient, book: Runbook) -> Tenant | None:
    """The tenant as it is, if nobody is held up by a change of its limit; else it is told why not."""
    answer = await client.get("/api/v1/tenant")
    if not book.check("the tenant and its limit are told", answer.status_code == 200, _seen(answer)):
        return None
    tenant = Tenant(answer.json()["tenant"], answer.json()["max_concurrent_runs"])
    live = [run for status in ("running", "waiting") for run in await _runs(client, status=status)]
    seen = (
        f"{len(live)} live runs of at most {tenant.max_concurrent_runs} in tenant {tenant.name}. Its "
        "limit would be 1 for a while, and others would be refused: nothing was begun. Use the key of a "
        "tenant that is set aside: semel keys create --tenant runbook --role admin --principal NAME"
    )
    return tenant if book.check("nobody is at work in the tenant", not live, seen) else None


async def _one_slot(client: httpx.AsyncClient, book: Runbook, workflow: str, mark: str, tenant: str) -> None:
    """Limit 1; fill it; 429 with a key; free it; the same key starts a run; the record maps to it."""
    limited = await _limit(client, tenant, 1)
    if not book.check("the tenant's limit is 1 run", limited.status_code == 200, _seen(limited)):
        return
    first = await _start(client, workflow, f"first-{mark}")
    book.check("the only slot is filled", first.status_code == 200, _seen(first))
    key = f"second-{mark}"
    refused = await _start(client, workflow, key)
    problem = refused.json()
    full = refused.status_code == 429 and problem.get("code") == "max_concurrent_runs_reached"
    book.check("the next start is refused with 429", full, _seen(refused))
    book.check(
        "429 says when to come back", "Retry-After" in refused.headers, refused.headers.get("Retry-After")
    )
    whose = (problem.get("scope"), problem.get("current"), problem.get("limit"))
    book.check("429 says that the tenant is full", whose == ("tenant", 1, 1), whose)
    kept = await _records(client, key)
    book.check("the refused key left nothing behind", kept == [], kept)
    run_id = first.json().get("run_id")
    ended = await client.post(f"/api/v1/runs/{run_id}/complete", json={"status": "succeeded"})
    book.check("the run ends and frees its slot", ended.status_code == 200, _seen(ended))
    started = await _start(client, workflow, key)
    fresh = started.status_code == 200 and "Idempotent-Replayed" not in started.headers
    book.check("the same key starts a run now", fresh, _seen(started))
    again = await _start(client, workflow, key)
    same = again.content == started.content and again.headers.get("Idempotent-Replayed") == "true"
    book.check("once more it is answered to the byte, as a replay", same, _seen(again))
    maps = [record.get("run_id") for record in await _records(client, key)]
    book.check("the key's record maps to the new run", maps == [started.json().get("run_id")], maps)
    other = await _start(client, workflow, key, {"other": "payload"})
    book.check("the key with another payload is refused", other.status_code == 422, _seen(other))


async def _crowd(client: httpx.AsyncClient, book: Runbook, workflow: str, mark: str, tenant: str) -> None:
    """Limit 2 and ten at once: two and eight; twenty with one key: one run."""
    await _end_all(client, workflow)
    limited = await _limit(client, tenant, 2)
    if not book.check("the tenant's limit is 2 runs", limited.status_code == 200, _seen(limited)):
        return
    answers = await asyncio.gather(
        *(_start(client, workflow, f"crowd-{mark}-{number}") for number in range(10))
    )
    codes = Counter(answer.status_code for answer in answers)
    book.check("limit 2, ten starts at once: 2 × 200 and 8 × 429", codes == {200: 2, 429: 8}, dict(codes))
    await _end_all(client, workflow)
    repeats = await asyncio.gather(*(_start(client, workflow, f"same-{mark}") for _ in range(20)))
    runs = {answer.json().get("run_id") for answer in repeats if answer.status_code == 200}
    codes = Counter(answer.status_code for answer in repeats)
    # Under the lock strategy some are told that the first one is still on its way.
    good = len(runs) == 1 and set(codes) <= {200, 409}
    book.check("twenty callers with one key: one run", good, f"{len(runs)} run, answers {dict(codes)}")


async def _define(client: httpx.AsyncClient, book: Runbook, workflow: str) -> bool:
    answer = await client.put(f"/api/v1/workflows/{workflow}", json={"steps": []})
    return book.check("a workflow of our own", answer.status_code == 200, _seen(answer))


async def _limit(client: httpx.AsyncClient, tenant: str, runs: int) -> httpx.Response:
    return await client.put(f"/api/v1/tenants/{tenant}", json={"max_concurrent_runs": runs})


async def _start(
    client: httpx.AsyncClient, workflow: str, key: str, body: dict[str, Any] | None = None
) -> httpx.Response:
    headers = {"Idempotency-Key": key}
    return await client.post(f"/api/v1/workflows/{workflow}/runs", json=body or {}, headers=headers)


async def _records(client: httpx.AsyncClient, key: str) -> list[dict[str, Any]]:
    answer = await client.get("/api/v1/records", params={"scope": "run", "key": key})
    items: list[dict[str, Any]] = answer.json().get("items", [])
    return items


async def _end_all(client: httpx.AsyncClient, workflow: str) -> None:
    for run in await _runs(client, workflow_id=workflow, status="running"):
        await client.post(f"/api/v1/runs/{run['run_id']}/cancel")


async def _runs(client: httpx.AsyncClient, **filters: str) -> list[dict[str, Any]]:
    answer = await client.get("/api/v1/runs", params=filters)
    items: list[dict[str, Any]] = answer.json().get("items", [])
    return items


def _seen(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.text[:200]}"
