"""What the gateway answers, as classes. `python -m tools.client_text` writes them.

What an answer may lack is None where it does.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from semel.client.answer import Answer


@dataclass(frozen=True, kw_only=True)
class TenantAnswer(Answer):
    tenant: str
    max_concurrent_runs: int


@dataclass(frozen=True, kw_only=True)
class TermsAnswer:
    """Of a question to a person."""

    expires_in: str
    reason: str


@dataclass(frozen=True, kw_only=True)
class StepAnswer:
    id: str
    topic: str
    depends_on: list[str]
    input: Any = None
    approval: TermsAnswer | None = None


@dataclass(frozen=True, kw_only=True)
class WorkflowAnswer(Answer):
    workflow_id: str
    steps: list[StepAnswer]
    max_concurrent_runs: int | None = None
    input_schema: dict[str, Any] | bool | None = None


@dataclass(frozen=True, kw_only=True)
class DeletedAnswer(Answer):
    workflow_id: str
    deleted: bool


@dataclass(frozen=True, kw_only=True)
class RunStartedAnswer(Answer):
    run_id: str
    workflow_id: str
    status: str


@dataclass(frozen=True, kw_only=True)
class RunStepAnswer:
    id: str
    status: str
    job_id: str | None
    depends_on: list[str]


@dataclass(frozen=True, kw_only=True)
class RunAnswer(Answer):
    run_id: str
    workflow_id: str
    status: str
    input: Any
    result: Any
    error: Any
    created_at: datetime
    started_at: datetime
    ended_at: datetime | None
    rerun_of: str | None
    steps: list[RunStepAnswer]


@dataclass(frozen=True, kw_only=True)
class TimelineEventAnswer(Answer):
    seq: int
    at: datetime
    type: str
    step_id: str | None = None
    job_id: str | None = None
    by: str | None = None
    data: Any


@dataclass(frozen=True, kw_only=True)
class JobAnswer(Answer):
    job_id: str
    run_id: str | None
    step_id: str | None
    topic: str
    input: Any
    labels: dict[str, str]
    status: str
    attempt: int
    submitted_by: str
    bus_msg_id: str | None
    result: Any
    error: Any
    created_at: datetime
    ended_at: datetime | None


@dataclass(frozen=True, kw_only=True)
class LeasedJobAnswer:
    job_id: str
    run_id: str | None
    step_id: str | None
    topic: str
    input: Any
    labels: dict[str, str]
    attempt: int
    fence: int
    key: str
    lease_expires_at: datetime | None
    submitted_by: str


@dataclass(frozen=True, kw_only=True)
class LeasesAnswer(Answer):
    jobs: list[LeasedJobAnswer]


@dataclass(frozen=True, kw_only=True)
class HeartbeatAnswer(Answer):
    job_id: str
    fence: int
    lease_expires_at: datetime


@dataclass(frozen=True, kw_only=True)
class ApprovalAnswer(Answer):
    job_id: str
    run_id: str | None
    topic: str
    input: Any
    labels: dict[str, str]
    status: str
    revision: int
    job_hash: str
    submitted_by: str
    created_at: datetime
    expires_at: datetime
    decided_by: str | None
    decided_at: datetime | None
    reason: str | None


@dataclass(frozen=True, kw_only=True)
class DecisionAnswer(Answer):
    """Who and when stand under the decision's own name."""

    job_id: str
    status: str
    approved_by: str | None = None
    approved_at: datetime | None = None
    rejected_by: str | None = None
    rejected_at: datetime | None = None
    revision: int


@dataclass(frozen=True, kw_only=True)
class DeadLetterAnswer(Answer):
    id: str
    message_id: str
    type: str
    topic: str | None
    run_id: str | None
    job_id: str | None
    consumer: str
    deliveries: int
    error: str
    created_at: datetime
    dead_at: datetime
    retried_at: datetime | None
    retried_by: str | None


@dataclass(frozen=True, kw_only=True)
class RecordAnswer(Answer):
    """Of a call of a tool, an HTTP request, the key of a run or job, or a question to a person."""

    id: str
    scope: str
    tool: str | None
    key: str
    state: str
    fence: int | None
    attempts: int
    created_at: datetime
    settled_at: datetime | None
    expires_at: datetime | None
    run_id: str | None
    job_id: str | None
    by: str | None = None
    status: str | None = None
    version: str | None = None
    conversation: str | None = None
    step: list[str] | None = None
    principal: str | None = None
    entered_at: datetime | None = None
    lease_until: datetime | None = None
    arguments: Any = None
    outcome: Any = None
    note: str | None = None
    contract: dict[str, Any] | None = None
    result_checked: bool | None = None


@dataclass(frozen=True, kw_only=True)
class WantedResultAnswer:
    """What the tool returns, for whoever has to say what it returned."""

    schema: dict[str, Any] | None
    template: Any


@dataclass(frozen=True, kw_only=True)
class ExplanationAnswer:
    known: str
    attempt: int
    choices: list[str]
    promised: str | None = None
    since: datetime | None = None
    question: str | None = None
    result: WantedResultAnswer | None = None


@dataclass(frozen=True, kw_only=True)
class HappeningAnswer:
    seq: int
    at: datetime
    type: str
    state: str
    fence: int
    by: str
    note: str
    times: int


@dataclass(frozen=True, kw_only=True)
class ExplainedRecordAnswer(RecordAnswer):
    explanation: ExplanationAnswer
    history: list[HappeningAnswer]


@dataclass(frozen=True, kw_only=True)
class SightAnswer:
    version: str
    first_seen_at: datetime
    last_seen_at: datetime


@dataclass(frozen=True, kw_only=True)
class ContractAnswer(Answer):
    """As `describe()` of a contract says."""

    class_: Annotated[str, Field(alias="class")]
    name: str
    version: str
    owner: str
    purpose: str
    recorded: bool
    value: str | None
    window: str | None
    lease: str | None
    run_limit: str | None
    ignore: list[str]
    resource: str | None
    scopes: list[str]
    downstream_window: str | None
    forwards_key: bool
    same_transaction: bool
    transient: list[str]
    attempts: int
    backoff: str
    refused: list[str]
    raises: list[str]
    in_flight: str | None
    wait: str | None
    on_unknown: str | None
    probe: bool
    approval: dict[str, str] | None
    key_of: bool
    secret: list[str]
    schema: dict[str, Any] | None
    result_schema: dict[str, Any] | None
    warnings: list[str]


@dataclass(frozen=True, kw_only=True)
class ToolAnswer(ContractAnswer):
    first_seen_at: datetime
    last_seen_at: datetime
    versions: list[SightAnswer]


@dataclass(frozen=True, kw_only=True)
class AgesAnswer:
    under: str
    retries: int


@dataclass(frozen=True, kw_only=True)
class KeepsAnswer:
    records: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class WindowAnswer(Answer):
    tool: str
    kind: str
    retries: int
    first_at: datetime | None
    last_at: datetime | None
    ages: list[AgesAnswer]
    covering: str
    window: str | None
    later_than_window: int
    after_window: int
    met_window: int
    late_in_window: int
    too_short: bool
    records_a_day: float | None
    record_bytes: float | None
    window_keeps: KeepsAnswer | None
    covering_keeps: KeepsAnswer | None
    remarks: list[str]


@dataclass(frozen=True, kw_only=True)
class EventAnswer(Answer):
    lane: int
    seq: int
    at: datetime
    tenant: str
    type: str
    scope: str
    key: str
    record_id: str
    state: str
    fence: int
    tool: str
    version: str
    digest: str
    expires_at: datetime | None
    conversation: str
    step: list[str]
    by: str
    note: str
    times: int


@dataclass(frozen=True, kw_only=True)
class MadeCallAnswer:
    at: datetime
    record_id: str
    key: str
    conversation: str
    step: list[str]


@dataclass(frozen=True, kw_only=True)
class CallPairAnswer:
    first: MadeCallAnswer
    second: MadeCallAnswer


@dataclass(frozen=True, kw_only=True)
class ToolDuplicatesAnswer:
    tool: str
    count: int
    same_conversation: int
    meaning: str
    examples: list[CallPairAnswer]


@dataclass(frozen=True, kw_only=True)
class LateRepeatAnswer:
    settled_at: datetime
    closed_at: datetime
    again: MadeCallAnswer


@dataclass(frozen=True, kw_only=True)
class LateRepeatsAnswer:
    tool: str
    count: int
    window: str
    covering: str
    meaning: str
    examples: list[LateRepeatAnswer]


@dataclass(frozen=True, kw_only=True)
class NearRepeatsAnswer:
    tool: str
    argument: str
    count: int
    meaning: str
    examples: list[CallPairAnswer]


@dataclass(frozen=True, kw_only=True)
class DuplicatesAnswer(Answer):
    within: str
    calls: int
    duplicates: int
    flooded: bool
    tools: list[ToolDuplicatesAnswer]
    late_repeats: int
    late_tools: list[LateRepeatsAnswer]
    near_repeats: int
    near_tools: list[NearRepeatsAnswer]
