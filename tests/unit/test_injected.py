"""`Annotated[T, semel.Injected]`: what a framework fills goes to the function, and nowhere else."""

from __future__ import annotations

import asyncio
import inspect
import threading
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import pytest

import semel
from semel import ToolCall, tool_contract
from semel.errors import ApprovalRequired, ContractError, InvalidArguments
from semel.ledger.ledger import Ledger
from tests.tools import a_step, declared, events, keyed, the_record


class Context:
    """Of a framework: no schema describes it, and no JSON carries it."""

    def __init__(self, user: str) -> None:
        self.user = user
        self.lock = threading.Lock()


Ctx = Annotated[Context, semel.Injected]

ANN, BEN = Context("ann"), Context("ben")


@pytest.fixture
def pay(way):
    @way.tool(ignore=("note",))
    def pay(to: str, ctx: Ctx, amount: int = 1, note: str = "", key: semel.Key = semel.filled) -> str:
        return f"{ctx.user} pays {to} {amount}"

    return pay


# --- where it is, and is not ----------------------------------------------------------------------


def test_it_is_in_the_signature_and_in_no_schema(pay):
    assert list(inspect.signature(pay).parameters) == ["to", "ctx", "amount", "note"]
    assert inspect.signature(pay).parameters["ctx"].annotation == Context
    assert get_type_hints(pay, include_extras=True)["ctx"] == Context, "which is what a framework looks for"
    assert list(pay.contract.schema["properties"]) == ["to", "amount", "note"]
    assert pay.contract.schema["required"] == ["to"]
    assert pay.contract.argument_names == ("to", "amount", "note")


def test_what_else_is_said_of_it_stays_in_the_signature():
    @tool_contract
    def pay(to: str, ctx: Annotated[Context, "of a framework", semel.Injected]) -> str:
        return to

    assert inspect.signature(pay).parameters["ctx"].annotation == Annotated[Context, "of a framework"]


def test_it_is_in_no_key_and_no_record(ledger, way, pay):
    with a_step(ledger):
        assert way.call(pay, "shop", ANN) == "ann pays shop 1"
        assert way.call(pay, "shop", ctx=BEN) == "ann pays shop 1"  # one action, whoever fills it
    assert the_record(ledger).request.arguments == b'{"amount":1,"note":"","to":"shop"}'
    assert not any("ann" in repr(event) for event in events(ledger))


def test_the_key_is_that_of_a_tool_without_it(ledger, way, pay):
    with a_step(ledger):
        with_it = way.ask(pay, ToolCall({"to": "shop", "ctx": ANN}))
    with semel.open("memory://", tenant="acme") as other, a_step(other):
        without = way.ask(way.tool(name="pay")(lambda to, amount=1: to), ToolCall({"to": "shop"}))
    assert with_it.key == without.key


def test_the_function_written_for_the_signature_takes_the_rest(pay):
    assert pay.contract.arguments.exactly(("shop", 2, ""), {}) is not None


@pytest.mark.parametrize(
    "call",
    [
        lambda tool: tool("shop", ANN, 2),
        lambda tool: tool("shop", ANN, amount=2),
        lambda tool: tool("shop", ctx=ANN, amount=2),
        lambda tool: tool(to="shop", ctx=ANN, amount="2"),  # not of exactly its type
    ],
)
def test_it_is_given_by_place_or_by_name(ledger, way, pay, call):
    with a_step(ledger):
        assert way.end(call(pay)) == "ann pays shop 2"


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda tool: tool("shop"), "ctx is missing"),
        (lambda tool: tool("shop", ANN, ctx=ANN), "ctx was given twice"),
        (lambda tool: tool(ctx=ANN), "to is missing"),
        (lambda tool: tool("shop", ANN, 1, "n", "m"), "by position"),
        (lambda tool: tool("shop", ANN, of=1), "no argument"),
    ],
)
def test_what_does_not_fit_is_refused(ledger, way, pay, call, says):
    with a_step(ledger), pytest.raises(InvalidArguments, match=says):
        way.end(call(pay))
    assert ledger.records.list() == []


def test_the_call_as_data_has_it_among_its_arguments(ledger, way, pay):
    request = ToolCall({"to": "shop", "ctx": ANN})
    with a_step(ledger):
        assert way.ask(pay, request).value == "ann pays shop 1"
        assert asyncio.run(acalled(pay, request)).replayed
        assert way.ask(pay, ToolCall({"to": "shop"})).error.code == "INVALID_ARGUMENTS"


async def acalled(tool: Any, request: ToolCall) -> Any:
    return await tool.acall(request)


def test_a_tool_without_a_record_gets_it_too(way):
    tool = way.tool(class_="read", name="look")(look)
    assert way.call(tool, ANN, "shop") == way.ask(tool, ToolCall({"ctx": ANN, "to": "shop"})).value == "ann"
    assert asyncio.run(acalled(tool, ToolCall({"ctx": ANN, "to": "shop"}))).value == "ann"


def look(ctx: Ctx, to: str) -> str:
    return ctx.user


def test_one_with_a_default_may_be_left_out(ledger, way):
    @way.tool()
    def pay(to: str, *, ctx: Annotated[Context | None, semel.Injected] = None) -> str:
        return f"{ctx.user if ctx else 'nobody'} pays {to}"

    with a_step(ledger):
        assert way.call(pay, "shop") == "nobody pays shop"
        assert way.call(pay, "home", ctx=ANN) == "ann pays home"


def test_a_method_has_it_beside_its_self(ledger):
    class Account:
        @tool_contract(key_of=lambda self: 1)
        def pay(self, to: str, ctx: Ctx, transfer: bool = False) -> str:
            return f"{ctx.user} pays {to}"

    with a_step(ledger):
        assert Account().pay("shop", ANN) == "ann pays shop"
        assert Account().pay.call(ToolCall({"to": "home", "ctx": ANN})).value == "ann pays home"
        assert asyncio.run(acalled(Account().pay, ToolCall({"to": "away", "ctx": BEN}))).value == (
            "ben pays away"
        )


# --- every entry takes it from the present call ---------------------------------------------------


def test_a_re_entry_has_the_first_arguments_and_the_present_context(ledger, way):
    seen = []

    @way.tool(name="pay", downstream_window="1h", ignore=("note",))
    def pay(to: str, note: str, ctx: Ctx, key: semel.Key) -> str:
        seen.append((note, ctx.user))
        if len(seen) == 1:
            raise TimeoutError
        return "paid"

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            way.call(pay, "shop", "first", ANN)
        assert way.call(pay, "shop", "second", BEN) == "paid"
    assert seen == [("first", "ann"), ("first", "ben")]


def test_a_further_try_has_it_too(ledger, way):
    seen = []

    @way.tool(name="pay", downstream_window="1h", transient=(OSError,), attempts=2, backoff="1ms")
    def pay(to: str, ctx: Ctx, key: semel.Key) -> str:
        seen.append(ctx)
        if len(seen) == 1:
            raise OSError
        return "paid"

    with a_step(ledger):
        assert way.call(pay, "shop", ANN) == "paid"
    assert seen == [ANN, ANN]


def test_an_approved_call_has_that_of_the_call_that_is_made(ledger, way):
    @way.tool(name="pay", approval="required")
    def pay(to: str, ctx: Ctx) -> str:
        return ctx.user

    with a_step(ledger):
        with pytest.raises(ApprovalRequired) as asked:
            way.call(pay, "shop", ANN)
        job_id = asked.value.details["job_id"]
        assert pay.ask(ToolCall({"to": "shop"})).job_id == job_id  # nothing runs, so nothing is missing
        assert ledger.approvals.get(job_id).input == {"to": "shop"}
        ledger.approvals.approve(job_id, by="eve")
        assert way.call(pay, "shop", BEN) == "ben"


def test_a_probe_knows_nothing_of_it(ledger, way):
    asked = []

    def probe(key: str, to: str) -> Any:
        asked.append(to)
        return semel.Happened("paid")

    @way.tool(name="pay", probe=probe)
    def pay(to: str, ctx: Ctx) -> str:
        raise TimeoutError

    with a_step(ledger):
        with pytest.raises(TimeoutError):
            way.call(pay, "shop", ANN)
        assert way.call(pay, "shop", BEN) == "paid"
    assert asked == ["shop"]


# --- declarations ---------------------------------------------------------------------------------


@dataclass
class Odd:
    of: Any


@pytest.mark.parametrize("of", [Context, Odd, threading.Lock, object, Any, Annotated[int, 5]])
def test_any_type_will_do(ledger, of):
    def pay(to: str, it: Any) -> str:
        return to

    pay.__annotations__["it"] = Annotated[of, semel.Injected]
    with a_step(ledger):
        assert declared()(pay)("shop", object()) == "shop"


def test_a_type_that_no_schema_describes_is_told_of_it():
    with pytest.raises(ContractError, match=r"Annotated\[…, semel.Injected\]"):

        @declared()
        def pay(to: str, ctx: Context) -> str:
            return to


@pytest.mark.parametrize("said", [{"ignore": ("ctx",)}, {"secret": ("ctx",)}, {"resource": "ctx"}])
def test_it_is_no_argument_that_a_contract_could_speak_of(said):
    with pytest.raises(ContractError):

        @declared(**said)
        def pay(to: str, ctx: Ctx) -> str:
            return to


def test_semel_does_not_fill_it():
    with pytest.raises(ContractError, match=r"semel\.filled"):

        @declared()
        def pay(to: str, ctx: Ctx = semel.filled) -> str:
            return to


@declared()
def late(to: str, ctx: LaterCtx, amount: int = 1) -> str:
    return f"{ctx.user} pays {to} {amount}"


LaterCtx = Annotated[Context, semel.Injected]


def test_its_type_may_be_defined_later(ledger):
    with a_step(ledger):
        assert late("shop", ANN, 2) == "ann pays shop 2"
        assert late.call(ToolCall({"to": "home", "ctx": ANN})).value == "ann pays home 1"
    assert list(late.contract.schema["properties"]) == ["to", "amount"]
    assert late.contract.argument_names == ("to", "amount")


def test_equal_calls_at_once_are_one_action_whoever_fills_it(real: Ledger):
    ran = []

    @keyed(name="pay")
    def pay(to: str, ctx: Ctx, key: semel.Key) -> str:
        ran.append(ctx.user)
        return ctx.user

    async def main() -> set[Any]:
        async with real.step(conversation="c", step="1"):
            calls = (pay.acall(ToolCall({"to": "shop", "ctx": Context(str(n))})) for n in range(10))
            return {result.value for result in await asyncio.gather(*calls)}

    assert asyncio.run(main()) == set(ran)
    assert len(ran) == 1
