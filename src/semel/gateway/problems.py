"""Whatever goes wrong, as problem details (RFC 9457). Nothing of the inside is in them.

What a client reads of an unexpected error is a random id; the log has the same id with the kind of the error
and where it was raised. Not its message: that may quote what a client sent.
"""

from __future__ import annotations

import logging
import traceback

import orjson

from semel.errors import ApprovalError, RecordNotFound, RecordNotInDoubt, StoreCorrupt, StoreUnavailable
from semel.flow.problems import KINDS, Refused
from semel.kernel import problem_details
from semel.kernel.clock import Clock
from semel.kernel.problem_details import MEDIA as MEDIA
from semel.questions.refusals import Refusal

# The HTTP status of each code. Nobody else knows it.
STATUS: dict[str, int] = {
    "request_invalid": 400,
    "idempotency_key_invalid": 400,
    "body_not_json": 400,
    "body_too_deep": 400,
    "input_invalid": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "tenant_mismatch": 403,
    "self_approval_denied": 403,
    "not_found": 404,
    "workflow_not_found": 404,
    "run_not_found": 404,
    "job_not_found": 404,
    "record_not_found": 404,
    "tool_not_found": 404,
    "message_not_found": 404,
    "method_not_allowed": 405,
    "request_timeout": 408,
    "idempotency_in_flight": 409,
    "run_already_ended": 409,
    "run_not_ended": 409,
    "run_has_steps": 409,
    "job_already_ended": 409,
    "record_not_in_doubt": 409,
    "ownership_lost": 409,
    "approval_already_resolved": 409,
    "approval_not_actionable": 409,
    "approval_terminal_run": 409,
    "approval_stale_request": 409,
    "message_already_retried": 409,
    "approval_expired": 410,
    "body_too_large": 413,
    "idempotency_key_reused": 422,
    "max_concurrent_runs_reached": 429,
    "too_many_requests": 429,
    "quota_reached": 429,
    "headers_too_large": 431,
    "internal_error": 500,
    "store_corrupt": 500,
    "admission_gate_unavailable": 503,
    "store_unavailable": 503,
    "check_unavailable": 503,
    "gateway_stopping": 503,
    "tenant_storage_full": 507,
}

_log = logging.getLogger("semel.gateway")

# Who asks again later may succeed, and is told when. An internal error is not in the list: nobody knows when.
_TELLS_WHEN = (409, 429, 503)


def status_of(problem: Refusal) -> int:
    return STATUS[problem.code]


def tells_when(problem: Refusal) -> bool:
    """Whether `Retry-After` says when to come back."""
    return problem.retriable and status_of(problem) in _TELLS_WHEN


def problem_of(error: Exception, clock: Clock) -> Refusal:
    """The problem that a client is told of; an unexpected error is logged first."""
    match error:
        case Refusal():
            return error
        case StoreUnavailable():
            _log_line("store unavailable", why=error.message)
            return Refused("store_unavailable", retry_after_s=error.retry_after_s)
        case StoreCorrupt():
            _log_line("store corrupt", why=error.message)
            return Refused("store_corrupt")
        case RecordNotFound():
            return Refused("record_not_found")
        case RecordNotInDoubt():
            return Refused("record_not_in_doubt")
        case ApprovalError() if error.code in KINDS:
            return Refused(error.code, error.message)
    return _unexpected(error, clock)


def _unexpected(error: Exception, clock: Clock) -> Refused:
    return Refused("internal_error", error_id=note("internal error", clock, error))


def note(event: str, clock: Clock, error: Exception, **facts: object) -> str:
    """The id under which the log has the error."""
    error_id = clock.token().hex()
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    _log_line(event, error_id=error_id, kind=type(error).__qualname__, where=where, **facts)
    return error_id


def _log_line(event: str, **facts: object) -> None:
    _log.error(orjson.dumps({"event": event, **facts}).decode())


def body(problem: Refusal) -> bytes:
    return problem_details.body(
        problem.code,
        status_of(problem),
        title=problem.title,
        detail=problem.message,
        retriable=problem.retriable,
        more=problem.details,
    )


def headers(problem: Refusal) -> list[tuple[bytes, bytes]]:
    """Headers that say to a client's HTTP library what the body says to its program."""
    fields: list[tuple[bytes, bytes]] = []
    if tells_when(problem):
        fields.append(problem_details.retry_after(problem.retry_after_s))
    if problem.code == "unauthenticated":
        fields.append((b"www-authenticate", b'Bearer realm="semel"'))
    if problem.code == "method_not_allowed":
        fields.append((b"allow", ", ".join(problem.details["allow"]).encode()))
    return fields
