"""LangGraph and LangChain."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import SummarizationMiddleware, ToolRetryMiddleware
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy
from typing_extensions import TypedDict

import semel
from semel import errors
from semel.integrations.langgraph import SemelMiddleware, step
from semel.testing import FakeClock
from tests.agents.langgraph_agent import ScriptedModel
from tests.agents.proofs import Proofs
from tests.agents.script import Call, Job
from tests.patience import PATIENCE_S


class TestLangGraph(Proofs):
    adapter = "tests.agents.langgraph_agent"


# --- what only graphs have ------------------------------------------------------------------------

THREAD: Any = {"configurable": {"thread_id": "thread-1"}}


class Till:
    """Pays, and counts it; fails so often first as it is told, after the effect."""

    def __init__(self, **contract: Any) -> None:
        self.paid: list[int] = []
        self.failures = 0

        @semel.tool_contract(ignore=("why",), **contract)
        def pay(amount: int, why: str = "", key: semel.Key = semel.filled) -> str:
            """Pay."""
            self.paid.append(amount)
            if self.failures:
                self.failures -= 1
                raise TimeoutError("no answer")
            return f"paid {amount}"

        self.pay = pay


@pytest.fixture
def ledger() -> Iterator[semel.Ledger]:
    with semel.open("memory://") as ledger:
        yield ledger


def model(tmp_path: Any, *turns: Any) -> ScriptedModel:
    return ScriptedModel(job=Job(tmp_path, list(turns)))


def user(id_: str = "m-1") -> Any:
    return {"messages": [HumanMessage("pay", id=id_)]}


def pay(amount: int = 5, why: str = "") -> Call:
    return Call("pay", {"amount": amount, "why": why})


def answers(state: Any) -> list[str]:
    return [each.content for each in state["messages"] if each.type == "tool"]


def test_without_a_thread_nothing_is_paid_and_the_author_hears_of_it(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till()
    agent = create_agent(model(tmp_path, [[pay()], "done"]), [till.pay], middleware=[SemelMiddleware(ledger)])
    with pytest.raises(errors.NoStep, match="without a thread"):
        agent.invoke(user())
    assert till.paid == []


def test_subgraphs_tell_actions_apart_and_are_named_alike_when_they_are_resumed(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till(approval="required")

    def agent() -> Any:
        return create_agent(
            model(tmp_path, [[pay()], "done"]), [till.pay], middleware=[SemelMiddleware(ledger)]
        )

    def sales(state: MessagesState) -> Any:
        """Hands the user's message on, and nothing that the other agent has said."""
        return agent().invoke({"messages": state["messages"][:1]})

    graph = StateGraph(MessagesState)
    graph.add_node("billing", agent())
    graph.add_node("sales", sales)
    graph.add_edge(START, "billing")
    graph.add_edge("billing", "sales")
    compiled = graph.compile(checkpointer=InMemorySaver())
    for _ in range(2):
        interrupted = compiled.invoke(user() if not ledger.approvals.list() else Command(resume=True), THREAD)
        assert interrupted["__interrupt__"][0].value["tool"] == "pay"
    compiled.invoke(Command(resume=True), THREAD)
    assert till.paid == [5, 5]
    assert [each.status for each in ledger.approvals.list()] == ["approved", "approved"]


def test_going_back_in_time_reads_what_was_paid(ledger: semel.Ledger, tmp_path: Any) -> None:
    till = Till()
    agent = create_agent(
        model(tmp_path, [[pay()], "done"]),
        [till.pay],
        middleware=[SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    agent.invoke(user(), THREAD)
    for past in list(agent.get_state_history(THREAD)):
        if past.next:
            agent.invoke(None, past.config)
    assert till.paid == [5]
    assert answers(agent.get_state(THREAD).values) == ["paid 5"]


@pytest.mark.parametrize("left_after", ["model", "tools"])
def test_a_stream_that_is_left_in_the_middle_goes_on_and_pays_once(
    ledger: semel.Ledger, tmp_path: Any, left_after: str
) -> None:
    till = Till()
    agent = create_agent(
        model(tmp_path, [[pay()], "done"]),
        [till.pay],
        middleware=[SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    for update in agent.stream(user(), THREAD, stream_mode="updates"):
        if left_after in update:
            break
    assert answers(agent.invoke(None, THREAD)) == ["paid 5"]
    assert till.paid == [5]


def test_an_answer_to_a_question_that_was_changed_meanwhile_decides_nothing(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till(approval="required")
    agent = create_agent(
        model(tmp_path, [[pay(5)], "done"]),
        [till.pay],
        middleware=[SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    first = agent.invoke(user(), THREAD)
    written = first["messages"][-1]
    dearer = AIMessage("", id=written.id, tool_calls=[{**written.tool_calls[0], "args": {"amount": 5000}}])
    agent.update_state(THREAD, {"messages": [dearer]}, as_node="model")
    again = agent.invoke(Command(resume=True), THREAD)
    assert again["__interrupt__"][0].value["arguments"]["amount"] == 5000
    assert (till.paid, {each.status for each in ledger.approvals.list()}) == ([], {"waiting"})
    assert answers(agent.invoke(Command(resume=True), THREAD)) == ["paid 5000"]
    assert till.paid == [5000]


def test_an_answer_that_comes_too_late_is_asked_for_again(tmp_path: Any) -> None:
    clock = FakeClock()
    with semel.open("memory://", clock=clock) as ledger:
        till = Till(approval=semel.Approval(expires_in="1h"))
        agent = create_agent(
            model(tmp_path, [[pay()], "done"]),
            [till.pay],
            middleware=[SemelMiddleware(ledger)],
            checkpointer=InMemorySaver(),
        )
        first = agent.invoke(user(), THREAD)["__interrupt__"][0].value
        clock.advance("2h")
        second = agent.invoke(Command(resume=True), THREAD)["__interrupt__"][0].value
        assert second["job_id"] != first["job_id"]
        assert agent.invoke(None, THREAD)["__interrupt__"][0].value == second, "as after a crash"
        assert till.paid == []
        agent.invoke(Command(resume=True), THREAD)
        assert till.paid == [5]


def test_what_is_no_verdict_is_raised_and_the_next_one_counts(ledger: semel.Ledger, tmp_path: Any) -> None:
    till = Till(approval="required")
    agent = create_agent(
        model(tmp_path, [[pay()], "done"]),
        [till.pay],
        middleware=[SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    agent.invoke(user(), THREAD)
    with pytest.raises(errors.ApprovalError, match="nothing was decided"):
        agent.invoke(Command(resume="well, perhaps"), THREAD)
    assert till.paid == []
    agent.invoke(Command(resume=True), THREAD)
    assert till.paid == [5]


def test_doubt_that_a_middleware_outside_has_put_into_its_own_words_goes_on_in_the_next_turn(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till()
    till.failures = 1
    agent = create_agent(
        model(tmp_path, [[pay()], "done"], [[pay()], "done"]),
        [till.pay],
        middleware=[ToolRetryMiddleware(max_retries=0), SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    [told] = answers(agent.invoke(user(), THREAD))
    assert told.startswith("Tool 'pay' failed")
    assert answers(agent.invoke(user("m-2"), THREAD))[-1].startswith("OUTCOME_UNKNOWN: ")
    assert till.paid == [5]


def test_a_summary_in_the_middle_of_a_turn_does_not_begin_another(
    ledger: semel.Ledger, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    till = Till()
    summing_up = SummarizationMiddleware(
        model=FakeListChatModel(responses=["what was said"]), trigger=("messages", 4), keep=("messages", 2)
    )
    rounds: list[Any] = [[pay()], [pay(6)], [pay(7)], [pay(5, "once more")], "done"]
    said = model(tmp_path, rounds)
    # What comes next cannot be counted in the messages, which the summary takes away.
    monkeypatch.setattr(Job, "says", lambda *_: rounds.pop(0))
    agent = create_agent(
        said,
        [till.pay],
        middleware=[summing_up, SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    state = agent.invoke(user(), THREAD)
    summaries = [each for each in state["messages"] if each.additional_kwargs.get("lc_source")]
    assert summaries, "there was no summary"
    assert not any(each.id == "m-1" for each in state["messages"])
    assert till.paid.count(5) == 1


def test_an_agent_that_is_a_tool_acts_in_the_turn_of_its_caller(ledger: semel.Ledger, tmp_path: Any) -> None:
    """What it is sent is written by its caller, and has another id whenever that is tried again."""
    till = Till()
    inner = create_agent(model(tmp_path, [[pay()], "done"]), [till.pay], middleware=[SemelMiddleware(ledger)])

    def delegate(task: str) -> str:
        """Hand it to the clerk."""
        return str(answers(inner.invoke({"messages": [HumanMessage(task)]}))[-1])

    calls = [[Call("delegate", {"task": task})] for task in ("pay 5", "please pay 5")]
    agent = create_agent(
        model(tmp_path, [*calls, "done"], [calls[0], "done"]),
        [delegate],
        middleware=[SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    assert answers(agent.invoke(user(), THREAD)) == ["paid 5"] * 2
    for state in [each for each in agent.get_state_history(THREAD) if each.next]:
        agent.invoke(None, state.config)
    assert till.paid == [5]
    agent.invoke(user("m-2"), THREAD)
    assert till.paid == [5, 5]


def test_an_agent_that_is_a_tool_asks_once(ledger: semel.Ledger, tmp_path: Any) -> None:
    till = Till(approval="required")
    inner = create_agent(model(tmp_path, [[pay()], "done"]), [till.pay], middleware=[SemelMiddleware(ledger)])

    def delegate(task: str) -> str:
        """Hand it to the clerk."""
        return str(answers(inner.invoke({"messages": [HumanMessage(task)]}))[-1])

    agent = create_agent(
        model(tmp_path, [[Call("delegate", {"task": "pay 5"})], "done"]),
        [delegate],
        middleware=[SemelMiddleware(ledger)],
        checkpointer=InMemorySaver(),
    )
    assert len(agent.invoke(user(), THREAD)["__interrupt__"]) == 1
    assert answers(agent.invoke(Command(resume=True), THREAD)) == ["paid 5"]
    assert till.paid == [5]
    assert [each.status for each in ledger.approvals.list()] == ["approved"]


@pytest.mark.parametrize("next_turn", [False, True])
def test_what_one_agent_left_in_doubt_goes_on_where_it_hands_over(
    ledger: semel.Ledger, tmp_path: Any, next_turn: bool
) -> None:
    till = Till()
    till.failures = 1

    def agent(*rounds: Any) -> Any:
        said = model(tmp_path, [*rounds, "done"])
        return create_agent(said, [till.pay], middleware=[SemelMiddleware(ledger)])

    graph = StateGraph(MessagesState)
    graph.add_node("sales", agent([pay()]))
    # Its model has two answers of the other one's before its own, in the same turn.
    graph.add_node("billing", agent(*([[pay()]] if next_turn else ["-", "-", [pay()]])))
    graph.add_conditional_edges(
        START, lambda state: "billing" if state["messages"][-1].id == "m-2" else "sales", ["sales", "billing"]
    )
    graph.add_conditional_edges("sales", lambda _: END if next_turn else "billing", ["billing", END])
    compiled = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(TimeoutError):
        compiled.invoke(user(), THREAD)
    state = compiled.invoke(None, THREAD)
    if next_turn:
        state = compiled.invoke(user("m-2"), THREAD)
    assert [each.partition(":")[0] for each in answers(state)] == ["OUTCOME_UNKNOWN"] * 2
    assert till.paid == [5]


def test_what_was_left_in_doubt_goes_on_where_only_the_second_agents_call_is_still_there(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till()
    till.failures = 1

    def agent(*rounds: Any) -> Any:
        said = model(tmp_path, [*rounds, "done"])
        return create_agent(said, [till.pay], middleware=[SemelMiddleware(ledger)])

    def trim(state: MessagesState) -> Any:
        """The first agent's call, its answer, and what its model said then."""
        return {"messages": [RemoveMessage(str(each.id)) for each in state["messages"][1:4]]}

    graph = StateGraph(MessagesState)
    graph.add_node("sales", agent([pay()]))
    graph.add_node("billing", agent("-", "-", [pay()]))
    graph.add_node("trim", trim)
    graph.add_node("accounts", agent("-", "-", [pay()]))
    for before, after in pairwise([START, "sales", "billing", "trim", "accounts"]):
        graph.add_edge(before, after)
    compiled = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(TimeoutError):
        compiled.invoke(user(), THREAD)
    state = compiled.invoke(None, THREAD)
    assert [each.partition(":")[0] for each in answers(state)] == ["OUTCOME_UNKNOWN"] * 2
    assert till.paid == [5]


def test_a_graph_of_ones_own_wraps_its_tools(ledger: semel.Ledger, tmp_path: Any) -> None:
    till, guard = Till(), SemelMiddleware(ledger)
    said = model(tmp_path, [[pay(), pay()], "done"])
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [said.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode([till.pay], wrap_tool_call=guard.wrap_tool_call))
    graph.add_edge(START, "model")
    graph.add_conditional_edges(
        "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
    )
    graph.add_edge("tools", "model")
    state = graph.compile(checkpointer=InMemorySaver()).invoke(user(), THREAD)
    assert answers(state) == ["paid 5", "paid 5"]
    assert till.paid == [5]


class Waiting:
    """A graph of one's own, whose one node asks about two calls; the person is shown one at a time."""

    def __init__(self, ledger: semel.Ledger, tmp_path: Any) -> None:
        self.till, self.shown, self._over = Till(approval="required"), 0, threading.Event()
        self._guard = SemelMiddleware(ledger)
        said = model(tmp_path, [[pay(5), pay(5000)], "done"])
        graph = StateGraph(MessagesState)
        graph.add_node("model", lambda state: {"messages": [said.invoke(state["messages"])]})
        graph.add_node(
            "tools", ToolNode([self.till.pay], wrap_tool_call=self._call, awrap_tool_call=self._acall)
        )
        graph.add_edge(START, "model")
        graph.add_conditional_edges(
            "model", lambda state: "tools" if state["messages"][-1].tool_calls else END, ["tools", END]
        )
        graph.add_edge("tools", "model")
        self._graph = graph.compile(checkpointer=InMemorySaver())

    def run(self, given: Any) -> dict[str, Any]:
        return self._seen(self._graph.invoke(given, THREAD))

    def arun(self, given: Any) -> dict[str, Any]:
        return self._seen(asyncio.run(self._graph.ainvoke(given, THREAD)))

    def _seen(self, state: Any) -> dict[str, Any]:
        """The question that the person is shown; empty if there is none."""
        self._over.clear()
        question: dict[str, Any] = next((each.value for each in state.get("__interrupt__", ())), {})
        self.shown = question and question["arguments"]["amount"]
        return question

    # The call whose question was shown comes last, when nothing hinders the other one.

    def _call(self, request: Any, handler: Any) -> Any:
        if request.tool_call["args"]["amount"] == self.shown:
            assert self._over.wait(PATIENCE_S)
        try:
            return self._guard.wrap_tool_call(request, handler)
        finally:
            self._over.set()

    async def _acall(self, request: Any, handler: Any) -> Any:
        if request.tool_call["args"]["amount"] == self.shown:
            assert await asyncio.to_thread(self._over.wait, PATIENCE_S)
        try:
            return await self._guard.awrap_tool_call(request, handler)
        finally:
            self._over.set()


@pytest.mark.parametrize("run", [Waiting.run, Waiting.arun])
def test_an_answer_counts_for_the_question_that_was_shown(
    ledger: semel.Ledger, tmp_path: Any, run: Any
) -> None:
    waiting = Waiting(ledger, tmp_path)
    run(waiting, user())
    while waiting.shown:
        run(waiting, Command(resume=waiting.shown == 5))
    assert waiting.till.paid == [5]
    decided = {each.input["amount"]: each.status for each in ledger.approvals.list()}
    assert decided == {5: "approved", 5000: "rejected"}


def test_an_answer_is_not_read_a_second_time_for_the_next_question(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    waiting = Waiting(ledger, tmp_path)
    waiting.run(user())
    second = waiting.run(Command(resume=True))
    assert waiting.run(None) == second
    assert waiting.till.paid == [5]


def test_an_answer_is_not_read_a_second_time_in_the_next_round_of_a_subgraph(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    till = Till(approval="required")
    said = model(tmp_path, [[pay(5)], [pay(5000)], "done"])
    graph = StateGraph(MessagesState)
    graph.add_node("billing", create_agent(said, [till.pay], middleware=[SemelMiddleware(ledger)]))
    graph.add_edge(START, "billing")
    compiled = graph.compile(checkpointer=InMemorySaver())
    compiled.invoke(user(), THREAD)
    second = compiled.invoke(Command(resume=True), THREAD)["__interrupt__"]
    assert compiled.invoke(None, THREAD)["__interrupt__"] == second, "as after a crash"
    assert till.paid == [5]
    compiled.invoke(Command(resume=True), THREAD)
    assert till.paid == [5, 5000]


def test_an_answer_to_what_was_decided_meanwhile_decides_nothing_else(
    ledger: semel.Ledger, tmp_path: Any
) -> None:
    waiting = Waiting(ledger, tmp_path)
    first = waiting.run(user())
    ledger.approvals.reject(first["job_id"], by="ann")
    second = waiting.run(Command(resume=True))
    assert second["arguments"] != first["arguments"]
    assert waiting.till.paid == []
    waiting.run(Command(resume=True))
    assert waiting.till.paid == [second["arguments"]["amount"]]


# --- plain nodes ----------------------------------------------------------------------------------


class Orders(TypedDict):
    amounts: list[int]


def test_a_node_that_is_tried_again_pays_once(ledger: semel.Ledger) -> None:
    till = Till(downstream_window="1h")
    till.failures = 1
    paths: list[Any] = []

    def charge(state: Orders) -> Any:
        with step(ledger) as turn:
            paths.append(turn.path)
            till.pay(state["amounts"][-1])
        return {}

    graph = StateGraph(Orders)
    graph.add_node("charge", charge, retry_policy=RetryPolicy(initial_interval=0.0, retry_on=TimeoutError))
    graph.add_edge(START, "charge")
    compiled = graph.compile(checkpointer=InMemorySaver())
    compiled.invoke({"amounts": [5]}, THREAD)
    assert len(paths) == 2
    assert len({*paths}) == 1
    [record] = ledger.records.list(scope="tool")
    assert record.attempts == 2


def test_a_node_that_is_resumed_is_in_the_same_step_and_a_second_visit_in_another(
    ledger: semel.Ledger,
) -> None:
    till = Till()
    stop = [True]

    def charge(state: Orders) -> Any:
        with step(ledger):
            till.pay(5)
        if stop.pop() if stop else False:
            raise RuntimeError("the process ends here")
        return {"amounts": [*state["amounts"], 5]}

    graph = StateGraph(Orders)
    graph.add_node("charge", charge)
    graph.add_edge(START, "charge")
    graph.add_conditional_edges(
        "charge", lambda state: END if len(state["amounts"]) == 2 else "charge", ["charge", END]
    )
    compiled = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError):
        compiled.invoke({"amounts": []}, THREAD)
    assert till.paid == [5]
    compiled.invoke(None, THREAD)
    assert till.paid == [5, 5], "two visits: the first was resumed, and paid once"


def test_each_visit_to_a_subgraph_is_another_step_of_its_nodes(ledger: semel.Ledger) -> None:
    """A subgraph counts its steps anew with each visit, also in the next run of its thread."""
    till, fails = Till(), [True]

    def charge(state: Orders) -> Any:
        with step(ledger):
            till.pay(5)
        if fails and fails.pop():
            raise RuntimeError("the process ends here")
        return {"amounts": [*state["amounts"], 5]}

    within = StateGraph(Orders)
    within.add_node("charge", charge)
    within.add_edge(START, "charge")
    graph = StateGraph(Orders)
    graph.add_node("till", within.compile())
    graph.add_edge(START, "till")
    graph.add_conditional_edges(
        "till", lambda state: END if len(state["amounts"]) == 2 else "till", ["till", END]
    )
    compiled = graph.compile(checkpointer=InMemorySaver())
    with pytest.raises(RuntimeError):
        compiled.invoke({"amounts": []}, THREAD)
    compiled.invoke(None, THREAD)
    assert till.paid == [5, 5], "two visits: the first was resumed, and paid once"
    compiled.invoke({"amounts": [5]}, THREAD)
    assert till.paid == [5, 5, 5]


def test_a_node_with_messages_is_in_the_turn_of_the_user(ledger: semel.Ledger) -> None:
    till = Till()

    def charge(state: MessagesState) -> Any:
        with step(ledger):
            return {"messages": [AIMessage(till.pay(5))]}

    graph = StateGraph(MessagesState)
    graph.add_node("charge", charge)
    graph.add_node("check", charge)
    graph.add_edge(START, "charge")
    graph.add_edge("charge", "check")
    compiled = graph.compile(checkpointer=InMemorySaver())
    compiled.invoke(user(), THREAD)
    assert till.paid == [5]
    compiled.invoke(user("m-2"), THREAD)
    assert till.paid == [5, 5]


def test_a_node_without_a_thread_is_refused(ledger: semel.Ledger) -> None:
    def charge(state: Orders) -> Any:
        with step(ledger):
            return {}

    graph = StateGraph(Orders)
    graph.add_node("charge", charge)
    graph.add_edge(START, "charge")
    with pytest.raises(errors.NoStep, match="without a thread"):
        graph.compile().invoke({"amounts": []})
