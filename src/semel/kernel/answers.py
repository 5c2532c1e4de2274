"""Everything that is shown as JSON: by the gateway, and by the command line.

These are the only lists of members. Whoever makes an answer names its model, and the type checker refuses a
member that the model does not have, and one that is missing; `/openapi.json` is written from the same models.
At run time an answer is a plain dict: it costs what a dict costs, and is written in the dict's order.

In `/openapi.json` a model has its name without `Json`, and a list of `RunJson` is called `Runs`.
"""

from __future__ import annotations

from typing import (
    Annotated,
    Any,
    Generic,
    NotRequired,  # pydantic reads those of `typing` from Python 3.12 on
    TypeVar,
)

from pydantic import WithJsonSchema
from typing_extensions import TypedDict

A = TypeVar("A")

Time = Annotated[str, WithJsonSchema({"type": "string", "format": "date-time"})]
Labels = dict[str, str]
Schema = dict[str, Any]


class ListJson(TypedDict, Generic[A]):
    items: list[A]
    next_cursor: str | None


class ProblemJson(TypedDict):
    """RFC 9457. Some problems say more."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    retriable: bool


class HealthJson(TypedDict):
    status: str
    reasons: NotRequired[list[str]]


# --- workflows and runs ---------------------------------------------------------------------------


class TenantJson(TypedDict):
    tenant: str
    max_concurrent_runs: int


class TermsJson(TypedDict):
    """Of a question to a person."""

    expires_in: str
    reason: str


class StepJson(TypedDict):
    id: str
    topic: str
    depends_on: list[str]
    input: NotRequired[Any]
    approval: NotRequired[TermsJson]


class WorkflowJson(TypedDict):
    workflow_id: str
    steps: list[StepJson]
    max_concurrent_runs: NotRequired[int]
    input_schema: NotRequired[Schema | bool]


class DeletedJson(TypedDict):
    workflow_id: str
    deleted: bool


class RunStartedJson(TypedDict):
    run_id: str
    workflow_id: str
    status: str


class RunStepJson(TypedDict):
    id: str
    status: str
    job_id: str | None
    depends_on: list[str]


class RunJson(TypedDict):
    run_id: str
    workflow_id: str
    status: str
    input: Any
    result: Any
    error: Any
    created_at: Time
    started_at: Time
    ended_at: Time | None
    rerun_of: str | None
    steps: list[RunStepJson]


class TimelineEventJson(TypedDict):
    seq: int
    at: Time
    type: str
    step_id: NotRequired[str]
    job_id: NotRequired[str]
    by: NotRequired[str]
    data: Any


# --- jobs and approvals ---------------------------------------------------------------------------


class JobJson(TypedDict):
    job_id: str
    run_id: str | None
    step_id: str | None
    topic: str
    input: Any
    labels: Labels
    status: str
    attempt: int
    submitted_by: str
    bus_msg_id: str | None
    result: Any
    error: Any
    created_at: Time
    ended_at: Time | None


class LeasedJobJson(TypedDict):
    job_id: str
    run_id: str | None
    step_id: str | None
    topic: str
    input: Any
    labels: Labels
    attempt: int
    fence: int
    key: str
    lease_expires_at: Time | None
    submitted_by: str


class LeasesJson(TypedDict):
    jobs: list[LeasedJobJson]


class HeartbeatJson(TypedDict):
    job_id: str
    fence: int
    lease_expires_at: Time


class ApprovalJson(TypedDict):
    job_id: str
    run_id: str | None
    topic: str
    input: Any
    labels: Labels
    status: str
    revision: int
    job_hash: str
    submitted_by: str
    created_at: Time
    expires_at: Time
    decided_by: str | None
    decided_at: Time | None
    reason: str | None


class DecisionJson(TypedDict):
    """Who and when stand under the decision's own name."""

    job_id: str
    status: str
    approved_by: NotRequired[str]
    approved_at: NotRequired[Time]
    rejected_by: NotRequired[str]
    rejected_at: NotRequired[Time]
    revision: int


class DeadLetterJson(TypedDict):
    id: str
    message_id: str
    type: str
    topic: str | None
    run_id: str | None
    job_id: str | None
    consumer: str
    deliveries: int
    error: str
    created_at: Time
    dead_at: Time
    retried_at: Time | None
    retried_by: str | None


# --- records --------------------------------------------------------------------------------------


class RecordJson(TypedDict):
    """Of a call of a tool, an HTTP request, the key of a run or job, or a question to a person."""

    id: str
    scope: str
    tool: str | None
    key: str
    state: str
    fence: int | None
    attempts: int
    created_at: Time
    settled_at: Time | None
    expires_at: Time | None
    run_id: str | None
    job_id: str | None
    by: NotRequired[str | None]
    # Of a question.
    status: NotRequired[str]
    # Of a call.
    version: NotRequired[str]
    conversation: NotRequired[str]
    step: NotRequired[list[str]]
    principal: NotRequired[str]
    entered_at: NotRequired[Time | None]
    lease_until: NotRequired[Time | None]
    arguments: NotRequired[Any]
    outcome: NotRequired[Any]
    note: NotRequired[str]
    contract: NotRequired[dict[str, Any]]
    # Whether the result that a person gave was held against what the tool returns.
    result_checked: NotRequired[bool | None]


class WantedResultJson(TypedDict):
    """What the tool returns, for whoever has to say what it returned."""

    schema: Schema | None
    template: Any


class ExplanationJson(TypedDict):
    known: str
    attempt: int
    choices: list[str]
    promised: NotRequired[str]
    since: NotRequired[Time | None]
    question: NotRequired[str]
    result: NotRequired[WantedResultJson]


class HappeningJson(TypedDict):
    seq: int
    at: Time
    type: str
    state: str
    fence: int
    by: str
    note: str
    times: int


class ExplainedRecordJson(RecordJson):
    explanation: ExplanationJson
    history: list[HappeningJson]


# --- tools ----------------------------------------------------------------------------------------


class SightJson(TypedDict):
    version: str
    first_seen_at: Time
    last_seen_at: Time


# Python lets no member have this name.
_Class = TypedDict("_Class", {"class": str})


class ContractJson(_Class):
    """As `describe()` of a contract says."""

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
    schema: Schema | None
    result_schema: Schema | None
    warnings: list[str]


class ToolJson(ContractJson):
    first_seen_at: Time
    last_seen_at: Time
    versions: list[SightJson]


class AgesJson(TypedDict):
    under: str
    retries: int


class KeepsJson(TypedDict):
    records: int
    bytes: int


class WindowJson(TypedDict):
    tool: str
    kind: str
    retries: int
    first_at: Time | None
    last_at: Time | None
    ages: list[AgesJson]
    covering: str
    window: str | None
    later_than_window: int
    after_window: int
    met_window: int
    late_in_window: int
    too_short: bool
    records_a_day: float | None
    record_bytes: float | None
    window_keeps: KeepsJson | None
    covering_keeps: KeepsJson | None
    remarks: list[str]


# --- the audit log --------------------------------------------------------------------------------


class EventJson(TypedDict):
    lane: int
    seq: int
    at: Time
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
    expires_at: Time | None
    conversation: str
    step: list[str]
    by: str
    note: str
    times: int


class MadeCallJson(TypedDict):
    at: Time
    record_id: str
    key: str
    conversation: str
    step: list[str]


class CallPairJson(TypedDict):
    first: MadeCallJson
    second: MadeCallJson


class ToolDuplicatesJson(TypedDict):
    tool: str
    count: int
    same_conversation: int
    meaning: str
    examples: list[CallPairJson]


class LateRepeatJson(TypedDict):
    settled_at: Time
    closed_at: Time
    again: MadeCallJson


class LateRepeatsJson(TypedDict):
    tool: str
    count: int
    window: str
    covering: str
    meaning: str
    examples: list[LateRepeatJson]


class NearRepeatsJson(TypedDict):
    tool: str
    argument: str
    count: int
    meaning: str
    examples: list[CallPairJson]


class DuplicatesJson(TypedDict):
    within: str
    calls: int
    duplicates: int
    flooded: bool
    tools: list[ToolDuplicatesJson]
    late_repeats: int
    late_tools: list[LateRepeatsJson]
    near_repeats: int
    near_tools: list[NearRepeatsJson]
