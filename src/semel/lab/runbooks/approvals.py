"""`semel runbook approvals`: a decision is taken once, and whoever repeats it is told what was decided."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any, NamedTuple

import httpx
import orjson

from semel.kernel.clock import SYSTEM
from semel.lab.runbooks.runbook import Runbook
from semel.lab.runbooks.served import ServedGateway

_OTHER = {"approve": "reject", "reject": "approve"}
_PAST = {"approve": "approved", "reject": "rejected"}

# Where the job is right after the decision: workers may have it, or nobody ever will.
_NEXT = {"approve": "queued", "reject": "denied"}

_RETRIES = 5


class People(NamedTuple):
    """Who asks, and who decides."""

    submitter: httpx.AsyncClient
    approver: httpx.AsyncClient


async def approvals(server: ServedGateway, book: Runbook) -> None:
    """Two runs of a workflow of its own, each with a step that waits: one is approved, one rejected."""
    workflow = f"runbook-{SYSTEM.token().hex()[:12]}"
    address = f"/api/v1/workflows/{workflow}"
    async with server.client("submitter") as submitter, server.client("approver", approver=True) as approver:
        step = {"id": "pay", "topic": workflow, "approval": {"reason": "runbook"}}
        defined = await submitter.put(address, json={"steps": [step]})
        if not book.check("a workflow whose step waits for a person", defined.is_success, _seen(defined)):
            return
        try:
            for verb in _PAST:
                await _in_a_run(People(submitter, approver), book, address, verb)
        finally:
            await submitter.delete(address)


async def _in_a_run(people: People, book: Runbook, workflow: str, verb: str) -> None:
    """The decision in a run of its own, which has ended afterwards."""
    started = await people.submitter.post(f"{workflow}/runs", json={"amount_minor": 1_400_000})
    waiting = _object(started).get("status") == "waiting"
    if not book.check(f"{verb}: a run waits", waiting, _seen(started)):
        return
    run = f"/api/v1/runs/{_object(started).get('run_id')}"
    try:
        steps = _object(await people.submitter.get(run)).get("steps") or [{}]
        await _once(people, book, verb, f"{steps[0].get('job_id')}")
    finally:
        await people.submitter.post(f"{run}/cancel")


async def _once(people: People, book: Runbook, verb: str, job_id: str) -> None:
    """Not by who asked; then by somebody else, five times more at once, and the other way round."""
    address, past = f"/api/v1/approvals/{job_id}", _PAST[verb]
    own = await people.submitter.post(f"{address}/{verb}", json={})
    book.check(f"{verb}: not by who submitted it", own.status_code == 403, _seen(own))
    shown = await people.approver.get(address)
    if not book.check(f"{verb}: the question is shown", shown.is_success, _seen(shown)):
        return
    decision = {"reason": "runbook"} | {name: _object(shown).get(name) for name in ("revision", "job_hash")}
    first = await people.approver.post(f"{address}/{verb}", json=decision)
    book.check(f"{verb}: decided", _object(first).get("status") == past, _seen(first))
    repeated = await asyncio.gather(
        *(people.approver.post(f"{address}/{verb}", json=decision) for _ in range(_RETRIES))
    )
    wrong = [_seen(answer) for answer in repeated if not _repeats(answer, _object(first), past)]
    book.check(f"{verb}: {_RETRIES} parallel retries are told already_{past}", not wrong, wrong)
    other = await people.approver.post(f"{address}/{_OTHER[verb]}", json=decision)
    conflict = (other.status_code, _object(other).get("code")) == (409, "approval_already_resolved")
    book.check(f"{verb}: the other decision conflicts", conflict, _seen(other))
    await _afterwards(people, book, verb, job_id)


async def _afterwards(people: People, book: Runbook, verb: str, job_id: str) -> None:
    """What is kept of it: the next state of the job, and the id of the one message."""
    job = _object(await people.submitter.get(f"/api/v1/jobs/{job_id}"))
    message_id = job.get("bus_msg_id")
    book.check(
        f"{verb}: the message's id is approval:<job_id>", message_id == f"approval:{job_id}", message_id
    )
    book.check(f"{verb}: the job is {_NEXT[verb]}", job.get("status") == _NEXT[verb], job.get("status"))


def _repeats(answer: httpx.Response, first: Mapping[str, Any], past: str) -> bool:
    """Whether it tells of the first decision, with its person and time, and says that it is a replay."""
    replayed = answer.headers.get("Idempotent-Replayed") == "true"
    return answer.is_success and replayed and _object(answer) == {**first, "status": f"already_{past}"}


def _object(answer: httpx.Response) -> dict[str, Any]:
    """The JSON object in the answer; an empty one if somebody in between answered with something else."""
    try:
        value = orjson.loads(answer.content)
    except orjson.JSONDecodeError:
        return {}
    return value if isinstance(value, dict) else {}


def _seen(answer: httpx.Response) -> str:
    return f"{answer.status_code} {answer.text[:200]}"
