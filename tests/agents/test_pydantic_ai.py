"""Pydantic AI."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import pytest
from pydantic_ai import (
    Agent,
    DeferredToolRequests,
    DeferredToolResults,
    ModelRetry,
    RunContext,
    ToolApproved,
    UnexpectedModelBehavior,
)
from pydantic_ai.capabilities import Hooks
from pydantic_ai.messages import ModelRequest, RetryPromptPart, ToolReturnPart

import semel
from semel import errors
from semel.agents import decide
from semel.integrations.pydantic_ai import SemelCapability
from tests.agents.proofs import Proofs
from tests.agents.provider import Provider
from tests.agents.pydantic_ai_agent import model
from tests.agents.script import Call, Job, refund
from tests.agents.server import Server


class TestPydanticAI(Proofs):
    adapter = "tests.agents.pydantic_ai_agent"
    model_retries = True


# --- what only this framework has -----------------------------------------------------------------

TURN: Any = {"conversation_id": "ticket-42", "run_id": "message-1"}


class Till:
    """Pays, but for small amounts, and counts how often it was asked to."""

    def __init__(self, **contract: Any) -> None:
        self.asked: list[int] = []

        @semel.tool_contract(**contract)
        def pay(amount: int) -> str:
            """Pay."""
            self.asked.append(amount)
            if amount < 10:
                raise ModelRetry("at least 10")
            return f"paid {amount}"

        self.pay = pay


@pytest.fixture
def ledger() -> Iterator[semel.Ledger]:
    with semel.open("memory://") as ledger:
        yield ledger


def agent(ledger: semel.Ledger, till: Till, tmp_path: Any, *amounts: int, **more: Any) -> Agent[None, Any]:
    """Its model pays these amounts, one a round."""
    rounds: list[Any] = [*([Call("pay", {"amount": amount})] for amount in amounts), "done"]
    capabilities = [SemelCapability(ledger)]
    return Agent(model(Job(tmp_path, [rounds])), tools=[till.pay], capabilities=capabilities, **more)


def answers(messages: list[Any]) -> list[str]:
    parts = [part for each in messages if isinstance(each, ModelRequest) for part in each.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart | RetryPromptPart)]


def test_a_model_retry_that_proves_that_nothing_happened_lets_the_same_call_run_again(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till(refused=(ModelRetry,))
    result = agent(ledger, till, tmp_path, 5, 5, 50, retries=3).run_sync("pay", **TURN)
    assert answers(result.all_messages()) == ["at least 10", "at least 10", "paid 50"]
    assert till.asked == [5, 5, 50]


def test_a_model_retry_that_is_an_answer_is_given_to_repeats_too(ledger: semel.Ledger, tmp_path: Any) -> None:
    till = Till(raises=(ModelRetry,))
    paying = agent(ledger, till, tmp_path, 5, 50, retries=3)
    for _ in range(2):
        assert answers(paying.run_sync("pay", **TURN).all_messages()) == ["at least 10", "paid 50"]
    assert till.asked == [5, 50]


def test_a_model_retry_of_which_the_contract_says_nothing_is_a_failure(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till()
    [told] = answers(agent(ledger, till, tmp_path, 5).run_sync("pay", **TURN).all_messages())
    assert told.startswith("EFFECT_FAILED: ")


def test_doubt_that_a_hook_has_made_a_retry_goes_on_in_the_next_turn(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    paid: list[int] = []

    @semel.tool_contract
    def pay(amount: int) -> str:
        paid.append(amount)
        raise TimeoutError("no answer")

    hooks = Hooks[Any]()

    async def ask_the_model_again(ctx: Any, *, error: Exception, **_: Any) -> Any:
        raise ModelRetry("try again") if isinstance(error, TimeoutError) else error

    hooks.on.tool_execute_error(ask_the_model_again)
    turns: list[Any] = [[[Call("pay", {"amount": 50})], "done"]] * 2
    capabilities = [hooks, SemelCapability(ledger)]
    paying = Agent(model(Job(tmp_path, turns)), tools=[pay], capabilities=capabilities)
    first = paying.run_sync("pay", **TURN).all_messages()
    assert answers(first) == ["try again"]
    again = paying.run_sync("again", conversation_id="ticket-42", run_id="message-2", message_history=first)
    assert answers(again.all_messages())[-1].startswith("OUTCOME_UNKNOWN: ")
    assert paid == [50]


@pytest.mark.parametrize("contract", [{"refused": (ModelRetry,)}, {"raises": (ModelRetry,)}, {}])
def test_a_model_retry_of_the_tools_own_is_over_with_its_turn(
    ledger: semel.Ledger, tmp_path: Any, contract: Any
) -> None:
    till = Till(**contract)
    paying = agent(ledger, till, tmp_path, 5)
    first = paying.run_sync("pay", **TURN).all_messages()
    paying.run_sync("again", conversation_id="ticket-42", run_id="message-2", message_history=first)
    assert till.asked == [5, 5]


def test_arguments_that_the_approval_changes_are_asked_about_anew(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till(approval="required")
    asking = agent(ledger, till, tmp_path, 50, output_type=[str, DeferredToolRequests])
    first = asking.run_sync("pay", **TURN)
    [call] = first.output.approvals
    dearer = DeferredToolResults(approvals={call.tool_call_id: ToolApproved(override_args={"amount": 5000})})
    again = asking.run_sync(message_history=first.all_messages(), deferred_tool_results=dearer)
    [question] = again.output.metadata.values()
    assert question["arguments"] == {"amount": 5000}
    assert till.asked == []
    assert {each.status for each in ledger.approvals.list()} == {"waiting"}


def test_a_denial_that_another_person_overtakes_changes_nothing(
    ledger: semel.Ledger, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    till = Till(approval="required")
    asking = agent(ledger, till, tmp_path, 50, output_type=[str, DeferredToolRequests])
    first = asking.run_sync("pay", **TURN)
    [call] = first.output.approvals

    async def overtaken(ledger: semel.Ledger, question: Any, verdict: Any, approver: str) -> Any:
        ledger.approvals.approve(question.job_id, by="ann", job_hash=question.job_hash)
        return decide(ledger, question, verdict, approver)

    monkeypatch.setattr("semel.integrations.pydantic_ai.adecide", overtaken)
    denied = DeferredToolResults(approvals={call.tool_call_id: False})
    ended = asking.run_sync(message_history=first.all_messages(), deferred_tool_results=denied)
    assert (ended.output, till.asked) == ("done", [50])
    assert [each.decided_by for each in ledger.approvals.list()] == ["ann"]


def test_an_agent_that_is_a_tool_acts_in_the_turn_of_its_caller(ledger: semel.Ledger, tmp_path: Any) -> None:
    """A run that a tool begins has names of its own, others whenever that tool is called again."""
    till = Till()
    inner = agent(ledger, till, tmp_path, 50)

    async def delegate(task: str) -> str:
        """Hand it to the clerk."""
        return answers((await inner.run(task)).all_messages())[-1]

    calls: list[Any] = [[Call("delegate", {"task": task})] for task in ("pay 50", "please pay 50")]
    outer = Agent(
        model(Job(tmp_path, [[*calls, "done"]])), tools=[delegate], capabilities=[SemelCapability(ledger)]
    )
    for _ in range(2):
        assert answers(outer.run_sync("pay", **TURN).all_messages()) == ["paid 50"] * 2
    assert till.asked == [50]
    outer.run_sync("pay", conversation_id="ticket-42", run_id="message-2")
    assert till.asked == [50, 50]


def test_a_history_that_names_no_turn_is_refused_and_the_author_hears_of_it(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till()
    paying = agent(ledger, till, tmp_path, 50)
    history = paying.run_sync("pay", **TURN).all_messages()[:2]
    for each in history:
        each.run_id = None
    with pytest.raises((errors.NoStep, UnexpectedModelBehavior), match="turn has no name"):
        paying.run_sync(message_history=history)
    assert till.asked == [50]


def test_a_tool_is_given_the_frameworks_context(ledger: semel.Ledger, tmp_path: Any) -> None:
    @semel.tool_contract
    def note(context: Annotated[RunContext[str], semel.Injected], text: str) -> str:
        """Write it down."""
        return f"{text} for {context.deps}"

    says = model(Job(tmp_path, [[[Call("note", {"text": "hello"})], "done"]]))
    clerk = Agent(says, deps_type=str, tools=[note], capabilities=[SemelCapability(ledger)])
    messages = clerk.run_sync("note it", deps="ann", **TURN).all_messages()
    assert [part.content for part in messages[2].parts] == ["hello for ann"]


class TestOnDbos:
    """Under an engine's durability the capability stands aside: the tool is a step of the engine."""

    @pytest.fixture(autouse=True)
    def stage(self, tmp_path: Path) -> Iterator[None]:
        self.server, self.folder, self.provider = (
            Server("tests.agents.pydantic_ai_dbos"),
            tmp_path,
            Provider(tmp_path),
        )
        yield
        self.server.close()

    def job(self, tool: str) -> Job:
        return Job(self.folder, [[[refund(tool=tool)], "done"]], tools=(tool,))

    def test_killed_inside_the_effect_the_recovered_workflow_pays_once(self) -> None:
        job = self.job("keyed_refund")
        self.provider.plan("kill inside")
        assert self.server.run("start", job).killed
        assert self.server.run("recover", job).unwrap().text == "done"
        assert len(self.provider.effects()) == 1

    def test_a_contract_outside_the_engines_step_has_no_key_and_does_not_run(self) -> None:
        ended = self.server.run("start", self.job("plain_refund"))
        assert "NoStep" in ended.raised
        assert self.provider.effects() == []
