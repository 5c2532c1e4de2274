"""Approvals without a gateway: the tenant's questions to people, whoever asks them, and their decisions.

A call of a tool whose contract asks is a job that nobody leases (`calls`), beside the gated steps and jobs of
the gateway: one mechanism, one list, one decision each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic_core import from_json

from semel.errors import ApprovalError
from semel.kernel.record import Record
from semel.questions import deciding, job_index, views
from semel.questions.change import WhatFollows
from semel.questions.deciding import Decided, Decider, Seen
from semel.questions.job import Gate, StoredJob, job_in, job_of
from semel.questions.job_index import CALLS_KEPT_US
from semel.questions.refusals import Refusal
from semel.stores.documents import Fetch, Scan, score_on
from semel.stores.inquiry import Inquiry, carry_out

if TYPE_CHECKING:
    from semel.contract.result import Approval
    from semel.stores.base import Store

_PAGE = 200


@dataclass(frozen=True)
class ApprovalRequest:
    """What a person sees, and what was decided."""

    job_id: str
    topic: str
    input: Any
    status: str  # waiting, approved, rejected, expired, cancelled
    revision: int
    job_hash: str
    submitted_by: str
    created_at: str | None
    expires_at: str | None
    decided_by: str | None = None
    decided_at: str | None = None
    reason: str | None = None
    run_id: str | None = None
    labels: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Question:
    """What a tool's contract asks a person about one call, as plain data: for whoever shows it to them."""

    job_id: str  # empty if nobody was asked
    tool: str
    arguments: Any
    status: str  # waiting, approved, rejected, expired, cancelled; not_asked: the call is past the question
    expires_at: str | None
    job_hash: str

    # Whether it was put just now, so that nobody has seen it yet. No field: it is about this answer alone.
    new: ClassVar[bool] = False

    @classmethod
    def of(cls, request: ApprovalRequest, *, new: bool = False) -> Question:
        question = cls(
            request.job_id,
            request.topic,
            request.input,
            request.status,
            request.expires_at,
            request.job_hash,
        )
        object.__setattr__(question, "new", new)
        return question


def question(store: Store, tenant: str, record: Record, approval: Approval) -> Inquiry[ApprovalRequest]:
    """How the question about a waiting call stands; it is put if it was not before."""
    request = record.request
    job = StoredJob(
        job_id=request.job_id,
        topic=request.tool,
        input=shown_arguments(record),
        status="waiting",
        submitted_by=request.principal,
        created_us=0,
        record_id=request.id,
    )
    gate = Gate(approval.expires_us(), approval.reason)
    within, kept_us = job_in(request.conversation), CALLS_KEPT_US
    put, now_us = yield from deciding.put(tenant, job, gate, within, store.clock, kept_us)
    return _request(put, now_us)


def earlier(tenant: str, record: Record) -> Inquiry[ApprovalRequest | None]:
    """The question that was put about a call before it was made; None if there is none any more."""
    job_id = record.request.job_id
    if not job_id:
        return None
    fetched = yield Fetch(tenant, (job_id,))
    document = fetched.documents.get(job_id)
    return document and _request(job_of(document.body), fetched.now_us)


def answer(tenant: str, record: Record) -> Inquiry[str | None]:
    """What a person said about a waiting call; None if nobody has."""
    job_id = record.request.job_id
    document = (yield Fetch(tenant, (job_id,))).documents.get(job_id)
    decision = document and job_of(document.body).decision
    return decision.status if decision else None


def shown_arguments(record: Record) -> Any:
    """The arguments for a person: a number that a reader of JSON would round is text."""
    return _shown(from_json(record.request.arguments))


def _shown(value: Any) -> Any:
    match value:
        case dict():
            return {name: _shown(each) for name, each in value.items()}
        case list():
            return [_shown(each) for each in value]
        case int() if not -(1 << 63) <= value < 1 << 64:
            return str(value)
        case _:
            return value


class Approvals:
    """The questions of one tenant.

    `follows` knows what jobs are part of; `wrote` is called when something goes into the audit log.
    """

    def __init__(
        self, store: Store, tenant: str, follows: WhatFollows, wrote: Callable[[], None] = lambda: None
    ) -> None:
        self._store = store
        self._tenant = tenant
        self._follows = follows
        self._wrote = wrote

    def list(self, status: str | None = None, limit: int = 200) -> Sequence[ApprovalRequest]:
        """Newest first; of one status, or all."""
        requests = (request for request in self._newest_first(status) if status in (None, request.status))
        return list(islice(requests, limit))

    def _newest_first(self, status: str | None) -> Iterator[ApprovalRequest]:
        # A question that is over by its time is listed with the open ones until somebody sweeps.
        index = job_index.approvals(None if status == "expired" else status)
        after: tuple[int, str] | None = None
        while True:
            scanned = self._store.ask(Scan(self._tenant, index, _PAGE, newest=True, after=after))
            yield from (_request(job_of(each.body), scanned.now_us) for each in scanned.documents)
            if len(scanned.documents) < _PAGE:
                return
            last = scanned.documents[-1]
            after = score_on(last, index), last.id

    def get(self, job_id: str) -> ApprovalRequest:
        snapshot = self._carry_out(deciding.look(self._tenant, job_id, self._follows))
        if snapshot.job.question is None:
            raise _error(Refusal("job_not_found"))
        return _request(snapshot.job, snapshot.now_us)

    def approve(self, job_id: str, *, by: str, reason: str = "", **seen: Any) -> Decided:
        """The next call of the waiting key runs. ApprovalError, with the conflict's code, if it cannot be."""
        return self._decide(job_id, "approved", by, reason, seen)

    def reject(self, job_id: str, *, by: str, reason: str = "", **seen: Any) -> Decided:
        """The waiting key is settled: every call of it answers APPROVAL_REJECTED."""
        return self._decide(job_id, "rejected", by, reason, seen)

    def _decide(self, job_id: str, status: str, by: str, reason: str, seen: dict[str, Any]) -> Decided:
        if not by:
            raise ApprovalError("A decision needs the name of the person who takes it: by=….")
        if unknown := seen.keys() - {*Seen._fields}:
            raise TypeError(f"a decision takes revision= and job_hash=, not {', '.join(sorted(unknown))}")
        self._wrote()
        decider = Decider(self._tenant, by, self._store.clock, CALLS_KEPT_US, self._follows)
        answer: Decided = self._carry_out(deciding.decide(decider, job_id, status, reason, Seen(**seen)))
        return answer

    def _carry_out(self, queries: Inquiry[Any]) -> Any:
        try:
            return carry_out(self._store, queries)
        except Refusal as refusal:
            raise _error(refusal) from None


def _request(job: StoredJob, now_us: int) -> ApprovalRequest:
    return ApprovalRequest(**views.approval(job, now_us))


def _error(refusal: Refusal) -> ApprovalError:
    error = ApprovalError(f"{refusal.message} Nothing was changed.")
    error.code = refusal.code
    return error
