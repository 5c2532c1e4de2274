"""Temporal: a window in workflow state, and tool contracts whose steps come from the workflow.

    from temporalio import workflow

    with workflow.unsafe.imports_passed_through():
        from semel.integrations.temporal import EntityWindow, Guard

`EntityWindow` is a `DedupWindow` whose clock is the workflow's. `Guard` is an interceptor for workers:

    Worker(client, …, interceptors=[Guard(ledger)])

Then a recorded tool that an activity calls meets the same key on every attempt of that activity, on whichever
worker. Its step is what the workflow's author has said, nothing that Temporal counts:

    conversation   the chain of runs (namespace, workflow id, first run's id): continue-as-new, a retry of the
                   workflow and a reset stay in it; whoever starts that workflow id anew begins another one
    step           the `activity_id` that the workflow gave; without one recorded tools refuse
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity, workflow
from temporalio.api.common.v1 import Payload
from temporalio.exceptions import ApplicationError
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
    StartActivityInput,
    StartLocalActivityInput,
    WorkflowInboundInterceptor,
    WorkflowInterceptorClassInput,
    WorkflowOutboundInterceptor,
)

import semel.integrations.temporal_sandbox  # noqa: F401  first: it refuses a copy before more of it is loaded

# isort: split
from semel.call.step import Step
from semel.errors import NoStep, SemelError, StepError
from semel.kernel.durations import Duration
from semel.kernel.limits import NAME_BYTES_MAX
from semel.ledger.ledger import Ledger
from semel.windows.age_counters import ENTITY, Subject
from semel.windows.ages import Ages
from semel.windows.entity import DEFAULT_MAX_AGE, DedupWindow

_HEADER = "semel-step"

# Longer names of workflow types are cut in the store.
_TYPE_MAX = 120

_FIX_NO_STEP = "Start the activity with an activity_id of your own, on a worker that has the Guard."


# --- in the workflow ------------------------------------------------------------------------------


# Of the longest names a key may have, so many are 0.9 MB of JSON: less than half of the 2 MiB that Temporal
# takes as one payload, so that the entity's own state has the other half.
ENTITY_KEYS_MAX = 10_000

# What the interceptor offers to the windows of a worker's workflows.
_SAW = "semel_window_saw"


class EntityWindow(DedupWindow):
    """A window that lives in a workflow: `now` is the workflow's time unless it is given.

    It holds at most `ENTITY_KEYS_MAX` keys unless another bound is given; `from_state` keeps the state's own.
    What `stats` counts are metrics of the workflow too; and where the worker has a Guard, the ages of
    duplicates are counted in its ledger's store, by the workflow's type, for `semel windows`.
    """

    def __init__(self, max_age: Duration = DEFAULT_MAX_AGE, max_keys: int | None = ENTITY_KEYS_MAX) -> None:
        super().__init__(max_age, max_keys)

    def push(self, key: str | None, now: datetime | None = None) -> bool:
        new = super().push(key, workflow.now() if now is None else now)
        _count("semel_window_pushes", 1)
        return new

    def evict(self, now: datetime | None = None) -> int:
        return super().evict(workflow.now() if now is None else now)

    def _met_again(self, first_us: int, at_us: int) -> None:
        super()._met_again(first_us, at_us)
        if not _counts_here():
            return
        _count("semel_window_duplicates", 1)
        ages = workflow.metric_meter().create_histogram_float("semel_window_duplicate_age_seconds", unit="s")
        ages.record((at_us - first_us) / 1e6)
        if saw := workflow.extern_functions().get(_SAW):
            saw(workflow.info().workflow_type, at_us, first_us, self.max_age // timedelta(microseconds=1))

    def _dropped_young(self, count: int) -> None:
        super()._dropped_young(count)
        _count("semel_window_early_evictions", count)


def _counts_here() -> bool:
    """In a workflow, and not while what was counted once is replayed from its history."""
    return workflow.in_workflow() and not workflow.unsafe.is_replaying()


def _count(name: str, value: int) -> None:
    if _counts_here():
        workflow.metric_meter().create_counter(name).add(value)


_given: ContextVar[str | None] = ContextVar("semel_temporal_conversation", default=None)


@contextmanager
def conversation(name: str) -> Iterator[None]:
    """Activities that are started inside belong to this conversation, in whichever run of whichever workflow.

    For actions that outlive the chain of runs: "charge order 42" is one action, also when another workflow,
    or a child that a reset starts again, asks for it.
    """
    token = _given.set(name)
    try:
        yield
    finally:
        _given.reset(token)


def _conversation() -> str:
    given = _given.get()
    if given is not None:
        return given
    info = workflow.info()
    if info.cron_schedule:
        raise StepError(
            "The runs of a cron workflow are one chain, so their steps cannot be told apart.",
            corrective_action="Name each run's own: with semel.integrations.temporal.conversation(…).",
        )
    return _chain(info.namespace, info.workflow_id, info.first_execution_run_id)


def _chain(namespace: str, workflow_id: str, first_run_id: str) -> str:
    """The chain's name. Only the run's id tells chains apart; the rest is for people, so it may be cut."""
    ending = f"/{first_run_id}"
    shown = f"temporal:{namespace}/{workflow_id}".encode()[: NAME_BYTES_MAX - len(ending)]
    return shown.decode(errors="ignore") + ending


class _NamesSteps(WorkflowInboundInterceptor):
    def init(self, outbound: WorkflowOutboundInterceptor) -> None:
        super().init(_SendsSteps(outbound))


class _SendsSteps(WorkflowOutboundInterceptor):
    def start_activity(self, input: StartActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = _with_step(input.headers, input.activity_id)
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = _with_step(input.headers, input.activity_id)
        return super().start_local_activity(input)


def _with_step(headers: Mapping[str, Payload], activity_id: str | None) -> Mapping[str, Payload]:
    # Without an id of the author's Temporal numbers activities by run: such a number names another action
    # after the next change of the code.
    if activity_id is None:
        return headers
    named = {"conversation": _conversation(), "step": activity_id}
    return {**headers, _HEADER: workflow.payload_converter().to_payload(named)}


# --- in the activity ------------------------------------------------------------------------------


class Guard(Interceptor):
    """An interceptor for workers: activities run in the step that their workflow has named.

    `scopes` are what this worker grants to the tools that its activities call; the principal is the
    workflow's type unless it is given. What a contract answers becomes an `ApplicationError` whose type is
    the code, and which Temporal tries again only where that can help.
    """

    def __init__(self, ledger: Ledger, *, scopes: Iterable[str] = (), principal: str | None = None) -> None:
        self._ledger = ledger
        self._scopes = frozenset((scopes,) if isinstance(scopes, str) else scopes)
        self._principal = principal

    def workflow_interceptor_class(
        self,
        input: WorkflowInterceptorClassInput,
    ) -> type[WorkflowInboundInterceptor]:
        input.unsafe_extern_functions[_SAW] = self._saw
        self._ledger.keeper.notice()  # its thread writes down what windows see
        return _NamesSteps

    def _saw(self, workflow_type: str, at_us: int, first_us: int, max_age_us: int) -> None:
        """A duplicate came to the window of an entity. Called inside workflows: it only counts, in memory."""
        ages = Ages()
        ages.met([at_us], first_us, first_us + max_age_us)
        self._ledger.keeper.saw(Subject(self._ledger.tenant, ENTITY, workflow_type[:_TYPE_MAX]), ages)

    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _EntersStep(next, self)

    def step_of(self, named: Mapping[str, str]) -> Step:
        principal = activity.info().workflow_type if self._principal is None else self._principal
        return Step(self._ledger, named["conversation"], (named["step"],), self._scopes, principal or "")


class _EntersStep(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, guard: Guard) -> None:
        super().__init__(next)
        self._guard = guard

    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        try:
            sent = input.headers.get(_HEADER)
            if sent is None:
                return await super().execute_activity(input)
            # Temporal copies the context into the thread of an activity that is not asynchronous.
            with self._guard.step_of(activity.payload_converter().from_payload(sent, dict)):
                return await super().execute_activity(input)
        except SemelError as error:
            raise _application_error(error) from error


def _application_error(error: SemelError) -> ApplicationError:
    """The contract's answer as Temporal understands it."""
    fix = _FIX_NO_STEP if isinstance(error, NoStep) else error.corrective_action
    delay = None if error.retry_after_s is None else timedelta(seconds=error.retry_after_s)
    return ApplicationError(
        f"{error.message} {fix}".rstrip(),
        type=error.code,
        non_retryable=not error.retriable,
        next_retry_delay=delay if error.retriable else None,
    )
