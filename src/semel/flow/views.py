"""Runs and jobs as people and programs read them: JSON-ready, times as text."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Literal

import orjson

from semel.audit.events import STARTED, Event
from semel.flow.model import Run, WorkflowStep
from semel.kernel import answers
from semel.kernel.clock import rfc3339
from semel.kernel.keys import Key, frame
from semel.kernel.large import as_json
from semel.questions.job import StoredJob


def started(value: Run) -> answers.RunStartedJson:
    return {"run_id": value.run_id, "workflow_id": value.workflow_id, "status": value.status}


def run(value: Run, jobs: Mapping[str, StoredJob]) -> answers.RunJson:
    """`jobs` are those that tell more than the run itself: the live ones, and the results of the last."""
    return {
        "run_id": value.run_id,
        "workflow_id": value.workflow_id,
        "status": value.status,
        "input": value.input,
        "result": _result(value, jobs),
        "error": value.error,
        "created_at": rfc3339(value.created_us),
        "started_at": rfc3339(value.created_us),
        "ended_at": rfc3339(value.ended_us),
        "rerun_of": value.rerun_of,
        "steps": [_step(step, jobs) for step in value.steps],
    }


def listed_run(value: Run) -> answers.RunJson:
    """As it stands in a list: without its jobs, which have the results of its steps."""
    return {**run(value, {}), "result": value.result}


def last_steps(value: Run) -> list[WorkflowStep]:
    """Steps that nothing depends on: their results are the run's."""
    used = {name for step in value.steps for name in step.depends_on}
    return [step for step in value.steps if step.id not in used]


def _result(value: Run, jobs: Mapping[str, StoredJob]) -> Any:
    if not value.steps or value.status != "succeeded":
        return value.result
    return {
        step.id: jobs[step.job_id].result for step in last_steps(value) if step.job_id and step.job_id in jobs
    }


def _step(step: WorkflowStep, jobs: Mapping[str, StoredJob]) -> answers.RunStepJson:
    job = jobs.get(step.job_id or "")
    return {
        "id": step.id,
        "status": job.status if job else step.status,
        "job_id": step.job_id,
        "depends_on": list(step.depends_on),
    }


def job(value: StoredJob, *, traced: bool = False) -> answers.JobJson:
    """`traced`: with the traceback of its error, which not everybody may read."""
    return {
        "job_id": value.job_id,
        "run_id": value.run_id,
        "step_id": value.step_id,
        "topic": value.topic,
        "input": value.input,
        "labels": value.labels or {},
        "status": value.status,
        "attempt": value.attempt,
        "submitted_by": value.submitted_by,
        "bus_msg_id": value.bus_msg_id,
        "result": value.result,
        "error": value.error if traced else untraced(value.error),
        "created_at": rfc3339(value.created_us),
        "ended_at": rfc3339(value.ended_us),
    }


def untraced(error: Any) -> Any:
    """The error without where it came from."""
    if not isinstance(error, dict):
        return error
    return {name: value for name, value in error.items() if name != "traceback"}


def leased(value: StoredJob, tenant: str) -> answers.LeasedJobJson:
    return {
        "job_id": value.job_id,
        "run_id": value.run_id,
        "step_id": value.step_id,
        "topic": value.topic,
        "input": value.input,
        "labels": value.labels or {},
        "attempt": value.attempt,
        "fence": value.fence,
        "key": job_key(tenant, value.job_id),
        "lease_expires_at": rfc3339(value.lease_until_us),
        "submitted_by": value.submitted_by,
    }


def job_key(tenant: str, job_id: str) -> Key:
    """The same on every attempt: for downstreams that take a key."""
    return Key(hashlib.sha256(frame("semel/job/1", tenant, job_id)).hexdigest())


def run_event(tenant: str, kind: str, value: Run, now_us: int, by: str, note: str) -> Event:
    """A run begins or ends, as a line of the audit log; the digest stands for its input or its result."""
    body = value.input if kind == STARTED else value.result
    return Event(
        seq=0,
        at_us=now_us,
        tenant=tenant,
        scope="run",
        key=value.run_id,
        record_id=value.run_id,
        kind=kind,
        state=value.status,
        fence=0,
        tool=value.workflow_id,
        version="1",
        digest=hashlib.sha256(orjson.dumps(body, default=as_json, option=orjson.OPT_SORT_KEYS)).digest(),
        expires_at=None,
        conversation=value.run_id,
        step="[]",
        by=by,
        note=note,
        times=1,
    )


_OPTIONAL: tuple[Literal["step_id", "job_id", "by"], ...] = ("step_id", "job_id", "by")


def event(data: dict[str, Any]) -> answers.TimelineEventJson:
    shown: answers.TimelineEventJson = {
        "seq": data["seq"],
        "at": rfc3339(data["at_us"]),
        "type": data["type"],
        "step_id": data["step_id"],
        "job_id": data["job_id"],
        "by": data["by"],
        "data": data["data"],
    }
    for name in _OPTIONAL:
        if shown[name] is None:
            del shown[name]
    return shown
