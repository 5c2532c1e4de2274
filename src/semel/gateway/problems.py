"""Whatever goes wrong, as problem details (RFC 9457). Nothing of the inside is in them.

What a client reads of an unexpected error is a random id; the log has the same id with the kind of the error
and where it was raised. Not its message: that may quote what a client sent.
"""

from __future__ import annotations

import logging
import math
import traceback

import orjson

from semel.errors import ApprovalError, RecordNotFound, RecordNotInDoubt, StoreCorrupt, StoreUnavailable
from semel.flow.problems import KINDS, Problem
from semel.kernel.answers import ProblemJson
from semel.kernel.clock import Clock

MEDIA = "application/problem+json"

_log = logging.getLogger("semel.gateway")

# Who asks again later may succeed, and is told when. An internal error is not in the list: nobody knows when.
_TELLS_WHEN = (409, 429, 503)
_RETRY_AFTER_S = 1.0


def problem_of(error: Exception, clock: Clock) -> Problem:
    """The problem that a client is told of; an unexpected error is logged first."""
    match error:
        case Problem():
            return error
        case StoreUnavailable():
            _log_line("store unavailable", why=error.message)
            return Problem("store_unavailable", retry_after_s=error.retry_after_s)
        case StoreCorrupt():
            _log_line("store corrupt", why=error.message)
            return Problem("store_corrupt")
        case RecordNotFound():
            return Problem("record_not_found")
        case RecordNotInDoubt():
            return Problem("record_not_in_doubt")
        case ApprovalError() if error.code in KINDS:
            return Problem(error.code, error.message)
    return _unexpected(error, clock)


def _unexpected(error: Exception, clock: Clock) -> Problem:
    return Problem("internal_error", error_id=note("internal error", clock, error))


def note(event: str, clock: Clock, error: Exception, **facts: object) -> str:
    """The id under which the log has the error."""
    error_id = clock.token().hex()
    frames = traceback.extract_tb(error.__traceback__)
    where = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    _log_line(event, error_id=error_id, kind=type(error).__qualname__, where=where, **facts)
    return error_id


def _log_line(event: str, **facts: object) -> None:
    _log.error(orjson.dumps({"event": event, **facts}).decode())


def body(problem: Problem) -> bytes:
    members: ProblemJson = {
        "type": f"urn:semel:problem:{problem.code}",
        "title": problem.title,
        "status": problem.status,
        "detail": problem.message,
        "code": problem.code,
        "retriable": problem.retriable,
    }
    # What one problem says more never replaces what every problem has.
    more = {name: value for name, value in problem.details.items() if name not in members}
    return orjson.dumps({**members, **more}, default=str)


def headers(problem: Problem) -> list[tuple[bytes, bytes]]:
    """What tells a client's machinery what its program reads in the body."""
    found: list[tuple[bytes, bytes]] = []
    if problem.retriable and problem.status in _TELLS_WHEN:
        seconds = problem.retry_after_s or _RETRY_AFTER_S
        found.append((b"retry-after", str(max(1, math.ceil(seconds))).encode()))
    if problem.code == "unauthenticated":
        found.append((b"www-authenticate", b'Bearer realm="semel"'))
    if problem.code == "method_not_allowed":
        found.append((b"allow", ", ".join(problem.details["allow"]).encode()))
    return found
