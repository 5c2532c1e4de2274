"""The job of a tool's call that a person approved: nobody leases it, and it ends when the call's record does.

Whoever settles the record says so at once. What was settled by others, by a probe, a person or somebody who
died just then, a sweeper finds: it looks at the record now and then.
"""

from __future__ import annotations

from dataclasses import replace

from semel.flow import indexes
from semel.flow.asking import Asking, new_id, new_tag
from semel.flow.model import StoredJob, job_of
from semel.flow.progress import Change, ended
from semel.kernel.clock import Clock
from semel.kernel.record import SETTLED, State
from semel.stores.base import FindRecord
from semel.stores.documents import Document, Fetch

# Soon after the yes the call is made; one that is not yet may be made tomorrow, and nobody waits for the job.
_LOOK_PART, _LOOK_US_MIN, _LOOK_US_MAX = 4, 1_000_000, 3_600_000_000


def settled(tenant: str, job_id: str, state: State, clock: Clock) -> Asking[None]:
    """The job ends as its call did. If it changed just now, a sweeper sees to it."""
    fetched = yield Fetch(tenant, (job_id,))
    document = fetched.documents.get(job_id)
    if document is not None and is_approved(job_of(document.body)):
        yield from _end(tenant, document, fetched.now_us, state, clock)


def is_approved(job: StoredJob) -> bool:
    """Whether it is the job of a call that may be made, and is not known to be."""
    return job.record_id is not None and job.status == "queued"


def look(tenant: str, document: Document, now_us: int, clock: Clock) -> Asking[int | None]:
    """When to look at the job's record again; None if both have ended, or the record is gone."""
    job = job_of(document.body)
    assert job.record_id is not None
    record = yield FindRecord(tenant, job.record_id)
    if record is None or record.state in SETTLED:
        yield from _end(tenant, document, now_us, record and record.state, clock)
        return None
    since_us = now_us - (job.decision.at_us if job.decision else job.created_us)
    return int(now_us + min(max(since_us // _LOOK_PART, _LOOK_US_MIN), _LOOK_US_MAX))


def _end(tenant: str, document: Document, now_us: int, state: State | None, clock: Clock) -> Asking[None]:
    change = Change(tenant, now_us, lambda kind: new_id(clock, kind))
    change.put(_ended(change, job_of(document.body), state))
    yield change.commit(new_tag(clock), {document.id: document.tag}, indexes.CALLS_KEPT_US)


def _ended(change: Change, job: StoredJob, state: State | None) -> StoredJob:
    """What came out is in the record: here only which one, so that no value is kept twice."""
    if state is State.DONE:
        return replace(ended(change, job, "succeeded"), result={"record_id": job.record_id})
    if state is None:
        message = "The call was not made while its record was kept."
        return replace(ended(change, job, "cancelled"), error=_error("call_not_made", message))
    code = "call_partial" if state is State.PARTIAL else "call_failed"
    return replace(ended(change, job, "failed"), error=_error(code, f"Its record says why: {job.record_id}."))


def _error(code: str, message: str) -> dict[str, object]:
    return {"code": code, "message": message, "retriable": False}
