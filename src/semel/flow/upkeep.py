"""What time brings: lapsed leases are queued again, late questions denied, closed windows forgotten.

Any number of processes may do it at once: each change is committed on what was read.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from semel.errors import SemelError, StoreCorrupt
from semel.flow import calls, indexes, progress
from semel.flow.asking import Asking, new_id, new_tag
from semel.flow.document_store import DocumentStore
from semel.flow.keys import key_record
from semel.flow.model import StoredJob, job_of, run_of
from semel.flow.progress import Change
from semel.kernel.clock import Clock
from semel.stores.documents import Commit, Document, Draft, Entry, Fetch, Scan, Scanned, Tenants, score_on

log = logging.getLogger("semel")

# Handled of one tenant before the next one's turn.
_BATCH = 200


class Upkeep:
    """All of it, for a gateway."""

    def __init__(self, document_store: DocumentStore, kept_us: int | None) -> None:
        self._document_store = document_store
        self._kept_us = kept_us

    async def run_once(self) -> int:
        """How many documents changed."""
        clock, carry_out = self._document_store.clock, self._document_store.carry_out
        changed = await carry_out(pass_time(clock, indexes.DUE, self._kept_us))
        changed += await carry_out(pass_time(clock, indexes.DUE_CALLS, self._kept_us))
        return changed + await carry_out(close_windows(clock))

    async def run(self, every_s: float = 1.0) -> None:
        while True:
            try:
                await self.run_once()
            except SemelError:
                pass  # the store is away: what is due stays due
            except Exception:
                log.exception("upkeep failed, and goes on with the next round")
            await self._document_store.clock.asleep(every_s)


def pass_time(clock: Clock, index: str, kept_us: int | None) -> Asking[int]:
    """Jobs in the index whose time has come go on; how many."""
    changed = 0
    for tenant in (yield Tenants(index)):
        scanned = yield Scan(tenant, index, _BATCH)
        for document in _due(scanned, index):
            try:
                changed += yield from _pass(tenant, document, scanned.now_us, clock, kept_us)
            except StoreCorrupt:
                _left_alone(document)
    return changed


def _left_alone(document: Document) -> None:
    """One damaged document does not stop what is due for others."""
    log.error("semel: the document %s is damaged, and is left as it is", document.id)


def _due(scanned: Scanned, index: str) -> Iterator[Document]:
    return (each for each in scanned.documents if score_on(each, index) <= scanned.now_us)


def _pass(tenant: str, document: Document, now_us: int, clock: Clock, kept_us: int | None) -> Asking[bool]:
    job = job_of(document.body)
    if calls.is_approved(job):
        return (yield from _look(tenant, document, now_us, clock))
    expect: dict[str, str | None] = {document.id: document.tag}
    run = None
    if job.run_id is not None:
        parent = (yield Fetch(tenant, (job.run_id,))).documents.get(job.run_id)
        if parent is not None:
            run, expect[parent.id] = run_of(parent.body), parent.tag
    change = Change(tenant, now_us, lambda kind: new_id(clock, kind), run)
    if job.status == "leased":
        progress.lapse(change, job, asks=(yield from _asks(tenant, job)))
    else:
        progress.expire(change, job)
    committed = yield change.commit(new_tag(clock), expect, kept_us)
    return bool(committed.done)


def _look(tenant: str, document: Document, now_us: int, clock: Clock) -> Asking[bool]:
    later_us = yield from calls.look(tenant, document, now_us, clock)
    if later_us is None:
        return True
    put_off = _put_off(document, indexes.DUE_CALLS, later_us)
    yield Commit(tenant, new_tag(clock), {document.id: document.tag}, (put_off,))
    return False


def _asks(tenant: str, job: StoredJob) -> Asking[bool]:
    """Whether a person is asked about a call that its worker made."""
    scanned = yield Scan(tenant, indexes.asked_in(job.job_id), 1)
    return bool(scanned.documents)


def close_windows(clock: Clock) -> Asking[int]:
    """What has been kept for as long as it had to be is dropped, with all that belongs to it; how many."""
    closed = 0
    for tenant in (yield Tenants(indexes.EXPIRY)):
        scanned = yield Scan(tenant, indexes.EXPIRY, _BATCH)
        for document in _due(scanned, indexes.EXPIRY):
            try:
                closed += yield from _close(tenant, document, scanned.now_us, clock)
            except StoreCorrupt:
                _left_alone(document)
    return closed


def _close(tenant: str, document: Document, now_us: int, clock: Clock) -> Asking[bool]:
    """Whether the document is forgotten. A key whose run or job lives, or ended lately, is kept for later."""
    expect: dict[str, str | None] = {document.id: document.tag}
    later_us = yield from _later(tenant, document, now_us)
    if later_us is not None:
        yield Commit(tenant, new_tag(clock), expect, (_put_off(document, indexes.EXPIRY, later_us),))
        return False
    drop = (document.id, *(yield from _belongings(tenant, document)))
    yield Commit(tenant, new_tag(clock), expect, drop=drop)
    return True


def _later(tenant: str, document: Document, now_us: int) -> Asking[int | None]:
    if not document.id.startswith("rec_"):
        return None
    record = key_record(document)
    subject_id = record.subject_id
    if subject_id is None:
        return None
    subjects = (yield Fetch(tenant, (subject_id,))).documents
    return record.look_again_us(subjects.get(subject_id), now_us)


def _put_off(document: Document, index: str, until_us: int) -> Draft:
    others = (entry for entry in document.entries if entry.index_name != index)
    return Draft(document.id, document.body, (*others, Entry(index, until_us)))


def _belongings(tenant: str, document: Document) -> Asking[tuple[str, ...]]:
    if not document.id.startswith("run_"):
        return ()
    run = run_of(document.body)
    events = tuple(indexes.event_id(run.run_id, seq) for seq in range(1, run.seq + 1))
    jobs = tuple(step.job_id for step in run.steps if step.job_id)
    found = (yield Fetch(tenant, jobs)).documents
    own = tuple(id_ for id_, job in found.items() if job_of(job.body).run_id == run.run_id)
    return events + own
