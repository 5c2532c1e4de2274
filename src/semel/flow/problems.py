"""Every way in which a request on runs, jobs and approvals is refused: code, one sentence."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from semel.questions import refusals
from semel.questions.refusals import Refusal, RefusalKind

KINDS: Mapping[str, RefusalKind] = {
    **refusals.KINDS,
    "request_invalid": RefusalKind("The request is not of the form that this route takes."),
    "idempotency_key_invalid": RefusalKind("The idempotency key cannot be used."),
    "body_not_json": RefusalKind("The body is not JSON."),
    "body_too_deep": RefusalKind("The body is nested deeper than 64 levels."),
    "input_invalid": RefusalKind("The input does not fit the workflow's schema, or the result the tool's."),
    "unauthenticated": RefusalKind("No valid credential was given."),
    "forbidden": RefusalKind("The credential's roles do not allow this."),
    "tenant_mismatch": RefusalKind("X-Tenant-ID names another tenant than the credential's."),
    "not_found": RefusalKind("There is nothing at this address."),
    "workflow_not_found": RefusalKind("There is no such workflow in this tenant."),
    "run_not_found": RefusalKind("There is no such run in this tenant."),
    "record_not_found": RefusalKind("There is no such record in this tenant."),
    "tool_not_found": RefusalKind("No ledger of this tenant has run such a tool."),
    "message_not_found": RefusalKind("There is no such message in this tenant."),
    "method_not_allowed": RefusalKind("This address does not take that method."),
    "idempotency_in_flight": RefusalKind("A request with this key is being admitted right now.", True),
    "run_already_ended": RefusalKind("The run has ended in another way."),
    "run_not_ended": RefusalKind("The run has not ended."),
    "run_has_steps": RefusalKind("The run has steps, and ends with them."),
    "job_already_ended": RefusalKind("The job has ended in another way."),
    "record_not_in_doubt": RefusalKind(
        "Only a record in doubt can be resolved, and only a person's word amended."
    ),
    "ownership_lost": RefusalKind("The lease was lost: someone else may be at this job."),
    "message_already_retried": RefusalKind("This message was retried before."),
    "request_timeout": RefusalKind("The request did not arrive in time; nothing was done.", True),
    "body_too_large": RefusalKind("The body is larger than 2 MiB."),
    "idempotency_key_reused": RefusalKind("The key was used for another request."),
    "max_concurrent_runs_reached": RefusalKind("No slot is free.", True),
    "too_many_requests": RefusalKind("The tenant sends more than its share.", True),
    "quota_reached": RefusalKind("The tenant has as many live jobs as it may have.", True),
    "headers_too_large": RefusalKind("The header of the request is larger than 64 KiB."),
    "internal_error": RefusalKind("The gateway failed; what was done is unknown.", True),
    "admission_gate_unavailable": RefusalKind("The tenant's lock was not free in time.", True),
    "store_unavailable": RefusalKind("The store cannot be reached.", True),
    "check_unavailable": RefusalKind("Nothing could be checked right now; nothing was done.", True),
    "gateway_stopping": RefusalKind("The gateway stops, and did not begin with this request.", True),
    "tenant_storage_full": RefusalKind("The tenant keeps as many bytes as it may; nothing was kept."),
    "store_corrupt": RefusalKind("A damaged document was found; it is not taken for an absent one."),
}

# The request is ill-formed, whatever it asks for: on a command line that is wrong usage.
ILL_FORMED = frozenset(
    {"request_invalid", "idempotency_key_invalid", "body_not_json", "body_too_deep", "input_invalid"}
)


class Refused(Refusal):
    """A refusal of the flow, or of the gateway before it."""

    kinds: ClassVar[Mapping[str, RefusalKind]] = KINDS
