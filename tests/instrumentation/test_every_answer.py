"""Every call ends as one `CallEnded`, whichever way it was made and however it ended."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import semel
from semel import ToolCall, errors
from semel.ledger.ledger import Ledger
from semel.stores.memory import MemoryStore
from semel.testing import FlakyStore
from tests.tools import a_step, another_process, declared, keyed
from tests.unit.test_tool import AFTER_RUNNING, SITUATIONS, Situation, raising

# Answers that an earlier call was given.
REPLAYED = ("RESULT_UNAVAILABLE",)


@pytest.mark.parametrize("code", SITUATIONS)
def test_a_refusal_is_one_end_with_its_code(ends, ledger, way, clock, code):
    at = Situation(ledger, way, clock)
    tool = SITUATIONS[code](at)
    ends.clear()
    at.done(tool)
    [end] = ends
    assert (end.tool, end.class_, end.answer) == ("pay", "write-non-idempotent", code.strip())
    assert end.version == tool.contract.version
    assert (end.tool_s, end.settle_s) == (0, 0)
    assert end.replayed is (code.strip() in REPLAYED)
    assert (end.retry_age_s is not None) is end.replayed


@pytest.mark.parametrize("code", AFTER_RUNNING)
def test_a_tool_that_ends_without_a_value_is_one_end_with_its_code(ends, ledger, way, clock, code):
    at = Situation(ledger, way, clock)
    at.done(AFTER_RUNNING[code](at))
    [end] = ends
    assert (end.answer, end.replayed) == (code.strip(), False)
    assert end.in_doubt is (code.strip() in ("OUTCOME_UNKNOWN", "UPSTREAM_TIMEOUT"))


def answers(ends: list[Any]) -> list[tuple[str, bool]]:
    return [(end.answer, end.replayed) for end in ends]


def test_a_value_is_done_and_its_repeats_are_replayed_from_cache_and_store(ends, ledger, way):
    tool = way.tool(name="pay", version="2.1.0")(lambda to: to)
    for each in (ledger, ledger, another_process(ledger)):
        with a_step(each):
            way.call(tool, "a")
    assert answers(ends) == [("done", False), ("replayed", True), ("replayed", True)]
    assert {(end.tool, end.version) for end in ends} == {("pay", "2.1.0")}


def test_a_failure_that_is_replayed_keeps_its_code(ends, ledger, way):
    def pay(to: str) -> None:
        raise LookupError(to)

    tool = way.tool()(pay)
    for each in (ledger, ledger, another_process(ledger)):
        with a_step(each), pytest.raises(errors.EffectFailed):
            way.call(tool, "a")
    assert answers(ends) == [("EFFECT_FAILED", replayed) for replayed in (False, True, True)]
    assert [end.retry_age_s for end in ends] == [None, 0, 0]


@pytest.mark.parametrize("kind", ["acall", "call"])
def test_the_call_as_data_ends_once_whichever_way_it_is_made(ends, ledger, way, kind):
    tool = way.tool(name="pay")(lambda to: to)

    async def make() -> Any:
        called = getattr(tool, kind)(ToolCall({"to": "a"}))
        return await called if kind == "acall" or way.is_async else called

    with a_step(ledger):
        asyncio.run(make())
        asyncio.run(make())
    assert answers(ends) == [("done", False), ("replayed", True)]


def test_a_tool_that_keeps_no_record_ends_too(ends, way):
    tool = way.tool(name="look", class_="read")(lambda of: 1 / of)
    way.call(tool, 1)
    with pytest.raises(ZeroDivisionError):
        way.call(tool, 0)
    with pytest.raises(errors.InvalidArguments):
        way.call(tool, of=1, more=2)
    assert answers(ends) == [(each, False) for each in ("done", "EFFECT_FAILED", "INVALID_ARGUMENTS")]
    assert [end.claim_s for end in ends] == [0, 0, 0]
    assert ends[0].class_ == "read"
    assert ends[0].tool_s > 0


def test_a_timeout_of_a_tool_that_keeps_no_record_leaves_nothing_in_doubt(ends):
    @declared(class_="read")
    def look() -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        look()
    [end] = ends
    assert (end.answer, end.in_doubt) == ("UPSTREAM_TIMEOUT", False)


def test_outside_a_step_the_plain_call_ends_as_no_step(ends, way):
    tool = way.tool(name="pay")(lambda to: to)
    with pytest.raises(errors.NoStep):
        way.call(tool, "a")
    assert answers(ends) == [("NO_STEP", False)]


def test_a_method_without_its_instance_and_a_name_used_twice_end_too(ends, ledger):
    class Account:
        @declared(key_of=lambda self: 1)
        def pay(self, to: str) -> str:
            return to

    with a_step(ledger):
        with pytest.raises(errors.InvalidArguments):
            Account.pay()
        Account().pay("a")
        with pytest.raises(errors.ContractError):
            declared(name="pay")(lambda to: to)("a")
    assert [end.answer for end in ends] == ["INVALID_ARGUMENTS", "done", "CONTRACT_ERROR"]


def test_what_is_no_call_as_data_ends_too(ends, ledger):
    tool = declared(name="pay")(lambda to: to)
    assert not tool.call({"to": "a"}).ok
    assert [end.answer for end in ends] == ["INVALID_ARGUMENTS"]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_call_that_is_interrupted_in_its_tool_ends_in_doubt(ends, ledger, error):
    tool = declared(name="pay")(lambda to: raising(error())())
    with a_step(ledger), pytest.raises(error):
        tool("a")
    [end] = ends
    assert (end.answer, end.in_doubt) == ("OUTCOME_UNKNOWN", True)


@pytest.mark.parametrize("by", ["plain", "call", "acall"])
def test_a_call_that_is_cancelled_ends_once(ends, ledger, by):
    async def pay(to: str) -> None:
        await asyncio.Event().wait()

    tool = keyed(name="pay")(pay)

    async def cancel() -> None:
        called = tool("a") if by == "plain" else getattr(tool, by)(ToolCall({"to": "a"}))
        task = asyncio.ensure_future(called)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with a_step(ledger):
        asyncio.run(cancel())
    assert [end.answer for end in ends] == ["OUTCOME_UNKNOWN"]


def test_a_store_that_is_away_ends_the_call_as_unavailable(ends, clock, way):
    store = FlakyStore(MemoryStore(clock=clock))
    tool = way.tool(name="pay")(lambda to: to)
    with a_step(Ledger(store, tenant="acme")):
        store.down = True
        with pytest.raises(errors.StoreUnavailable):
            way.call(tool, "a")
    assert answers(ends) == [("STORE_UNAVAILABLE", False)]


def test_an_approved_call_ends_once_for_each_time_it_is_made(ends, ledger, way):
    tool = way.tool(name="pay", approval="required")(lambda to: to)
    with a_step(ledger):
        with pytest.raises(errors.ApprovalRequired) as asked:
            way.call(tool, "a")
        ledger.approvals.approve(asked.value.details["job_id"], by="ann")
        way.call(tool, "a")
        way.call(tool, "a")
    assert [end.answer for end in ends] == ["APPROVAL_REQUIRED", "done", "replayed"]


def test_a_question_alone_is_no_call(ends, ledger):
    tool = declared(name="pay", approval="required")(lambda to: to)
    with a_step(ledger):
        tool.ask(ToolCall({"to": "a"}))
    assert ends == []


def test_a_code_of_the_tools_own_is_the_answer(ends, ledger, way):
    def pay(to: str) -> semel.ToolResult[str]:
        return semel.ToolResult.failure("CARD_DECLINED")

    tool = way.tool()(pay)
    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(errors.EffectFailed):
                way.call(tool, "a")
    assert answers(ends) == [("CARD_DECLINED", False), ("CARD_DECLINED", True)]


@pytest.mark.parametrize("code", ["hunter2", "is-hunter2-wrong", "no\nline", "4711", "x" * 65, 5])
def test_a_code_that_must_not_be_shown_is_a_failure(ends, ledger, code):
    def pay(to: str, password: str) -> semel.ToolResult[str]:
        return semel.ToolResult.failure(code)

    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(errors.SemelError):
                declared(name="pay", secret=("password",))(pay)("a", "hunter2")
    assert [end.answer for end in ends] == ["EFFECT_FAILED", "EFFECT_FAILED"]


# --- how long -------------------------------------------------------------------------------------


def test_the_stages_of_a_call_and_the_age_of_a_retry_are_told(ends, ledger, clock, way):
    def pay(to: str) -> str:
        clock.advance("5s")
        return to

    tool = way.tool()(pay)
    with a_step(ledger):
        way.call(tool, "a")
        clock.advance("3m")
        way.call(tool, "a")
    with a_step(another_process(ledger)):
        clock.advance("1m")
        way.call(tool, "a")
    done, cached, stored = ends
    assert (done.claim_s, done.tool_s, done.settle_s, done.retry_age_s) == (0, 5, 0, None)
    assert (cached.tool_s, cached.retry_age_s) == (0, 180)
    assert (stored.tool_s, stored.retry_age_s) == (0, 240)


def test_the_tool_has_the_time_of_all_its_tries_and_of_the_pauses_between(ends, ledger, clock):
    tried = []

    def pay(to: str, key: semel.Key) -> str:
        tried.append(to)
        clock.advance("1s")
        if len(tried) < 3:
            raise ConnectionResetError
        return to

    tool = keyed(transient=(ConnectionResetError,), attempts=3, backoff="10s")(pay)
    with a_step(ledger):
        tool("a")
    [end] = ends
    assert 3 < end.tool_s <= 23
    assert end.answer == "done"


def test_the_time_of_a_doubt_is_the_tools(ends, ledger, clock):
    def pay(to: str) -> None:
        clock.advance("7s")
        raise TimeoutError

    with a_step(ledger), pytest.raises(TimeoutError):
        declared()(pay)("a")
    [end] = ends
    assert (end.answer, end.tool_s) == ("OUTCOME_UNKNOWN", 7)
