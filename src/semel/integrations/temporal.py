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

Activities that the plugins of agent frameworks start have no `activity_id`. Their step is the user's turn:

    Pydantic AI    the `conversation_id` and `run_id` that the activity is given
    LangGraph      the `thread_id`, else the chain; the subgraphs' names and the id of the user's last message
    others         what the workflow says: `with turn(message_id): await Runner.run(…)`, which counts for all
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from semel.agents import tell
from semel.call.step import Step
from semel.contract.raised import contracts_answer
from semel.errors import CallError, NoStep, SemelError, StepError
from semel.kernel.durations import Duration
from semel.kernel.limits import NAME_BYTES_MAX
from semel.ledger.ledger import Ledger
from semel.windows.age_counters import ENTITY, Subject
from semel.windows.ages import Ages
from semel.windows.entity import DEFAULT_MAX_AGE, DedupWindow

_HEADER = "semel-step"

# Longer names of workflow types are cut in the store.
_TYPE_MAX = 120

_FIX_NO_STEP = (
    "Start the activity with an activity_id of your own, or an agent's run inside "
    "`with semel.integrations.temporal.turn(message_id):`, on a worker that has the Guard."
)


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


_turn: ContextVar[str | None] = ContextVar("semel_temporal_turn", default=None)


@contextmanager
def turn(message_id: str) -> Iterator[None]:
    """Activities started inside without an `activity_id` belong to the turn that answers this message.

    For the agents of plugins, which start activities for the tools that a model calls: equal calls of one
    turn are one action. The id is the user's, and another one for each message of the conversation.
    """
    token = _turn.set(message_id)
    try:
        yield
    finally:
        _turn.reset(token)


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
        input.headers = _with_step(input.headers, input.activity_id, input.args)
        return super().start_activity(input)

    def start_local_activity(self, input: StartLocalActivityInput) -> workflow.ActivityHandle[Any]:
        input.headers = _with_step(input.headers, input.activity_id, input.args)
        return super().start_local_activity(input)


def _with_step(
    headers: Mapping[str, Payload], activity_id: str | None, given: Sequence[Any]
) -> Mapping[str, Payload]:
    named = _named_by_author(activity_id) or _named_by_plugin(given[0] if given else None)
    if named is None:
        return headers
    return {**headers, _HEADER: workflow.payload_converter().to_payload(named)}


def _named_by_author(activity_id: str | None) -> dict[str, Any] | None:
    # Without an id of the author's Temporal numbers activities by run: such a number names another action
    # after the next change of the code.
    if activity_id is not None:
        return {"conversation": _conversation(), "step": activity_id}
    message = _turn.get()
    # In two parts: no activity id is so, and no action of one is an action of the other.
    return None if message is None else {"conversation": _conversation(), "turn": ["turn", message]}


def _named_by_plugin(given: Any) -> dict[str, Any] | None:
    """The turn, by the ids in what the plugin of an agent framework gives to its activity; None without."""
    context = getattr(given, "serialized_run_context", None)
    if isinstance(context, Mapping):  # Pydantic AI
        thread, path = context.get("conversation_id"), [context.get("run_id")]
    elif isinstance(config := getattr(given, "langgraph_config", None), Mapping):
        settings = config.get("configurable") or {}
        thread, path = settings.get("thread_id"), _place_in_graph(settings, given)
    else:
        return None
    if not all(path) or not (thread or _given.get() or not workflow.info().cron_schedule):
        return None
    conversation = _given.get() or (str(thread) if thread else _conversation())
    return {"conversation": conversation, "turn": path}


def _place_in_graph(settings: Mapping[str, Any], given: Any) -> list[Any]:
    """The subgraphs' names on the way to the node, and the id of the user's last message in its state."""
    names = [each.partition(":")[0] for each in str(settings.get("checkpoint_ns") or "").split("|")]
    state = next(iter(given.args), None)
    messages = state if isinstance(state, list) else _of(state, "messages")
    # A summary of earlier messages is written as if the user had sent it.
    users = [
        each
        for each in messages or ()
        if _of(each, "type") == "human" and not (_of(each, "additional_kwargs") or {}).get("lc_source")
    ]
    return [*names[:-1], _of(users[-1], "id") if users else None]


def _of(holder: Any, name: str) -> Any:
    return holder.get(name) if isinstance(holder, Mapping) else getattr(holder, name, None)


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

    def step_of(self, named: Mapping[str, Any]) -> Step:
        principal = activity.info().workflow_type if self._principal is None else self._principal
        path = (named["step"],) if "step" in named else tuple(named["turn"])
        return Step(self._ledger, named["conversation"], path, self._scopes, principal or "")


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
        except Exception as error:
            answer = contracts_answer(error) or error
            if not isinstance(answer, SemelError):
                raise
            raise _application_error(answer, error) from error


def _application_error(error: SemelError, raised: Exception) -> ApplicationError:
    """The contract's answer as Temporal understands it; what a tool raises as itself keeps its name."""
    fix = _FIX_NO_STEP if isinstance(error, NoStep) else error.corrective_action
    delay = None if error.retry_after_s is None else timedelta(seconds=error.retry_after_s)
    in_words = [] if isinstance(error, NoStep) or not isinstance(error, CallError) else [tell(error)]
    return ApplicationError(
        f"{error.message} {fix}".rstrip(),
        *in_words,  # for a model, where an agent's tool is the activity
        type=error.code if raised is error else type(raised).__name__,
        non_retryable=not error.retriable,
        next_retry_delay=delay if error.retriable else None,
    )
