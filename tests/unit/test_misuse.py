"""What is written in a way that cannot work is told so at once, and nothing runs that nobody guards."""

import asyncio
import threading
from typing import Any

import pytest

import semel
from semel import errors
from semel.errors import EffectFailed, NoStep, StepError
from tests.patience import PATIENCE_S
from tests.tools import a_step, declared, state, the_record

# --- a call that would wait for itself --------------------------------------------------------------


@pytest.mark.parametrize("deep", [False, True], ids=["directly", "through another tool"])
def test_a_tool_that_makes_its_own_call_again_is_told_and_runs_once(ledger, deep):
    ran: list[str] = []

    @declared()
    def other(to: str) -> str:
        return str(step.run(inner, to))

    @declared(name="send")
    def send(to: str) -> str:
        ran.append(to)
        return str(other(to) if deep else step.run(inner, to))

    inner = send
    step = a_step(ledger)
    with step, pytest.raises(EffectFailed) as failure:
        send("ann")
    text = str(failure.value)
    assert "waits for itself" in text
    assert "someone else" not in text.lower()
    assert ran == ["ann"]


def test_a_task_of_the_tool_that_makes_its_call_again_is_told_too(ledger):
    ran: list[str] = []

    @declared()
    async def send(to: str) -> str:
        ran.append(to)
        return await asyncio.create_task(send(to))

    async def main() -> None:
        async with a_step(ledger):
            with pytest.raises(EffectFailed, match="waits for itself"):
                await send("ann")

    asyncio.run(main())
    assert ran == ["ann"]


def test_a_tool_that_catches_it_goes_on_and_is_recorded_once(ledger):
    conversation = ledger.conversation("conv-42")

    @declared()
    def send(to: str) -> str:
        with pytest.raises(StepError, match="waits for itself") as itself:
            send(to)
        assert "ledger.step" in str(itself.value)
        return send.call(semel.ToolCall({"to": to})).error.code

    with conversation.step():
        assert send("ann") == send("ann") == "STEP_ERROR"
    assert (conversation.position, conversation.unfinished) == (1, ())
    assert the_record(ledger).attempts == 1


def test_a_tool_that_calls_itself_with_other_arguments_or_in_a_step_of_its_own_is_fine(ledger):
    @declared()
    def count(down: int) -> int:
        if not down:
            return 0
        with ledger.step(step="inner"):
            return 1 + count(down - 1) + count(0)

    with a_step(ledger):
        assert count(3) == 3


def test_another_caller_of_a_running_key_still_waits_for_it(real):
    inside, go, answers = threading.Event(), threading.Event(), []

    @declared()
    def send(to: str) -> str:
        inside.set()
        assert go.wait(PATIENCE_S)
        return to

    def call() -> None:
        answers.append(a_step(real).run(send, "ann"))

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    assert inside.wait(PATIENCE_S)
    go.set()
    for caller in callers:
        caller.join()
    assert answers == ["ann", "ann"]


# --- results that have yet to happen ----------------------------------------------------------------


def lazily(kind: str, ran: list[str]) -> Any:
    def effect(to: str = "x") -> str:
        ran.append("effect")
        return to

    def generator():
        yield effect()

    async def asynchronous():
        yield effect()

    made = {
        "generator": generator,
        "async_generator": asynchronous,
        "map": lambda: map(effect, ["x"]),
        "filter": lambda: filter(effect, ["x"]),
    }
    return made[kind]()


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "in a result"])
@pytest.mark.parametrize("lazy", ["generator", "async_generator", "map", "filter"])
def test_a_result_that_has_not_run_yet_fails_instead_of_being_recorded_as_done(ledger, way, lazy, wrapped):
    ran: list[str] = []

    @way.tool()
    def send(to: str):
        value = lazily(lazy, ran)
        return semel.ToolResult.success(value) if wrapped else value

    with a_step(ledger):
        for _ in range(2):
            with pytest.raises(EffectFailed, match=rf"{lazy}.*list"):
                way.call(send, "ann")
    assert ran == []
    assert state(ledger) == "failed"


def test_what_a_generator_has_begun_is_ended_with_the_tool(ledger):
    ended = []

    @declared()
    def send(to: str):
        def generator():
            try:
                yield 1
                yield 2
            finally:
                ended.append(to)

        lazy = generator()
        next(lazy)
        return lazy

    with a_step(ledger), pytest.raises(EffectFailed):
        send("ann")
    assert ended == ["ann"]


def test_an_async_tool_that_returns_a_coroutine_fails_instead_of_running_unguarded(ledger):
    ran = []

    async def effect() -> None:
        ran.append("effect")

    @declared()
    async def send(to: str):
        return effect()

    async def main() -> None:
        async with a_step(ledger):
            with pytest.raises(EffectFailed, match="coroutine"):
                await send("ann")

    asyncio.run(main())
    assert ran == []


def test_a_tool_that_keeps_no_record_may_give_a_generator(way):
    @way.tool(class_="read")
    def lines():
        return (number for number in range(3))

    assert list(way.call(lines)) == [0, 1, 2]


# --- calls as data ----------------------------------------------------------------------------------


@pytest.mark.parametrize("request_", [{"to": "ann"}, None, "ann", ["ann"]], ids=repr)
def test_a_call_that_is_no_tool_call_is_told_how_to_write_one(ledger, way, request_):
    ran = []

    @way.tool()
    def send(to: str) -> str:
        ran.append(to)
        return to

    with a_step(ledger):
        result = way.ask(send, request_)
    assert (result.ok, result.error.code) == (False, "INVALID_ARGUMENTS")
    assert "send.call(semel.ToolCall(" in result.error.message
    assert ran == []


def test_arguments_as_a_model_sends_them_are_told_to_be_read_first(ledger, way):
    @way.tool()
    def send(to: str) -> str:
        raise AssertionError

    with a_step(ledger):
        result = way.ask(send, semel.ToolCall('{"to": "ann"}'))  # type: ignore[arg-type]
    assert (result.ok, result.error.code) == (False, "INVALID_ARGUMENTS")
    assert "a dict, by name, not str" in result.error.message
    assert "json.loads" in result.error.message


# --- what refusals say ------------------------------------------------------------------------------


def test_a_call_on_a_thread_is_told_how_to_take_its_step_there(ledger):
    @declared()
    def send(to: str) -> str:
        return to

    told: list[str] = []

    def call() -> None:
        with pytest.raises(NoStep) as refusal:
            send("ann")
        told.append(str(refusal.value))

    with a_step(ledger):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    assert "step.carry()" in told[0]
    assert "ledger.resume" in told[0]


def test_a_store_that_is_away_says_when_to_come_again(shaky, flaky):
    @declared()
    def send(to: str) -> str:
        return to

    flaky.down = True
    with a_step(shaky):
        result = send.call(semel.ToolCall({"to": "ann"}))
    assert result.error.code == "STORE_UNAVAILABLE"
    assert result.error.retry_after_s > 0
    assert errors.StoreUnavailable(retry_after_s=7).retry_after_s == 7
