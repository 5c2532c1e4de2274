"""`await tool.acall(…)`: the call as data from an event loop, for tools of both kinds; the loop goes on."""

from __future__ import annotations

import asyncio
import contextvars
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import ToolCall, tool_contract
from semel.ledger.ledger import Ledger
from tests.patience import PATIENCE_S
from tests.tools import a_step, declared, keyed, kinds, state, the_record


async def awaited(tool: Any, request: ToolCall, ledger: Ledger | None = None) -> Any:
    async with asyncio.timeout(PATIENCE_S):
        return await tool.acall(request, ledger)


def run(tool: Any, request: ToolCall, ledger: Ledger | None = None) -> Any:
    return asyncio.run(awaited(tool, request, ledger))


async def until(event: threading.Event) -> None:
    assert await asyncio.to_thread(event.wait, PATIENCE_S)


class Account:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool_contract(key_of=lambda self: self.name)
    def pay(self, to: str) -> str:
        return f"{self.name} pays {to}"


# --- what it gives --------------------------------------------------------------------------------


def test_a_call_from_a_loop_ends_as_the_other_does_and_both_are_one_action(ledger, way):
    tool = way.tool(name="pay")(lambda to: f"paid {to}")
    with a_step(ledger):
        first = run(tool, ToolCall({"to": "ann"}))
        again = run(tool, ToolCall({"to": "ann"}))
        otherwise = way.ask(tool, ToolCall({"to": "ann"}))
    assert (first.ok, first.value, first.replayed) == (True, "paid ann", False)
    assert again.replayed
    assert otherwise.replayed
    assert first.key == again.key == otherwise.key == the_record(ledger).request.at.key


def test_a_bound_method_knows_its_instance_there_too(ledger):
    with a_step(ledger):
        assert run(Account("ann").pay, ToolCall({"to": "shop"})).value == "ann pays shop"
        assert run(Account("ben").pay, ToolCall({"to": "shop"})).value == "ben pays shop"


def test_an_explicit_key_needs_no_step_there_either(ledger, way):
    tool = way.tool(name="pay")(lambda to: to)
    first = run(tool, ToolCall({"to": "ann"}, idempotency_key="k"), ledger)
    assert first.ok
    assert run(tool, ToolCall({"to": "ann"}, idempotency_key="k"), ledger).replayed


def test_a_tool_without_a_record_runs_each_time(way):
    ran = []
    tool = way.tool(class_="read", name="look")(lambda to: ran.append(to))
    assert run(tool, ToolCall({"to": "a"})).ok
    assert run(tool, ToolCall({"to": "a"})).ok
    assert ran == ["a", "a"]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ValueError("no"), "EFFECT_FAILED"),
        (StopIteration("no"), "EFFECT_FAILED"),
        (TimeoutError("late"), "OUTCOME_UNKNOWN"),
    ],
)
def test_what_the_function_raises_means_what_it_means_elsewhere(ledger, error, code):
    def pay(to: str) -> None:
        raise error

    with a_step(ledger):
        assert run(declared()(pay), ToolCall({"to": "a"})).error.code == code


def test_what_is_refused_is_refused_as_data(ledger, way):
    tool = way.tool(name="pay", scopes={"money"})(lambda to: to)
    assert run(tool, ToolCall({"to": "a"})).error.code == "NO_STEP"
    with a_step(ledger):
        assert run(tool, ToolCall({"of": "a"})).error.code == "INVALID_ARGUMENTS"
        assert run(tool, ToolCall({"to": "a"})).error.code == "SCOPE_DENIED"
        assert run(tool, "a").error.code == "INVALID_ARGUMENTS"  # type: ignore[arg-type]


# --- the function on its thread -------------------------------------------------------------------


def test_a_function_that_blocks_does_not_hold_the_loop(ledger):
    begun, loop_went_on = threading.Event(), threading.Event()

    @declared()
    def pay(to: str) -> bool:
        begun.set()
        return loop_went_on.wait(PATIENCE_S)

    async def main() -> Any:
        async with ledger.step(conversation="c", step="1"):
            call = asyncio.create_task(pay.acall(ToolCall({"to": "a"})))
            await until(begun)
            loop_went_on.set()
            return await call

    assert asyncio.run(main()).value is True


def test_more_functions_than_a_loop_has_threads_run_at_once(ledger):
    many = 40
    barrier = threading.Barrier(many)

    def pay(to: int) -> int:
        return barrier.wait(PATIENCE_S)

    tool = declared()(pay)

    async def main() -> list[Any]:
        async with ledger.step(conversation="c", step="1"):
            return await asyncio.gather(*(tool.acall(ToolCall({"to": each})) for each in range(many)))

    assert sorted(result.value for result in asyncio.run(main())) == list(range(many))


def test_key_fence_step_and_context_are_those_of_the_call(ledger):
    said = contextvars.ContextVar("said", default="")

    @declared()
    def inner(to: str) -> str:
        return to

    @declared()
    def pay(to: str, key: semel.Key) -> list[Any]:
        inner(to)  # in the same step, or it would refuse
        return [threading.get_ident(), semel.current_key() == key, semel.current_fence(), said.get()]

    async def main() -> Any:
        said.set("hello")
        return await pay.acall(ToolCall({"to": "a"}))

    with a_step(ledger):
        result = asyncio.run(main())
    thread, same_key, fence, heard = result.value
    assert thread != threading.get_ident()
    assert same_key
    assert heard == "hello"
    assert fence > 0
    assert semel.current_key() is None
    assert len(ledger.records.list(scope="tool")) == 2


def test_callers_of_one_key_share_one_effect(real):
    ran, begun, go = [], threading.Event(), threading.Event()

    @declared()
    def pay(to: str) -> str:
        ran.append(to)
        begun.set()
        assert go.wait(PATIENCE_S)
        return to

    async def main() -> list[Any]:
        async with real.step(conversation="c", step="1"):
            calls = [asyncio.create_task(pay.acall(ToolCall({"to": "a"}))) for _ in range(20)]
            await until(begun)
            go.set()
            return await asyncio.gather(*calls)

    results = asyncio.run(main())
    assert [result.value for result in results] == ["a"] * 20
    assert ran == ["a"]
    assert [result.replayed for result in results].count(False) == 1


def test_a_transient_failure_is_tried_again_with_the_same_key(ledger):
    tried = []

    @declared(transient=(TimeoutError,), attempts=2, backoff="1ms", downstream_window="1h")
    def pay(to: str, key: semel.Key) -> int:
        tried.append(key)
        if len(tried) == 1:
            raise TimeoutError
        return len(tried)

    with a_step(ledger):
        assert run(pay, ToolCall({"to": "a"})).value == 2
    assert tried[0] == tried[1]


# --- the end of the caller ------------------------------------------------------------------------


def test_a_cancelled_call_is_in_doubt_though_its_function_goes_on(ledger):
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    @declared()
    def pay(to: str) -> str:
        begun.set()
        assert go.wait(PATIENCE_S)
        ended.set()
        return to

    async def main() -> None:
        async with ledger.step(conversation="c", step="1"):
            call = asyncio.create_task(pay.acall(ToolCall({"to": "a"})))
            await until(begun)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            assert state(ledger) == "in_doubt"
            assert (await pay.acall(ToolCall({"to": "a"}))).error.code == "OUTCOME_UNKNOWN"
        go.set()
        await until(ended)

    asyncio.run(main())


def test_a_loop_that_is_closed_before_the_function_ends_is_not_missed(ledger):
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    @declared()
    def pay(to: str) -> str:
        begun.set()
        assert go.wait(PATIENCE_S)
        ended.set()
        return to

    async def main() -> None:
        async with ledger.step(conversation="c", step="1"):
            call = asyncio.create_task(pay.acall(ToolCall({"to": "a"})))
            await until(begun)
            call.cancel()

    asyncio.run(main())
    go.set()
    assert ended.wait(PATIENCE_S)
    assert state(ledger) == "in_doubt"


def test_an_exit_on_the_thread_reaches_the_caller_and_leaves_the_call_in_doubt(ledger):
    @declared()
    def pay(to: str) -> None:
        raise SystemExit(3)

    with a_step(ledger), pytest.raises(SystemExit):
        run(pay, ToolCall({"to": "a"}))
    assert state(ledger) == "in_doubt"


@pytest.mark.parametrize("class_", ["write-non-idempotent", "read"])
def test_where_no_thread_can_be_started_nothing_ran_and_the_next_call_is_the_first(
    ledger, monkeypatch, class_
):
    ran = []
    tool = declared(name="pay", class_=class_)(lambda to: ran.append(to))
    with a_step(ledger):
        with monkeypatch.context() as patched:
            start = threading.Thread.start

            def full(thread: threading.Thread) -> None:
                if thread.name == "semel-tool":
                    raise RuntimeError("can't start new thread")
                start(thread)

            patched.setattr(threading.Thread, "start", full)
            refused = run(tool, ToolCall({"to": "a"}))
        assert (refused.error.code, refused.error.retriable) == ("STORE_UNAVAILABLE", True)
        assert "threads" in refused.error.message
        assert ran == []
        assert run(tool, ToolCall({"to": "a"})).ok
    assert ran == ["a"]


def test_where_no_thread_can_be_started_for_a_further_try_the_first_one_leaves_its_doubt(ledger, monkeypatch):
    ran = []

    @keyed(transient=(TimeoutError,), attempts=2, backoff="1ms", on_unknown="park")
    def pay(to: str, key: semel.Key = semel.filled) -> None:
        ran.append(to)
        start = threading.Thread.start

        def full(thread: threading.Thread) -> None:
            if thread.name == "semel-tool":
                raise RuntimeError("can't start new thread")
            start(thread)

        monkeypatch.setattr(threading.Thread, "start", full)
        raise TimeoutError("no answer")

    with a_step(ledger):
        assert run(pay, ToolCall({"to": "a"})).error.code == "OUTCOME_UNKNOWN"
        monkeypatch.undo()
        assert run(pay, ToolCall({"to": "a"})).error.code == "OUTCOME_UNKNOWN"
    assert ran == ["a"]


# --- a transaction --------------------------------------------------------------------------------


@pytest.fixture
def database(tmp_path: Path) -> Any:
    path = tmp_path / "app.db"
    with sqlite3.connect(path) as application:
        application.execute("CREATE TABLE paid (who TEXT)")
    application.close()
    with semel.open(f"sqlite:///{path}?shared=yes") as opened:
        yield opened, path


def rows(path: Path) -> list[Any]:
    with sqlite3.connect(path) as application:
        return application.execute("SELECT who FROM paid").fetchall()


def test_a_tool_that_writes_into_a_transaction_commits_with_its_record(database):
    ledger, path = database

    @declared()
    def pay(to: str, transaction: semel.Transaction) -> str:
        transaction.connection.execute("INSERT INTO paid VALUES (?)", (to,))
        return to

    with a_step(ledger):
        assert run(pay, ToolCall({"to": "ann"})).value == "ann"
        assert run(pay, ToolCall({"to": "ann"})).replayed
    assert rows(path) == [("ann",)]


def test_so_does_one_whose_caller_was_cancelled(database):
    ledger, path = database
    begun, go = threading.Event(), threading.Event()

    @declared()
    def pay(to: str, transaction: semel.Transaction) -> str:
        begun.set()
        assert go.wait(PATIENCE_S)
        transaction.connection.execute("INSERT INTO paid VALUES (?)", (to,))
        return to

    async def main() -> Any:
        async with ledger.step(conversation="c", step="1"):
            call = asyncio.create_task(pay.acall(ToolCall({"to": "ann"})))
            await until(begun)
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            go.set()
            return await pay.acall(ToolCall({"to": "ann"}))

    result = asyncio.run(main())
    assert (result.value, result.replayed) == ("ann", True)
    assert rows(path) == [("ann",)]
    assert "claimed" in kinds(ledger)
