"""Questions to people against the audit log: a decision is what its events tell, or somebody changed it.

A question is a document, not a record; its events are committed with it (semel.questions.deciding). Compared
are how it stands, who decided, when and why, the digest of what the person saw, and the call's arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from semel.audit.events import DECIDED, WAITING, Event
from semel.errors import StoreCorrupt
from semel.kernel.clock import rfc3339
from semel.kernel.record import Record
from semel.questions.approvals import shown_arguments
from semel.questions.job import StoredJob, job_of, question_status
from semel.questions.job_index import APPROVALS
from semel.questions.views import job_hash
from semel.stores.base import FindRecord, Store
from semel.stores.documents import Fetch, Scan, score_on

_PAGE = 200

GONE = "its events end as waiting, but the question is not there"
DAMAGED = "its document is damaged"
NO_EVENTS = "it has no events: they were removed, or it was written with ?audit=off"


def question(store: Store, tenant: str, job_id: str) -> StoredJob | None:
    """The job that the question is about; StoreCorrupt if it cannot be read."""
    document = store.ask(Fetch(tenant, (job_id,))).documents.get(job_id)
    return document and job_of(document.body)


def questions_in(store: Store, tenant: str) -> Iterator[tuple[str, int]]:
    """The job of each question of the tenant, and when it was put, newest first, one page in memory."""
    after: tuple[int, str] | None = None
    while True:
        documents = store.ask(Scan(tenant, APPROVALS, _PAGE, newest=True, after=after)).documents
        for document in documents:
            after = score_on(document, APPROVALS), document.id
            yield document.id, after[0]
        if len(documents) < _PAGE:
            return


def question_difference(store: Store, tenant: str, job_id: str, lines: Sequence[Event]) -> str | None:
    """How the question differs from what its events tell; None if it does not."""
    decisions = [line for line in lines if line.kind in DECIDED]
    try:
        job = question(store, tenant, job_id)
    except StoreCorrupt:
        return DAMAGED
    if not decisions:
        return NO_EVENTS if job is not None else None
    if job is None:
        # Once it is over it is forgotten in time; for how long it is kept is the gateways' affair.
        return GONE if decisions[-1].kind == WAITING else None
    if job.question is None:
        return "its events tell of a question, but the job has none"
    wrong = [*_compared(job, decisions[-1]), *_call_compared(store, tenant, job)]
    return "; ".join(wrong) or None


def _call_compared(store: Store, tenant: str, job: StoredJob) -> Iterator[str]:
    """The call that was asked for runs with the arguments of its record: they are those of the question."""
    record = store.ask(FindRecord(tenant, job.record_id)) if job.record_id is not None else None
    if record is not None and not _same_arguments(record, job):
        yield "the call's arguments are not what the person saw"


def _same_arguments(record: Record, job: StoredJob) -> bool:
    try:
        return bool(shown_arguments(record) == job.input)
    except ValueError:
        return False  # somebody left no JSON there


def _compared(job: StoredJob, last: Event) -> Iterator[str]:
    pairs = [("status", question_status(job), last.kind)]
    if job.decision is not None:
        decision = job.decision
        pairs += [
            ("decided by", decision.by, last.by),
            ("decided at", rfc3339(decision.at_us) or "", rfc3339(last.at_us) or ""),
            ("reason", decision.reason, last.note),
        ]
    yield from (f"{name} is {is_!r}, by its events {was!r}" for name, is_, was in pairs if is_ != was)
    if bytes.fromhex(job_hash(job)) != last.digest:
        yield "what was asked is not what the person saw"
