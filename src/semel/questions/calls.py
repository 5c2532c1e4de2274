"""The job of a tool's call that people are asked about: nobody leases it; it ends when the record does.

Whoever settles the record says so at once. What was settled by others, by a probe, a person or somebody who
died just then, a sweeper finds: it looks at the record now and then.
"""

from __future__ import annotations

from dataclasses import replace

from semel.kernel.clock import Clock
from semel.kernel.record import SETTLED, State
from semel.questions import job_index
from semel.questions.change import JobChange, ended, expire
from semel.questions.job import StoredJob, job_of
from semel.stores.base import FindRecord
from semel.stores.documents import Commit, Document, Fetch
from semel.stores.due import each_due, put_off
from semel.stores.inquiry import Inquiry, new_id, new_tag

# When to look at an approved call again: after a quarter of the time since the yes, within these bounds. Most
# calls are made soon after it, and nobody waits for the job of the others.
_LOOK_PART, _LOOK_US_MIN, _LOOK_US_MAX = 4, 1_000_000, 3_600_000_000


def settled(tenant: str, job_id: str, state: State, clock: Clock) -> Inquiry[None]:
    """The job ends as its call did. If it changed just now, a sweeper sees to it."""
    fetched = yield Fetch(tenant, (job_id,))
    document = fetched.documents.get(job_id)
    if document is not None and is_approved(job_of(document.body)):
        yield from _end(tenant, document, fetched.now_us, state, clock)


def is_approved(job: StoredJob) -> bool:
    """Whether it is the job of a call that may be made, and is not known to be."""
    return job.record_id is not None and job.status == "queued"


def pass_time(clock: Clock) -> Inquiry[int]:
    """Questions of calls that nobody answered in time are over, and calls are looked after; how many changed.

    Also where no gateway runs: every ledger sees to it.
    """

    def handle(tenant: str, document: Document, now_us: int) -> Inquiry[bool]:
        if is_approved(job_of(document.body)):
            return (yield from _looked(tenant, document, now_us, clock))
        change = JobChange(tenant, now_us, lambda kind: new_id(clock, kind))
        expire(change, job_of(document.body))
        expect = {document.id: document.tag}
        committed = yield change.commit(new_tag(clock), expect, job_index.CALLS_KEPT_US)
        return bool(committed.done)

    return each_due(job_index.DUE_CALLS, handle)


def _looked(tenant: str, document: Document, now_us: int, clock: Clock) -> Inquiry[bool]:
    later_us = yield from _look(tenant, document, now_us, clock)
    if later_us is None:
        return True
    later = put_off(document, job_index.DUE_CALLS, later_us)
    yield Commit(tenant, new_tag(clock), {document.id: document.tag}, (later,))
    return False


def _look(tenant: str, document: Document, now_us: int, clock: Clock) -> Inquiry[int | None]:
    """When to look at the job's record again; None if both have ended, or the record is gone."""
    job = job_of(document.body)
    assert job.record_id is not None
    record = yield FindRecord(tenant, job.record_id)
    if record is None or record.state in SETTLED:
        yield from _end(tenant, document, now_us, record and record.state, clock)
        return None
    since_us = now_us - (job.decision.at_us if job.decision else job.created_us)
    return int(now_us + min(max(since_us // _LOOK_PART, _LOOK_US_MIN), _LOOK_US_MAX))


def _end(tenant: str, document: Document, now_us: int, state: State | None, clock: Clock) -> Inquiry[None]:
    change = JobChange(tenant, now_us, lambda kind: new_id(clock, kind))
    change.put(_ended(change, job_of(document.body), state))
    yield change.commit(new_tag(clock), {document.id: document.tag}, job_index.CALLS_KEPT_US)


def _ended(change: JobChange, job: StoredJob, state: State | None) -> StoredJob:
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
