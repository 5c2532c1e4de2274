"""Indexes of jobs and messages, which lists, workers and sweepers read.

document            id                    indexes, and what the score is
job                 job_<random>          while it lives live: created; queued ready/<topic>: since when
                                          leased or waiting due: until when
                                          gated approvals, by status: created
                                          jobs by topic: created; waiting jobs by status: created
                                          ended jobs, by status, by topic: created; of no run: expiry
question of a call  job_<random>          approvals, by status; jobs, by status, by topic: created
                                          waiting due/calls: until when; then expiry
                                          approved due/calls: when somebody looks whether the call was made
                                          waiting in a worker's job asked/<job>: created
message             message/<id>          outbox: when
"""

from __future__ import annotations

from semel.questions.job import LIVE_JOB, Message, StoredJob, question_status
from semel.stores.document_bytes import to_bytes
from semel.stores.documents import Draft, Entry
from semel.stores.index_names import EXPIRY

JOBS, LIVE, DUE, OUTBOX, APPROVALS = "jobs", "live", "due", "outbox", "approvals"

# Of tool calls, which may be made where no gateway is: every ledger looks after these.
DUE_CALLS = "due/calls"

# A decision on a call is replayed for as long as the longest retry horizon we know of. Whatever a gateway is
# told to keep of its own, the call that waits elsewhere has to find its answer.
CALLS_KEPT_US = 90 * 86_400_000_000

# A call that was approved is made within seconds, if its caller waits for the answer.
_LOOK_US = 5_000_000


def message_id(name: str) -> str:
    return f"message/{name}"


def is_message(document_id: str) -> bool:
    return document_id.startswith("message/")


def ready(topic: str) -> str:
    return f"ready/{topic}"


def open_questions_in(job_id: str) -> str:
    """Open questions of the calls that the job's worker makes."""
    return f"asked/{job_id}"


def approvals(status: str | None) -> str:
    return f"{APPROVALS}/{status}" if status else APPROVALS


def jobs(topic: str | None, status: str | None) -> str:
    if topic is not None:
        return f"{JOBS}/topic/{topic}"
    return f"{JOBS}/status/{status}" if status else JOBS


def listed_jobs(topic: str | None, status: str | None) -> tuple[str, ...]:
    """The indexes that a list of jobs with these filters reads, in this order: a job leaves `live` for the
    others. What they do not narrow, the reader sifts.
    """
    name = jobs(topic, status)
    return (name,) if topic is not None or status not in (None, "queued", "leased") else (LIVE, name)


def job_draft(job: StoredJob, kept_us: int | None) -> Draft:
    listed = _listed(job)
    if job.record_id is not None:
        return Draft(job.job_id, to_bytes(job), (*listed, *_gated(job), *_of_call(job)))
    entries = [*listed]
    if job.status in LIVE_JOB:
        entries.append(Entry(LIVE, job.created_us))
    elif job.run_id is None and job.ended_us is not None and kept_us is not None:
        entries.append(Entry(EXPIRY, job.ended_us + kept_us))
    if job.status == "queued":
        entries.append(Entry(ready(job.topic), job.queued_us))
    if (due_us := due(job)) is not None:
        entries.append(Entry(DUE, due_us))
    return Draft(job.job_id, to_bytes(job), (*entries, *_gated(job)))


def _listed(job: StoredJob) -> tuple[Entry, ...]:
    """Where lists of jobs find it, besides `live`."""
    indexes = [jobs(job.topic, None)]
    if job.record_id is not None or job.status not in LIVE_JOB:
        indexes += [jobs(None, None), jobs(None, job.status)]
    elif job.status == "waiting":
        indexes.append(jobs(None, job.status))
    return tuple([Entry(index, job.created_us) for index in indexes])


def _gated(job: StoredJob) -> tuple[Entry, ...]:
    if job.question is None:
        return ()
    return tuple(Entry(index, job.created_us) for index in (APPROVALS, approvals(question_status(job))))


def _of_call(job: StoredJob) -> tuple[Entry, ...]:
    """Until when its question is open, or its answer kept."""
    assert job.question is not None
    if job.status == "waiting":
        inside = () if job.within is None else (Entry(open_questions_in(job.within), job.created_us),)
        return (Entry(DUE_CALLS, job.question.expires_us), *inside)
    decided_us = job.decision.at_us if job.decision else job.question.expires_us
    looked_at = (Entry(DUE_CALLS, decided_us + _LOOK_US),) if job.status == "queued" else ()
    return (Entry(EXPIRY, decided_us + CALLS_KEPT_US), *looked_at)


def due(job: StoredJob) -> int | None:
    """When time changes the job if nobody else does."""
    if job.status == "leased":
        return job.lease_until_us
    if job.status == "waiting" and job.question is not None:
        return job.question.expires_us
    return None


def message_draft(message: Message, unsent_until_us: int | None = None) -> Draft:
    entries = [Entry(OUTBOX, message.at_us)]
    if unsent_until_us is not None:
        entries.append(Entry(EXPIRY, unsent_until_us))
    return Draft(message_id(message.id), to_bytes(message), tuple(entries))
