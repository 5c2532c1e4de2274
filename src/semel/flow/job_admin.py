"""Jobs for people: listed, and cancelled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from semel.flow import run_progress, views
from semel.flow.document_store import DocumentStore
from semel.flow.model import run_of
from semel.flow.problems import Refused
from semel.flow.run_progress import Change
from semel.flow.values import Caller, JsonAnswer, Page, written
from semel.kernel.answers import JobJson
from semel.questions import job_index
from semel.questions.job import LIVE_JOB, StoredJob, job_of

# Read at once where a filter leaves some out, and how often for one page: a rare kind may take several.
_BATCH, _BATCHES_MAX = 200, 10

_After = tuple[int, str] | None


class JobFilter(NamedTuple):
    """Which jobs; None: whichever."""

    status: str | None = None
    topic: str | None = None
    run_id: str | None = None

    def fits(self, job: StoredJob) -> bool:
        return self.status in (None, job.status) and self.topic in (None, job.topic)


class JobAdmin:
    def __init__(self, document_store: DocumentStore, kept_us: int | None) -> None:
        self._document_store = document_store
        self._kept_us = kept_us

    # --- listing ---------------------------------------------------------------------------------

    async def list(self, tenant: str, filter_: JobFilter, after: _After, limit: int) -> Page[JobJson]:
        """Newest first. A page may be shorter than `limit` and still not be the last."""

        async def read(after: _After, size: int) -> Sequence[StoredJob]:
            if filter_.run_id is not None:
                return (await self._of_run(tenant, filter_.run_id, after))[:size]
            names = job_index.listed_jobs(filter_.topic, filter_.status)
            documents = await self._document_store.newest(tenant, names, size, after)
            return [job_of(document.body) for document in documents]

        jobs, next_after = await _sifted(read, filter_.fits, after, limit)
        return Page([views.job(job) for job in jobs], next_after)

    async def _of_run(self, tenant: str, run_id: str, after: _After) -> Sequence[StoredJob]:
        """The run names its jobs, so no index has to: a run that does not exist has none."""
        parent = (await self._document_store.fetch(tenant, run_id)).get(run_id)
        if parent is None or not run_id.startswith("run_"):
            return []
        ids = [step.job_id for step in run_of(parent.body).steps if step.job_id]
        documents = await self._document_store.fetch(tenant, *ids) if ids else {}
        jobs = sorted((job_of(document.body) for document in documents.values()), key=_position, reverse=True)
        return [job for job in jobs if after is None or _position(job) < after]

    # --- cancelling ------------------------------------------------------------------------------

    async def cancel(self, caller: Caller, job_id: str) -> JsonAnswer[JobJson]:
        """Nobody works on the job any more; what follows for its run is written with it."""
        while True:
            document = (await self._document_store.fetch(caller.tenant, job_id)).get(job_id)
            if document is None or not job_id.startswith("job_"):
                raise Refused("job_not_found")
            job = job_of(document.body)
            if job.status == "cancelled":
                return written(views.job(job), replayed=True)
            _check_live(job)
            expect: dict[str, str | None] = {document.id: document.tag}
            run = None
            if job.run_id is not None:
                parent = (await self._document_store.fetch(caller.tenant, job.run_id))[job.run_id]
                run, expect[parent.id] = run_of(parent.body), parent.tag
            change = Change(
                caller.tenant, await self._document_store.now_us(), self._document_store.new_id, run
            )
            run_progress.cancel_job(change, job, caller.principal)
            commit = change.commit(self._document_store.new_tag(), expect, self._kept_us)
            if (await self._document_store.write(commit)).done:
                return written(views.job(change.jobs[job_id]))


def _check_live(job: StoredJob) -> None:
    if job.record_id is not None and job.decision is not None:
        # The call that asked reads the decision, not the job.
        raise Refused(
            "job_already_ended", f"The call was {job.decision.status} by {job.decision.by}: that stands."
        )
    if job.status not in LIVE_JOB:
        raise Refused("job_already_ended", f"The job has ended as {job.status} before.")


async def _sifted(
    read: Callable[[_After, int], Awaitable[Sequence[StoredJob]]],
    fits: Callable[[StoredJob], bool],
    after: _After,
    limit: int,
) -> tuple[Sequence[StoredJob], _After]:
    """The first so many that fit, and where to go on."""
    fitting: list[StoredJob] = []
    size = limit
    for _ in range(_BATCHES_MAX):
        jobs = await read(after, size)
        for job in jobs:
            after = _position(job)
            if fits(job):
                fitting.append(job)
            if len(fitting) == limit:
                return fitting, after
        if len(jobs) < size:
            return fitting, None
        size = _BATCH
    return fitting, after


def _position(job: StoredJob) -> tuple[int, str]:
    return job.created_us, job.job_id
