"""What time brings: lapsed leases are queued again, late questions denied, closed windows forgotten.

Any number of processes may do it at once: each change is committed on what was read.
"""

from __future__ import annotations

import logging

from semel.errors import SemelError
from semel.flow import indexes, progress
from semel.flow.document_store import DocumentStore
from semel.flow.model import run_of
from semel.flow.progress import Change
from semel.kernel.clock import Clock
from semel.ledger.request_keys import key_record
from semel.questions import calls, job_index
from semel.questions.change import expire
from semel.questions.job import StoredJob, job_of
from semel.stores.documents import Commit, Document, Fetch, Scan
from semel.stores.due import each_due, put_off
from semel.stores.index_names import EXPIRY
from semel.stores.inquiry import Inquiry, new_id, new_tag

log = logging.getLogger("semel")


class Upkeep:
    """All of it, for a gateway."""

    def __init__(self, document_store: DocumentStore, kept_us: int | None) -> None:
        self._document_store = document_store
        self._kept_us = kept_us

    async def run_once(self) -> int:
        """How many documents changed."""
        clock, carry_out = self._document_store.clock, self._document_store.carry_out
        changed = await carry_out(pass_time(clock, self._kept_us))
        changed += await carry_out(calls.pass_time(clock))
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


def pass_time(clock: Clock, kept_us: int | None) -> Inquiry[int]:
    """Jobs whose time has come go on; how many. Those of tool calls are not among them."""

    def handle(tenant: str, document: Document, now_us: int) -> Inquiry[bool]:
        job = job_of(document.body)
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
            expire(change, job)
        committed = yield change.commit(new_tag(clock), expect, kept_us)
        return bool(committed.done)

    return each_due(job_index.DUE, handle)


def _asks(tenant: str, job: StoredJob) -> Inquiry[bool]:
    """Whether a person is asked about a call that its worker made."""
    scanned = yield Scan(tenant, job_index.asked_in(job.job_id), 1)
    return bool(scanned.documents)


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
    found = (yield Fetch(tenant, jobs)).documents
    own = tuple(id_ for id_, job in found.items() if job_of(job.body).run_id == run.run_id)
    return events + own
