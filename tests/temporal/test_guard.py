"""Tool contracts in activities on a real Temporal server: the step is the workflow's, never the attempt's."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest
from temporalio import activity, workflow
from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.enums.v1 import EventType
from temporalio.api.workflowservice.v1 import ResetWorkflowExecutionRequest
from temporalio.client import Client, WorkflowFailureError, WorkflowHandle
from temporalio.common import RetryPolicy
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

with workflow.unsafe.imports_passed_through():
    import semel
    from semel.integrations import temporal
    from semel.kernel.limits import NAME_BYTES_MAX
    from semel.ledger.ledger import Ledger
    from semel.stores.memory import MemoryStore
    from semel.testing import FlakyStore
    from tests.temporal import uncopied
    from tests.temporal.conftest import PATIENCE_S

SOON = RetryPolicy(initial_interval=timedelta(milliseconds=10), maximum_attempts=5)


@dataclass
class Deed:
    """What a workflow shall do, and under which name."""

    text: str
    id: str | None = "pay"
    activity: str = "pay"
    runs: int = 1
    conversation: str | None = None
    turns: list[str] = field(default_factory=list)
    local: bool = False
    fails_first: bool = False


# What happened outside: effects, and attempts of activities, by their texts. Each test has texts of its own.
effects: list[str] = []
attempts: list[str] = []


class CardStolen(Exception):
    pass


@semel.tool_contract(class_="write-non-idempotent", scopes={"pay"}, raises=(CardStolen,))
def charge(text: str) -> str:
    effects.append(text)
    if "stolen" in text:
        raise CardStolen("stolen")
    if "declined" in text:
        raise ValueError("declined")
    return f"charged for {text}"


@semel.tool_contract(class_="write-non-idempotent", scopes={"pay"})
async def charge_async(text: str) -> str:
    effects.append(text)
    return f"charged for {text}"


def stumble(text: str) -> None:
    """The first attempt fails after its effect, as if its worker had been lost."""
    attempts.append(text)
    if "stumbles" in text and activity.info().attempt == 1:
        raise RuntimeError("lost")


@activity.defn
def pay(text: str) -> str:
    told: str = charge(text)
    stumble(text)
    return told


@activity.defn
async def pay_async(text: str) -> str:
    told: str = await charge_async(text)
    stumble(text)
    return told


@workflow.defn
class Doing:
    @workflow.run
    async def run(self, deed: Deed) -> str:
        if deed.turns:
            told = [await self._do_in_turn(deed, message_id) for message_id in deed.turns][-1]
        elif deed.conversation is None:
            told = await self._do(deed)
        else:
            with temporal.conversation(deed.conversation):
                told = await self._do(deed)
        if deed.fails_first and workflow.info().attempt == 1:
            raise ApplicationError("the first attempt of the workflow")
        if deed.runs > 1:
            deed.runs -= 1
            workflow.continue_as_new(deed)
        return told

    async def _do_in_turn(self, deed: Deed, message_id: str) -> str:
        """As the plugins of agent frameworks do it: for each call of the model an activity without an id."""
        with temporal.turn(message_id):
            told = await asyncio.gather(self._do(deed), self._do(deed))
        return told[0]

    async def _do(self, deed: Deed) -> str:
        start = workflow.execute_local_activity if deed.local else workflow.execute_activity
        told: str = await start(
            deed.activity,
            deed.text,
            activity_id=deed.id,
            start_to_close_timeout=timedelta(seconds=PATIENCE_S),
            retry_policy=SOON,
        )
        return told


@dataclass
class World:
    client: Client
    ledger: Ledger
    queue: str = field(default_factory=lambda: f"guard-{uuid.uuid4()}")

    async def start(self, deed: Deed, id: str | None = None, **more: Any) -> WorkflowHandle[Any, str]:
        return await self.client.start_workflow(
            Doing.run, deed, id=id or str(uuid.uuid4()), task_queue=self.queue, **more
        )

    async def do(self, deed: Deed, id: str | None = None) -> str:
        return await (await self.start(deed, id)).result()


@asynccontextmanager
async def world(address: str, ledger: Ledger, scopes: set[str]) -> AsyncIterator[World]:
    made = World(await Client.connect(address), ledger)
    with ThreadPoolExecutor(4) as threads:
        worker = Worker(
            made.client,
            task_queue=made.queue,
            workflows=[Doing],
            activities=[pay, pay_async],
            activity_executor=threads,
            interceptors=[temporal.Guard(ledger, scopes=scopes)],
        )
        async with worker:
            yield made


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    with Ledger(MemoryStore()) as opened:
        yield opened


Play = Callable[..., None]


@pytest.fixture
def play(address: str, ledger: Ledger) -> Play:
    """Runs a story in a world with one worker."""

    def played(story: Any, ledger: Ledger = ledger, scopes: set[str] | None = None) -> None:
        async def told() -> None:
            async with world(address, ledger, {"pay"} if scopes is None else scopes) as made:
                await asyncio.wait_for(story(made), PATIENCE_S)

        asyncio.run(told())

    return played


@pytest.fixture
def text() -> str:
    return f"order {uuid.uuid4()}"


every_kind = pytest.mark.parametrize(
    "kind",
    [{"activity": "pay"}, {"activity": "pay_async"}, {"activity": "pay", "local": True}],
    ids=["def", "async def", "local"],
)


@every_kind
def test_an_activity_that_is_retried_has_its_effect_once(play: Play, text: str, kind: dict[str, Any]) -> None:
    stumbling = f"{text} stumbles"

    async def story(world: World) -> None:
        assert await world.do(Deed(stumbling, **kind)) == f"charged for {stumbling}"

    play(story)
    assert attempts.count(stumbling) == 2
    assert effects.count(stumbling) == 1


@every_kind
def test_an_activity_without_an_id_of_the_authors_is_refused_and_nothing_happens(
    play: Play, text: str, kind: dict[str, Any]
) -> None:
    async def story(world: World) -> None:
        with pytest.raises(WorkflowFailureError) as failed:
            await world.do(Deed(text, id=None, **kind))
        answer = answer_of(failed.value)
        assert (answer.type, answer.non_retryable) == ("NO_STEP", True)
        assert "activity_id" in answer.message

    play(story)
    assert effects.count(text) == 0


@every_kind
def test_equal_calls_of_one_turn_are_one_action_and_of_the_next_another(
    play: Play, text: str, kind: dict[str, Any]
) -> None:
    stumbling = f"{text} stumbles"

    async def story(world: World) -> None:
        await world.do(Deed(stumbling, id=None, turns=["message-1", "message-1", "message-2"], **kind))

    play(story)
    assert attempts.count(stumbling) > 6
    assert effects.count(stumbling) == 2


def test_a_reset_does_not_repeat_the_effect_of_a_turn(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        handle = await world.start(Deed(text, id=None, turns=["message-1"], runs=2))
        first = await handle.result()
        assert await (await reset(world.client, handle)).result() == first

    play(story)
    assert effects.count(text) == 1


def test_a_turn_is_no_activity_of_the_same_name(play: Play, text: str, ledger: Ledger) -> None:
    async def story(world: World) -> None:
        await world.do(Deed(text, id=None, turns=["pay"]))

    play(story)
    [record] = ledger.records.list()
    assert record.request.step == '["turn","pay"]', "no activity id is so"


class _Given:
    """What the plugin of an agent framework hands to its activity."""

    def __init__(self, **given: Any) -> None:
        self.__dict__.update(given)


def _node(*messages: Any, thread: str | None = "ticket-42", ns: str = "desk:1|pay:2") -> _Given:
    settings = {"checkpoint_ns": ns} | ({"thread_id": thread} if thread else {})
    return _Given(args=({"messages": list(messages)},), langgraph_config={"configurable": settings})


_HUMAN, _SUMMARY = (
    {"type": "human", "id": "m-1"},
    {"type": "human", "id": "m-9", "additional_kwargs": {"lc_source": "summarization"}},
)


@pytest.mark.parametrize(
    ("given", "conversation", "turn"),
    [
        (_Given(serialized_run_context={"conversation_id": "c", "run_id": "r"}), "c", ["r"]),
        (_node(_HUMAN, {"type": "ai", "id": "a-1"}), "ticket-42", ["desk", "m-1"]),
        (_node(_HUMAN, _SUMMARY, ns="pay:2"), "ticket-42", ["m-1"]),
    ],
)
def test_the_turn_is_in_what_a_plugin_gives_to_its_activity(
    given: Any, conversation: str, turn: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workflow, "info", lambda: _Given(cron_schedule=None))
    assert temporal._named_by_plugin(given) == {"conversation": conversation, "turn": turn}


@pytest.mark.parametrize(
    "given",
    [
        None,
        "plain arguments",
        {"serialized_run_context": "a model's own words"},
        _Given(serialized_run_context="not a context"),
        _Given(serialized_run_context={"conversation_id": "c"}),
        _node({"type": "ai", "id": "a-1"}),
        _node({"type": "human"}),
        _Given(args=(), langgraph_config={"configurable": {}}),
    ],
)
def test_what_says_nothing_of_a_turn_makes_no_step(given: Any) -> None:
    assert temporal._named_by_plugin(given) is None


def test_runs_that_continue_each_other_share_their_actions(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        await world.do(Deed(text, runs=3))

    play(story)
    assert attempts.count(text) == 3
    assert effects.count(text) == 1


def test_a_workflow_that_is_retried_does_not_repeat_its_effect(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        handle = await world.start(Deed(text, fails_first=True), retry_policy=SOON)
        assert await handle.result() == f"charged for {text}"

    play(story)
    assert attempts.count(text) == 2
    assert effects.count(text) == 1


def test_another_id_is_another_action(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        name = str(uuid.uuid4())
        with_id = [await world.do(Deed(text, id=f"pay-{number}", runs=2), name) for number in range(2)]
        assert len(with_id) == 2

    play(story)
    assert effects.count(text) == 2


def test_a_workflow_that_is_started_again_acts_again(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        name = str(uuid.uuid4())
        for _ in range(2):
            await world.do(Deed(text), name)

    play(story)
    assert effects.count(text) == 2


def test_workflows_do_not_meet_in_their_ids(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        await asyncio.gather(*(world.do(Deed(text)) for _ in range(3)))

    play(story)
    assert effects.count(text) == 3


def test_a_named_conversation_outlives_its_workflows(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        for _ in range(2):
            await world.do(Deed(text, conversation=f"the order {text}"))

    play(story)
    assert attempts.count(text) == 2
    assert effects.count(text) == 1


def test_a_reset_does_not_repeat_an_effect(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        handle = await world.start(Deed(text, runs=2))
        first = await handle.result()
        again = await reset(world.client, handle)
        assert await again.result() == first

    play(story)
    assert attempts.count(text) == 3
    assert effects.count(text) == 1


async def reset(client: Client, handle: WorkflowHandle[Any, str]) -> WorkflowHandle[Any, str]:
    """The last run begins anew after its first decision, as an operator would have it."""
    described = await handle.describe()
    history = await client.get_workflow_handle(handle.id, run_id=described.run_id).fetch_history()
    completed = EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED
    point = next(event.event_id for event in history.events if event.event_type == completed)
    answer = await client.workflow_service.reset_workflow_execution(
        ResetWorkflowExecutionRequest(
            namespace="default",
            workflow_execution=WorkflowExecution(workflow_id=handle.id, run_id=described.run_id),
            reason="a test",
            workflow_task_finish_event_id=point,
            request_id=str(uuid.uuid4()),
        )
    )
    assert answer.run_id != described.run_id
    return client.get_workflow_handle(handle.id, run_id=answer.run_id, result_type=str)


def answer_of(failure: WorkflowFailureError) -> ApplicationError:
    """What the activity answered, behind what Temporal says about it."""
    cause: BaseException | None = failure
    while not isinstance(cause, ApplicationError):
        assert cause is not None
        cause = cause.__cause__
    return cause


def test_a_failure_that_is_recorded_is_not_tried_again(play: Play, text: str) -> None:
    declined = f"{text} declined"

    async def story(world: World) -> None:
        with pytest.raises(WorkflowFailureError) as failed:
            await world.do(Deed(declined))
        answer = answer_of(failed.value)
        assert (answer.type, answer.non_retryable) == ("EFFECT_FAILED", True)

    play(story)
    assert effects.count(declined) == 1


def test_an_answer_of_the_tools_own_keeps_its_name_and_is_not_tried_again(play: Play, text: str) -> None:
    stolen = f"{text} stolen"

    async def story(world: World) -> None:
        with pytest.raises(WorkflowFailureError) as failed:
            await world.do(Deed(stolen))
        answer = answer_of(failed.value)
        assert (answer.type, answer.non_retryable) == ("CardStolen", True)

    play(story)
    assert effects.count(stolen) == 1


def test_a_worker_that_does_not_grant_what_a_tool_needs_is_refused(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        with pytest.raises(WorkflowFailureError) as failed:
            await world.do(Deed(text))
        assert answer_of(failed.value).type == "SCOPE_DENIED"

    play(story, scopes=set())
    assert effects.count(text) == 0


def test_a_store_that_is_away_is_asked_again(play: Play, text: str) -> None:
    store = FlakyStore(MemoryStore())
    store.refuse("claim", times=2)

    async def story(world: World) -> None:
        assert await world.do(Deed(text)) == f"charged for {text}"

    with Ledger(store) as flaky:
        play(story, ledger=flaky)
    assert effects.count(text) == 1


def test_the_audit_names_the_workflow(play: Play, text: str, ledger: Ledger) -> None:
    name = f"invoice-{uuid.uuid4()}"

    async def story(world: World) -> None:
        await world.do(Deed(text), name)

    play(story)
    [record] = ledger.records.list()
    assert f"temporal:default/{name}/" in record.request.conversation
    assert record.request.principal == "Doing"


def test_a_cron_workflow_has_to_name_its_conversations(play: Play, text: str) -> None:
    async def story(world: World) -> None:
        handle = await world.start(Deed(text), cron_schedule="@every 1s")
        told = await first_failure(handle)
        await handle.terminate()
        assert "cron workflow" in told
        assert "conversation(…)" in told

    play(story)
    assert effects.count(text) == 0


async def first_failure(handle: WorkflowHandle[Any, str]) -> str:
    """What the worker says when it cannot go on with the workflow; "" if that ends instead."""
    async for event in handle.fetch_history_events(wait_new_event=True):
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_TASK_FAILED:
            return event.workflow_task_failed_event_attributes.failure.message
    return ""


def test_a_long_workflow_id_is_cut_and_still_told_apart() -> None:
    first, second = (temporal._chain("default", "ü" * 1_000, str(uuid.uuid4())) for _ in range(2))
    assert len(first.encode()) <= NAME_BYTES_MAX
    assert first != second
    assert first.startswith("temporal:default/üü")


def test_the_sandbox_refuses_a_copy_of_semel_and_names_the_fix(address: str) -> None:
    # A copy would not see the conversation that a workflow opens with the other one.
    async def story() -> None:
        client = await Client.connect(address)
        with pytest.raises(RuntimeError) as refused:
            Worker(client, task_queue="copied", workflows=[uncopied.Copies])
        assert "pass through" in str(refused.value.__cause__)

    asyncio.run(story())
