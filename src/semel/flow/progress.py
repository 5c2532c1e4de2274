"""What follows what in a run: pure, deterministic, written once. Time and ids are given.

A `Change` gathers what one decision does to a run and its jobs: documents, timeline, messages. The functions
below make decisions in it; `Change.drafts` is what a commit then writes, all or nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from semel.audit import events
from semel.audit.events import Event
from semel.flow import indexes, views
from semel.flow.model import (
    LIVE_JOB,
    Decision,
    Gate,
    Message,
    Question,
    Run,
    StoredJob,
    WorkflowStep,
    to_bytes,
)
from semel.stores.documents import Commit, Draft, Entry

# A step that ended so lets nothing that depends on it begin.
_UNSUCCESSFUL = frozenset({"failed", "denied", "cancelled", "skipped"})

# A failure may be chance; three in a row are not.
ATTEMPTS_MAX = 3

# A job whose worker vanishes each time takes workers down with it: somebody has to look at it.
LEASES_MAX = 20

# A heartbeat for no longer than this hands the job back: its worker stops, and lets another one go on.
HAND_BACK_S = 0.001


class Change:
    """What one decision changes, at one moment."""

    def __init__(
        self, tenant: str, now_us: int, new_id: Callable[[str], str], run: Run | None = None
    ) -> None:
        self.tenant = tenant
        self.now_us = now_us
        self.new_id = new_id
        self.run = run
        self.jobs: dict[str, StoredJob] = {}
        self.messages: list[Message] = []
        self.events: list[Draft] = []
        self.audited: list[Event] = []

    def commit(self, tag: str, expect: Mapping[str, str | None], kept_us: int | None) -> Commit:
        """The commit that writes all of it."""
        return Commit(self.tenant, tag, expect, self.drafts(kept_us), events=tuple(self.audited))

    def drafts(self, kept_us: int | None) -> tuple[Draft, ...]:
        """Everything to be written. The first is the run or job that the decision is about."""
        found = [] if self.run is None else [indexes.run_draft(self.run, kept_us)]
        found += [indexes.job_draft(job, kept_us) for job in self.jobs.values()]
        messages = (indexes.message_draft(each, self._unsent_until(each)) for each in self.messages)
        return (*found, *self.events, *messages)

    def _unsent_until(self, message: Message) -> int | None:
        """When a message is forgotten that nobody sends: a tool's question may be put where no gateway is."""
        job = self.jobs.get(message.job_id or "")
        of_a_call = job is not None and job.record_id is not None
        return message.at_us + indexes.CALLS_KEPT_US if of_a_call else None

    def put(self, job: StoredJob) -> StoredJob:
        self.jobs[job.job_id] = job
        return job

    def tell(
        self, type_: str, step: WorkflowStep | StoredJob | None = None, by: str | None = None, **data: Any
    ) -> None:
        """One more event in the run's timeline."""
        run = self.run
        if run is None:
            return
        self.run = replace(run, seq=run.seq + 1)
        event = {"seq": self.run.seq, "at_us": self.now_us, "type": type_, "by": by, "data": data}
        event["step_id"] = getattr(step, "step_id", None) or getattr(step, "id", None)
        event["job_id"] = getattr(step, "job_id", None)
        entry = Entry(indexes.timeline(run.run_id), self.run.seq)
        self.events.append(Draft(indexes.event_id(run.run_id, self.run.seq), to_bytes(event), (entry,)))

    def note(self, kind: str, job: StoredJob, by: str, why: str) -> None:
        """One more line in the audit log: what became of the question."""
        self.audited.append(views.question_event(self.tenant, kind, job, self.now_us, by, why))

    def note_run(self, kind: str, by: str, why: str) -> None:
        """One more line in the audit log: the run begins, or has ended."""
        assert self.run is not None
        self.audited.append(views.run_event(self.tenant, kind, self.run, self.now_us, by, why))

    def ring(self, type_: str, id_: str, job: StoredJob | None = None) -> None:
        run_id = job.run_id if job else self.run.run_id if self.run else None
        job_id, topic = (job.job_id, job.topic) if job else (None, None)
        self.messages.append(Message(id_, self.tenant, type_, self.now_us, topic, run_id, job_id))


# --- a run begins and goes on ---------------------------------------------------------------------


def begin(change: Change, run: Run) -> None:
    """The run exists, and what depends on nothing is a job."""
    change.run = run
    change.note_run(events.STARTED, run.submitted_by, f"rerun of {run.rerun_of}" if run.rerun_of else "")
    change.tell("run.started", by=run.submitted_by)
    change.ring("run.started", f"{change.tenant}:{run.run_id}:started")
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
    found = True
    while found:
        run, found = _run(change), False
        ended = {step.id for step in run.steps if step.status in _UNSUCCESSFUL}
        for step in run.steps:
            if step.status == "pending" and ended.intersection(step.depends_on):
                skipped = replace(step, status="skipped")
                change.run, found = _run(change).with_step(skipped), True
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


def open_job(change: Change, job: StoredJob, gate: Gate | None) -> StoredJob:
    """The job can be leased, or is shown to a person first; either way a message says so."""
    if gate is not None:
        question = Question(change.now_us + gate.expires_in_us, gate.reason)
        change.ring("job.waiting", f"{change.tenant}:{job.job_id}:waiting", job)
        waiting = change.put(replace(job, status="waiting", question=question))
        change.note(events.WAITING, waiting, job.submitted_by, gate.reason)
        return waiting
    return queue(change, job, f"{change.tenant}:{job.job_id}:queued")


def queue(change: Change, job: StoredJob, message_id: str) -> StoredJob:
    """Workers may lease it from now on."""
    queued = replace(
        job,
        status="queued",
        queued_us=change.now_us,
        lease_until_us=None,
        worker_id=None,
        leased_by=None,
        bus_msg_id=job.bus_msg_id or message_id,
    )
    change.ring("job.queued", message_id, queued)
    return change.put(queued)


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
    change.ring("run.ended", f"{change.tenant}:{change.run.run_id}:ended")


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
    _end_step_of(change, job)


def fail(change: Change, job: StoredJob, error: dict[str, Any]) -> None:
    """The attempt failed: the job is queued again if chance may help, else it has failed."""
    if error["retriable"] and job.attempt < ATTEMPTS_MAX:
        change.tell("job.retried", job, by=job.worker_id, attempt=job.attempt, error=views.untraced(error))
        queue(change, replace(job, error=error), f"{change.tenant}:{job.job_id}:queued:{job.fence}")
        return
    job = change.put(replace(ended(change, job, "failed"), error=error))
    _end_step_of(change, job)


def cancel_job(change: Change, job: StoredJob, by: str) -> None:
    """Nobody works on it any more. Of a run, what depends on it is skipped, and the run fails in the end."""
    if job.status == "waiting":
        change.note(events.CANCELLED, job, by, "")
    change.tell("job.cancelled", job, by=by)
    _end_step_of(change, change.put(ended(change, job, "cancelled")))


def decide(change: Change, job: StoredJob, decision: Decision) -> None:
    """What a person said is on file, and the job goes on or is denied; one message announces it."""
    message_id = f"approval:{job.job_id}"
    decided = replace(job, decision=decision, bus_msg_id=message_id)
    change.tell(f"step.{decision.status}", job, by=decision.by, reason=decision.reason)
    change.note(decision.status, decided, decision.by, decision.reason)
    if decision.status == "approved":
        decided = change.put(replace(decided, status="queued", queued_us=change.now_us))
        change.ring("approval.approved", message_id, decided)
        _step_queued(change, decided)
        return
    change.ring("approval.rejected", message_id, decided)
    error = {"code": "approval_rejected", "message": decision.reason, "retriable": False}
    _deny(change, replace(decided, error=error))


def expire(change: Change, job: StoredJob) -> None:
    """Nobody answered in time."""
    error = {"code": "approval_expired", "message": "Nobody decided in time.", "retriable": False}
    change.note(events.EXPIRED, job, "", "")
    _deny(change, replace(job, error=error))


def _deny(change: Change, job: StoredJob) -> None:
    job = change.put(ended(change, job, "denied"))
    _end_step_of(change, job)


def _step_queued(change: Change, job: StoredJob) -> None:
    if change.run is not None and job.step_id is not None:
        change.run = change.run.with_step(replace(change.run.step(job.step_id), status="queued"))
        _conclude(change)


def _end_step_of(change: Change, job: StoredJob) -> None:
    if change.run is not None and job.step_id is not None:
        end_step(change, job.step_id, job.status)


def ended(change: Change, job: StoredJob, status: str) -> StoredJob:
    """The job as it has ended now."""
    return replace(job, status=status, ended_us=change.now_us, lease_until_us=None)


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
