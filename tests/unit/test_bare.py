"""Bare `@tool_contract`: a complete contract. And what is no function of arguments is told how to be one."""

from __future__ import annotations

import asyncio
import warnings
from typing import Any

import pytest

import semel
from semel import ToolCall, ToolResult, tool_contract
from semel.errors import ContractError
from tests.tools import a_step


@tool_contract
def greet(name: str, key: semel.Key = semel.filled) -> str:
    """Say hello."""
    return f"hello {name}"


@tool_contract
async def agreet(name: str) -> str:
    return f"hello {name}"


def test_it_is_the_contract_that_says_nothing():
    def plain(name: str) -> str:
        return name

    assert tool_contract(plain).contract.describe() == tool_contract()(plain).contract.describe()


def test_it_is_recorded_of_low_value_and_parks(ledger):
    described = greet.contract.describe()
    assert (described["class"], described["value"], described["window"]) == (
        "write-non-idempotent",
        "low",
        "1d",
    )
    assert (described["on_unknown"], described["name"], described["purpose"]) == (
        "park",
        "greet",
        "Say hello.",
    )
    with a_step(ledger):
        assert greet("ann") == greet("ann") == "hello ann"
        assert greet.call(ToolCall({"name": "ann"})).replayed
        assert asyncio.run(twice(agreet)) == ["hello ann"] * 2
    assert len(ledger.records.list(scope="tool")) == 2


async def twice(tool: Any) -> list[str]:
    return [await tool("ann"), await tool("ann")]


def test_a_method_too_and_it_says_at_its_own_line_what_it_does_not_tell_apart(ledger):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")

        class Account:
            @tool_contract
            def bare(self, to: str) -> str:
                return to

            @tool_contract()
            def called(self, to: str) -> str:
                return to

    assert [each.filename for each in told] == [__file__] * 2
    bare, called = (each.lineno for each in told)
    assert called == bare + 4
    with a_step(ledger):
        assert Account().bare("ann") == Account().called("ann") == "ann"


def test_annotations_written_as_text_mean_what_they_mean_around_it(ledger):
    class Local:
        pass

    Amount = int

    @tool_contract
    def pay(amount: Amount) -> int:  # type: ignore[valid-type]
        return amount

    assert pay.contract.schema["properties"]["amount"]["type"] == "integer"


# --- what is no function of arguments -------------------------------------------------------------


@pytest.mark.parametrize(
    ("thing", "says"),
    [
        ("refund", r"@tool_contract\(name=…\)"),
        (5, "no function"),
        (staticmethod(len), "below @classmethod or @staticmethod"),
        (type("Account", (), {}), "is a class: declare the contract on its methods"),
    ],
)
@pytest.mark.parametrize("declare", [tool_contract, lambda thing: tool_contract()(thing)])
def test_what_is_no_function_is_refused(declare, thing, says):
    with pytest.raises(ContractError, match=says):
        declare(thing)


def test_a_word_that_no_contract_knows_is_refused_with_the_nearest_one():
    with pytest.raises(TypeError, match="'windows'; did you mean 'window'"):
        tool_contract(windows="24h")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'idempotency_window'; did you mean 'window'"):
        tool_contract(idempotency_window="24h", effect_class="read")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match=r"'retries', but .* attempts, "):
        semel.tool_contract(retries=3)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'effect_class'; did you mean 'class_'"):
        tool_contract(effect_class="read", idempotency_window="24h")  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="'x', but class_, name"):
        tool_contract(x=1)  # type: ignore[call-overload]


def test_the_chapter_s_snippet_is_told_how_it_is_written_here():
    with pytest.raises(ContractError) as told:

        @tool_contract(name="issue_refund", version="2.1.0", class_="write-non-idempotent")
        def issue_refund(call: ToolCall) -> ToolResult[Any]:
            args = RefundSchema.validate(call.arguments)  # type: ignore[name-defined]  # noqa: F821
            return ToolResult.success(args)

    text = str(told.value)
    assert "def issue_refund(payment_id: str, amount_minor: int) -> Refund" in text
    assert "issue_refund.call(call)" in text


@pytest.mark.parametrize("class_", ["read", "write-idempotent"])
def test_so_is_one_of_another_class(class_):
    with pytest.raises(ContractError, match="takes the whole call") as told:

        @tool_contract(class_=class_)
        def upsert_customer(call: ToolCall) -> ToolResult[Any]:
            return ToolResult.success(1)

    # Nothing that this class, or a tool of this name, does not have.
    assert "def upsert_customer(payment_id" not in str(told.value)
    assert "where the tool is recorded" in str(told.value)
