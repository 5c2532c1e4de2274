"""Workflow, run, job: plain values, and their bytes. What may follow what is in `progress`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, TypeVar

import orjson

from semel.errors import StoreCorrupt
from semel.flow.large import as_json

T = TypeVar("T")

LIVE_RUN = frozenset({"running", "waiting"})
LIVE_JOB = frozenset({"waiting", "queued", "leased"})


@dataclass(frozen=True, slots=True)
class Gate:
    """A person has to say yes first."""

    expires_in_us: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class WorkflowStep:
    """One step of a workflow, and how it stands in a run."""

    id: str
    topic: str
    depends_on: tuple[str, ...] = ()
    gate: Gate | None = None
    own_input: bool = False  # else the job gets the run's input
    input: Any = None
    status: str = (
        "pending"  # then its job's: waiting, queued, succeeded, failed, denied, cancelled; or skipped
    )
    job_id: str | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    id: str
    steps: tuple[WorkflowStep, ...]
    max_concurrent_runs: int | None = None
    input_schema: Any = None


@dataclass(frozen=True, slots=True)
class Run:
    run_id: str
    workflow_id: str
    status: str
    input: Any
    steps: tuple[WorkflowStep, ...]
    submitted_by: str
    created_us: int
    ended_us: int | None = None
    result: Any = None
    error: Any = None
    rerun_of: str | None = None
    seq: int = 0  # events of its timeline so far

    def step(self, step_id: str) -> WorkflowStep:
        return next(step for step in self.steps if step.id == step_id)

    def with_step(self, changed: WorkflowStep) -> Run:
        return replace(self, steps=tuple(changed if step.id == changed.id else step for step in self.steps))

    @property
    def live_jobs(self) -> tuple[str, ...]:
        return tuple(step.job_id for step in self.steps if step.job_id and step.status in LIVE_JOB)


@dataclass(frozen=True, slots=True)
class Question:
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
    question: Question | None = None
    decision: Decision | None = None
    bus_msg_id: str | None = None
    told: tuple[int, str] | None = (
        None  # fence, and digest of the last result that was taken and of whose it was
    )
    record_id: str | None = None  # of the tool call that waits for the decision; nobody leases such a job
    within: str | None = None  # the job whose worker makes that call


@dataclass(frozen=True, slots=True)
class Message:
    """A doorbell: says that there is something to look at. Its id is the same however often it is sent."""

    id: str
    tenant: str
    type: str  # run.started, run.ended, job.queued, job.waiting, approval.approved, approval.rejected
    at_us: int
    topic: str | None = None
    run_id: str | None = None
    job_id: str | None = None


def to_bytes(value: Any) -> bytes:
    return orjson.dumps(value, as_json)


def reads(read: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Bytes that are no such value are a damaged document, which is not an absent one."""

    @wraps(read)
    def checked(body: bytes) -> T:
        try:
            return read(body)
        except (ValueError, KeyError, TypeError) as error:
            raise StoreCorrupt(
                "A document is damaged, and a damaged document is not an absent one."
            ) from error

    return checked


@reads
def run_of(body: bytes) -> Run:
    data = orjson.loads(body)
    return Run(**data | {"steps": tuple(map(_step, data["steps"]))})


@reads
def workflow_of(body: bytes) -> Workflow:
    data = orjson.loads(body)
    return Workflow(**data | {"steps": tuple(map(_step, data["steps"]))})


@reads
def job_of(body: bytes) -> StoredJob:
    data = orjson.loads(body)
    data["question"] = data["question"] and Question(**data["question"])
    data["decision"] = data["decision"] and Decision(**data["decision"])
    data["told"] = data["told"] and tuple(data["told"])
    return StoredJob(**data)


def message_of(body: bytes) -> Message:
    """From a store or a bus: whoever reads it knows what it means if it is none."""
    return Message(**orjson.loads(body))


def _step(data: dict[str, Any]) -> WorkflowStep:
    gate = data["gate"] and Gate(**data["gate"])
    return WorkflowStep(**data | {"depends_on": tuple(data["depends_on"]), "gate": gate})
