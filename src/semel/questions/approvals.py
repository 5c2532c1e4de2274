"""Approvals without a gateway: the tenant's questions to people, whoever asks them, and their decisions.

A call of a tool whose contract asks is a job that nobody leases (`semel.flow`), beside the gated steps and
jobs of the gateway: one mechanism, one list, one decision each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

import orjson
from pydantic_core import from_json

from semel.errors import ApprovalError
from semel.flow import asking, deciding, indexes, views
from semel.flow.asking import Asking
from semel.flow.deciding import Seen
from semel.flow.model import Gate, StoredJob, job_of
from semel.flow.problems import Problem
from semel.flow.values import Caller, JsonAnswer
from semel.kernel.answers import DecisionJson
from semel.kernel.record import Record
from semel.stores.documents import Fetch, Scan, score_on

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
class DecisionAnswer:
    """The answer to a decision; `already_…` if it repeats the one on file."""

    job_id: str
    status: str
    by: str
    at: str | None
    revision: int

    @property
    def replayed(self) -> bool:
        return self.status.startswith("already_")


def question(store: Store, tenant: str, record: Record, approval: Approval) -> Asking[str]:
    """How the question about a waiting call stands; it is put if it was not before."""
    asked = record.asked
    job = StoredJob(
        job_id=asked.job_id,
        topic=asked.tool,
        input=shown_arguments(record),
        status="waiting",
        submitted_by=asked.principal,
        created_us=0,
        record_id=asked.id,
    )
    gate = Gate(approval.expires_us(), approval.reason)
    within, kept_us = views.job_in(asked.conversation), indexes.CALLS_KEPT_US
    put, now_us = yield from deciding.put(tenant, job, gate, within, store.clock, kept_us)
    return str(views.approval(put, now_us)["status"])


def answer(tenant: str, record: Record) -> Asking[str | None]:
    """What a person said about a waiting call; None if nobody has."""
    job_id = record.asked.job_id
    document = (yield Fetch(tenant, (job_id,))).documents.get(job_id)
    decision = document and job_of(document.body).decision
    return decision.status if decision else None


def shown_arguments(record: Record) -> Any:
    """The arguments for a person: a number that a reader of JSON would round is text."""
    return _shown(from_json(record.asked.arguments))


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
    """The questions of one tenant. `wrote` is called when something goes into the audit log."""

    def __init__(self, store: Store, tenant: str, wrote: Callable[[], None] = lambda: None) -> None:
        self._store = store
        self._tenant = tenant
        self._wrote = wrote

    def list(self, status: str | None = None, limit: int = 200) -> Sequence[ApprovalRequest]:
        """Newest first; of one status, or all."""
        found = (request for request in self._newest_first(status) if status in (None, request.status))
        return list(islice(found, limit))

    def _newest_first(self, status: str | None) -> Iterator[ApprovalRequest]:
        # A question that is over by its time stands with the open ones until somebody sweeps.
        index = indexes.approvals(None if status == "expired" else status)
        after: tuple[int, str] | None = None
        while True:
            scanned = self._store.ask(Scan(self._tenant, index, _PAGE, newest=True, after=after))
            yield from (_request(job_of(each.body), scanned.now_us) for each in scanned.documents)
            if len(scanned.documents) < _PAGE:
                return
            last = scanned.documents[-1]
            after = score_on(last, index), last.id

    def get(self, job_id: str) -> ApprovalRequest:
        standing = self._asked(deciding.look(self._tenant, job_id))
        if standing.job.question is None:
            raise _refusal(Problem("job_not_found"))
        return _request(standing.job, standing.now_us)

    def approve(self, job_id: str, *, by: str, reason: str = "", **seen: Any) -> DecisionAnswer:
        """The next call of the waiting key runs. ApprovalError, with the conflict's code, if it cannot be."""
        return self._decide(job_id, "approved", by, reason, seen)

    def reject(self, job_id: str, *, by: str, reason: str = "", **seen: Any) -> DecisionAnswer:
        """The waiting key is settled: every call of it answers APPROVAL_REJECTED."""
        return self._decide(job_id, "rejected", by, reason, seen)

    def _decide(self, job_id: str, status: str, by: str, reason: str, seen: dict[str, Any]) -> DecisionAnswer:
        if not by:
            raise ApprovalError("A decision needs the name of the person who takes it: by=….")
        if unknown := seen.keys() - {*Seen._fields}:
            raise TypeError(f"a decision takes revision= and job_hash=, not {', '.join(sorted(unknown))}")
        self._wrote()
        caller, clock = Caller(self._tenant, by), self._store.clock
        kept_us = indexes.CALLS_KEPT_US
        answer: JsonAnswer[DecisionJson] = self._asked(
            deciding.decide(caller, job_id, status, reason, Seen(**seen), clock, kept_us)
        )
        said = orjson.loads(answer.body)
        return DecisionAnswer(
            job_id, said["status"], said[f"{status}_by"], said[f"{status}_at"], said["revision"]
        )

    def _asked(self, wanted: Asking[Any]) -> Any:
        try:
            return asking.ask(self._store, wanted)
        except Problem as problem:
            raise _refusal(problem) from None


def _request(job: StoredJob, now_us: int) -> ApprovalRequest:
    return ApprovalRequest(**views.approval(job, now_us))


def _refusal(problem: Problem) -> ApprovalError:
    error = ApprovalError(f"{problem.message} Nothing was changed.")
    error.code = problem.code
    return error
