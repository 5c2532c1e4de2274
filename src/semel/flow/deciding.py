"""A question to a person: put, read, decided, once. The order of the checks is the interface's.

It is the same for a gated step, for a job of its own and for a call of a tool whose contract asks, and for
callers of both kinds: generators of queries (`semel.flow.asking`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from semel.flow import progress, views
from semel.flow.asking import Asking, new_id, new_tag
from semel.flow.model import LIVE_RUN, Decision, Gate, Run, StoredJob, job_of, run_of
from semel.flow.problems import Problem
from semel.flow.progress import Change
from semel.flow.values import Caller, JsonAnswer, written
from semel.kernel.answers import DecisionJson
from semel.kernel.clock import Clock, rfc3339
from semel.stores.documents import Commit, Document, Fetch

# The one refusal that is noted: the others are late, or for somebody else; this one is a rule that was tried.
OWN_SUBMISSION = "self_approval_denied"


class JobStanding(NamedTuple):
    """A job and its run as of one moment, and what a commit has to expect so that they are still so."""

    job: StoredJob
    run: Run | None
    expect: Mapping[str, str | None]
    now_us: int


class Seen(NamedTuple):
    """What the person who decides had in view, as far as they say."""

    revision: int | None = None
    job_hash: str | None = None


def look(tenant: str, job_id: str) -> Asking[JobStanding]:
    """The job, with its run of the same moment: a run that ended after the job was read would hide that the
    decision is on file."""
    found, now_us = yield from _fetched(tenant, job_id)
    run_id = job_of(found[job_id].body).run_id
    if run_id is not None:
        found, now_us = yield from _fetched(tenant, job_id, run_id)
    parent = found.get(run_id or "")
    expect: dict[str, str | None] = {each.id: each.tag for each in found.values()}
    return JobStanding(job_of(found[job_id].body), parent and run_of(parent.body), expect, now_us)


def _fetched(tenant: str, job_id: str, *others: str) -> Asking[tuple[Mapping[str, Document], int]]:
    fetched = yield Fetch(tenant, (job_id, *others))
    if job_id not in fetched.documents or not job_id.startswith("job_"):
        raise Problem("job_not_found")
    return fetched.documents, fetched.now_us


def put(
    tenant: str, job: StoredJob, gate: Gate, within: str | None, clock: Clock, kept_us: int | None
) -> Asking[tuple[StoredJob, int]]:
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
        change = Change(tenant, fetched.now_us, lambda kind: new_id(clock, kind))
        asked = replace(job, submitted_by=submitter, created_us=fetched.now_us, within=outer and outer.id)
        progress.open_job(change, asked, gate)
        yield change.commit(new_tag(clock), {job.job_id: None}, kept_us)


def decide(
    caller: Caller, job_id: str, status: str, reason: str, seen: Seen, clock: Clock, kept_us: int | None
) -> Asking[JsonAnswer[DecisionJson]]:
    """The decision, the job's next state, the message and the line of audit are on file together."""
    while True:
        standing = yield from look(caller.tenant, job_id)
        if standing.job.submitted_by == caller.principal and not (
            yield from _noted(caller, standing, status, clock)
        ):
            continue
        if replayed := judged(caller, standing, status, seen):
            return replayed
        change = Change(caller.tenant, standing.now_us, lambda kind: new_id(clock, kind), standing.run)
        progress.decide(change, standing.job, Decision(status, caller.principal, standing.now_us, reason))
        committed = yield change.commit(new_tag(clock), standing.expect, kept_us)
        if committed.done:
            return written(_answer(change.jobs[job_id], status))


def _noted(caller: Caller, standing: JobStanding, status: str, clock: Clock) -> Asking[bool]:
    """Whether the log says that somebody tried to decide on what they submitted; False if the job changed."""
    line = views.refusal_event(
        caller.tenant, standing.job, standing.now_us, caller.principal, OWN_SUBMISSION, status
    )
    committed = yield Commit(caller.tenant, new_tag(clock), standing.expect, events=(line,))
    return bool(committed.done)


def judged(caller: Caller, standing: JobStanding, status: str, seen: Seen) -> JsonAnswer[DecisionJson] | None:
    """None if the decision can be taken; the answer if it was taken before; else a Problem."""
    job, run = standing.job, standing.run
    if job.submitted_by == caller.principal:
        raise Problem(OWN_SUBMISSION)
    if job.decision is not None:
        if job.decision.status != status:
            raise Problem("approval_already_resolved", decided=job.decision.status)
        return written(_answer(job, f"already_{status}"), replayed=True)
    if job.question is None or job.status == "cancelled":
        raise Problem("approval_not_actionable")
    if run is not None and run.status not in LIVE_RUN:
        raise Problem("approval_terminal_run")
    if job.status != "waiting" or job.question.expires_us <= standing.now_us:
        raise Problem("approval_expired")
    if seen.revision not in (None, job.question.revision) or seen.job_hash not in (None, views.job_hash(job)):
        raise Problem("approval_stale_request")
    return None


def _answer(job: StoredJob, status: str) -> DecisionJson:
    decision, question = job.decision, job.question
    assert decision is not None
    assert question is not None
    id_, by, at, revision = job.job_id, decision.by, rfc3339(decision.at_us), question.revision
    if decision.status == "approved":
        return {"job_id": id_, "status": status, "approved_by": by, "approved_at": at, "revision": revision}
    return {"job_id": id_, "status": status, "rejected_by": by, "rejected_at": at, "revision": revision}
