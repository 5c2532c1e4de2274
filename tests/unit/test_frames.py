"""A traceback shows the caller's frames and the tool's, and at most three of ours."""

from __future__ import annotations

import asyncio
import os
import traceback
from dataclasses import dataclass
from typing import Any

import pytest

import semel
from semel import ToolCall, tool_contract
from semel.errors import SemelError
from tests.tools import a_step

OURS = os.path.dirname(semel.__file__) + os.sep


class Declined(Exception):
    pass


def deeper(error: BaseException) -> int:
    raise error


def shown(error: BaseException) -> tuple[list[str], int]:
    """The functions outside of Semel that a traceback shows, causes first; and how many are ours."""
    frames = [
        frame
        for each in reversed([*_chain(error)])
        for frame in traceback.extract_tb(each.__traceback__)
        if "asyncio" not in frame.filename
    ]
    printed = "".join(traceback.format_exception(error)).count(f'File "{OURS}')
    assert printed == sum(frame.filename.startswith(OURS) for frame in frames)
    return [frame.name for frame in frames if not frame.filename.startswith(OURS)], printed


def _chain(error: BaseException | None) -> Any:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def caught(way: Any, tool: Any, *args: Any, **kwargs: Any) -> BaseException:
    try:
        way.call(tool, *args, **kwargs)
    except Exception as error:
        return error
    raise AssertionError("it did not raise")


CASES: list[tuple[dict[str, Any], type[Exception]]] = [
    ({}, ValueError),  # recorded: EffectFailed from it
    ({"raises": (Declined,)}, Declined),  # itself
    ({"refused": (Declined,)}, Declined),  # itself, and the key is free
    ({}, TimeoutError),  # itself, and the call is in doubt
    ({"transient": (Declined,)}, Declined),  # OutcomeUnknown from it
    ({"class_": "read"}, ValueError),
]


@pytest.mark.parametrize(("said", "kind_"), CASES)
def test_the_first_call_shows_where_the_tool_raised(ledger, way, said, kind_):
    @way.tool(**said)
    def pay(to: str) -> int:
        return deeper(kind_("no"))

    with a_step(ledger):
        names, ours = shown(caught(way, pay, "ann"))
    assert ours <= 3
    assert [name for name in names if name in ("pay", "deeper", "caught")].count("caught") == 1
    assert names[names.index("pay") :][:2] == ["pay", "deeper"]


@pytest.mark.parametrize(("said", "kind_"), CASES)
def test_a_replay_shows_where_it_was_called(ledger, way, said, kind_):
    @way.tool(**said)
    def pay(to: str) -> int:
        return deeper(kind_("no"))

    with a_step(ledger):
        caught(way, pay, "ann")
        names, ours = shown(caught(way, pay, "ann"))
    assert ours <= 3
    assert "caught" in names


def test_a_refusal_shows_where_it_was_called(ledger, way):
    pay = way.tool(name="pay")(lambda to: to)
    with a_step(ledger):
        names, ours = shown(caught(way, pay, of="ann"))
    assert (names[0], ours) == ("caught", 1)


def test_a_method_in_a_step_that_was_handed_over_has_three(ledger):
    class Account:
        @tool_contract(key_of=lambda self: 1, raises=(Declined,))
        def pay(self, to: str) -> int:
            return deeper(Declined("no"))

    for _ in range(2):
        with pytest.raises(Declined) as raised:
            a_step(ledger).run(Account().pay, "ann")
        assert shown(raised.value)[1] == 3


def test_a_tool_inside_a_tool_adds_none(ledger, way):
    @way.tool(name="inner")
    def inner(to: str) -> int:
        return deeper(ValueError("no"))

    @tool_contract
    def outer(to: str) -> int:
        result: int = way.call(inner, to)
        return result

    with a_step(ledger), pytest.raises(SemelError) as raised:
        outer("ann")
    names, ours = shown(raised.value)
    assert ours <= 3
    assert {"outer", "inner", "deeper"} <= {*names} | {"inner"}
    assert str(raised.value) == "ValueError: no. Decide anew: trying it again takes another step."


def test_a_mistake_of_ours_is_shown_as_a_whole(ledger, monkeypatch):
    @tool_contract
    def pay(to: str) -> int:
        return 1

    def broken(*_: Any) -> None:
        raise ZeroDivisionError

    broken.__code__ = broken.__code__.replace(co_filename=OURS + "call/guard.py")
    with a_step(ledger):
        monkeypatch.setattr("semel.call.tool.guarded", broken)
        with pytest.raises(ZeroDivisionError) as raised:
            pay("ann")
    assert shown(raised.value)[1] > 3


def test_what_a_store_says_is_shown_as_a_whole(shaky, flaky):
    @tool_contract
    def pay(to: str) -> int:
        return 1

    flaky.refuse("claim")
    with a_step(shaky), pytest.raises(semel.errors.StoreUnavailable) as raised:
        pay("ann")
    assert shown(raised.value)[1] <= 3


@dataclass(frozen=True)
class Sealed(Exception):
    """Nothing can be assigned to it, its traceback neither."""

    code: str


@pytest.mark.parametrize(
    ("said", "raised"),
    [
        ({"raises": (Sealed,)}, Sealed),
        ({"refused": (Sealed,)}, Sealed),
        ({"transient": (Sealed,)}, semel.errors.OutcomeUnknown),
        ({}, semel.errors.EffectFailed),
        ({"class_": "read"}, Sealed),
    ],
)
def test_an_exception_that_nobody_can_assign_to_is_raised_all_the_same(ledger, way, said, raised):
    @way.tool(**said)
    def pay(to: str) -> int:
        return deeper(Sealed("no-funds"))

    with a_step(ledger):
        for _ in range(2):
            assert type(caught(way, pay, "ann")) is raised


def test_the_exception_keeps_no_frame_of_ours_alive(ledger, way):
    @way.tool(raises=(Declined,))
    def pay(to: str) -> int:
        return deeper(Declined("no"))

    with a_step(ledger):
        error = caught(way, pay, "ann")
    kept = [frame.f_code.co_name for frame, _ in traceback.walk_tb(error.__traceback__)]
    assert kept.count("wrapper") == 1
    assert "guarded" not in kept


def test_a_call_as_data_on_a_loop_has_the_text(ledger):
    @tool_contract
    def pay(to: str) -> int:
        return deeper(ValueError("no"))

    async def main() -> Any:
        return await pay.acall(ToolCall({"to": "ann"}))

    with a_step(ledger):
        assert asyncio.run(main()).error.message == "ValueError: no"


PASTED = """
from semel import ToolCall, ToolResult, tool_contract

@tool_contract(name="issue_refund", version="2.1.0", class_="write-non-idempotent")
def issue_refund(call: ToolCall) -> ToolResult:
    return ToolResult.ok(call.arguments)
"""

WITHOUT_NAMES = """
import semel

@semel.tool_contract
def pay(*orders: str) -> str: ...
"""


@pytest.mark.parametrize("program", [PASTED, WITHOUT_NAMES], ids=["pasted", "without-names"])
def test_a_declaration_that_is_refused_shows_where_it_stands(program):
    with pytest.raises(semel.errors.ContractError) as raised:
        exec(compile(program, "shop.py", "exec"), {})
    names, ours = shown(raised.value)
    assert names[-1] == "<module>"
    assert ours <= 3
