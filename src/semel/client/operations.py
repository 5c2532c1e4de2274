"""What can be asked of a gateway, each a function that says what is sent and what comes back.

Both clients have these as methods; see `gateway.py`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, TypeVar

from pydantic_core import to_json

from semel.client import models, routes
from semel.client.answer import Answer, read
from semel.client.following import Following
from semel.client.problem import problem
from semel.client.retrying import ClientRequest, ListedPages, pages_of, understood_as
from semel.client.routes import ClientRoute, Repeat
from semel.kernel.clock import SYSTEM
from semel.kernel.durations import Duration, microseconds
from semel.kernel.key_header import KeyInvalid, key_of

A = TypeVar("A", bound=Answer)

RunStatus = Literal["running", "waiting", "succeeded", "failed", "cancelled"]
JobStatus = Literal["waiting", "queued", "leased", "succeeded", "failed", "denied", "cancelled"]
ApprovalStatus = Literal["waiting", "approved", "rejected", "expired", "cancelled"]
RecordScope = Literal["tool", "http", "run", "job", "approval"]
RecordState = Literal["pending", "in_doubt", "done", "failed", "partial"]
Ended = Literal["succeeded", "failed"]

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}")


class Unsaid:
    """Nothing is said about the result, not even that it is None."""


UNSAID = Unsaid()


class JobError(TypedDict, total=False):
    """How a job failed."""

    code: str
    message: str
    retriable: bool
    traceback: str


# --- runs -------------------------------------------------------------------------------------------


def start_run(
    workflow: str, input: Mapping[str, Any], key: str | None = None, *, wait: Duration | None = None
) -> ClientRequest[models.RunStartedAnswer]:
    """A run of the workflow with this input has been started, now or before with this key.

    Without a key one is made, once, and kept for all tries; a Problem has it as its `key`. `wait` asks the
    gateway to wait so long for a free slot before it refuses, in whole seconds.
    """
    wait_s = 0 if wait is None else math.ceil(microseconds(wait, "wait") / 1_000_000)
    prefer = {"Prefer": f"wait={wait_s}".encode()} if wait_s else {}
    return _request(
        routes.START_RUN,
        models.RunStartedAnswer,
        workflow,
        body=input,
        key=key,
        headers=prefer,
        waits_s=wait_s,
    )


def get_run(run_id: str) -> ClientRequest[models.RunAnswer]:
    """The run as it stands."""
    return _request(routes.GET_RUN, models.RunAnswer, run_id)


def list_runs(
    *, workflow_id: str | None = None, status: RunStatus | None = None, limit: int | None = None
) -> ListedPages[models.RunAnswer]:
    """Newest first; at most so many."""
    return _listed(routes.LIST_RUNS, models.RunAnswer, limit=limit, workflow_id=workflow_id, status=status)


def timeline(run_id: str, *, limit: int | None = None) -> ListedPages[models.TimelineEventAnswer]:
    """What happened in the run, oldest first."""
    return _listed(routes.TIMELINE, models.TimelineEventAnswer, run_id, limit=limit)


def wait_for_run(run_id: str, within: Duration | None = None) -> Following:
    """The run once it has ended, however that was; StillRunning if it has not within so long."""
    return Following(run_id, get_run(run_id), None if within is None else _seconds(within, "within"))


def complete_run(run_id: str, status: Ended, result: Any = None) -> ClientRequest[models.RunAnswer]:
    """The run without steps has ended so."""
    body = {"status": status} | ({} if result is None else {"result": result})
    return _request(routes.COMPLETE_RUN, models.RunAnswer, run_id, body=body)


def cancel_run(run_id: str) -> ClientRequest[models.RunAnswer]:
    """The run is cancelled."""
    return _request(routes.CANCEL_RUN, models.RunAnswer, run_id, body={})


def rerun(run_id: str, from_step: str, key: str | None = None) -> ClientRequest[models.RunStartedAnswer]:
    """A new run goes on from that step, with the results of those that do not follow it."""
    return _request(routes.RERUN, models.RunStartedAnswer, run_id, body={"from_step": from_step}, key=key)


# --- jobs -------------------------------------------------------------------------------------------


def create_job(
    topic: str,
    input: Any,
    key: str | None = None,
    *,
    approval: bool | Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> ClientRequest[models.JobAnswer]:
    """A job of its own is there, now or before with this key."""
    body = {"topic": topic, "input": input} | _given(approval=approval, labels=labels)
    return _request(routes.CREATE_JOB, models.JobAnswer, body=body, key=key)


def get_job(job_id: str) -> ClientRequest[models.JobAnswer]:
    """The job as it stands."""
    return _request(routes.GET_JOB, models.JobAnswer, job_id)


def list_jobs(
    *,
    status: JobStatus | None = None,
    topic: str | None = None,
    run_id: str | None = None,
    limit: int | None = None,
) -> ListedPages[models.JobAnswer]:
    """Newest first; at most so many."""
    return _listed(routes.LIST_JOBS, models.JobAnswer, limit=limit, status=status, topic=topic, run_id=run_id)


def cancel_job(job_id: str) -> ClientRequest[models.JobAnswer]:
    """The job is cancelled."""
    return _request(routes.CANCEL_JOB, models.JobAnswer, job_id, body={})


def lease_jobs(
    topics: Sequence[str],
    max: int = 1,
    lease_s: float = 60.0,
    *,
    worker_id: str | None = None,
    wait_s: float = 0.0,
) -> ClientRequest[models.LeasesAnswer]:
    """At most so many `jobs` of these topics are the caller's for so long; none after a wait of `wait_s`."""
    body = {"topics": list(topics), "max": max, "lease_s": lease_s} | _given(worker_id=worker_id)
    body |= {"wait_s": wait_s} if wait_s else {}
    return _request(routes.LEASE, models.LeasesAnswer, body=body, waits_s=wait_s)


def heartbeat_job(
    job_id: str, fence: int, lease_s: float | None = None
) -> ClientRequest[models.HeartbeatAnswer]:
    """The lease lasts for so long from now."""
    return _request(
        routes.HEARTBEAT, models.HeartbeatAnswer, job_id, body={"fence": fence} | _given(lease_s=lease_s)
    )


def result_job(
    job_id: str,
    fence: int,
    status: Ended,
    result: Any = None,
    error: JobError | Mapping[str, Any] | None = None,
) -> ClientRequest[models.JobAnswer]:
    """The attempt has ended so."""
    body = {"fence": fence, "status": status} | _given(result=result, error=error)
    return _request(routes.RESULT, models.JobAnswer, job_id, body=body)


# --- questions to people ----------------------------------------------------------------------------


def list_approvals(
    *, status: ApprovalStatus | None = None, limit: int | None = None
) -> ListedPages[models.ApprovalAnswer]:
    """Newest first; at most so many."""
    return _listed(routes.LIST_APPROVALS, models.ApprovalAnswer, limit=limit, status=status)


def get_approval(job_id: str) -> ClientRequest[models.ApprovalAnswer]:
    """The question about this job, as it stands."""
    return _request(routes.GET_APPROVAL, models.ApprovalAnswer, job_id)


def approve(
    job_id: str, reason: str | None = None, *, revision: int | None = None, job_hash: str | None = None
) -> ClientRequest[models.DecisionAnswer]:
    """It is approved, by the caller or by whoever was first."""
    body = _given(reason=reason, revision=revision, job_hash=job_hash)
    return _request(routes.APPROVE, models.DecisionAnswer, job_id, body=body)


def reject(
    job_id: str, reason: str | None = None, *, revision: int | None = None, job_hash: str | None = None
) -> ClientRequest[models.DecisionAnswer]:
    """It is rejected, by the caller or by whoever was first."""
    body = _given(reason=reason, revision=revision, job_hash=job_hash)
    return _request(routes.REJECT, models.DecisionAnswer, job_id, body=body)


# --- records, dead letters --------------------------------------------------------------------------


def list_records(
    *,
    scope: RecordScope | None = None,
    key: str | None = None,
    state: RecordState | None = None,
    tool: str | None = None,
    limit: int | None = None,
) -> ListedPages[models.RecordAnswer]:
    """Newest first; at most so many."""
    return _listed(
        routes.LIST_RECORDS, models.RecordAnswer, limit=limit, scope=scope, key=key, state=state, tool=tool
    )


def get_record(record_id: str) -> ClientRequest[models.ExplainedRecordAnswer]:
    """The record, with what is known of it in words, and its history."""
    return _request(routes.GET_RECORD, models.ExplainedRecordAnswer, record_id)


def resolve_record(
    record_id: str,
    outcome: Literal["happened", "did_not_happen"],
    result: Any = UNSAID,
    *,
    fence: int | None = None,
) -> ClientRequest[models.RecordAnswer]:
    """The record in doubt is settled: it happened, with this result, or it did not."""
    body = {"outcome": outcome} | ({} if result is UNSAID else {"result": result}) | _given(fence=fence)
    return _request(routes.RESOLVE, models.RecordAnswer, record_id, body=body)


def amend_record(record_id: str, result: Any) -> ClientRequest[models.RecordAnswer]:
    """What a person said is corrected: replays from now on have this result."""
    return _request(routes.AMEND, models.RecordAnswer, record_id, body={"result": result})


def list_dead_letters(*, limit: int | None = None) -> ListedPages[models.DeadLetterAnswer]:
    """Newest first; at most so many."""
    return _listed(routes.LIST_LETTERS, models.DeadLetterAnswer, limit=limit)


def get_dead_letter(letter_id: str) -> ClientRequest[models.DeadLetterAnswer]:
    """The message that its consumer gave up."""
    return _request(routes.GET_LETTER, models.DeadLetterAnswer, letter_id)


def retry_dead_letter(letter_id: str, key: str | None = None) -> ClientRequest[models.DeadLetterAnswer]:
    """The message is sent again, once for each key."""
    return _request(routes.RETRY_LETTER, models.DeadLetterAnswer, letter_id, body={}, key=key)


# --- workflows, tenants, tools ----------------------------------------------------------------------


def put_workflow(
    workflow_id: str,
    steps: Sequence[Mapping[str, Any]] = (),
    *,
    max_concurrent_runs: int | None = None,
    input_schema: Mapping[str, Any] | bool | None = None,
) -> ClientRequest[models.WorkflowAnswer]:
    """The workflow is defined so. Runs that have started keep the definition they started with."""
    body = {"steps": list(steps)} | _given(max_concurrent_runs=max_concurrent_runs, input_schema=input_schema)
    return _request(routes.PUT_WORKFLOW, models.WorkflowAnswer, workflow_id, body=body)


def get_workflow(workflow_id: str) -> ClientRequest[models.WorkflowAnswer]:
    """The definition as it stands."""
    return _request(routes.GET_WORKFLOW, models.WorkflowAnswer, workflow_id)


def list_workflows(*, limit: int | None = None) -> ListedPages[models.WorkflowAnswer]:
    """Newest first; at most so many."""
    return _listed(routes.LIST_WORKFLOWS, models.WorkflowAnswer, limit=limit)


def delete_workflow(workflow_id: str) -> ClientRequest[models.DeletedAnswer]:
    """No run of it starts any more."""
    gone = read(models.DeletedAnswer, {"workflow_id": workflow_id, "deleted": True}, replayed=True)
    return _request(routes.DELETE_WORKFLOW, models.DeletedAnswer, workflow_id, gone=gone)


def put_tenant(tenant: str, max_concurrent_runs: int) -> ClientRequest[models.TenantAnswer]:
    """The tenant may have so many runs at a time."""
    return _request(
        routes.PUT_TENANT, models.TenantAnswer, tenant, body={"max_concurrent_runs": max_concurrent_runs}
    )


def get_tenant() -> ClientRequest[models.TenantAnswer]:
    """The caller's own: whose key it is, and how many runs it may have at a time."""
    return _request(routes.GET_TENANT, models.TenantAnswer)


def get_tool(name: str, version: str | None = None) -> ClientRequest[models.ToolAnswer]:
    """The tool as its contract says, in its newest major version or this one."""
    return _request(routes.GET_TOOL, models.ToolAnswer, name, query=_given(version=version))


def list_tools(*, limit: int | None = None) -> ListedPages[models.ToolAnswer]:
    """The catalogue, newest first; at most so many."""
    return _listed(routes.LIST_TOOLS, models.ToolAnswer, limit=limit)


# --- reports ----------------------------------------------------------------------------------------


def list_windows(tool: str | None = None) -> ListedPages[models.WindowAnswer]:
    """What the ages of retries say, per tool."""
    route = routes.LIST_WINDOWS
    return ListedPages(
        ClientRequest(route, route.path, pages_of(models.WindowAnswer), query=_given(tool=tool)),
        None,
        whole=True,
    )


def list_events(*, limit: int | None = None) -> ListedPages[models.EventAnswer]:
    """The tenant's audit log, oldest first; at most so many."""
    return _listed(routes.LIST_EVENTS, models.EventAnswer, limit=limit)


def duplicates(within: str = "60s") -> ClientRequest[models.DuplicatesAnswer]:
    """Calls within so long of each other with other keys and the same arguments, and their like."""
    return _request(routes.DUPLICATES, models.DuplicatesAnswer, query={"within": within})


# --- how it is asked --------------------------------------------------------------------------------


def _request(
    route: ClientRoute,
    model: type[A],
    id_: str | None = None,
    *,
    query: Mapping[str, str] | None = None,
    body: Mapping[str, Any] | None = None,
    key: str | None = None,
    headers: Mapping[str, bytes] | None = None,
    waits_s: float = 0.0,
    gone: A | None = None,
) -> ClientRequest[A]:
    """What is sent is made here, once: every try sends the same bytes with the same key."""
    key = _key(key) if route.repeat is Repeat.KEYED else None
    content = None if body is None else to_json(body, inf_nan_mode="constants")
    sent = dict(headers or {})
    sent |= {} if key is None else {"Idempotency-Key": key.encode()}
    sent |= {} if content is None else {"Content-Type": b"application/json"}
    return ClientRequest(
        route, _path(route, id_), understood_as(model), query or {}, content, sent, key, waits_s, gone
    )


def _listed(
    route: ClientRoute, model: type[A], id_: str | None = None, *, limit: int | None, **filters: str | None
) -> ListedPages[A]:
    return ListedPages(
        ClientRequest(route, _path(route, id_), pages_of(model), query=_given(**filters)), limit
    )


def _key(key: str | None) -> str:
    """The one key of an intention: what is given, or a new one. Problem if it cannot be sent."""
    if key is None:
        return SYSTEM.token().hex()
    try:
        key_of([key.encode()])
    except KeyInvalid as wrong:
        code, why = "idempotency_key_invalid", f"The idempotency key cannot be used. {wrong}"
        raise problem(code, f"{why} Nothing was sent.", retriable=False) from None
    return key


def _path(route: ClientRoute, id_: str | None) -> str:
    """What cannot be an id would lead to another address, so it becomes one that nothing has."""
    if id_ is None:
        return route.path
    return re.sub(r"{\w+}", id_ if _NAME.fullmatch(id_) else "-", route.path)


def _given(**members: Any) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _seconds(duration: Duration, what: str) -> float:
    return microseconds(duration, what) / 1_000_000
