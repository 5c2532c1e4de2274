"""Every way in which a request on runs, jobs and approvals is refused: code, HTTP status, one sentence."""

from __future__ import annotations

from typing import Any, NamedTuple

from semel.errors import SemelError


class _Kind(NamedTuple):
    status: int
    title: str
    retriable: bool = False


KINDS: dict[str, _Kind] = {
    "request_invalid": _Kind(400, "The request is not of the form that this route takes."),
    "idempotency_key_invalid": _Kind(400, "The idempotency key cannot be used."),
    "body_not_json": _Kind(400, "The body is not JSON."),
    "body_too_deep": _Kind(400, "The body is nested deeper than 64 levels."),
    "input_invalid": _Kind(400, "The input does not fit the workflow's schema, or the result the tool's."),
    "unauthenticated": _Kind(401, "No valid credential was given."),
    "forbidden": _Kind(403, "The credential's roles do not allow this."),
    "tenant_mismatch": _Kind(403, "X-Tenant-ID names another tenant than the credential's."),
    "self_approval_denied": _Kind(403, "Nobody decides on what they submitted themselves."),
    "not_found": _Kind(404, "There is nothing at this address."),
    "workflow_not_found": _Kind(404, "There is no such workflow in this tenant."),
    "run_not_found": _Kind(404, "There is no such run in this tenant."),
    "job_not_found": _Kind(404, "There is no such job in this tenant."),
    "record_not_found": _Kind(404, "There is no such record in this tenant."),
    "tool_not_found": _Kind(404, "No ledger of this tenant has run such a tool."),
    "message_not_found": _Kind(404, "There is no such message in this tenant."),
    "method_not_allowed": _Kind(405, "This address does not take that method."),
    "idempotency_in_flight": _Kind(409, "A request with this key is being admitted right now.", True),
    "run_already_ended": _Kind(409, "The run has ended in another way."),
    "run_not_ended": _Kind(409, "The run has not ended."),
    "run_has_steps": _Kind(409, "The run has steps, and ends with them."),
    "job_already_ended": _Kind(409, "The job has ended in another way."),
    "record_not_in_doubt": _Kind(
        409, "Only a record in doubt can be resolved, and only a person's word amended."
    ),
    "ownership_lost": _Kind(409, "The lease was lost: someone else may be at this job."),
    "approval_already_resolved": _Kind(409, "The other decision was taken before."),
    "approval_not_actionable": _Kind(409, "There is nothing to decide on this job."),
    "approval_terminal_run": _Kind(409, "The run has ended."),
    "approval_stale_request": _Kind(409, "The job is not what this decision was made for."),
    "message_already_retried": _Kind(409, "This message was retried before."),
    "approval_expired": _Kind(410, "The question expired before this decision."),
    "request_timeout": _Kind(408, "The request did not arrive in time; nothing was done.", True),
    "body_too_large": _Kind(413, "The body is larger than 2 MiB."),
    "idempotency_key_reused": _Kind(422, "The key was used for another request."),
    "max_concurrent_runs_reached": _Kind(429, "No slot is free.", True),
    "too_many_requests": _Kind(429, "The tenant sends more than its share.", True),
    "quota_reached": _Kind(429, "The tenant has as many live jobs as it may have.", True),
    "headers_too_large": _Kind(431, "The header of the request is larger than 64 KiB."),
    "internal_error": _Kind(500, "The gateway failed; what was done is unknown.", True),
    "admission_gate_unavailable": _Kind(503, "The tenant's gate did not open in time.", True),
    "store_unavailable": _Kind(503, "The store cannot be reached.", True),
    "check_unavailable": _Kind(503, "Nothing could be checked right now; nothing was done.", True),
    "gateway_stopping": _Kind(503, "The gateway stops, and did not begin with this request.", True),
    "tenant_storage_full": _Kind(507, "The tenant keeps as many bytes as it may; nothing was kept."),
    "store_corrupt": _Kind(500, "A damaged document was found; it is not taken for an absent one."),
}


class Problem(SemelError):
    """A refusal, as `code` says. Nothing was changed unless the message says so."""

    def __init__(
        self, code: str, message: str | None = None, *, retry_after_s: float | None = None, **details: Any
    ) -> None:
        kind = KINDS[code]
        super().__init__(message or kind.title, retry_after_s=retry_after_s, corrective_action="", **details)
        self.code = code
        self.status = kind.status
        self.title = kind.title
        self.retriable = kind.retriable
