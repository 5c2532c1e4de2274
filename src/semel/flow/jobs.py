"""Jobs: create, lease, keep alive, end. Delivery is at least once; a contract in the worker makes it once."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from semel.flow import run_progress, views
from semel.flow.document_store import DocumentStore
from semel.flow.idempotency_keys import Keys, fingerprint_of
from semel.flow.model import run_of
from semel.flow.problems import Refused
from semel.flow.run_progress import Change
from semel.flow.values import Caller, JsonAnswer, written
from semel.flow.workflows import gate
from semel.kernel.answers import HeartbeatJson, JobJson, LeasesJson
from semel.kernel.clock import rfc3339
from semel.ledger.request_keys import KeyRecord
from semel.questions import job_index
from semel.questions.change import open_job
from semel.questions.job import StoredJob, job_of
from semel.stores.documents import Capacity, Document, Scan

# Live jobs of a tenant: a client in a loop is stopped before it fills the store.
LIVE_JOBS_MAX = 10_000

# How long a waiting worker sleeps if no message comes: a lost one costs at most this.
_LOOK_AGAIN_S = 1.0

Wait = Callable[[str, Sequence[str], float], Awaitable[None]]


class Jobs:
    """`wait(tenant, topics, seconds)` returns when one of the topics has a job, or later."""

    def __init__(self, document_store: DocumentStore, keys: Keys, wait: Wait) -> None:
        self._document_store = document_store
        self._keys = keys
        self._wait = wait

    async def create(
        self, caller: Caller, key: str | None, topic: str, input: Any, approval: Any, labels: Any
    ) -> JsonAnswer[JobJson]:
        """A job of its own, once for the key."""
        terms = {"topic": topic, "input": input, "approval": approval, "labels": labels}
        fingerprint, question, seen = fingerprint_of("job", "", terms), gate(approval), None
        while True:
            now_us = await self._document_store.now_us()
            change = Change(caller.tenant, now_us, self._document_store.new_id)
            job = StoredJob(change.new_id("job"), topic, input, "queued", caller.principal, now_us, labels)
            job = open_job(change, job, question)
            answer = written(views.job(job))
            # A job that exists already is this one: writing it again would take it from whoever leased it.
            expect: dict[str, str | None] = {job.job_id: None}
            put = change.drafts(self._keys.kept_us)
            if key is not None:
                record = self._key_record(caller, key, fingerprint, answer.body, job)
                put, expect = (*put, record.draft()), {**expect, record.id: seen}
            if problem := await self._document_store.storage.objection(caller.tenant, put):
                if before := await self._keys.first_answer(caller.tenant, "job", key, fingerprint):
                    return before
                raise problem
            capacity = (Capacity(job_index.LIVE, LIVE_JOBS_MAX),)
            events = tuple(change.audited)
            committed = await self._document_store.commit(
                caller.tenant, expect, put, capacity=capacity, events=events
            )
            if committed.done or job.job_id in committed.unexpected:
                return answer  # found: its reply was lost, and the job has gone on since
            if committed.full is not None:
                raise Refused("quota_reached", retry_after_s=1, current=committed.count, limit=LIVE_JOBS_MAX)
            (document,) = committed.unexpected.values()
            if replayed := await self._keys.replay(caller.tenant, document, fingerprint, committed.now_us):
                return replayed
            seen = document and document.tag

    def _key_record(
        self, caller: Caller, key: str, fingerprint: str, answer: bytes, job: StoredJob
    ) -> KeyRecord:
        return KeyRecord(
            id=self._keys.id(caller.tenant, "job", key),
            scope="job",
            key=key,
            fingerprint=fingerprint,
            created_us=job.created_us,
            expires_us=self._keys.expires_us(job.created_us),
            answer=answer.decode(),
            job_id=job.job_id,
        )

    async def get(self, tenant: str, job_id: str, *, traced: bool = False) -> JobJson:
        return views.job(job_of((await self.document(tenant, job_id)).body), traced=traced)

    async def document(self, tenant: str, job_id: str) -> Document:
        document = (await self._document_store.fetch(tenant, job_id)).get(job_id)
        if document is None or not job_id.startswith("job_"):
            raise Refused("job_not_found")
        return document

    # --- leases ----------------------------------------------------------------------------------

    async def lease(
        self,
        caller: Caller,
        topics: Sequence[str],
        max_: int,
        lease_s: float,
        worker_id: str | None,
        wait_s: float = 0,
    ) -> LeasesJson:
        """At most so many jobs, the longest queued first; if there are none, after a while or a message."""
        clock = self._document_store.clock
        give_up = clock.monotonic() + wait_s
        while True:
            jobs = await self._lease(caller, topics, max_, int(lease_s * 1_000_000), worker_id)
            left_s = give_up - clock.monotonic()
            if jobs or left_s <= 0:
                return {"jobs": [views.leased(job, caller.tenant) for job in jobs]}
            await self._wait(caller.tenant, topics, min(left_s, _LOOK_AGAIN_S))

    async def _lease(
        self, caller: Caller, topics: Sequence[str], max_: int, lease_us: int, worker_id: str | None
    ) -> list[StoredJob]:
        jobs: list[StoredJob] = []
        tenant = caller.tenant
        for topic in dict.fromkeys(topics):
            after: tuple[int, str] | None = None
            while len(jobs) < max_:
                scan = Scan(tenant, job_index.ready(topic), max_ - len(jobs), after=after)
                scanned = await self._document_store.scan(scan)
                if not scanned.documents:
                    break
                for document in scanned.documents:
                    job = job_of(document.body)
                    after = job.queued_us, job.job_id
                    taken = run_progress.lease(job, scanned.now_us, lease_us, worker_id, caller.principal)
                    # Another worker may have been quicker: then this one is theirs.
                    if await self._write(tenant, document, taken):
                        jobs.append(taken)
        return jobs

    async def heartbeat(self, caller: Caller, job_id: str, fence: int, lease_s: float) -> HeartbeatJson:
        """The lease lasts for so long from now; for no time at all, and the job is handed back."""
        while True:
            document = await self.document(caller.tenant, job_id)
            job = _held(document, fence, caller)
            if lease_s <= run_progress.HAND_BACK_S:
                until_us = await self._handed_back(caller.tenant, document, job)
            else:
                until_us = await self._renewed(caller.tenant, document, job, int(lease_s * 1_000_000))
            if until_us is not None:
                return {"job_id": job_id, "fence": fence, "lease_expires_at": rfc3339(until_us)}

    async def _renewed(self, tenant: str, document: Document, job: StoredJob, lease_us: int) -> int | None:
        """Until when; None if somebody changed it meanwhile."""
        until_us = await self._document_store.now_us() + lease_us
        renewed = replace(job, lease_until_us=until_us)
        return until_us if await self._write(tenant, document, renewed) else None

    async def _handed_back(self, tenant: str, document: Document, job: StoredJob) -> int | None:
        """When it was; None if somebody changed it meanwhile."""
        change, expect = await self._begun(tenant, document, job)
        run_progress.hand_back(change, job)
        commit = change.commit(self._document_store.new_tag(), expect, self._keys.kept_us)
        return change.now_us if (await self._document_store.write(commit)).done else None

    async def _write(self, tenant: str, seen: Document, job: StoredJob) -> bool:
        draft = job_index.job_draft(job, self._keys.kept_us)
        return (await self._document_store.commit(tenant, {seen.id: seen.tag}, (draft,))).done

    # --- results ---------------------------------------------------------------------------------

    async def result(
        self, caller: Caller, job_id: str, fence: int, status: str, result: Any, error: Any
    ) -> JsonAnswer[JobJson]:
        """The attempt under this fence ended so; what follows for the run is written with it."""
        digest = hashlib.sha256(
            orjson.dumps((caller.principal, status, result, error), option=orjson.OPT_SORT_KEYS)
        ).hexdigest()
        while True:
            document = await self.document(caller.tenant, job_id)
            job = job_of(document.body)
            if job.told == (fence, digest):
                return written(views.job(job), replayed=True)
            held = replace(_held(document, fence, caller), told=(fence, digest))
            change, expect = await self._begun(caller.tenant, document, held)
            if status == "succeeded":
                run_progress.succeed(change, held, result)
            else:
                run_progress.fail(change, held, _error(error))
            commit = change.commit(self._document_store.new_tag(), expect, self._keys.kept_us)
            if (await self._document_store.write(commit)).done:
                return written(views.job(change.jobs[job_id]))

    async def _begun(
        self, tenant: str, document: Document, job: StoredJob
    ) -> tuple[Change, dict[str, str | None]]:
        """A change of the job and its run, and what its commit has to expect."""
        expect: dict[str, str | None] = {document.id: document.tag}
        run = None
        if job.run_id is not None:
            parent = (await self._document_store.fetch(tenant, job.run_id))[job.run_id]
            run, expect[parent.id] = run_of(parent.body), parent.tag
        return Change(tenant, await self._document_store.now_us(), self._document_store.new_id, run), expect


def _held(document: Document, fence: int, caller: Caller) -> StoredJob:
    """The job, if it is leased by this principal under this fence: a fence alone can be guessed.

    A lapsed lease that nobody took is still its owner's.
    """
    job = job_of(document.body)
    if job.status != "leased" or job.fence != fence or job.leased_by not in (None, caller.principal):
        raise Refused("ownership_lost", job_status=job.status)
    return job


def _error(error: Any) -> dict[str, Any]:
    given = error or {}
    traced = {"traceback": given["traceback"]} if given.get("traceback") else {}
    return traced | {
        "code": given.get("code", "failed"),
        "message": given.get("message", ""),
        "retriable": bool(given.get("retriable", True)),
    }
