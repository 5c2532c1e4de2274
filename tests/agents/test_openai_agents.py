"""OpenAI Agents."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from agents import Agent, Runner, set_tracing_disabled
from agents.exceptions import ModelBehaviorError
from agents.testing import ScriptedModel, assistant_message, function_call

import semel
from semel import Question
from semel.integrations.openai_agents import decide, tools, turn
from semel.testing import FakeClock
from tests.agents.proofs import ASKED, ONCE, Proofs
from tests.agents.told_questions import UNSEEN


class TestOpenAIAgents(Proofs):
    adapter = "tests.agents.openai_agents_agent"
    modes = ("invoke", "async", "astream")
    impossible: ClassVar = UNSEEN

    def test_a_stream_that_is_read_after_its_turn_is_refused(self) -> None:
        ended = self.server.run("late_stream", self.job(ONCE))
        assert "semel.errors.NoStep" in ended.raised
        assert self.effects == 0

    def test_what_the_state_alone_approved_is_the_approvers_decision(self) -> None:
        job = self.job(ASKED, options={"approver": "bob"})
        seen = self.server.run("approved_by_the_state_alone", job).unwrap()
        assert (seen.answers, self.effects) == (["refund of p-1"], 1)
        assert [(what, by) for what, by, _ in self.decisions()] == [("approved", "bob")]

    def test_the_frameworks_context_reaches_the_tool(self) -> None:
        seen = self.server.run("given_the_context", self.job(ONCE)).unwrap()
        assert seen.answers == ["hello for ann"]


# --- one verdict is for one question --------------------------------------------------------------


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def ledger(clock: FakeClock) -> Iterator[semel.Ledger]:
    set_tracing_disabled(True)
    with semel.open("memory://", clock=clock) as ledger:
        yield ledger


class Till:
    def __init__(self) -> None:
        self.paid: list[int] = []

        @semel.tool_contract(approval=semel.Approval(expires_in="1h"))
        def pay(amount: int) -> str:
            """Pay."""
            self.paid.append(amount)
            return f"paid {amount}"

        self.pay = pay

    def agent(self, *calls: tuple[int, str]) -> Agent[Any]:
        """Its model pays these amounts, by calls of these ids, one a round."""
        rounds = [[function_call("pay", {"amount": amount}, call_id=id_)] for amount, id_ in calls]
        model = ScriptedModel([*rounds, [assistant_message("done")]])
        return Agent("clerk", model=model, tools=tools(self.pay))


async def _approved_by_the_state(
    agent: Agent[Any], ledger: semel.Ledger, clock: FakeClock, later: str = "1s", **how: Any
) -> list[str]:
    """The person is asked once, and says yes by the framework's own means; the answers of the tool."""
    async with turn(ledger, "session", "message-1"):
        result = await Runner.run(agent, "pay")
        state = result.to_state()
        clock.advance(later)
        for item in result.interruptions:
            state.approve(item, **how)
        ended = await Runner.run(agent, state)
    return [str(item.output) for item in ended.new_items if item.type == "tool_call_output_item"]


def test_what_the_state_approved_is_paid(ledger: semel.Ledger, clock: FakeClock) -> None:
    till = Till()
    assert asyncio.run(_approved_by_the_state(till.agent((5, "1")), ledger, clock)) == ["paid 5"]
    assert till.paid == [5]


def test_an_approval_for_good_approves_nothing(ledger: semel.Ledger, clock: FakeClock) -> None:
    till = Till()
    agent = till.agent((5, "1"), (5000, "2"))
    answers = asyncio.run(_approved_by_the_state(agent, ledger, clock, always_approve=True))
    assert [answer.partition(":")[0] for answer in answers] == ["APPROVAL_REQUIRED"] * 2
    assert till.paid == []


def test_an_approval_after_the_question_has_expired_approves_nothing(
    ledger: semel.Ledger, clock: FakeClock
) -> None:
    till = Till()
    [answer] = asyncio.run(_approved_by_the_state(till.agent((5, "1")), ledger, clock, "2h"))
    assert answer.startswith("APPROVAL_REQUIRED: ")
    assert till.paid == []


@pytest.mark.parametrize("stream", [False, True])
def test_what_the_state_rejected_is_the_approvers_decision(ledger: semel.Ledger, stream: bool) -> None:
    till = Till()
    agent = till.agent((5, "1"), (5000, "2"))
    agent.tools = tools(till.pay, approver="bob")

    async def run(given: Any) -> Any:
        async with turn(ledger, "session", "message-1"):
            if not stream:
                return await Runner.run(agent, given)
            streamed = Runner.run_streamed(agent, given)
            async for _ in streamed.stream_events():
                pass
            return streamed

    async def rejected_by_the_state() -> None:
        result = await run("pay")
        state = result.to_state()
        state.reject(*result.interruptions, rejection_message="too much")
        await run(state)

    asyncio.run(rejected_by_the_state())
    assert till.paid == []
    asked = {each.input["amount"]: (each.status, each.decided_by) for each in ledger.approvals.list()}
    assert asked == {5: ("rejected", "bob"), 5000: ("waiting", None)}
    assert [each.reason for each in ledger.approvals.list() if each.decided_by] == ["too much"]


def test_a_decision_after_the_question_has_expired_decides_nothing_and_it_is_asked_anew(
    ledger: semel.Ledger, clock: FakeClock
) -> None:
    till = Till()
    agent = till.agent((5, "1"))

    async def answered_late() -> list[Question]:
        async with turn(ledger, "session", "message-1"):
            result = await Runner.run(agent, "pay")
            clock.advance("2h")
            seen = []
            for _ in range(2):
                state = result.to_state()
                [item] = result.interruptions
                seen.append(await decide(state, item, {"approved": True, "by": "ann"}))
                result = await Runner.run(agent, state)
        return seen

    late, in_time = asyncio.run(answered_late())
    assert (late.status, in_time.status) == ("waiting", "approved")
    assert late.job_id == in_time.job_id
    assert till.paid == [5]


def test_a_model_that_uses_an_approved_calls_id_for_another_is_not_approved(
    ledger: semel.Ledger, clock: FakeClock
) -> None:
    till = Till()
    with pytest.raises(ModelBehaviorError, match="reused"):  # by the framework itself
        asyncio.run(_approved_by_the_state(till.agent((5, "1"), (5000, "1")), ledger, clock))
    assert till.paid == [5]
