"""Questions to people, for the gateway: listed, read, decided."""

from __future__ import annotations

from semel.flow.document_store import DocumentStore
from semel.flow.run_progress import RunsFollow
from semel.flow.values import Caller, JsonAnswer, Page, next_after, written
from semel.kernel.answers import ApprovalJson, DecisionJson, RecordJson
from semel.questions import deciding, job_index, views
from semel.questions.deciding import Decider, JobSnapshot, Seen
from semel.questions.job import job_of
from semel.questions.refusals import Refusal
from semel.stores.documents import Scan

Items = list[RecordJson]


class JobApprovals:
    def __init__(self, document_store: DocumentStore, kept_us: int | None) -> None:
        self._document_store = document_store
        self._kept_us = kept_us
        self._follows = RunsFollow()

    async def list(
        self, tenant: str, status: str | None, after: tuple[int, str] | None, limit: int
    ) -> Page[ApprovalJson]:
        index = job_index.approvals(status)
        documents = await self._document_store.page(tenant, (index,), limit, after)
        now_us = await self._document_store.now_us()
        items = [views.approval(job_of(each.body), now_us) for each in documents]
        kept = [item for item in items if status in (None, item["status"])]
        return Page(kept, next_after(documents, limit, index))

    async def get(self, tenant: str, job_id: str) -> ApprovalJson:
        snapshot = await self._look(tenant, job_id)
        if snapshot.job.question is None:
            raise Refusal("job_not_found", "Nobody is asked about this job.")
        return views.approval(snapshot.job, snapshot.now_us)

    async def records(
        self, tenant: str, status: str | None, after: tuple[int, str] | None, limit: int
    ) -> Items:
        """Questions as records, newest first; `after` is the last record of any kind that was seen.

        What is over by its time is listed with the waiting ones until somebody sweeps.
        """
        before = after and (after[0], views.job_of_question(after[1]))
        scan = Scan(tenant, job_index.approvals(status), limit, newest=True, after=before)
        scanned = await self._document_store.scan(scan)
        return [views.question_record(job_of(each.body), scanned.now_us) for each in scanned.documents]

    async def record(self, tenant: str, job_id: str) -> RecordJson | None:
        """The question about this job as a record; None if nobody is asked."""
        try:
            snapshot = await self._look(tenant, job_id)
        except Refusal:
            return None
        return views.question_record(snapshot.job, snapshot.now_us) if snapshot.job.question else None

    async def decide(
        self,
        caller: Caller,
        job_id: str,
        status: str,
        reason: str = "",
        revision: int | None = None,
        job_hash: str | None = None,
    ) -> JsonAnswer[DecisionJson]:
        """The decision, the job's next state and the message that announces it are on file together."""
        decider = Decider(
            caller.tenant, caller.principal, self._document_store.clock, self._kept_us, self._follows
        )
        answer = await self._document_store.carry_out(
            deciding.decide(decider, job_id, status, reason, Seen(revision, job_hash))
        )
        return written(answer.as_data(), replayed=answer.replayed)

    async def _look(self, tenant: str, job_id: str) -> JobSnapshot:
        return await self._document_store.carry_out(deciding.look(tenant, job_id, self._follows))
