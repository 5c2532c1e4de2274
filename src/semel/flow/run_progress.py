"""What follows what in a run: pure, deterministic, written once. Time and ids are given.

A `Change` gathers what one decision does to a run and its jobs: documents, timeline, messages. The functions
below, and those of `semel.questions.change`, make decisions in it; `Change.drafts` is what a commit then
writes, all or nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from semel.audit import events
from semel.flow import indexes, views
from semel.flow.model import LIVE_RUN, Run, WorkflowStep, run_of
from semel.questions.change import JobChange, NewId, ended, open_job, queue
from semel.questions.job import LIVE_JOB, Message, StoredJob
from semel.stores.document_bytes import to_bytes
from semel.stores.documents import Document, Draft, Entry

# A step that ended so lets nothing that depends on it begin.
_UNSUCCESSFUL = frozenset({"failed", "denied", "cancelled", "skipped"})

# A failure may be chance; three in a row are not.
ATTEMPTS_MAX = 3

# A job whose worker vanishes each time takes workers down with it: somebody has to look at it.
LEASES_MAX = 20

# A heartbeat for no longer than this hands the job back: its worker stops, and lets another one go on.
HAND_BACK_S = 0.001

_NOTHING: Mapping[str, Any] = {}


class Change(JobChange):
    """What one decision changes in a run and its jobs, at one moment."""

    def __init__(self, tenant: str, now_us: int, new_id: NewId, run: Run | None = None) -> None:
        super().__init__(tenant, now_us, new_id)
        self.run = run
        self.events: list[Draft] = []

    def changed(self, kept_us: int | None) -> tuple[Draft, ...]:
        run = () if self.run is None else (indexes.run_draft(self.run, kept_us),)
        return (*run, *super().changed(kept_us), *self.events)

    def tell(
        self, type_: str, step: WorkflowStep | StoredJob | None = None, /, by: str | None = None, **data: Any
    ) -> None:
        """One more event in the run's timeline."""
        run = self.run
        if run is None:
            return
        self.run = replace(run, seq=run.seq + 1)
        self.events.append(event_draft(run.run_id, run.seq + 1, self.now_us, type_, step, by, data))

    def follow(self, job: StoredJob) -> None:
        """The run goes on after its step's job was queued or has ended."""
        if self.run is None or job.step_id is None:
            return
        if job.status == "queued":
            self.run = self.run.with_step(replace(self.run.step(job.step_id), status="queued"))
            _conclude(self)
        else:
            end_step(self, job.step_id, job.status)

    def note_run(self, kind: str, by: str, why: str) -> None:
        """One more line in the audit log: the run begins, or has ended."""
        self.audited.append(views.run_event(self.tenant, kind, _run(self), self.now_us, by, why))

    def announce_run(self, type_: str, id_: str) -> None:
        """One more message: there is something to look at in the run."""
        self.messages.append(Message(id_, self.tenant, type_, self.now_us, None, _run(self).run_id))


def event_draft(
    run_id: str,
    seq: int,
    at_us: int,
    type_: str,
    step: WorkflowStep | StoredJob | None = None,
    by: str | None = None,
    data: Mapping[str, Any] = _NOTHING,
) -> Draft:
    """One event of a run's timeline."""
    event = {"seq": seq, "at_us": at_us, "type": type_, "by": by, "data": data}
    event["step_id"] = getattr(step, "step_id", None) or getattr(step, "id", None)
    event["job_id"] = getattr(step, "job_id", None)
    return Draft(indexes.event_id(run_id, seq), to_bytes(event), (Entry(indexes.timeline(run_id), seq),))


class RunsFollow:
    """What a decision moves on: the run that the job is a step of."""

    def is_over(self, whole: Document) -> bool:
        return run_of(whole.body).status not in LIVE_RUN

    def begin(self, tenant: str, now_us: int, new_id: NewId, whole: Document | None) -> Change:
        return Change(tenant, now_us, new_id, whole and run_of(whole.body))


# --- a run begins and goes on ---------------------------------------------------------------------


def begin(change: Change, run: Run) -> None:
    """The run exists, and what depends on nothing is a job."""
    # The first event of its timeline, which the run itself tells: see Runs.timeline.
    change.run = run if run.seq == 1 else replace(run, seq=1)
    change.note_run(events.STARTED, run.submitted_by, f"rerun of {run.rerun_of}" if run.rerun_of else "")
    change.announce_run("run.started", f"{change.tenant}:{run.run_id}:started")
    if run.steps:
        _go_on(change)


def end_step(change: Change, step_id: str, status: str) -> None:
    """The step's job has ended: what waited for it begins or is skipped; the run ends if nothing is left."""
    assert change.run is not None
    step = replace(change.run.step(step_id), status=status)
    change.run = change.run.with_step(step)
    change.tell(f"step.{status}", step)
    _go_on(change)


def _go_on(change: Change) -> None:
    for step in _skipped(change):
        change.tell("step.skipped", step)
    for step in _ready(_run(change)):
        _open(change, step)
    _conclude(change)


def _skipped(change: Change) -> Iterator[WorkflowStep]:
    """Steps that can no longer begin, each marked; in the order of their dependence."""
    again = True
    while again:
        run, again = _run(change), False
        ended = {step.id for step in run.steps if step.status in _UNSUCCESSFUL}
        for step in run.steps:
            if step.status == "pending" and ended.intersection(step.depends_on):
                skipped = replace(step, status="skipped")
                change.run, again = _run(change).with_step(skipped), True
                yield skipped


def _ready(run: Run) -> list[WorkflowStep]:
    succeeded = {step.id for step in run.steps if step.status == "succeeded"}
    return [step for step in run.steps if step.status == "pending" and succeeded.issuperset(step.depends_on)]


def _open(change: Change, step: WorkflowStep) -> None:
    """The step becomes a job: queued, or waiting for a person."""
    run = _run(change)
    job = StoredJob(
        job_id=change.new_id("job"),
        topic=step.topic,
        input=step.input if step.own_input else run.input,
        status="queued",
        submitted_by=run.submitted_by,
        created_us=change.now_us,
        run_id=run.run_id,
        step_id=step.id,
    )
    job = open_job(change, job, step.gate)
    opened = replace(step, status=job.status, job_id=job.job_id)
    change.run = _run(change).with_step(opened)
    change.tell(f"step.{job.status}", opened)


def _conclude(change: Change) -> None:
    """The run's status follows from its steps."""
    run = _run(change)
    live = [step.status for step in run.steps if step.status in LIVE_JOB]
    if live:
        status = "waiting" if set(live) == {"waiting"} else "running"
        if status != run.status:
            change.run = replace(run, status=status)
            change.tell(f"run.{status}")
    elif run.steps:
        failed = next((step for step in run.steps if step.status in ("failed", "denied", "cancelled")), None)
        error = failed and {"code": f"step_{failed.status}", "step_id": failed.id, "job_id": failed.job_id}
        end_run(change, "failed" if failed else "succeeded", error=error)


def end_run(
    change: Change, status: str, *, result: Any = None, error: Any = None, by: str | None = None
) -> None:
    """The run has ended, and its slot is free as soon as this is written."""
    change.run = replace(_run(change), status=status, ended_us=change.now_us, result=result, error=error)
    change.note_run(events.ENDED, by or "", error["code"] if error else "")
    change.tell(f"run.{status}", by=by)
    change.announce_run("run.ended", f"{change.tenant}:{change.run.run_id}:ended")


def cancel_run(change: Change, jobs: list[StoredJob], by: str) -> None:
    """The run and all of it that lives are cancelled."""
    for job in jobs:
        if job.status == "waiting":
            change.note(events.CANCELLED, job, by, "")
        change.put(ended(change, job, "cancelled"))
    for step in _run(change).steps:
        if step.status in LIVE_JOB or step.status == "pending":
            status = "cancelled" if step.job_id else "skipped"
            change.run = _run(change).with_step(replace(step, status=status))
    end_run(change, "cancelled", by=by)


# --- jobs -----------------------------------------------------------------------------------------


def lease(job: StoredJob, now_us: int, lease_us: int, worker_id: str | None, by: str) -> StoredJob:
    return replace(
        job,
        status="leased",
        attempt=job.attempt + 1,
        fence=job.fence + 1,
        lease_until_us=now_us + lease_us,
        worker_id=worker_id,
        leased_by=by,
    )


def lapse(change: Change, job: StoredJob, *, asks: bool = False) -> None:
    """Nobody heard of the worker for too long: someone else gets the job.

    If a person is asked in it (`asks`), it waited, and did its worker no harm: the lease does not count.
    """
    if asks:
        job = replace(job, attempt=job.attempt - 1)
    if job.attempt >= LEASES_MAX:
        error = {"code": "attempts_exhausted", "message": f"{job.attempt} leases lapsed.", "retriable": False}
        fail(change, job, error)
        return
    change.tell("job.lapsed", job, by=job.worker_id, attempt=job.attempt)
    queue(change, job, f"{change.tenant}:{job.job_id}:queued:{job.fence}")


def hand_back(change: Change, job: StoredJob) -> None:
    """Its worker stops in the middle of waiting: someone else gets the job, and the lease does not count."""
    change.tell("job.handed_back", job, by=job.worker_id, attempt=job.attempt)
    uncounted = replace(job, attempt=job.attempt - 1)
    queue(change, uncounted, f"{change.tenant}:{job.job_id}:queued:{job.fence}")


def succeed(change: Change, job: StoredJob, result: Any) -> None:
    job = change.put(replace(ended(change, job, "succeeded"), result=result, error=None))
    change.follow(job)


def fail(change: Change, job: StoredJob, error: dict[str, Any]) -> None:
    """The attempt failed: the job is queued again if chance may help, else it has failed."""
    if error["retriable"] and job.attempt < ATTEMPTS_MAX:
        change.tell("job.retried", job, by=job.worker_id, attempt=job.attempt, error=views.untraced(error))
        queue(change, replace(job, error=error), f"{change.tenant}:{job.job_id}:queued:{job.fence}")
        return
    job = change.put(replace(ended(change, job, "failed"), error=error))
    change.follow(job)


def cancel_job(change: Change, job: StoredJob, by: str) -> None:
    """Nobody works on it any more. Of a run, what depends on it is skipped, and the run fails in the end."""
    if job.status == "waiting":
        change.note(events.CANCELLED, job, by, "")
    change.tell("job.cancelled", job, by=by)
    change.follow(change.put(ended(change, job, "cancelled")))


def _run(change: Change) -> Run:
    assert change.run is not None
    return change.run


# --- again ----------------------------------------------------------------------------------------


def rerun_steps(run: Run, from_step: str) -> tuple[WorkflowStep, ...]:
    """The steps of a new run: what `from_step` leads to begins anew, and whatever has not succeeded."""
    again = {from_step}
    while grown := {step.id for step in run.steps if again.intersection(step.depends_on)} - again:
        again |= grown
    return tuple(
        step if step.status == "succeeded" and step.id not in again else _anew(step) for step in run.steps
    )


def adopted(
    change: Change, run_id: str, steps: tuple[WorkflowStep, ...], kept: Mapping[str, StoredJob]
) -> tuple[WorkflowStep, ...]:
    """The steps with copies of the jobs that they keep: what a run shows is its own while it is kept."""
    return tuple(_adopt(change, run_id, step, kept) if step.job_id else step for step in steps)


def _adopt(change: Change, run_id: str, step: WorkflowStep, kept: Mapping[str, StoredJob]) -> WorkflowStep:
    job = kept.get(step.job_id or "")
    if job is None:
        return _anew(step)  # its result was forgotten, so it has to be made again
    # Nobody is asked about it again, so the copy has no question.
    unasked = replace(job, question=None, decision=None, bus_msg_id=None)
    copy = change.put(replace(unasked, job_id=change.new_id("job"), run_id=run_id))
    return replace(step, job_id=copy.job_id)


def _anew(step: WorkflowStep) -> WorkflowStep:
    return replace(step, status="pending", job_id=None)
