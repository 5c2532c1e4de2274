"""One decision per job, bound to what the person saw; the order of the checks is the interface's."""

from __future__ import annotations

from typing import Any

import orjson

from semel.clock import rfc3339
from semel.flow import progress, shelves, views
from semel.flow.cabinet import Cabinet
from semel.flow.model import LIVE_RUN, Decision, Job, Run, job_of, run_of
from semel.flow.problems import Problem
from semel.flow.progress import Change
from semel.flow.values import Answer, Caller, Page, next_after
from semel.stores.documents import Document, Scan


class JobApprovals:
    def __init__(self, cabinet: Cabinet, kept_us: int | None) -> None:
        self._cabinet = cabinet
        self._kept_us = kept_us

    async def list(self, tenant: str, status: str | None, after: tuple[int, str] | None, limit: int) -> Page:
        shelf = shelves.approvals(status)
        scanned = await self._cabinet.scan(Scan(tenant, shelf, limit, newest=True, after=after))
        documents = list(scanned.documents)
        items = [views.approval(job_of(each.body)) for each in documents]
        return Page(items, next_after(documents, shelf, limit))

    async def get(self, tenant: str, job_id: str) -> dict[str, Any]:
        job = job_of((await self._document(tenant, job_id)).body)
        if job.question is None:
            raise Problem("job_not_found", "Nobody is asked about this job.")
        return views.approval(job)

    async def decide(
        self,
        caller: Caller,
        job_id: str,
        status: str,
        reason: str = "",
        revision: int | None = None,
        job_hash: str | None = None,
    ) -> Answer:
        """The decision, the job's next state and the message that announces it are on file together."""
        while True:
            job, run, expect = await self._seen(caller.tenant, job_id)
            now_us = await self._cabinet.now_us()
            if replayed := judged(caller, job, run, status, now_us, revision, job_hash):
                return replayed
            change = Change(caller.tenant, now_us, self._cabinet.new_id, run)
            decision = Decision(status, caller.principal, now_us, reason)
            progress.decide(change, job, decision)
            committed = await self._cabinet.commit(caller.tenant, expect, change.drafts(self._kept_us))
            if committed.done:
                return Answer(_answer(change.jobs[job_id], status))

    async def _document(self, tenant: str, job_id: str) -> Document:
        document = (await self._cabinet.fetch(tenant, job_id)).get(job_id)
        if document is None or not job_id.startswith("job_"):
            raise Problem("job_not_found")
        return document

    async def _seen(self, tenant: str, job_id: str) -> tuple[Job, Run | None, dict[str, str | None]]:
        """Job and run as of one moment, and their tags: a run that ended after the job was read would hide
        that the decision is on file."""
        document = await self._document(tenant, job_id)
        run_id = job_of(document.body).run_id
        if run_id is None:
            return job_of(document.body), None, {job_id: document.tag}
        found = await self._cabinet.fetch(tenant, job_id, run_id)
        if job_id not in found:
            raise Problem("job_not_found")
        parent = found.get(run_id)
        expect: dict[str, str | None] = {each.id: each.tag for each in found.values()}
        return job_of(found[job_id].body), parent and run_of(parent.body), expect


def judged(
    caller: Caller,
    job: Job,
    run: Run | None,
    status: str,
    now_us: int,
    revision: int | None,
    job_hash: str | None,
) -> Answer | None:
    """None if the decision can be taken; the answer if it was taken before; else a Problem."""
    if job.submitted_by == caller.principal:
        raise Problem("self_approval_denied")
    if job.decision is not None:
        if job.decision.status != status:
            raise Problem("approval_already_resolved", decided=job.decision.status)
        return Answer(_answer(job, f"already_{status}"), replayed=True)
    if job.question is None or job.status == "cancelled":
        raise Problem("approval_not_actionable")
    if run is not None and run.status not in LIVE_RUN:
        raise Problem("approval_terminal_run")
    if job.status != "waiting" or job.question.expires_us <= now_us:
        raise Problem("approval_expired")
    if revision not in (None, job.question.revision) or job_hash not in (None, views.job_hash(job)):
        raise Problem("approval_stale_request")
    return None


def _answer(job: Job, status: str) -> bytes:
    decision, question = job.decision, job.question
    assert decision is not None
    assert question is not None
    verb = decision.status
    return orjson.dumps(
        {
            "job_id": job.job_id,
            "status": status,
            f"{verb}_by": decision.by,
            f"{verb}_at": rfc3339(decision.at_us),
            "revision": question.revision,
        }
    )
