"""A job, the question about it, the decision, the message that tells of it: plain values, and their bytes.

A job is something that is done once somebody agreed, if anybody is asked: a step of a run, a job of its own,
or the call of a tool whose contract asks. What may follow what is in `change`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import orjson

from semel.stores.document_bytes import reads

LIVE_JOB = frozenset({"waiting", "queued", "leased"})


@dataclass(frozen=True, slots=True)
class Gate:
    """A person has to say yes first."""

    expires_in_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoredQuestion:
    """What a person is asked, and until when."""

    expires_us: int
    reason: str = ""
    revision: int = 1


@dataclass(frozen=True, slots=True)
class Decision:
    """What a person said. The first one stands."""

    status: str  # approved, rejected
    by: str
    at_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class StoredJob:
    job_id: str
    topic: str
    input: Any
    status: str
    submitted_by: str
    created_us: int
    labels: Any = None
    run_id: str | None = None
    step_id: str | None = None
    attempt: int = 0
    fence: int = 0
    queued_us: int = 0
    lease_until_us: int | None = None
    worker_id: str | None = None
    leased_by: str | None = None  # the principal whose lease it is; None: from before this was kept
    ended_us: int | None = None
    result: Any = None
    error: Any = None
    question: StoredQuestion | None = None
    decision: Decision | None = None
    bus_msg_id: str | None = None
    # Fence, and digest of the last result that was taken and of whose it was.
    told: tuple[int, str] | None = None
    record_id: str | None = None  # of the tool call that waits for the decision; nobody leases such a job
    within: str | None = None  # the job whose worker makes that call


@dataclass(frozen=True, slots=True)
class Message:
    """Says that there is something to look at. Its id is the same however often it is sent."""

    id: str
    tenant: str
    type: str  # run.started, run.ended, job.queued, job.waiting, approval.approved, approval.rejected
    at_us: int
    topic: str | None = None
    run_id: str | None = None
    job_id: str | None = None


@reads
def job_of(body: bytes) -> StoredJob:
    data = orjson.loads(body)
    data["question"] = data["question"] and StoredQuestion(**data["question"])
    data["decision"] = data["decision"] and Decision(**data["decision"])
    data["told"] = data["told"] and tuple(data["told"])
    return StoredJob(**data)


def message_of(body: bytes) -> Message:
    """From a store or a bus: whoever reads it knows what it means if it is none."""
    return Message(**orjson.loads(body))


def question_status(job: StoredJob) -> str:
    """waiting, approved, rejected, expired or cancelled."""
    if job.decision is not None:
        return job.decision.status
    return {"waiting": "waiting", "cancelled": "cancelled"}.get(job.status, "expired")


_CONVERSATION = "job:"


def conversation(job_id: str) -> str:
    """Where a worker performs the job: the same on every attempt, and so are the keys of its calls."""
    return _CONVERSATION + job_id


def job_in(conversation: str) -> str | None:
    """The job that is performed in this conversation, if it is one of a worker."""
    job_id = conversation.removeprefix(_CONVERSATION)
    return job_id if job_id != conversation and job_id.startswith("job_") else None
