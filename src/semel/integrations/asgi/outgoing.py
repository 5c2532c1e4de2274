"""What is answered in the application's place: a settled answer again, or a problem."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

from semel import errors
from semel.contract.http_answer import HttpAnswer
from semel.kernel import problem_details

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

# The application's answer where an exception left it: what servers and frameworks answer then.
FAILED = 500

# A redirect that asks for the same request at another address; 301 is what Django sends for a missing slash.
SAME_REQUEST_ELSEWHERE = frozenset((301, 307, 308))

REPLAYED = b"idempotent-replayed"

RELEASED_BY_DEFAULT = frozenset((400, 401, 403, 404, 405, 413, 415, 422, 429))

# Of the connection, not of the answer (RFC 9110, 7.6.1); what would sign somebody in again; and what a replay
# says of itself.
_UNSAFE = frozenset(
    (
        b"connection",
        REPLAYED,
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"set-cookie",
        b"set-cookie2",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    )
)


class ProblemKind(NamedTuple):
    status: int
    title: str
    retriable: bool = False


KINDS: dict[str, ProblemKind] = {
    "idempotency_key_missing": ProblemKind(400, "This request needs an idempotency key."),
    "idempotency_key_invalid": ProblemKind(400, "The idempotency key cannot be used."),
    "idempotency_caller_unknown": ProblemKind(
        400, "An idempotency key belongs to a caller, and nobody is known."
    ),
    "idempotency_in_flight": ProblemKind(409, "A request with this key is being performed right now.", True),
    "outcome_unknown": ProblemKind(409, "The request may have taken effect, and nobody can tell by itself."),
    "ownership_lost": ProblemKind(409, "Someone else went on with the key of this request."),
    "result_unavailable": ProblemKind(409, "The request took effect; its answer was not kept."),
    "body_too_large": ProblemKind(413, "The body is longer than is accepted together with a key."),
    "idempotency_key_reused": ProblemKind(422, "The key was used for another request."),
    "store_corrupt": ProblemKind(500, "The store is not what it was, or the record of this key is damaged."),
    "store_unavailable": ProblemKind(503, "The store of the keys cannot be reached.", True),
}

# What a contract answers, in the words of HTTP: the code, and what to do.
_ANSWERS: dict[str, tuple[str, str]] = {
    "RETRY_IN_FLIGHT": (
        "idempotency_in_flight",
        "The first request with this key still runs; the application was not called a second time. Send the "
        "same request with the same key again later: the first one's answer will be there.",
    ),
    "KEY_REUSED": (
        "idempotency_key_reused",
        "This key came with another method, path, query, content type or body before; the application was "
        "not called. One key is for one request: another request takes a new key.",
    ),
    "OUTCOME_UNKNOWN": (
        "outcome_unknown",
        "Whether the request with this key took effect is unknown; it is not run again by itself. Do not "
        "send it with another key. Whoever operates this service resolves the record that record_id names; "
        "from then on this key has an answer.",
    ),
    "OWNERSHIP_LOST": (
        "ownership_lost",
        "The application answered, but was silent for longer than its lease, and someone else went on with "
        "the key: its answer was not recorded. Send the same request with the same key to read what was.",
    ),
    "RESULT_UNAVAILABLE": (
        "result_unavailable",
        "The request with this key took effect, but its answer was not kept; the application was not called "
        "again. Read what became of it in another way; do not send it with another key.",
    ),
    "STORE_UNAVAILABLE": (
        "store_unavailable",
        "The application was not called. Send the same request with the same key again later.",
    ),
    "STORE_CORRUPT": (
        "store_corrupt",
        "Neither a damaged record nor a file that is away or another one counts as an absent record: the "
        "request is not run on its account. Whoever operates this service has to look at the store; once it "
        "is as it was, send the same request with the same key again.",
    ),
}
# The key is of a record that a later release made: it is another's in any case.
_ANSWERS["VERSION_MISMATCH"] = _ANSWERS["KEY_REUSED"]


class RequestRefused(Exception):
    """The request goes no further; the problem says why."""

    def __init__(self, code: str, detail: str, retry_after_s: float | None = None, **more: Any) -> None:
        self.code = code
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.more = more
        super().__init__(detail)


def refused_by(error: errors.SemelError, record_id: str) -> RequestRefused | None:
    """What a client is told of what the guard says; None for what is no answer, but somebody's mistake."""
    answer = _ANSWERS.get(error.code)
    if answer is None:
        return None
    code, detail = answer
    more = {"record_id": record_id} if record_id and code in ("outcome_unknown", "result_unavailable") else {}
    return RequestRefused(code, detail, error.retry_after_s, **more)


async def send_problem(send: Send, refused: RequestRefused) -> None:
    kind = KINDS[refused.code]
    body = problem_details.body(
        refused.code,
        kind.status,
        title=kind.title,
        detail=refused.detail,
        retriable=kind.retriable,
        more=refused.more,
    )
    headers = [
        (b"content-type", problem_details.MEDIA.encode()),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if kind.retriable:
        headers.append(problem_details.retry_after(refused.retry_after_s))
    await _send(send, kind.status, headers, body)


async def send_again(send: Send, answer: HttpAnswer) -> None:
    """The settled answer, and that it is one."""
    headers = [*safe_headers(answer.headers), (REPLAYED, b"true")]
    await _send(send, answer.status, headers, answer.body or b"")


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def safe_headers(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """The headers that may be sent to a client a second time, with small letters."""
    lower = [(name.lower(), value) for name, value in headers]
    named = {
        token.strip().lower() for name, value in lower if name == b"connection" for token in value.split(b",")
    }
    return [(name, value) for name, value in lower if name not in _UNSAFE and name not in named]
