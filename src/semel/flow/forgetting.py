"""Closed windows: what has been kept for as long as it had to be is dropped, whoever sweeps.

Any number of processes may do it at once: each change is committed on what was read.
"""

from __future__ import annotations

from semel.flow import indexes
from semel.flow.model import run_of
from semel.kernel.clock import Clock
from semel.ledger.request_keys import key_record
from semel.questions.job import job_of
from semel.stores.documents import Commit, Document, Draft, Fetch, Scan
from semel.stores.due import each_due, put_off
from semel.stores.index_names import EXPIRY, keys_of
from semel.stores.inquiry import Inquiry, new_tag

# Keys read at once that were made within one microsecond: nearly always there is one.
_BATCH = 20


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
    drop, put = [document.id, *(yield from _belongings(tenant, document))], list[Draft]()
    for key in (yield from _keys_of(tenant, document)):
        expect[key.id] = key.tag
        later_us = key_record(key).look_again_us(document, now_us)
        if later_us is None:
            drop.append(key.id)
        else:
            put.append(put_off(key, EXPIRY, later_us))
    yield Commit(tenant, new_tag(clock), expect, tuple(put), tuple(drop))
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


def _keys_of(tenant: str, document: Document) -> Inquiry[list[Document]]:
    """The keys that stand for this run or job and have a window: they have the time at which it was made."""
    if document.id.startswith("run_"):
        created_us = run_of(document.body).created_us
        keys = yield from _made_at(tenant, keys_of("run"), created_us)
        keys += yield from _made_at(tenant, keys_of("rerun"), created_us)
    elif document.id.startswith("job_"):
        keys = yield from _made_at(tenant, keys_of("job"), job_of(document.body).created_us)
    else:
        return []
    return [each for each in keys if _stands_for(each, document.id)]


def _made_at(tenant: str, index: str, created_us: int) -> Inquiry[list[Document]]:
    documents: list[Document] = []
    after = created_us, ""
    while True:
        scanned = yield Scan(tenant, index, _BATCH, after=after, upto=created_us)
        documents += scanned.documents
        if len(scanned.documents) < _BATCH:
            return documents
        after = created_us, documents[-1].id


def _stands_for(key: Document, subject_id: str) -> bool:
    record = key_record(key)
    return record.subject_id == subject_id and record.expires_us is not None


def _belongings(tenant: str, document: Document) -> Inquiry[tuple[str, ...]]:
    if not document.id.startswith("run_"):
        return ()
    run = run_of(document.body)
    events = tuple(indexes.event_id(run.run_id, seq) for seq in range(1, run.seq + 1))
    jobs = tuple(step.job_id for step in run.steps if step.job_id)
    documents = (yield Fetch(tenant, jobs)).documents
    own = tuple(id_ for id_, job in documents.items() if job_of(job.body).run_id == run.run_id)
    return events + own
