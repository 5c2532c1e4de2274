"""What time brings: lapsed leases are queued again, late questions denied, closed windows forgotten."""

from __future__ import annotations

import logging

from semel.errors import SemelError
from semel.flow import run_progress
from semel.flow.document_store import DocumentStore
from semel.flow.forgetting import close_windows
from semel.flow.model import run_of
from semel.flow.run_progress import Change
from semel.kernel.clock import Clock
from semel.questions import calls, job_index
from semel.questions.change import expire
from semel.questions.job import StoredJob, job_of
from semel.stores.documents import Document, Fetch, Scan
from semel.stores.due import each_due
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
            run_progress.lapse(change, job, asks=(yield from _asks(tenant, job)))
        else:
            expire(change, job)
        committed = yield change.commit(new_tag(clock), expect, kept_us)
        return bool(committed.done)

    return each_due(job_index.DUE, handle)


def _asks(tenant: str, job: StoredJob) -> Inquiry[bool]:
    """Whether a person is asked about a call that its worker made."""
    scanned = yield Scan(tenant, job_index.open_questions_in(job.job_id), 1)
    return bool(scanned.documents)
