"""A question to a person: put, read, decided, once. The order of the checks is the interface's.

It is the same for a gated step, for a job of its own and for a call of a tool whose contract asks, and for
callers of both kinds: generators of queries (`semel.stores.inquiry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from semel.kernel.answers import DecisionJson
from semel.kernel.clock import Clock, rfc3339
from semel.questions import change as changes
from semel.questions import views
from semel.questions.change import JobChange, WhatFollows
from semel.questions.job import Decision, Gate, StoredJob, job_of
from semel.questions.refusals import Refusal
from semel.stores.documents import Commit, Document, Fetch
from semel.stores.inquiry import Inquiry, new_id, new_tag

# The only refusal that goes into the audit log: a rule was tested. The others are late, or of the wrong job.
OWN_SUBMISSION = "self_approval_denied"


class JobSnapshot(NamedTuple):
    """A job and what it is part of, as of one moment; and what a commit expects so that they still are."""

    job: StoredJob
    whole: Document | None
    over: bool  # what it is part of has ended
    expect: Mapping[str, str | None]
    now_us: int


class Seen(NamedTuple):
    """What the person who decides had in view, as far as they say."""

    revision: int | None = None
    job_hash: str | None = None


@dataclass(frozen=True)
class Decided:
    """The answer to a decision; `already_…` if it repeats the one on file."""

    job_id: str
    status: str
    by: str
    at: str
    revision: int

    @property
    def replayed(self) -> bool:
        return self.status.startswith("already_")

    def as_data(self) -> DecisionJson:
        """For JSON: who decided and when, named after what they decided."""
        id_, status, by, at, revision = self.job_id, self.status, self.by, self.at, self.revision
        if status.endswith("approved"):
            return {
                "job_id": id_,
                "status": status,
                "approved_by": by,
                "approved_at": at,
                "revision": revision,
            }
        return {"job_id": id_, "status": status, "rejected_by": by, "rejected_at": at, "revision": revision}


class Decider(NamedTuple):
    """Who decides, by whose clock, and for how long what it ends is kept."""

    tenant: str
    by: str
    clock: Clock
    kept_us: int | None
    follows: WhatFollows


def look(tenant: str, job_id: str, follows: WhatFollows) -> Inquiry[JobSnapshot]:
    """The job, with its run of the same moment: a run that ended after the job was read would hide that the
    decision is on file."""
    documents, now_us = yield from _fetched(tenant, job_id)
    run_id = job_of(documents[job_id].body).run_id
    if run_id is not None:
        documents, now_us = yield from _fetched(tenant, job_id, run_id)
    expect: dict[str, str | None] = {each.id: each.tag for each in documents.values()}
    whole = documents.get(run_id or "")
    over = whole is not None and follows.is_over(whole)
    return JobSnapshot(job_of(documents[job_id].body), whole, over, expect, now_us)


def _fetched(tenant: str, job_id: str, *others: str) -> Inquiry[tuple[Mapping[str, Document], int]]:
    fetched = yield Fetch(tenant, (job_id, *others))
    if job_id not in fetched.documents or not job_id.startswith("job_"):
        raise Refusal("job_not_found")
    return fetched.documents, fetched.now_us


def put(
    tenant: str, job: StoredJob, gate: Gate, within: str | None, clock: Clock, kept_us: int | None
) -> Inquiry[tuple[StoredJob, int]]:
    """The job as it stands now, and the store's time; its question is put unless it was before.

    `within` is the job that a worker performs by this call: who submitted that one submits the call too, and
    does not decide on it.
    """
    ids = (job.job_id,) if within is None else (job.job_id, within)
    while True:
        fetched = yield Fetch(tenant, ids)
        if document := fetched.documents.get(job.job_id):
            return job_of(document.body), fetched.now_us
        outer = fetched.documents.get(within or "")
        submitter = job_of(outer.body).submitted_by if outer else job.submitted_by
        change = JobChange(tenant, fetched.now_us, lambda kind: new_id(clock, kind))
        new_job = replace(job, submitted_by=submitter, created_us=fetched.now_us, within=outer and outer.id)
        changes.open_job(change, new_job, gate)
        yield change.commit(new_tag(clock), {job.job_id: None}, kept_us)


def decide(decider: Decider, job_id: str, status: str, reason: str, seen: Seen) -> Inquiry[Decided]:
    """The decision, the job's next state, the message and the line of audit are on file together."""
    tenant, by, clock = decider.tenant, decider.by, decider.clock
    while True:
        snapshot = yield from look(tenant, job_id, decider.follows)
        if snapshot.job.submitted_by == by and not (yield from _noted(decider, snapshot, status)):
            continue
        if replayed := judged(snapshot, by, status, seen):
            return replayed
        now_us, whole = snapshot.now_us, snapshot.whole
        change = decider.follows.begin(tenant, now_us, lambda kind: new_id(clock, kind), whole)
        changes.decide(change, snapshot.job, Decision(status, by, now_us, reason))
        committed = yield change.commit(new_tag(clock), snapshot.expect, decider.kept_us)
        if committed.done:
            return _answer(change.jobs[job_id], status)


def _noted(decider: Decider, snapshot: JobSnapshot, status: str) -> Inquiry[bool]:
    """Whether the log says that somebody tried to decide on what they submitted; False if the job changed."""
    line = views.refusal_event(
        decider.tenant, snapshot.job, snapshot.now_us, decider.by, OWN_SUBMISSION, status
    )
    tag = new_tag(decider.clock)
    committed = yield Commit(decider.tenant, tag, snapshot.expect, events=(line,))
    return bool(committed.done)


def judged(snapshot: JobSnapshot, by: str, status: str, seen: Seen) -> Decided | None:
    """None if the decision can be taken; the answer if it was taken before; else a Refusal."""
    job = snapshot.job
    if job.submitted_by == by:
        raise Refusal(OWN_SUBMISSION)
    if job.decision is not None:
        if job.decision.status != status:
            raise Refusal("approval_already_resolved", decided=job.decision.status)
        return _answer(job, f"already_{status}")
    if job.question is None or job.status == "cancelled":
        raise Refusal("approval_not_actionable")
    if snapshot.over:
        raise Refusal("approval_terminal_run")
    if job.status != "waiting" or job.question.expires_us <= snapshot.now_us:
        raise Refusal("approval_expired")
    if seen.revision not in (None, job.question.revision) or seen.job_hash not in (None, views.job_hash(job)):
        raise Refusal("approval_stale_request")
    return None


def _answer(job: StoredJob, status: str) -> Decided:
    decision, question = job.decision, job.question
    assert decision is not None
    assert question is not None
    return Decided(job.job_id, status, decision.by, rfc3339(decision.at_us), question.revision)
