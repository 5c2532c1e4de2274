"""What follows for a job that people are asked about: pure, deterministic. Time and ids are given.

A `JobChange` gathers what one decision does: documents, messages, lines of audit; all of it is one commit. A
job may be part of something larger, a run (`semel.flow`). What a decision changes there is written in the
same commit, so whoever decides is handed a `WhatFollows`, which begins changes that know of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from semel.audit import events
from semel.audit.events import Event
from semel.questions import job_index, views
from semel.questions.job import Decision, Gate, Message, StoredJob, StoredQuestion
from semel.stores.documents import Commit, Document, Draft

NewId = Callable[[str], str]


class JobChange:
    """What one decision changes, at one moment."""

    def __init__(self, tenant: str, now_us: int, new_id: NewId) -> None:
        self.tenant = tenant
        self.now_us = now_us
        self.new_id = new_id
        self.jobs: dict[str, StoredJob] = {}
        self.messages: list[Message] = []
        self.audited: list[Event] = []

    def commit(self, tag: str, expect: Mapping[str, str | None], kept_us: int | None) -> Commit:
        """The commit that writes all of it."""
        return Commit(self.tenant, tag, expect, self.drafts(kept_us), events=tuple(self.audited))

    def drafts(self, kept_us: int | None) -> tuple[Draft, ...]:
        """Everything to be written. The first is what the decision is about."""
        messages = (job_index.message_draft(each, self._unsent_until(each)) for each in self.messages)
        return (*self.changed(kept_us), *messages)

    def changed(self, kept_us: int | None) -> tuple[Draft, ...]:
        """Everything but the messages that tell of it."""
        return tuple(job_index.job_draft(job, kept_us) for job in self.jobs.values())

    def _unsent_until(self, message: Message) -> int | None:
        """When a message is forgotten that nobody sends: a tool's question may be put where no gateway is."""
        job = self.jobs.get(message.job_id or "")
        of_a_call = job is not None and job.record_id is not None
        return message.at_us + job_index.CALLS_KEPT_US if of_a_call else None

    def put(self, job: StoredJob) -> StoredJob:
        self.jobs[job.job_id] = job
        return job

    def note(self, kind: str, job: StoredJob, by: str, why: str) -> None:
        """One more line in the audit log: what became of the question."""
        self.audited.append(views.question_event(self.tenant, kind, job, self.now_us, by, why))

    def announce(self, type_: str, id_: str, job: StoredJob) -> None:
        """One more message: there is something to look at."""
        self.messages.append(Message(id_, self.tenant, type_, self.now_us, job.topic, job.run_id, job.job_id))

    # --- what the job is part of ------------------------------------------------------------------

    def tell(self, type_: str, job: StoredJob, /, by: str | None = None, **data: Any) -> None:
        """One more event in the history of what the job is part of, if it is part of anything."""

    def follow(self, job: StoredJob) -> None:
        """The job was queued or has ended: what it is part of goes on, if it is part of anything."""


class WhatFollows(Protocol):
    """What jobs are part of: it is read with the job, and changed in the same commit."""

    def is_over(self, whole: Document) -> bool:
        """Whether nothing of it goes on any more, so that there is nothing to decide."""

    def begin(self, tenant: str, now_us: int, new_id: NewId, whole: Document | None) -> JobChange:
        """A change of a job that is part of this; None: of nothing."""


# --- transitions ----------------------------------------------------------------------------------


def open_job(change: JobChange, job: StoredJob, gate: Gate | None) -> StoredJob:
    """The job can be leased, or is shown to a person first; either way a message says so."""
    if gate is not None:
        question = StoredQuestion(change.now_us + gate.expires_in_us, gate.reason)
        change.announce("job.waiting", f"{change.tenant}:{job.job_id}:waiting", job)
        waiting = change.put(replace(job, status="waiting", question=question))
        change.note(events.WAITING, waiting, job.submitted_by, gate.reason)
        return waiting
    return queue(change, job, f"{change.tenant}:{job.job_id}:queued")


def queue(change: JobChange, job: StoredJob, message_id: str) -> StoredJob:
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
    change.announce("job.queued", message_id, queued)
    return change.put(queued)


def decide(change: JobChange, job: StoredJob, decision: Decision) -> None:
    """What a person said is on file, and the job goes on or is denied; one message announces it."""
    message_id = f"approval:{job.job_id}"
    decided = replace(job, decision=decision, bus_msg_id=message_id)
    change.tell(f"step.{decision.status}", job, by=decision.by, reason=decision.reason)
    change.note(decision.status, decided, decision.by, decision.reason)
    if decision.status == "approved":
        decided = change.put(replace(decided, status="queued", queued_us=change.now_us))
        change.announce("approval.approved", message_id, decided)
        change.follow(decided)
        return
    change.announce("approval.rejected", message_id, decided)
    error = {"code": "approval_rejected", "message": decision.reason, "retriable": False}
    _deny(change, replace(decided, error=error))


def expire(change: JobChange, job: StoredJob) -> None:
    """Nobody answered in time."""
    error = {"code": "approval_expired", "message": "Nobody decided in time.", "retriable": False}
    change.note(events.EXPIRED, job, "", "")
    _deny(change, replace(job, error=error))


def _deny(change: JobChange, job: StoredJob) -> None:
    change.follow(change.put(ended(change, job, "denied")))


def ended(change: JobChange, job: StoredJob, status: str) -> StoredJob:
    """The job as it has ended now."""
    return replace(job, status=status, ended_us=change.now_us, lease_until_us=None)
