"""Closed windows: what has been kept for as long as it had to be is dropped, whoever sweeps.

Any number of processes may do it at once: each change is committed on what was read.
"""

from __future__ import annotations

from semel.flow import indexes
from semel.flow.model import run_of
from semel.kernel.clock import Clock
from semel.ledger.request_keys import key_record
from semel.questions.job import job_of
from semel.stores.documents import Commit, Document, Fetch
from semel.stores.due import each_due, put_off
from semel.stores.index_names import EXPIRY
from semel.stores.inquiry import Inquiry, new_tag


def close_windows(clock: Clock) -> Inquiry[int]:
    """What has been kept for as long as it had to be is dropped, with all that belongs to it; how many."""
    return each_due(EXPIRY, lambda tenant, document, now_us: _close(tenant, document, now_us, clock))


def _close(tenant: str, document: Document, now_us: int, clock: Clock) -> Inquiry[bool]:
    """Whether the document is forgotten. A key whose run or job lives, or ended lately, is kept for later."""
    expect: dict[str, str | None] = {document.id: document.tag}
    later_us = yield from _later(tenant, document, now_us)
    if later_us is not None:
        yield Commit(tenant, new_tag(clock), expect, (put_off(document, EXPIRY, later_us),))
        return False
    drop = (document.id, *(yield from _belongings(tenant, document)))
    yield Commit(tenant, new_tag(clock), expect, drop=drop)
    return True


def _later(tenant: str, document: Document, now_us: int) -> Inquiry[int | None]:
    if not document.id.startswith("rec_"):
        return None
    record = key_record(document)
    subject_id = record.subject_id
    if subject_id is None:
        return None
    subjects = (yield Fetch(tenant, (subject_id,))).documents
    return record.look_again_us(subjects.get(subject_id), now_us)


def _belongings(tenant: str, document: Document) -> Inquiry[tuple[str, ...]]:
    if not document.id.startswith("run_"):
        return ()
    run = run_of(document.body)
    events = tuple(indexes.event_id(run.run_id, seq) for seq in range(1, run.seq + 1))
    jobs = tuple(step.job_id for step in run.steps if step.job_id)
    documents = (yield Fetch(tenant, jobs)).documents
    own = tuple(id_ for id_, job in documents.items() if job_of(job.body).run_id == run.run_id)
    return events + own
