"""What integrations share, on a framework of some lines: it saves its messages, is left, and resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import asdict
from functools import partial
from typing import Any

import pytest

import semel
from semel import agents, errors
from semel.agents import AgentGuard, History, Repeat, Told, Written, guard, place, turn
from tests.tools import declared, events

Way = Callable[..., Any]


class Left(Exception):
    """The fake framework leaves a tool with this, and comes back when a person has answered."""

    def __init__(self, question: dict[str, Any]) -> None:
        self.question = question


class Framework:
    """Messages as (kind, …); every call in them that has no answer is made by `run`."""

    def __init__(self, ledger: semel.Ledger, *tools: Any, **rules: Any) -> None:
        self.guard = AgentGuard(ledger, **rules)
        self.tools = {tool.__name__: tool for tool in tools}
        self.messages: list[Any] = []
        self.verdicts: list[Any] = []

    def user(self, id_: str) -> None:
        self.messages.append(("user", id_))

    def model(self, *calls: tuple[str, dict[str, Any]]) -> None:
        number = len(self.messages)
        ids = [(f"{number}-{place}", *call) for place, call in enumerate(calls)]
        self.messages.append(("model", ids))

    def run(self, way: Way) -> list[Any]:
        """The answers to the model's last message."""
        answers = [self._call(way, *call) for call in self.messages[-1][1]]
        self.messages += [("tool", id_, answer) for id_, answer in answers]
        return [getattr(answer, "text", answer) for _, answer in answers]

    def _call(self, way: Way, id_: str, name: str, arguments: dict[str, Any]) -> tuple[str, Any]:
        tool = self.tools[name]
        at = self.guard.at(tool, lambda: ("thread", (), self._history().until(id_, name, arguments)))
        return id_, way(partial(tool, **arguments), at, self._ask, self.guard.approver)

    def _ask(self, question: dict[str, Any], new: bool) -> Any:
        if new or not self.verdicts:
            raise Left(question)
        return self.verdicts.pop(0)

    def _history(self) -> History:
        history = History()
        for kind, *rest in self.messages:
            if kind == "tool":
                history.answer(rest[0], getattr(rest[1], "text", ""))
            else:
                getattr(history, kind)(*rest)
        return history


def awaiting(call: Callable[[], Any], *rest: Any) -> Any:
    """The same from an event loop."""

    async def acall() -> Any:
        return await asyncio.to_thread(call)

    return asyncio.run(agents.aguard(acall, *rest))


@pytest.fixture(params=[agents.guard, awaiting], ids=["sync", "async"])
def way(request: pytest.FixtureRequest) -> Way:
    found: Way = request.param
    return found


@pytest.fixture
def ledger() -> Iterator[semel.Ledger]:
    with semel.open("memory://") as ledger:
        yield ledger


class Till:
    """Pays, and counts it."""

    def __init__(self, **contract: Any) -> None:
        self.paid: list[int] = []
        self.error: BaseException | None = None

        @declared(ignore=("why",), **contract)
        def pay(amount: int, why: str = "") -> str:
            self.paid.append(amount)
            if self.error is not None:
                raise self.error
            return f"paid {amount}"

        self.pay = pay


def test_a_call_of_the_model_runs_in_its_turn_and_a_repeat_reads_the_first_answer(
    ledger: semel.Ledger, way: Way
) -> None:
    till = Till()
    agent = Framework(ledger, till.pay)
    agent.user("m-1")
    agent.model(("pay", {"amount": 5, "why": "damaged"}), ("pay", {"amount": 5, "why": "broken"}))
    assert agent.run(way) == ["paid 5", "paid 5"]
    agent.model(("pay", {"amount": 5}))
    assert agent.run(way) == ["paid 5"]
    assert till.paid == [5]
    agent.user("m-2")
    agent.model(("pay", {"amount": 5}))
    agent.run(way)
    assert till.paid == [5, 5]


def test_what_the_contract_answers_is_told(ledger: semel.Ledger, way: Way) -> None:
    till = Till()
    agent = Framework(ledger, till.pay)
    till.error = ValueError("the till is closed")
    agent.user("m-1")
    agent.model(("pay", {"amount": 5}))
    [told] = agent.run(way)
    assert told.startswith("EFFECT_FAILED: ")
    assert "the till is closed" in told


def test_an_answer_of_the_tools_own_is_told_like_the_rest(ledger: semel.Ledger, way: Way) -> None:
    till = Till(raises=(LookupError,))
    agent = Framework(ledger, till.pay)
    till.error = LookupError("no such account")
    agent.user("m-1")
    for _ in range(2):
        agent.model(("pay", {"amount": 5}))
        (told,) = agent.run(way)
        assert told.startswith("EFFECT_FAILED: ")
        assert "no such account" in told
    assert till.paid == [5]


def test_what_the_tool_raises_and_leaves_in_doubt_is_raised_for_the_frameworks_own_retry(
    ledger: semel.Ledger, way: Way
) -> None:
    till = Till()
    agent = Framework(ledger, till.pay)
    till.error = TimeoutError("no answer")
    agent.user("m-1")
    agent.model(("pay", {"amount": 5}))
    with pytest.raises(TimeoutError):
        agent.run(way)
    [told] = agent.run(way)
    assert told.startswith("OUTCOME_UNKNOWN: ")
    assert till.paid == [5]


def test_a_missing_step_is_raised_because_it_is_the_authors_mistake(ledger: semel.Ledger, way: Way) -> None:
    till = Till()
    with pytest.raises(errors.NoStep):
        way(partial(till.pay, 5), None, None, "ann")
    agent = Framework(ledger, till.pay)
    agent.model(("pay", {"amount": 5}))
    with pytest.raises(errors.NoStep, match="No message of the user"):
        agent.run(way)
    assert till.paid == []


def test_a_plain_function_does_without_a_turn(ledger: semel.Ledger, way: Way) -> None:
    def look(what: str) -> str:
        return f"saw {what}"

    agent = Framework(ledger, look)
    agent.model(("look", {"what": "it"}))
    assert agent.run(way) == ["saw it"]


def test_tools_that_a_plain_function_calls_are_in_its_turn(ledger: semel.Ledger, way: Way) -> None:
    till = Till()

    def settle(amount: int) -> str:
        return str(till.pay(amount))

    agent = Framework(ledger, settle)
    agent.user("m-1")
    agent.model(("settle", {"amount": 5}), ("settle", {"amount": 5}))
    assert agent.run(way) == ["paid 5", "paid 5"]
    assert till.paid == [5]


def test_an_agent_that_is_a_tool_acts_in_the_turn_of_its_caller(ledger: semel.Ledger, way: Way) -> None:
    till = Till()
    sent = iter(range(10))

    def delegate(repeat: str) -> list[Any]:
        inner = Framework(ledger, till.pay, repeat=repeat)
        inner.user(f"written anew {next(sent)}")
        inner.model(("pay", {"amount": 5}), ("pay", {"amount": 5}))
        return inner.run(guard)  # it blocks, whichever way its caller works

    agent = Framework(ledger, delegate)
    for id_, repeat, payments in [("m-1", "never", 1), ("m-1", "never", 1), ("m-2", "always", 3)]:
        agent.user(id_)
        agent.model(("delegate", {"repeat": repeat}))
        assert agent.run(way) == [["paid 5", "paid 5"]]
        assert len(till.paid) == payments
    assert {record.request.conversation for record in ledger.records.list(scope="tool")} == {"thread"}


def test_what_an_agent_that_is_a_tool_leaves_open_is_seen_by_whoever_named_the_turn(
    ledger: semel.Ledger, way: Way
) -> None:
    till = Till(approval="required")
    agent = Framework(ledger, till.pay)
    agent.user("written anew")
    agent.model(("pay", {"amount": 5}))
    with turn(ledger, "thread", "m-1") as named, pytest.raises(Left):
        agent.run(way)
    assert [each.code for each in named.unfinished] == ["APPROVAL_REQUIRED"]


def test_scopes_and_principal_are_those_of_the_rules(ledger: semel.Ledger, way: Way) -> None:
    till = Till(scopes={"pay"})
    denied, granted = Framework(ledger, till.pay), Framework(ledger, till.pay, scopes="pay", principal="bot")
    for agent in (denied, granted):
        agent.user("m-1")
        agent.model(("pay", {"amount": 5}))
    [told] = denied.run(way)
    assert told.startswith("SCOPE_DENIED: ")
    assert granted.run(way) == ["paid 5"]
    [record] = ledger.records.list(scope="tool")
    assert record.request.principal == "bot"


def test_a_model_cannot_say_what_a_guarded_function_performs(ledger: semel.Ledger) -> None:
    guard = AgentGuard(ledger, undecorated="guard")
    history = History()
    history.user("m-1")
    arguments = {"amount": 5, "semel_perform": "rm -rf"}

    def locate() -> agents.Location:
        return "thread", (), history.until("1", "pay", arguments)

    use = agents.ToolUse(lambda amount: None, "pay", arguments, locate, lambda: {"type": "object"})
    assert guard.run(use, lambda: "paid", None, lambda value: value) == "paid"


def test_an_unknown_rule_is_refused(ledger: semel.Ledger) -> None:
    with pytest.raises(errors.StepError, match="never, after-answer, always"):
        AgentGuard(ledger, repeat="allways")  # type: ignore[arg-type]
    with pytest.raises(errors.StepError, match="scope= is no option; they are approver, "):
        AgentGuard(ledger, scope={"pay"})  # type: ignore[call-arg]


# --- questions ------------------------------------------------------------------------------------


def asking(ledger: semel.Ledger, **rules: Any) -> tuple[Till, Framework]:
    till = Till(approval="required")
    agent = Framework(ledger, till.pay, **rules)
    agent.user("m-1")
    agent.model(("pay", {"amount": 5, "why": "damaged"}))
    return till, agent


@pytest.mark.parametrize(
    ("verdict", "paid"),
    [
        (True, [5]),
        ("approve", [5]),
        ({"approved": True, "reason": "fine"}, [5]),
        (False, []),
        ("reject", []),
        ({"approved": False, "by": "bob"}, []),
    ],
)
def test_a_question_leaves_by_the_frameworks_own_way_and_is_decided_when_it_comes_back(
    ledger: semel.Ledger, way: Way, verdict: Any, paid: list[int]
) -> None:
    till, agent = asking(ledger, approver="ann")
    with pytest.raises(Left) as left:
        agent.run(way)
    question = left.value.question
    assert (question["tool"], question["arguments"]) == ("pay", {"amount": 5, "why": "damaged"})
    assert (till.paid, question["status"]) == ([], "waiting")
    agent.verdicts = [verdict]
    [answer] = agent.run(way)
    assert till.paid == paid
    assert answer == "paid 5" if paid else answer.startswith("APPROVAL_REJECTED: ")
    decided = ledger.approvals.get(question["job_id"])
    assert decided.decided_by == (verdict.get("by", "ann") if isinstance(verdict, dict) else "ann")
    assert [each.by for each in events(ledger) if each.kind in ("approved", "rejected")] == [
        decided.decided_by
    ]


def test_without_a_way_to_ask_the_model_is_told_that_a_person_has_to(ledger: semel.Ledger, way: Way) -> None:
    till, agent = asking(ledger)
    agent._ask = None  # type: ignore[method-assign, assignment]
    [told] = agent.run(way)
    assert told.startswith("APPROVAL_REQUIRED: ")
    [waiting] = ledger.approvals.list()
    ledger.approvals.approve(waiting.job_id, by="ann")
    agent.user("m-2")
    agent.model(("pay", {"amount": 5}))
    assert agent.run(way) == ["paid 5"]
    assert till.paid == [5]


def test_an_answer_that_was_there_before_its_question_decides_nothing(ledger: semel.Ledger, way: Way) -> None:
    till, agent = asking(ledger)
    agent.verdicts = [True]
    with pytest.raises(Left):
        agent.run(way)
    assert (till.paid, ledger.approvals.list()[0].status) == ([], "waiting")


@pytest.mark.parametrize("verdict", ["yes", None, 1, {"approved": "true"}, {"by": "ann"}, []])
def test_what_is_no_verdict_decides_nothing(ledger: semel.Ledger, way: Way, verdict: Any) -> None:
    till, agent = asking(ledger)
    with pytest.raises(Left):
        agent.run(way)
    agent.verdicts = [verdict]
    with pytest.raises(errors.ApprovalError, match="nothing was decided"):
        agent.run(way)
    assert (till.paid, ledger.approvals.list()[0].status) == ([], "waiting")


def test_a_verdict_on_another_question_decides_nothing(ledger: semel.Ledger, way: Way) -> None:
    till, agent = asking(ledger)
    with pytest.raises(Left):
        agent.run(way)
    agent.verdicts = [{"approved": True, "by": "ann", "job_hash": "0" * 64}]
    with pytest.raises(errors.ApprovalError) as stale:
        agent.run(way)
    assert stale.value.code == "approval_stale_request"
    assert till.paid == []


def test_what_was_decided_elsewhere_stands(ledger: semel.Ledger, way: Way) -> None:
    till, agent = asking(ledger)
    with pytest.raises(Left) as left:
        agent.run(way)

    def ask(question: dict[str, Any], new: bool) -> Any:
        ledger.approvals.reject(left.value.question["job_id"], by="bob")
        return True

    agent._ask = ask  # type: ignore[method-assign]
    [told] = agent.run(way)
    assert told.startswith("APPROVAL_REJECTED: ")
    assert till.paid == []


def test_nobody_decides_on_what_they_asked_for(ledger: semel.Ledger, way: Way) -> None:
    till, agent = asking(ledger, principal="bot", approver="bot")
    with pytest.raises(Left):
        agent.run(way)
    agent.verdicts = [True]
    with pytest.raises(errors.ApprovalError) as denied:
        agent.run(way)
    assert denied.value.code == "self_approval_denied"
    assert till.paid == []


@pytest.mark.parametrize("shown", [None, "job-1", {}, {"job_id": "job-1"}])
def test_what_is_no_question_is_not_decided(ledger: semel.Ledger, shown: Any) -> None:
    with pytest.raises(errors.ApprovalError, match="nothing was decided"):
        agents.decide(ledger, shown, True)


def test_an_answer_that_asks_nobody_has_no_question(ledger: semel.Ledger) -> None:
    with pytest.raises(errors.ApprovalError, match="OUTCOME_UNKNOWN asks nobody"):
        agents.question(ledger, errors.OutcomeUnknown())


def test_a_question_is_read_and_decided_by_hand_too(ledger: semel.Ledger) -> None:
    till = Till(approval="required")
    with agents.turn(ledger, "thread", "m-1") as turn, pytest.raises(errors.ApprovalRequired) as asked:
        till.pay(5)
    question = agents.question(ledger, asked.value)
    assert question == asyncio.run(agents.aquestion(ledger, asked.value))
    assert [each.code for each in turn.unfinished] == ["APPROVAL_REQUIRED"]
    assert agents.decide(ledger, question, True).by == agents.UNNAMED
    assert asyncio.run(agents.adecide(ledger, asdict(question), True)).status == "already_approved"
    with agents.turn(ledger, "thread", "m-1") as turn:
        assert till.pay(5) == "paid 5"
    assert turn.unfinished == ()


# --- which action a call is -----------------------------------------------------------------------

UNKNOWN = "OUTCOME_UNKNOWN: it may have happened"


def written(*calls: tuple[str, int, int, str | None]) -> list[Written]:
    """Calls of one tool as (turn, round, amount, answer)."""
    return [Written(turn, round_, "pay", {"amount": amount}, said) for turn, round_, amount, said in calls]


@pytest.mark.parametrize(
    ("history", "never", "after_answer", "always"),
    [
        # In one answer of the model; in two rounds; after an answer that leaves it open; in the next turn.
        ([("m-1", 1, 5, None), ("m-1", 1, 5, None)], "m-1", "m-1", "m-1 1"),
        ([("m-1", 1, 5, ""), ("m-1", 2, 5, None)], "m-1", "m-1 1", "m-1 1"),
        ([("m-1", 1, 5, UNKNOWN), ("m-1", 2, 5, None)], "m-1", "m-1", "m-1"),
        ([("m-1", 1, 5, ""), ("m-2", 3, 5, None)], "m-2", "m-2", "m-2"),
        ([("m-1", 1, 5, UNKNOWN), ("m-2", 3, 5, None)], "m-1", "m-1", "m-1"),
        ([("m-1", 1, 5, None), ("m-2", 3, 5, None)], "m-1", "m-1", "m-1"),
        # Once it went on and came to its end, the turns after that are new; the one it ended in is not.
        ([("m-1", 1, 5, UNKNOWN), ("m-2", 3, 5, ""), ("m-2", 4, 5, None)], "m-1", "m-2", "m-2"),
        ([("m-1", 1, 5, UNKNOWN), ("m-2", 3, 5, ""), ("m-3", 5, 5, None)], "m-3", "m-3", "m-3"),
        # Two that were meant, both left open: each goes on as itself.
        (
            [("m-1", 1, 5, UNKNOWN), ("m-1", 1, 5, UNKNOWN), ("m-1", 2, 5, None), ("m-1", 2, 5, None)],
            "m-1",
            "m-1",
            "m-1 1",
        ),
        # Other arguments are another action, however they are written.
        ([("m-1", 1, 6, ""), ("m-1", 2, 5, None)], "m-1", "m-1", "m-1"),
    ],
)
def test_which_action_of_its_turn_a_call_is(
    ledger: semel.Ledger, history: list[Any], never: str, after_answer: str, always: str
) -> None:
    calls, tool = written(*history), Till().pay
    assert " ".join(place(calls, tool, ledger).path) == never
    assert " ".join(place(calls, tool, ledger, "after-answer").path) == after_answer
    assert " ".join(place(calls, tool, ledger, "always").path) == always


@pytest.mark.parametrize(
    "answers", [["OUTCOME_UNKNOWN: "], ["OUTCOME_UNKNOWN: "] * 2, ["OUTCOME_UNKNOWN: ", ""]]
)
def test_an_action_stays_with_the_agent_that_left_it_whoever_goes_on_with_it(
    ledger: semel.Ledger, answers: list[str]
) -> None:
    """The agents that were handed the conversation said what they were told, too."""
    calls = [
        Written("m-1", number, "pay", {"amount": 5}, answer, (agent,) if answer else None)
        for number, (agent, answer) in enumerate(zip(("sales", "billing"), answers, strict=False), 1)
    ]
    own = Written("m-1", 3, "pay", {"amount": 5}, None)
    assert place([*calls, own], Till().pay, ledger).within == ("sales",)


def test_equal_calls_are_equal_as_their_contract_says(ledger: semel.Ledger) -> None:
    tool = Till().pay
    calls = [
        Written("m-1", 1, "pay", {"amount": 5.0, "why": "damaged"}, ""),
        Written("m-1", 2, "pay", {"amount": "5", "why": "broken"}, None),
    ]
    assert place(calls, tool, ledger, "always").path == ("m-1", "1")


def test_calls_that_do_not_fit_are_equal_to_none(ledger: semel.Ledger) -> None:
    wrong = Written("m-1", 1, "pay", {"amount": "a lot"}, "INVALID_ARGUMENTS: it does not fit")
    assert place([wrong, wrong], Till().pay, ledger, "always").path == ("m-1",)


def test_a_history_is_read_up_to_the_call_that_is_made() -> None:
    history = History()
    history.user("m-1")
    history.model([("a", "pay", {"amount": 1})])
    history.answer("a")
    history.answer("of nobody", "")
    history.model([("b", "pay", {"amount": 1}), ("c", "pay", {"amount": 1})])
    assert [(call.round, call.answer) for call in history.until("b", "pay", {"amount": 2})] == [
        (1, ""),
        (2, None),
    ]
    assert history.until("b", "pay", {"amount": 2})[-1].arguments == {"amount": 2}
    assert len(history.until("unwritten", "pay", {})) == 4


# Local models count calls from nought in each answer, or give them no id at all.
REUSED = pytest.mark.parametrize("ids", [("a", "b", "c"), ("call_0",) * 3, ("",) * 3, (None,) * 3])


@REUSED
def test_what_is_in_doubt_goes_on_whatever_ids_the_model_gives(
    ledger: semel.Ledger, ids: tuple[Any, ...]
) -> None:
    history = History()
    for number, id_ in enumerate(ids):
        history.user(f"m-{number}")
        history.model([(id_, "pay", {"amount": 5})])
        assert place(history.until(id_, "pay", {"amount": 5}), Till().pay, ledger).path == ("m-0",)
        history.answer(id_, UNKNOWN)


@REUSED
@pytest.mark.parametrize("repeat", ["after-answer", "always"])
def test_calls_that_are_several_are_several_whatever_ids_the_model_gives(
    ledger: semel.Ledger, ids: tuple[Any, ...], repeat: Repeat
) -> None:
    history, places = History("m-0"), []
    for id_ in ids:
        history.model([(id_, "pay", {"amount": 5})])
        places.append(place(history.until(id_, "pay", {"amount": 5}), Till().pay, ledger, repeat).path)
        history.answer(id_)
    assert places == [("m-0",), ("m-0", "1"), ("m-0", "2")]


def test_calls_of_one_answer_with_one_id_are_told_apart_by_what_they_say() -> None:
    history = History("m-0")
    history.model([("", "pay", {"amount": 1}), ("", "pay", {"amount": 2})])
    assert [call.arguments["amount"] for call in history.until("", "pay", {"amount": 1})] == [1]
    assert [call.arguments["amount"] for call in history.until("", "pay", {"amount": 2})] == [1, 2]
    history.answer("", "somebody else's words")
    history.answer("", UNKNOWN)
    assert [call.answer for call in history.until("", "pay", {"amount": 2})] == [None, UNKNOWN]


def test_the_last_answer_to_a_call_counts() -> None:
    history = History("m-0")
    history.model([("a", "pay", {"amount": 1})])
    history.answer("a", UNKNOWN)
    history.answer("a", "")
    assert [call.answer for call in history.until("a", "pay", {"amount": 1})] == [""]


def test_a_failure_in_the_words_of_somebody_else_is_no_answer(ledger: semel.Ledger) -> None:
    history = History()
    for message, failure in (("m-1", "it did not work"), ("m-2", "")):
        history.user(message)
        history.model([(message, "pay", {"amount": 5})])
        history.answer(message, failure)
        assert place(history.until(message, "pay", {"amount": 5}), Till().pay, ledger).path == ("m-1",)
    history.user("m-3")
    assert place(history.until("", "pay", {"amount": 5}), Till().pay, ledger).path == ("m-3",)


@pytest.mark.parametrize("code", sorted(errors.BY_CODE))
def test_whether_an_action_is_unfinished_is_read_from_what_was_told(code: str) -> None:
    error = errors.BY_CODE[code]()
    if code == "NO_STEP":
        with pytest.raises(errors.NoStep):
            agents.tell(error)
        return
    open_codes = {"OUTCOME_UNKNOWN", "OWNERSHIP_LOST", "STORE_CORRUPT"}
    assert agents.is_unfinished(agents.tell(error)) == (error.retriable or code in open_codes)
    assert not agents.is_unfinished("paid 5")


def test_told_is_what_stands_in_place_of_a_value(ledger: semel.Ledger) -> None:
    till = Till(scopes={"pay"})
    outcome = agents.guard(partial(till.pay, 5), agents.turn(ledger, "thread", "m-1"))
    assert isinstance(outcome, Told)
    assert outcome.error.code == "SCOPE_DENIED"
