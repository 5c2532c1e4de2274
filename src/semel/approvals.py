"""Approvals: a question to a person, settled once, bound to what the person saw.

An approval is a record like any other: its key is the job, its settlement the decision. The first decision
stands; the same one again is a replay, the other one a conflict.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from semel.clock import rfc3339
from semel.errors import ApprovalError
from semel.keys import frame
from semel.record import Address, Asked, Claim, Look, Record, Reply, Settle, State, settled_by
from semel.stores.base import ListRecords

if TYPE_CHECKING:
    from semel.stores.base import Store

SCOPE = "approval"

_PAGE = 200

# A decision is replayed for as long as the longest retry horizon we know of.
_DECISION_KEPT_US = 90 * 86_400_000_000

# A question that nobody answered stays readable for a while, so that a late click is told that it was late.
_EXPIRED_KEPT_US = 30 * 86_400_000_000

_CONFLICTS = {
    "job_not_found": "There is no such approval in this tenant.",
    "self_approval_denied": "Nobody decides on what they submitted themselves.",
    "approval_already_resolved": "The other decision was taken before.",
    "approval_expired": "The question expired before this decision.",
    "approval_stale_request": "The content is not what this decision was made for.",
}


@dataclass(frozen=True)
class ApprovalRequest:
    """What a person sees, and what was decided."""

    job_id: str
    topic: str
    input: Any
    status: str  # waiting, approved, rejected, expired
    revision: int
    job_hash: str
    submitted_by: str
    created_at: str | None
    expires_at: str | None
    decided_by: str | None = None
    decided_at: str | None = None
    reason: str | None = None
    run_id: str | None = None


@dataclass(frozen=True)
class Decision:
    """The answer to a decision; `already_…` if it repeats the one on file."""

    job_id: str
    status: str
    by: str
    at: str | None
    revision: int

    @property
    def replayed(self) -> bool:
        return self.status.startswith("already_")


class Question(NamedTuple):
    """What an approval is asked for: a tool call that waits under `key`."""

    job_id: str
    topic: str
    key: str
    arguments: bytes
    submitted_by: str
    expires_us: int
    reason: str


def ask(tenant: str, question: Question, token: bytes, now_us: int, record_id: str) -> Claim:
    """The command that puts the question, or reads it if it was put before."""
    terms = {"key": question.key, "expires_at": now_us + question.expires_us, "reason": question.reason}
    asked = Asked(
        at=Address(tenant, SCOPE, question.job_id),
        id=record_id,
        tool=question.topic,
        version="1",
        fingerprint=hashlib.sha256(frame(question.topic, question.arguments)).digest(),
        arguments=question.arguments,
        terms=orjson.dumps(terms).decode(),
        conversation="",
        step="[]",
        principal=question.submitted_by,
        job_id=question.job_id,
    )
    return Claim(asked, token, question.expires_us + _EXPIRED_KEPT_US, waiting=True)


def status(reply: Reply) -> str:
    """waiting, approved, rejected or expired."""
    record = reply.record
    assert record is not None
    if record.state is State.WAITING:
        return "expired" if _terms(record)["expires_at"] <= reply.now_us else "waiting"
    return str(_outcome(record)["decision"])


class Approvals:
    """The questions of one tenant."""

    def __init__(self, store: Store, tenant: str) -> None:
        self._store = store
        self._tenant = tenant

    def list(self, status: str | None = None, limit: int = 200) -> Sequence[ApprovalRequest]:
        """Newest first; of one status, or all."""
        found = (request for request in self._newest_first() if status in (None, request.status))
        return list(islice(found, limit))

    def _newest_first(self) -> Iterator[ApprovalRequest]:
        before: tuple[int, str] | None = None
        while records := self._store.ask(ListRecords(self._tenant, scope=SCOPE, before=before, limit=_PAGE)):
            now_us = self._store.clock.now_us()
            yield from (_request(Reply(record, now_us, False)) for record in records)
            before = records[-1].created_at, records[-1].asked.id

    def get(self, job_id: str) -> ApprovalRequest:
        return _request(self._look(job_id))

    def approve(self, job_id: str, *, by: str, reason: str = "", **seen: Any) -> Decision:
        """The next call of the waiting key runs. ApprovalError, with the conflict's code, if it cannot be."""
        return self._decide(job_id, "approved", by, reason, seen)

    def reject(self, job_id: str, *, by: str, reason: str = "", **seen: Any) -> Decision:
        """The waiting key is settled: every call of it answers APPROVAL_REJECTED."""
        return self._decide(job_id, "rejected", by, reason, seen)

    def _decide(self, job_id: str, decision: str, by: str, reason: str, seen: dict[str, Any]) -> Decision:
        if not by:
            raise ApprovalError("A decision needs the name of the person who takes it: by=….")
        reply = self._look(job_id)
        record = reply.record
        assert record is not None
        if record.asked.principal and record.asked.principal == by:
            raise _conflict("self_approval_denied")
        if record.state is State.WAITING:
            _check_seen(_request(reply), seen)
            outcome = {"decision": decision, "by": by, "at": reply.now_us, "reason": reason}
            settle = Settle(
                record.asked.at, record.token, State.DONE, orjson.dumps(outcome), _DECISION_KEPT_US, by
            )
            reply = self._store.perform(settle)
            if reply.applied or settled_by(reply.record, settle):
                return _decision(reply.record, decision)
        return _replay(reply.record, decision)

    def _look(self, job_id: str) -> Reply:
        reply = self._store.perform(Look(Address(self._tenant, SCOPE, job_id)))
        if reply.record is None:
            raise _conflict("job_not_found")
        return reply


def _check_seen(request: ApprovalRequest, seen: dict[str, Any]) -> None:
    if request.status == "expired":
        raise _conflict("approval_expired")
    unknown = seen.keys() - {"revision", "job_hash"}
    if unknown:
        raise TypeError(f"a decision takes revision= and job_hash=, not {', '.join(sorted(unknown))}")
    if any(value is not None and value != getattr(request, name) for name, value in seen.items()):
        raise _conflict("approval_stale_request")


def _replay(record: Record | None, decision: str) -> Decision:
    if record is None or record.state is State.WAITING or _outcome(record)["decision"] != decision:
        raise _conflict("approval_already_resolved")
    return _decision(record, f"already_{decision}")


def _decision(record: Record | None, status: str) -> Decision:
    assert record is not None
    outcome = _outcome(record)
    return Decision(record.asked.at.key, status, outcome["by"], rfc3339(outcome["at"]), 1)


def _request(reply: Reply) -> ApprovalRequest:
    record = reply.record
    assert record is not None
    asked, outcome = record.asked, _outcome(record) if record.outcome else {}
    return ApprovalRequest(
        job_id=asked.at.key,
        topic=asked.tool,
        input=orjson.loads(asked.arguments),
        status=status(reply),
        revision=1,
        job_hash=asked.fingerprint.hex(),
        submitted_by=asked.principal,
        created_at=rfc3339(record.created_at),
        expires_at=rfc3339(_terms(record)["expires_at"]),
        decided_by=outcome.get("by"),
        decided_at=rfc3339(outcome.get("at")),
        reason=outcome.get("reason"),
    )


def _terms(record: Record) -> dict[str, Any]:
    terms: dict[str, Any] = orjson.loads(record.asked.terms)
    return terms


def _outcome(record: Record) -> dict[str, Any]:
    outcome: dict[str, Any] = orjson.loads(record.outcome or b"{}")
    return outcome


def _conflict(code: str) -> ApprovalError:
    error = ApprovalError(f"{_CONFLICTS[code]} Nothing was changed.")
    error.code = code
    return error
