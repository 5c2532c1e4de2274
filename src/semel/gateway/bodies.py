"""What bodies and queries look like. The same models check requests and describe them in `/openapi.json`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints

from semel.kernel.durations import microseconds
from semel.kernel.keys import explicit
from semel.kernel.limits import KEY_BYTES_MAX, MESSAGE_CHARS_MAX, TRACEBACK_BYTES_MAX

NAME = r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$"

# Higher than any tenant's limit of runs: a larger number is a typing error.
RUNS_MAX = 1_000_000

# A worker that asks for more at once than this keeps others from work for longer than it saves.
LEASED_MAX = 200
TOPICS_MAX = 100

# A lease of a day is a forgotten job; a wait of a minute is as long as proxies let an answer take.
LEASE_S_MAX = 86_400
WAIT_S_MAX = 60

LABELS_MAX = 64

# Newest first, as many as fit a screen; at most what one read of a store brings without being felt.
LIMIT, LIMIT_MAX = 50, 200

# Fences and revisions are counted in 64 bits with a sign.
COUNT_MAX = (1 << 63) - 1


def _duration(text: str) -> str:
    microseconds(text, "expires_in")
    return text


def _key(text: str) -> str:
    explicit("", text)
    return text


def _traceback(text: str) -> str:
    if len(text.encode()) > TRACEBACK_BYTES_MAX:
        raise ValueError(f"more than {TRACEBACK_BYTES_MAX} bytes")
    return text


Name = Annotated[str, StringConstraints(pattern=NAME)]
Words = Annotated[str, StringConstraints(max_length=MESSAGE_CHARS_MAX)]
Traceback = Annotated[str, StringConstraints(max_length=TRACEBACK_BYTES_MAX), AfterValidator(_traceback)]
Label = Annotated[str, StringConstraints(min_length=1, max_length=256)]
DurationText = Annotated[
    str, StringConstraints(pattern=r"^[1-9][0-9]{0,12}(ms|s|m|h|d)$"), AfterValidator(_duration)
]
KeyText = Annotated[str, StringConstraints(min_length=1, max_length=KEY_BYTES_MAX), AfterValidator(_key)]
LeaseS = Annotated[float, Field(gt=0, le=LEASE_S_MAX)]
Fence = Annotated[int, Field(ge=0, le=COUNT_MAX)]
RunsMax = Annotated[int, Field(ge=1, le=RUNS_MAX)]

RunStatus = Literal["running", "waiting", "succeeded", "failed", "cancelled"]
JobStatus = Literal["waiting", "queued", "leased", "succeeded", "failed", "denied", "cancelled"]
LetterStatus = Literal["put_aside", "retried"]
ApprovalStatus = Literal["waiting", "approved", "rejected", "expired", "cancelled"]
EventOrder = Literal["oldest", "newest"]
Scope = Literal["tool", "http", "run", "job", "approval"]
RecordState = Literal["pending", "in_doubt", "done", "failed", "partial"]


class Model(BaseModel):
    """Exactly these members, of exactly these types: `"5"` is no number, and a misspelt name is told."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class ApprovalTerms(Model):
    expires_in: DurationText = "7d"
    reason: Words = ""


Gated = bool | ApprovalTerms


class TenantBody(Model):
    max_concurrent_runs: RunsMax


class StepBody(Model):
    id: Name
    topic: Name
    input: Any = None
    depends_on: list[Name] = []
    approval: Gated = False


class WorkflowBody(Model):
    steps: list[StepBody]
    max_concurrent_runs: RunsMax | None = None
    input_schema: dict[str, Any] | bool | None = None


class CompleteBody(Model):
    status: Literal["succeeded", "failed"]
    result: Any = None


class NoBody(Model):
    """Nothing is said beyond the address; an empty object is nothing too."""


class RerunBody(Model):
    from_step: Name


class JobBody(Model):
    topic: Name
    input: Any
    approval: Gated = False
    labels: Annotated[dict[Label, Label], Field(max_length=LABELS_MAX)] = {}


class LeaseBody(Model):
    topics: Annotated[list[Name], Field(min_length=1, max_length=TOPICS_MAX)]
    max: Annotated[int, Field(ge=1, le=LEASED_MAX)] = 1
    lease_s: LeaseS = 60
    worker_id: Label | None = None
    wait_s: Annotated[float, Field(ge=0, le=WAIT_S_MAX)] = 0


class HeartbeatBody(Model):
    fence: Fence
    lease_s: LeaseS = 60


class ErrorBody(Model):
    code: Label
    message: Words = ""
    retriable: bool = True
    traceback: Traceback | None = None


class ResultBody(Model):
    fence: Fence
    status: Literal["succeeded", "failed"]
    result: Any = None
    error: ErrorBody | None = None


class DecisionBody(Model):
    reason: Words | None = None
    revision: Annotated[int, Field(ge=0, le=COUNT_MAX)] | None = None
    job_hash: Label | None = None


class ResolveBody(Model):
    outcome: Literal["happened", "did_not_happen"]
    result: Any = None
    fence: Fence | None = None


class AmendBody(Model):
    result: Any


# --- queries: every value arrives as text, so numbers are read from it ------------------------------


class NoQuery(Model):
    model_config = ConfigDict(strict=False)


class ListQuery(NoQuery):
    limit: Annotated[int, Field(ge=1, le=LIMIT_MAX)] = LIMIT
    cursor: Annotated[str, StringConstraints(min_length=1, max_length=1024)] | None = None

    def filters(self) -> dict[str, str]:
        """What narrows the list, as text."""
        chosen = self.model_dump(exclude={"limit", "cursor"}, exclude_none=True)
        return {name: str(value) for name, value in chosen.items()}


class RunsQuery(ListQuery):
    workflow_id: Name | None = None
    status: RunStatus | None = None


class JobsQuery(ListQuery):
    status: JobStatus | None = None
    topic: Name | None = None
    run_id: Label | None = None


class ApprovalsQuery(ListQuery):
    status: ApprovalStatus | None = None


class LettersQuery(ListQuery):
    status: LetterStatus | None = None
    consumer: Label | None = None


class RecordsQuery(ListQuery):
    scope: Scope | None = None
    key: KeyText | None = None
    state: RecordState | None = None
    tool: Label | None = None


class ToolQuery(NoQuery):
    version: Label | None = None


class WindowsQuery(NoQuery):
    tool: Label | None = None


class EventsQuery(ListQuery):
    order: EventOrder | None = None


class DuplicatesQuery(NoQuery):
    within: DurationText = "60s"
