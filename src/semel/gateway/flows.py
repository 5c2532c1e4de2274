"""Handlers of workflows, runs, jobs and approvals: each hands on what the request says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from semel.flow.dead_letters import LetterFilter
from semel.flow.job_admin import JobFilter
from semel.flow.problems import Refused
from semel.flow.slot_queue import SlotPatience
from semel.gateway import preferences
from semel.gateway.bodies import DecisionBody, HeartbeatBody, JobsQuery, LeaseBody, LettersQuery, ResultBody
from semel.gateway.exchange import Exchange, HttpReply, Listed, answer, data
from semel.gateway.incoming import Disconnected
from semel.kernel import answers

# A worker that waits is looked after this often: has it gone away, does the gateway stop?
_SLICE_S = 1.0

# Who reads where an exception in a handler came from: paths and names of somebody's code.
_TRACED = frozenset({"admin", "auditor"})

# --- tenants and workflows ------------------------------------------------------------------------


async def put_tenant(call: Exchange) -> HttpReply[answers.TenantJson]:
    tenant = call.path["tenant"]
    # Under --dev every tenant is one's own.
    if tenant != call.tenant and not call.services.settings.dev:
        raise Refused("tenant_mismatch", "A credential sets the limits of its own tenant only.")
    return data(await call.services.flow.workflows.put_tenant(tenant, call.body.max_concurrent_runs))


async def get_tenant(call: Exchange) -> HttpReply[answers.TenantJson]:
    """The caller's own: whose credential it is, or whose name it gave under --dev."""
    return data(await call.services.flow.workflows.get_tenant(call.tenant))


async def put_workflow(call: Exchange) -> HttpReply[answers.WorkflowJson]:
    return data(await call.services.flow.workflows.put(call.tenant, call.path["workflow_id"], call.data))


async def get_workflow(call: Exchange) -> HttpReply[answers.WorkflowJson]:
    return data(await call.services.flow.workflows.get(call.tenant, call.path["workflow_id"]))


async def list_workflows(call: Exchange) -> Listed[answers.WorkflowJson]:
    return call.page(await call.services.flow.workflows.list(call.tenant, call.after(), call.query.limit))


async def delete_workflow(call: Exchange) -> HttpReply[answers.DeletedJson]:
    await call.services.flow.workflows.delete(call.tenant, call.path["workflow_id"])
    return data({"workflow_id": call.path["workflow_id"], "deleted": True})


# --- runs -----------------------------------------------------------------------------------------


async def start_run(call: Exchange) -> HttpReply[answers.RunStartedJson]:
    runs = call.services.flow.runs
    workflow_id = call.path["workflow_id"]
    if (wait_s := _wait_s(call)) == 0:
        return answer(await runs.start(call.caller, workflow_id, call.key, call.data))
    async with _patience(call, wait_s) as patience:
        return answer(await runs.start(call.caller, workflow_id, call.key, call.data, patience))


def _wait_s(call: Exchange) -> int:
    """For how long the client would wait for a slot (`Prefer: wait=S`)."""
    values = call.request.header_values(b"prefer")
    return preferences.wait_s(values) if values and call.may_wait else 0


@asynccontextmanager
async def _patience(call: Exchange, wait_s: int) -> AsyncIterator[SlotPatience]:
    """It ends with the time, with the client, and with the gateway."""
    ended = asyncio.ensure_future(_why_nobody_waits(call))
    patience = SlotPatience(wait_s, ended)
    try:
        yield patience
    finally:
        ended.cancel()
        if patience.honoured:
            call.applied = f"wait={wait_s}"


async def _why_nobody_waits(call: Exchange) -> Exception:
    """Once the client has gone away, or the gateway stops."""
    gone = asyncio.ensure_future(call.request.gone())
    stopping = asyncio.ensure_future(call.services.stopping.wait())
    try:
        await asyncio.wait((gone, stopping), return_when=asyncio.FIRST_COMPLETED)
        return Disconnected() if gone.done() else Refused("gateway_stopping")
    finally:
        gone.cancel()
        stopping.cancel()


async def get_run(call: Exchange) -> HttpReply[answers.RunJson]:
    return data(await call.services.flow.runs.get(call.tenant, call.path["run_id"]))


async def list_runs(call: Exchange) -> Listed[answers.RunJson]:
    query = call.query
    return call.page(
        await call.services.flow.runs.list(
            call.tenant, query.workflow_id, query.status, call.after(), query.limit
        )
    )


async def run_timeline(call: Exchange) -> Listed[answers.TimelineEventJson]:
    return call.page(
        await call.services.flow.runs.timeline(
            call.tenant, call.path["run_id"], call.after(), call.query.limit
        )
    )


async def complete_run(call: Exchange) -> HttpReply[answers.RunJson]:
    body = call.body
    return answer(
        await call.services.flow.runs.complete(call.caller, call.path["run_id"], body.status, body.result)
    )


async def cancel_run(call: Exchange) -> HttpReply[answers.RunJson]:
    return answer(await call.services.flow.runs.cancel(call.caller, call.path["run_id"]))


async def rerun_run(call: Exchange) -> HttpReply[answers.RunStartedJson]:
    runs, run_id, from_step = call.services.flow.runs, call.path["run_id"], call.body.from_step
    if (wait_s := _wait_s(call)) == 0:
        return answer(await runs.rerun(call.caller, run_id, from_step, call.key))
    async with _patience(call, wait_s) as patience:
        return answer(await runs.rerun(call.caller, run_id, from_step, call.key, patience))


# --- jobs -----------------------------------------------------------------------------------------


async def create_job(call: Exchange) -> HttpReply[answers.JobJson]:
    # As it was sent, not as it is understood: the key stands for the body as a JSON value.
    sent: dict[str, Any] = call.data
    return answer(
        await call.services.flow.jobs.create(
            call.caller, call.key, sent["topic"], sent["input"], sent.get("approval"), sent.get("labels")
        )
    )


async def list_jobs(call: Exchange) -> Listed[answers.JobJson]:
    query: JobsQuery = call.query
    filters = JobFilter(query.status, query.topic, query.run_id)
    return call.page(await call.services.flow.job_admin.list(call.tenant, filters, call.after(), query.limit))


async def cancel_job(call: Exchange) -> HttpReply[answers.JobJson]:
    return answer(await call.services.flow.job_admin.cancel(call.caller, call.path["job_id"]))


async def get_job(call: Exchange) -> HttpReply[answers.JobJson]:
    traced = bool(_TRACED & call.caller.roles)
    return data(await call.services.flow.jobs.get(call.tenant, call.path["job_id"], traced=traced))


async def lease_jobs(call: Exchange) -> HttpReply[answers.LeasesJson]:
    """Jobs, at once or within `wait_s`. Nobody waits on for a worker that has gone away."""
    body: LeaseBody = call.body
    clock = call.services.clock
    give_up = clock.monotonic() + body.wait_s
    gone = asyncio.ensure_future(call.request.gone())
    try:
        while True:
            left_s = give_up - clock.monotonic()
            last = left_s <= _SLICE_S or call.services.stopping.is_set()
            leased = await _lease(call, body, max(0.0, min(left_s, _SLICE_S)))
            if leased["jobs"] or last or gone.done():
                return data(leased)
    finally:
        gone.cancel()


async def _lease(call: Exchange, body: LeaseBody, wait_s: float) -> answers.LeasesJson:
    return await call.services.flow.jobs.lease(
        call.caller, body.topics, body.max, body.lease_s, body.worker_id, wait_s
    )


async def heartbeat_job(call: Exchange) -> HttpReply[answers.HeartbeatJson]:
    body: HeartbeatBody = call.body
    return data(
        await call.services.flow.jobs.heartbeat(call.caller, call.path["job_id"], body.fence, body.lease_s)
    )


async def result_job(call: Exchange) -> HttpReply[answers.JobJson]:
    body: ResultBody = call.body
    error = None if body.error is None else body.error.model_dump(exclude_none=True)
    return answer(
        await call.services.flow.jobs.result(
            call.caller, call.path["job_id"], body.fence, body.status, body.result, error
        )
    )


# --- approvals ------------------------------------------------------------------------------------


async def list_approvals(call: Exchange) -> Listed[answers.ApprovalJson]:
    query = call.query
    return call.page(
        await call.services.flow.approvals.list(call.tenant, query.status, call.after(), query.limit)
    )


async def get_approval(call: Exchange) -> HttpReply[answers.ApprovalJson]:
    return data(await call.services.flow.approvals.get(call.tenant, call.path["job_id"]))


async def approve_job(call: Exchange) -> HttpReply[answers.DecisionJson]:
    return await _decide(call, "approved")


async def reject_job(call: Exchange) -> HttpReply[answers.DecisionJson]:
    return await _decide(call, "rejected")


async def _decide(call: Exchange, status: str) -> HttpReply[answers.DecisionJson]:
    body: DecisionBody = call.body
    return answer(
        await call.services.flow.approvals.decide(
            call.caller, call.path["job_id"], status, body.reason or "", body.revision, body.job_hash
        )
    )


# --- dead letters -----------------------------------------------------------------------------------


async def list_dead_letters(call: Exchange) -> Listed[answers.DeadLetterJson]:
    query: LettersQuery = call.query
    filters = LetterFilter(query.status, query.consumer)
    letters = call.services.flow.dead_letters
    return call.page(await letters.list(call.tenant, call.after(), query.limit, filters))


async def get_dead_letter(call: Exchange) -> HttpReply[answers.DeadLetterJson]:
    return data(await call.services.flow.dead_letters.get(call.tenant, call.path["letter_id"]))


async def retry_dead_letter(call: Exchange) -> HttpReply[answers.DeadLetterJson]:
    letters = call.services.flow.dead_letters
    return answer(await letters.retry(call.caller, call.path["letter_id"], call.key))
