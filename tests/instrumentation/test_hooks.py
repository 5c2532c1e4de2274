"""Who is told, in which order and context, and what becomes of a hook that does wrong."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

import semel
from semel import ToolCall, errors, instrumentation
from semel.instrumentation import CallEnded
from semel.instrumentation.hooks import LISTENERS, Listeners
from semel.ledger.ledger import Ledger
from tests.tools import a_step, declared

inside: ContextVar[str] = ContextVar("inside", default="")


class Around:
    """Puts a word around each tool, and takes it off again."""

    def __init__(self, word: str, lines: list[str] | None = None) -> None:
        self.word, self.lines = word, [] if lines is None else lines
        self.calls: dict[CallEnded, Any] = {}

    def started(self, call: CallEnded) -> None:
        assert (call.tool, call.answer) == ("pay", "")
        self.lines.append(f"{self.word} started")
        self.calls[call] = inside.set(inside.get() + self.word)

    def ended(self, call: CallEnded) -> None:
        inside.reset(self.calls.pop(call))
        self.lines.append(f"{self.word} ended {call.answer}")


@pytest.fixture
def pay() -> Any:
    return declared(name="pay")(lambda to: to)


# --- use and add ----------------------------------------------------------------------------------


def test_use_replaces_all_hooks_and_add_adds(no_hooks, ledger, pay):
    first: list[CallEnded] = []
    second: list[CallEnded] = []
    instrumentation.use(first.append)
    with a_step(ledger):
        pay("a")
        instrumentation.add(second.append)
        pay("a")
        instrumentation.use(second.append)
        pay("a")
        instrumentation.use()
        pay("a")
    assert (len(first), len(second)) == (2, 2)


def test_a_block_gives_back_the_hooks_that_were_there_before(no_hooks, ledger, pay):
    first: list[CallEnded] = []
    second: list[CallEnded] = []
    instrumentation.use(first.append)
    with a_step(ledger):
        with instrumentation.use(second.append):
            pay("a")
        pay("a")
    assert ([end.answer for end in first], [end.answer for end in second]) == (["replayed"], ["done"])


def test_a_hook_that_is_added_twice_is_told_once(ends, ledger, pay):
    around = Around("x")
    instrumentation.add(around, around)
    instrumentation.add(around)
    with a_step(ledger):
        pay("a")
    assert around.lines == ["x started", "x ended done"]
    assert len(ends) == 1


async def asynchronous(call: CallEnded) -> None:
    """Nobody would await it."""


class AsynchronousEnd:
    def started(self, call: CallEnded) -> None: ...
    async def ended(self, call: CallEnded) -> None: ...


class AsynchronousCall:
    async def __call__(self, call: CallEnded) -> None: ...


@pytest.mark.parametrize(
    ("given", "fix"),
    [
        (None, "callable"),
        ("prometheus", "callable"),
        (Around, "instance"),
        (asynchronous, "nobody awaits"),
        (AsynchronousEnd(), "nobody awaits"),
        (AsynchronousCall(), "nobody awaits"),
    ],
)
def test_what_is_no_hook_is_refused_at_once_and_nothing_changes(ends, ledger, pay, given, fix):
    for give in (instrumentation.use, instrumentation.add):
        with pytest.raises(TypeError, match=fix):
            give(given)
    with a_step(ledger):
        pay("a")
    assert len(ends) == 1


# --- start and end --------------------------------------------------------------------------------


def test_what_a_start_sets_the_tool_sees_and_the_caller_does_not(no_hooks, ledger, way):
    instrumentation.use(Around("outer "), Around("inner"))
    tool = way.tool(name="pay")(lambda to: inside.get())
    with a_step(ledger):
        assert way.call(tool, "a") == "outer inner"
    assert inside.get() == ""


@pytest.mark.parametrize("transaction", [False, True])
def test_what_a_start_sets_is_seen_on_the_thread_of_a_call_from_a_loop(
    no_hooks, tmp_path, transaction
) -> None:
    instrumentation.use(Around("x"))

    def pay(to: str) -> str:
        return f"{inside.get()} {threading.current_thread() is threading.main_thread()}"

    def write(to: str, database: semel.Transaction) -> str:
        assert isinstance(database.connection, sqlite3.Connection)
        return pay(to)

    async def call() -> Any:
        result = await declared(name="pay")(write if transaction else pay).acall(ToolCall({"to": "a"}))
        return result.unwrap(), inside.get()

    with semel.open(f"sqlite:///{tmp_path}/s.db?shared=yes") as ledger, a_step(ledger):
        assert asyncio.run(call()) == ("x False", "")


def test_ends_come_in_the_order_in_which_what_was_put_around_is_taken_off(no_hooks, ledger, pay):
    lines: list[str] = []
    instrumentation.use(Around("a", lines), Around("b", lines))
    with a_step(ledger):
        pay("a")
    assert lines == ["a started", "b started", "b ended done", "a ended done"]


def test_those_who_were_told_of_the_start_are_told_of_the_end(no_hooks, ledger):
    before, after = Around("before"), Around("after")
    instrumentation.use(before)

    def pay(to: str) -> None:
        instrumentation.use(after)

    with a_step(ledger):
        declared()(pay)("a")
    assert (before.lines, after.lines) == (["before started", "before ended done"], [])


def test_calls_at_once_are_told_apart(no_hooks, ledger):
    around = Around("x")
    instrumentation.use(around)

    async def pay(to: str) -> str:
        await asyncio.sleep(0)
        return inside.get()

    tool = declared()(pay)

    async def both() -> list[str]:
        return await asyncio.gather(*(tool(str(number)) for number in range(20)))

    with a_step(ledger):
        assert asyncio.run(both()) == ["x"] * 20
    assert around.calls == {}
    assert around.lines.count("x ended done") == 20


def test_a_call_inside_a_tool_is_told_inside_of_it(no_hooks, ledger):
    lines: list[str] = []

    class Named:
        def started(self, call: CallEnded) -> None:
            lines.append(f"{call.tool} started")

        def ended(self, call: CallEnded) -> None:
            lines.append(f"{call.tool} ended")

    look = declared(name="look", class_="read")(lambda: 1)
    instrumentation.use(Named())
    with a_step(ledger):
        declared(name="pay")(lambda: look())()
    assert lines == ["pay started", "look started", "look ended", "pay ended"]


def test_a_coroutine_that_is_dropped_ends_too(ends, ledger):
    async def pay(to: str) -> None:
        await asyncio.Event().wait()

    async def drop() -> None:
        called = declared()(pay)("a")
        called.send(None)
        called.close()

    with a_step(ledger):
        asyncio.run(drop())
    assert [end.answer for end in ends] == ["OUTCOME_UNKNOWN"]


# --- hooks that do wrong --------------------------------------------------------------------------


class Broken:
    def __init__(self, error: Exception) -> None:
        self.error, self.told = error, 0

    def started(self, call: CallEnded) -> None:
        self.told += 1
        raise self.error

    ended = started


@pytest.mark.parametrize("error", [ValueError("x"), errors.NoStep(), StopIteration()])
def test_an_error_of_a_hook_reaches_no_call_and_is_logged_once(ends, ledger, way, caplog, error):
    broken = Broken(error)
    instrumentation.add(broken)
    tool = way.tool(name="pay")(lambda to: to)
    with a_step(ledger):
        assert [way.call(tool, "a") for _ in range(3)] == ["a", "a", "a"]
        assert way.ask(tool, ToolCall({"to": "b"})).ok
    assert broken.told == 8
    assert [end.answer for end in ends] == ["done", "replayed", "replayed", "done"]
    [line] = [each for each in caplog.records if "hook" in each.message]
    assert (line.name, line.levelno) == ("semel", logging.ERROR)
    assert "Broken" in line.message
    assert line.exc_info


def test_an_error_of_a_hook_does_not_hide_what_the_tool_raised(no_hooks, ledger):
    instrumentation.use(Broken(ValueError("of the hook")))

    def pay(to: str) -> None:
        raise TimeoutError("of the tool")

    with a_step(ledger), pytest.raises(TimeoutError, match="of the tool"):
        declared()(pay)("a")


def test_a_hook_that_calls_a_tool_is_not_told_of_that(no_hooks, ledger, pay):
    lines: list[str] = []
    note = declared(name="note", class_="read")(lambda: lines.append("noted"))

    def hook(call: CallEnded) -> None:
        note()
        lines.append(call.tool)

    instrumentation.use(hook)
    with a_step(ledger):
        pay("a")
        pay("a")
    assert lines == ["noted", "pay", "noted", "pay"]


def test_an_interrupt_in_a_hook_reaches_the_caller_and_the_call_is_on_record(no_hooks, ledger, pay):
    def hook(call: CallEnded) -> None:
        raise KeyboardInterrupt

    instrumentation.use(hook)
    with a_step(ledger):
        with pytest.raises(KeyboardInterrupt):
            pay("a")
        instrumentation.use()
        assert pay.call(ToolCall({"to": "a"})).replayed


# --- processes ------------------------------------------------------------------------------------


def test_a_forked_child_tells_its_own_calls(ends, tmp_path: Path) -> None:
    tool = declared(name="pay")(lambda to: to)
    with semel.open(f"sqlite:///{tmp_path}/s.db") as ledger, a_step(ledger):
        tool("a")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            tool("b")
            os.write(writing, ",".join(end.answer for end in ends).encode())
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        os.close(writing)
        with os.fdopen(reading) as read:
            assert read.read() == "done,done"
    assert len(ends) == 1


def test_threads_are_told_of_at_once(ends, ledger):
    tool = declared(name="pay")(lambda to: to)

    def call(name: str) -> None:
        with a_step(ledger, name):
            for number in range(50):
                tool(str(number))

    threads = [threading.Thread(target=call, args=(f"s-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [end.answer for end in ends] == ["done"] * 400


# --- what is in use by itself ---------------------------------------------------------------------


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[Listeners]:
    """Hooks as a process begins with them."""
    with instrumentation.use():
        LISTENERS.restore((), instrumentation.prometheus)
        yield LISTENERS


def test_what_is_in_use_by_itself_is_so_from_the_first_call_on(fresh, ledger, pay):
    from prometheus_client import REGISTRY

    def count() -> float | None:
        return REGISTRY.get_sample_value("semel_calls_total", {"tool": "pay", "answer": "done"})

    before: list[CallEnded] = []
    instrumentation.add(before.append)
    assert count() is None
    with a_step(ledger):
        pay("a")
    assert (count() or 0) >= 1
    assert len(before) == 1
    instrumentation.use()
    assert count() is None


def test_who_uses_others_before_the_first_call_has_only_those(fresh, ledger, pay):
    from prometheus_client import REGISTRY

    instrumentation.use(lambda call: None)
    with a_step(ledger):
        pay("a")
    assert REGISTRY.get_sample_value("semel_calls_total", {"tool": "pay", "answer": "done"}) is None


def test_a_ready_made_hook_without_its_library_is_refused_with_the_command(no_hooks, monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "opentelemetry.trace", None)
    with pytest.raises(errors.OpenError, match=r'pip install "semel\[otel\]"'):
        instrumentation.opentelemetry()


def test_a_ledger_in_a_child_of_a_process_that_was_told(ledger: Ledger) -> None:
    """The lock of `use` is new in a child, whoever held it in the parent."""
    child = Listeners()
    with child._lock:
        child.forked()
        done = threading.Thread(target=child.use, args=((),))
        done.start()
        done.join()
