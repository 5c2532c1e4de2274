"""Workflow and run: plain values, and their bytes. What may follow what is in `run_progress`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import orjson

from semel.questions.job import LIVE_JOB, Gate
from semel.questions.job import Message as Message  # what consumers of a bus are handed
from semel.stores.document_bytes import reads

LIVE_RUN = frozenset({"running", "waiting"})


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


@reads
def run_of(body: bytes) -> Run:
    data = orjson.loads(body)
    return Run(**data | {"steps": tuple(map(_step, data["steps"]))})


@reads
def workflow_of(body: bytes) -> Workflow:
    data = orjson.loads(body)
    return Workflow(**data | {"steps": tuple(map(_step, data["steps"]))})


def _step(data: dict[str, Any]) -> WorkflowStep:
    gate = data["gate"] and Gate(**data["gate"])
    return WorkflowStep(**data | {"depends_on": tuple(data["depends_on"]), "gate": gate})
