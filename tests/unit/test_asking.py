"""`tool.ask(…)`: the question of a contract with `approval`, put and read without making the call."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
from typing import Any

import pytest

import semel
from semel import ToolCall, tool_contract
from semel.errors import (
    ContractError,
    InvalidArguments,
    KeyReused,
    NoStep,
    OutcomeUnknown,
    ScopeDenied,
    StoreUnavailable,
)
from semel.flow.document_store import DocumentStore
from semel.flow.job_admin import JobAdmin
from semel.flow.values import Caller
from semel.kernel.record import State
from semel.ledger.ledger import Ledger
from tests.tools import a_step, another_process, kinds, state, the_record

ANN = ToolCall({"to": "ann"})


@pytest.fixture(params=["ask", "aask"])
def ask(request):
    """Both ways to ask."""

    def ask(tool: Any, asked: ToolCall = ANN, ledger: Ledger | None = None) -> semel.Question:
        begun = getattr(tool, request.param)(asked, ledger)
        question: semel.Question = asyncio.run(_awaited(begun)) if request.param == "aask" else begun
        return question

    return ask


async def _awaited(begun: Any) -> Any:
    return await begun


@pytest.fixture
def ran():
    return []


@pytest.fixture
def pay(way, ran):
    @way.tool(approval=semel.Approval(expires_in="1h"), ignore=("reason",), secret=("pin",))
    def pay(to: str, reason: str = "", pin: str = "") -> int:
        ran.append((to, reason))
        return len(ran)

    return pay


def call(way: Any, tool: Any, request: ToolCall = ANN) -> semel.ToolResult[Any]:
    result: semel.ToolResult[Any] = way.ask(tool, request)
    return result


# --- asking ---------------------------------------------------------------------------------------


def test_asking_puts_the_question_and_runs_nothing(ledger, ask, pay, ran):
    with a_step(ledger, principal="bot"):
        question = ask(pay, ToolCall({"to": "ann", "reason": "rent", "pin": "4711"}))
    [shown] = ledger.approvals.list("waiting")
    assert question == semel.Question(
        shown.job_id, "pay", {"to": "ann", "reason": "rent"}, "waiting", shown.expires_at, shown.job_hash
    )
    assert shown.submitted_by == "bot"
    assert ran == []
    assert the_record(ledger).state is State.WAITING
    json.dumps(dataclasses.asdict(question))  # plain data, for whoever carries it to a person


def test_asking_again_gives_the_same_question_also_by_a_call(ledger, way, ask, pay, ran):
    with a_step(ledger):
        first = ask(pay)
        assert ask(pay, ToolCall({"to": "ann", "reason": "in other words"})) == first
        assert call(way, pay).error.details["job_id"] == first.job_id
        assert ask(pay) == first
    assert len(ledger.approvals.list()) == 1
    assert ran == []


def test_a_call_that_was_refused_for_want_of_an_answer_is_the_same_question(ledger, way, ask, pay):
    with a_step(ledger):
        job_id = call(way, pay).error.details["job_id"]
        assert ask(pay).job_id == job_id


def test_an_answer_is_seen_by_asking_and_used_by_the_call(ledger, way, ask, pay, ran):
    with a_step(ledger):
        question = ask(pay)
        ledger.approvals.approve(question.job_id, by="eve", job_hash=question.job_hash)
        assert ask(pay) == dataclasses.replace(question, status="approved")
        assert ran == []
        assert call(way, pay).value == 1
        assert ask(pay) == dataclasses.replace(question, status="approved")
    assert ran == [("ann", "")]


def test_a_no_settles_the_key_though_only_asked_for(ledger, way, ask, pay, ran):
    with a_step(ledger):
        question = ask(pay)
        ledger.approvals.reject(question.job_id, by="eve")
        assert ask(pay) == ask(pay) == dataclasses.replace(question, status="rejected")
        assert state(ledger) == "failed"
        result = call(way, pay)
    assert (result.error.code, result.replayed, ran) == ("APPROVAL_REJECTED", True, [])


def test_a_question_that_expired_is_put_anew(ledger, clock, ask, pay):
    with a_step(ledger):
        old = ask(pay)
        clock.advance("1h")
        new = ask(pay)
    assert (new.status, new.job_id == old.job_id) == ("waiting", False)
    assert ledger.approvals.get(old.job_id).status == "expired"


def test_a_question_that_was_cancelled_is_put_anew(ledger, ask, pay):
    with a_step(ledger):
        old = ask(pay)
        admin = JobAdmin(DocumentStore(ledger.store), None)
        asyncio.run(admin.cancel(Caller("acme", "eve"), old.job_id))
        new = ask(pay)
    assert (new.status, new.job_id == old.job_id) == ("waiting", False)


def test_the_question_of_a_call_in_doubt_is_the_one_that_was_answered(ledger, way, ask):
    @way.tool(name="pay", approval="required")
    def pay(to: str) -> int:
        raise TimeoutError

    with a_step(ledger):
        question = ask(pay)
        ledger.approvals.approve(question.job_id, by="eve")
        assert call(way, pay).error.code == "OUTCOME_UNKNOWN"
        assert ask(pay) == dataclasses.replace(question, status="approved")
    assert state(ledger) == "in_doubt"


@pytest.mark.parametrize("ends", ["done", "in_doubt"])
def test_a_call_made_before_its_contract_asked_has_no_question(ledger, way, ask, ends):
    def pay(to: str) -> int:
        if ends == "in_doubt":
            raise TimeoutError
        return 1

    with a_step(ledger):
        call(way, way.tool(name="pay")(pay))
    asking = way.tool(name="pay", approval="required")(pay)
    with a_step(another_process(ledger)):
        question = ask(asking)
    assert (question.status, question.job_id, question.job_hash) == ("not_asked", "", "")
    assert question.arguments == {"to": "ann"}
    assert state(ledger) == ends
    assert ledger.approvals.list() == []


def test_asking_counts_as_no_call(ledger, way, ask, pay):
    with a_step(ledger):
        question = ask(pay)
        ledger.approvals.approve(question.job_id, by="eve")
        call(way, pay)
        before = kinds(ledger)
        ask(pay)
    assert kinds(ledger) == before


def test_an_explicit_key_needs_no_step(ledger, way, ask, pay):
    request = ToolCall({"to": "ann"}, idempotency_key="k")
    assert ask(pay, request, ledger) == ask(pay, request, ledger)
    assert len(ledger.approvals.list()) == 1


def test_a_method_asks_for_its_instance(ledger, ask):
    class Account:
        def __init__(self, name: str) -> None:
            self.name = name

        @tool_contract(approval="required", key_of=lambda self: self.name)
        def pay(self, to: str) -> str:
            return to

    with a_step(ledger):
        first, second = ask(Account("ann").pay), ask(Account("ben").pay)
        assert first.job_id != second.job_id
        assert ask(Account("ann").pay) == first


# --- refusals -------------------------------------------------------------------------------------


def test_who_asks_nobody_cannot_be_asked(ledger, way, ask):
    tool = way.tool(name="pay")(lambda to: to)
    with a_step(ledger), pytest.raises(ContractError, match="approval"):
        ask(tool)
    assert ledger.records.list() == []


def test_what_a_call_is_refused_for_asking_is_too(ledger, way, ask):
    tool = way.tool(name="pay", approval="required", scopes={"money"})(lambda to: to)
    with pytest.raises(NoStep):
        ask(tool)
    with a_step(ledger), pytest.raises(ScopeDenied):
        ask(tool)
    with a_step(ledger, scopes={"money"}), pytest.raises(InvalidArguments):
        ask(tool, ToolCall({"of": "ann"}))
    with a_step(ledger, scopes={"money"}), pytest.raises(InvalidArguments):
        ask(tool, "ann")
    assert ledger.records.list() == []


def test_a_key_of_another_action_is_refused(ledger, ask, pay):
    ask(pay, ToolCall({"to": "ann"}, idempotency_key="k"), ledger)
    with pytest.raises(KeyReused):
        ask(pay, ToolCall({"to": "ben"}, idempotency_key="k"), ledger)


@pytest.mark.parametrize("fails", ["refuse", "lose_reply"])
def test_a_lost_reply_leaves_one_question(shaky, flaky, ask, pay, fails):
    with a_step(shaky):
        getattr(flaky, fails)("claim")
        with pytest.raises(StoreUnavailable):
            ask(pay)
        shaky.keeper.flush()
        question = ask(pay)
    assert [each.job_id for each in shaky.approvals.list()] == [question.job_id]


# --- numbered steps -------------------------------------------------------------------------------


def test_a_question_holds_its_numbered_step_until_the_call_is_made(ledger, way, ask, pay):
    conversation = ledger.conversation("c")
    with conversation.step():
        question = ask(pay)
    assert conversation.position == 0
    [left] = conversation.unfinished
    assert (left.tool, left.code, left.job_id) == ("pay", "APPROVAL_REQUIRED", question.job_id)
    assert left.record_id == the_record(ledger).request.id
    ledger.approvals.approve(question.job_id, by="eve")
    with conversation.step():
        assert ask(pay).status == "approved"
    assert conversation.position == 0
    with conversation.step():
        assert call(way, pay).ok
        ask(pay)
    assert (conversation.position, conversation.unfinished) == (1, ())


def test_a_no_lets_the_step_move_on(ledger, ask, pay):
    conversation = ledger.conversation("c")
    with conversation.step():
        question = ask(pay)
    ledger.approvals.reject(question.job_id, by="eve")
    with conversation.step():
        assert ask(pay).status == "rejected"
    assert conversation.position == 1


def test_the_doubt_behind_a_question_holds_its_step(ledger, way, ask):
    @way.tool(name="pay", approval="required")
    def pay(to: str) -> int:
        raise TimeoutError

    conversation = ledger.conversation("c")
    with conversation.step():
        ledger.approvals.approve(ask(pay).job_id, by="eve")
        with pytest.raises((OutcomeUnknown, TimeoutError)):
            way.call(pay, "ann")
    with conversation.step():
        ask(pay)
    assert [left.code for left in conversation.unfinished] == ["OUTCOME_UNKNOWN"]


def test_a_question_put_just_now_is_not_lost_with_its_asker(ledger, pay):
    """An asker that is cancelled between claim and question leaves nothing that waits for ever."""

    async def main() -> None:
        asking = asyncio.create_task(pay.aask(ToolCall({"to": "ann"}, idempotency_key="k"), ledger))
        await asyncio.sleep(0)
        asking.cancel()
        with contextlib.suppress(asyncio.CancelledError):  # a store in memory has answered by now
            await asking

    asyncio.run(main())
    question = pay.ask(ToolCall({"to": "ann"}, idempotency_key="k"), ledger)
    assert question.status == "waiting"
    assert [each.job_id for each in ledger.approvals.list("waiting")] == [question.job_id]
