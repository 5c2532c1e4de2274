"""`semel runbook approvals`: a decision is taken once, and whoever repeats it is told what was decided."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx

from semel.clock import SYSTEM
from semel.lab.runbooks.book import Book
from semel.lab.runbooks.served import Server

_OTHER = {"approve": "reject", "reject": "approve"}


async def approvals(server: Server, book: Book) -> None:
    """Two runs of a workflow of its own, each with a step that waits: one is approved, one rejected."""
    workflow = f"runbook-{SYSTEM.token().hex()[:12]}"
    async with server.client("submitter") as submitter, server.client("approver", approver=True) as approver:
        step = {"id": "pay", "topic": workflow, "approval": {"reason": "runbook"}}
        defined = await submitter.put(f"/api/v1/workflows/{workflow}", json={"steps": [step]})
        book.check(
            "a workflow with a step that waits for a person", defined.status_code == 200, _seen(defined)
        )
        for verb in ("approve", "reject"):
            await _decide_one(submitter, approver, book, workflow, verb)
        await submitter.delete(f"/api/v1/workflows/{workflow}")


async def _decide_one(
    submitter: httpx.AsyncClient, approver: httpx.AsyncClient, book: Book, workflow: str, verb: str
) -> None:
    started = await submitter.post(f"/api/v1/workflows/{workflow}/runs", json={"amount_minor": 1_400_000})
    if not book.check(f"{verb}: a run waits", started.json().get("status") == "waiting", _seen(started)):
        return
    address = f"/api/v1/runs/{started.json()['run_id']}"
    try:
        job_id = (await submitter.get(address)).json()["steps"][0]["job_id"]
        await _decide(submitter, approver, book, verb, job_id)
    finally:
        await submitter.post(f"{address}/cancel")


async def _decide(
    submitter: httpx.AsyncClient, approver: httpx.AsyncClient, book: Book, verb: str, job_id: str
) -> None:
    address = f"/api/v1/approvals/{job_id}"
    own = await submitter.post(f"{address}/{verb}", json={})
    book.check(f"{verb}: not by who submitted it", own.status_code == 403, _seen(own))
    shown = (await approver.get(address)).json()
    decision = {"reason": "runbook", "revision": shown["revision"], "job_hash": shown["job_hash"]}
    first = await approver.post(f"{address}/{verb}", json=decision)
    past = f"{verb.removesuffix('e')}ed"
    book.check(f"{verb}: decided", first.json().get("status") == past, _seen(first))
    repeats = await asyncio.gather(*(approver.post(f"{address}/{verb}", json=decision) for _ in range(5)))
    told = [_told(answer, past) for answer in repeats]
    expected = (
        200,
        f"already_{past}",
        first.json().get(f"{past}_by"),
        first.json().get(f"{past}_at"),
        "true",
    )
    book.check(f"{verb}: 5 parallel retries are told already_{past}", told == [expected] * 5, set(told))
    other = await approver.post(f"{address}/{_OTHER[verb]}", json=decision)
    conflict = (other.status_code, other.json().get("code"))
    book.check(
        f"{verb}: the other decision conflicts", conflict == (409, "approval_already_resolved"), conflict
    )
    job = (await submitter.get(f"/api/v1/jobs/{job_id}")).json()
    book.check(
        f"{verb}: the message's id", job.get("bus_msg_id") == f"approval:{job_id}", job.get("bus_msg_id")
    )
    status = {"approve": "queued", "reject": "denied"}[verb]
    book.check(f"{verb}: the job goes on as {status}", job.get("status") == status, job.get("status"))


def _told(answer: httpx.Response, past: str) -> tuple[Any, ...]:
    body = answer.json()
    replayed = answer.headers.get("Idempotent-Replayed")
    return answer.status_code, body.get("status"), body.get(f"{past}_by"), body.get(f"{past}_at"), replayed


def _seen(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.text[:200]}"
