"""Every address of the gateway, one line each: who may, what it takes, who answers.

The dispatcher, `/openapi.json`, the table of roles in the documentation and its test read this table.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, get_args, get_type_hints

from semel.gateway import audit, bodies, flows, records, tools
from semel.gateway.auth import ROLES
from semel.gateway.bodies import ListQuery, Model, NoQuery
from semel.gateway.exchange import Handler

SUBMIT = frozenset({"submitter", "admin"})
WORK = frozenset({"worker", "admin"})
DECIDE = frozenset({"approver"})
READ = frozenset(ROLES)
AUDIT = frozenset({"auditor", "admin"})
ADMIN = frozenset({"admin"})


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    roles: frozenset[str]
    handler: Handler
    body: type[Model] | None = None  # None: no body is read
    query: type[NoQuery] = NoQuery
    keyed: str | None = None  # the scope of its idempotency keys, if it takes them
    any_object: bool = False  # any JSON object is a body
    large_member: str | None = None  # where nobody looks into this member, it may stay bytes
    body_optional: bool = False
    problems: tuple[str, ...] = ()  # what it answers besides what every route may
    name: str = field(init=False)  # how metrics and logs call it
    takes_body: bool = field(init=False)

    def __post_init__(self) -> None:
        # Once, not for each request.
        object.__setattr__(self, "name", self.handler.__name__)
        object.__setattr__(self, "takes_body", self.any_object or self.body is not None)

    @property
    def admits(self) -> bool:
        """Whether it starts a run, which needs a slot."""
        return self.keyed in ("run", "rerun")

    @property
    def answer(self) -> Any:
        """The model of a 200: what the handler says that it gives back."""
        (model,) = get_args(get_type_hints(self.handler)["return"])
        return model


_ADMISSION = (
    "idempotency_key_reused",
    "idempotency_in_flight",
    "max_concurrent_runs_reached",
    "admission_gate_unavailable",
    "tenant_storage_full",
)
_DECISION = (
    "job_not_found",
    "self_approval_denied",
    "approval_already_resolved",
    "approval_not_actionable",
    "approval_terminal_run",
    "approval_stale_request",
    "approval_expired",
)
_LEASE = ("job_not_found", "ownership_lost")

_V1 = "/api/v1"
_WORKFLOW, _RUN = f"{_V1}/workflows/{{workflow_id}}", f"{_V1}/runs/{{run_id}}"
_JOB, _APPROVAL, _RECORD = (
    f"{_V1}/jobs/{{job_id}}",
    f"{_V1}/approvals/{{job_id}}",
    f"{_V1}/records/{{record_id}}",
)
_LETTER = f"{_V1}/dead-letters/{{letter_id}}"

# The busiest first.
ROUTES: tuple[Route, ...] = (
    Route("POST", f"{_WORKFLOW}/runs", SUBMIT, flows.start_run, keyed="run", any_object=True,
          problems=("workflow_not_found", "input_invalid", *_ADMISSION)),
    Route("POST", f"{_V1}/leases", WORK, flows.lease_jobs, bodies.LeaseBody),
    Route("POST", f"{_JOB}/result", WORK, flows.result_job, bodies.ResultBody, problems=_LEASE),
    Route("POST", f"{_JOB}/heartbeat", WORK, flows.heartbeat_job, bodies.HeartbeatBody,
          problems=_LEASE),
    Route("GET", f"{_V1}/runs", READ, flows.list_runs, query=bodies.RunsQuery),
    Route("GET", _RUN, READ, flows.get_run, problems=("run_not_found",)),
    Route("GET", f"{_RUN}/timeline", READ, flows.run_timeline, query=ListQuery,
          problems=("run_not_found",)),
    Route("POST", f"{_RUN}/complete", SUBMIT, flows.complete_run, bodies.CompleteBody,
          problems=("run_not_found", "run_already_ended", "run_has_steps")),
    Route("POST", f"{_RUN}/cancel", SUBMIT, flows.cancel_run, bodies.NoBody, body_optional=True,
          problems=("run_not_found", "run_already_ended")),
    Route("POST", f"{_RUN}/rerun", SUBMIT, flows.rerun_run, bodies.RerunBody, keyed="rerun",
          problems=("run_not_found", "run_not_ended", *_ADMISSION)),
    Route("POST", f"{_V1}/jobs", SUBMIT, flows.create_job, bodies.JobBody, keyed="job",
          large_member="input",
          problems=("idempotency_key_reused", "quota_reached", "tenant_storage_full")),
    Route("GET", f"{_V1}/jobs", READ, flows.list_jobs, query=bodies.JobsQuery),
    Route("GET", _JOB, READ, flows.get_job, problems=("job_not_found",)),
    Route("POST", f"{_JOB}/cancel", SUBMIT, flows.cancel_job, bodies.NoBody, body_optional=True,
          problems=("job_not_found", "job_already_ended")),
    Route("GET", f"{_V1}/approvals", READ, flows.list_approvals, query=bodies.ApprovalsQuery),
    Route("GET", _APPROVAL, READ, flows.get_approval, problems=("job_not_found",)),
    Route("POST", f"{_APPROVAL}/approve", DECIDE, flows.approve_job, bodies.DecisionBody,
          body_optional=True, problems=_DECISION),
    Route("POST", f"{_APPROVAL}/reject", DECIDE, flows.reject_job, bodies.DecisionBody,
          body_optional=True, problems=_DECISION),
    Route("GET", f"{_V1}/records", READ, records.list_records, query=bodies.RecordsQuery),
    Route("GET", _RECORD, READ, records.get_record, problems=("record_not_found",)),
    Route("POST", f"{_RECORD}/resolve", ADMIN, records.resolve_record, bodies.ResolveBody,
          problems=("record_not_found", "record_not_in_doubt", "input_invalid")),
    Route("POST", f"{_RECORD}/amend", ADMIN, records.amend_record, bodies.AmendBody,
          problems=("record_not_found", "record_not_in_doubt", "input_invalid")),
    Route("GET", f"{_V1}/tools", READ, tools.list_tools, query=ListQuery),
    Route("GET", f"{_V1}/tools/{{tool_name}}", READ, tools.get_tool, query=bodies.ToolQuery,
          problems=("tool_not_found",)),
    Route("GET", f"{_V1}/windows", READ, records.list_windows, query=bodies.WindowsQuery),
    Route("GET", f"{_V1}/audit", AUDIT, audit.list_events, query=bodies.EventsQuery),
    Route("GET", f"{_V1}/audit/duplicates", AUDIT, audit.find_duplicates,
          query=bodies.DuplicatesQuery),
    Route("GET", f"{_V1}/workflows", READ, flows.list_workflows, query=ListQuery),
    Route("PUT", _WORKFLOW, ADMIN, flows.put_workflow, bodies.WorkflowBody,
          problems=("tenant_storage_full",)),
    Route("GET", _WORKFLOW, READ, flows.get_workflow, problems=("workflow_not_found",)),
    Route("DELETE", _WORKFLOW, ADMIN, flows.delete_workflow, problems=("workflow_not_found",)),
    Route("GET", f"{_V1}/dead-letters", READ, flows.list_dead_letters, query=bodies.LettersQuery),
    Route("GET", _LETTER, READ, flows.get_dead_letter, problems=("message_not_found",)),
    Route("POST", f"{_LETTER}/retry", ADMIN, flows.retry_dead_letter, bodies.NoBody,
          keyed="dead-letter", body_optional=True, problems=("message_not_found", "message_already_retried")),
    Route("GET", f"{_V1}/tenant", READ, flows.get_tenant),
    Route("PUT", f"{_V1}/tenants/{{tenant}}", ADMIN, flows.put_tenant, bodies.TenantBody),
)  # fmt: skip

# What an id in a path looks like, and what is said of one that does not: nothing can have that id.
PATH_NAMES: dict[str, tuple[re.Pattern[str], str]] = {
    "workflow_id": (re.compile(bodies.NAME), "request_invalid"),
    "tenant": (re.compile(bodies.NAME), "request_invalid"),
    "run_id": (re.compile(r"^run_[0-9a-f]{32}$"), "run_not_found"),
    "job_id": (re.compile(r"^job_[0-9a-f]{32}$"), "job_not_found"),
    "record_id": (re.compile(r"^rec_[0-9a-f]{32}$"), "record_not_found"),
    "tool_name": (re.compile(r"^[A-Za-z0-9_][A-Za-z0-9._:-]{0,127}$"), "tool_not_found"),
    "letter_id": (re.compile(r"^dead_[0-9a-f]{32}$"), "message_not_found"),
}
