"""`semel.contract_for`: a tool of something that has a JSON Schema and no typed Python function."""

from __future__ import annotations

import asyncio
import functools
import inspect
from typing import Annotated, Any

import pytest

import semel
from semel import ToolCall, contract_for
from semel.errors import ApprovalRequired, ContractError, InvalidArguments
from semel.kernel.limits import ARGUMENT_BYTES_MAX
from tests.tools import a_step, another_process, state, the_record

PAY = {
    "type": "object",
    "description": "Pays somebody.",
    "properties": {
        "to": {"type": "string", "pattern": "^[a-z]+$"},
        "amount": {"type": "integer", "minimum": 1},
        "how": {"$ref": "#/definitions/how"},
        "e-mail": {"type": "string"},
        "urgent": {"type": "boolean", "default": False},
    },
    "definitions": {
        "how": {
            "type": "object",
            "properties": {"by": {"enum": ["card", "cash"]}, "note": {"type": "string"}},
        }
    },
    "required": ["to"],
    "additionalProperties": False,
}


@pytest.fixture
def ran() -> list[dict[str, Any]]:
    return []


@pytest.fixture(params=["def", "async def"])
def make(request, ran):
    """A tool by a schema, of a function of either kind."""

    def make(schema: Any = PAY, answer: Any = "paid", **contract: Any) -> Any:
        def pay(**arguments: Any) -> Any:
            ran.append(arguments)
            return answer() if callable(answer) else answer

        async def apay(**arguments: Any) -> Any:
            await asyncio.sleep(0)
            return pay(**arguments)

        return contract_for("pay", schema, apay if request.param == "async def" else pay, **contract)

    return make


def call(tool: Any, arguments: Any) -> semel.ToolResult[Any]:
    async def main() -> Any:
        return await tool.acall(ToolCall(arguments))

    result: semel.ToolResult[Any] = asyncio.run(main())
    return result


# --- what it is -----------------------------------------------------------------------------------


def test_it_is_a_tool_with_the_given_schema_and_name(make):
    tool = make()
    assert tool.contract.schema == PAY
    assert tool.contract.describe()["schema"] == PAY
    assert (tool.__name__, tool.contract.name, tool.contract.purpose) == ("pay", "pay", "Pays somebody.")
    assert tool.contract.class_ == "write-non-idempotent"
    assert tool.contract.argument_names == tuple(dict(PAY)["properties"])  # type: ignore[arg-type]
    assert str(inspect.signature(tool)) == "(**arguments: Any)"


def test_the_schema_is_a_copy_that_nobody_changes(ledger, make):
    mine: dict[str, Any] = {"type": "object", "properties": {"to": {"type": "string"}}}
    tool = make(mine)
    mine["properties"]["to"]["type"] = "integer"
    with a_step(ledger):
        assert call(tool, {"to": "ann"}).ok


def test_a_call_lands_once_and_its_plain_data_replays(ledger, make, ran):
    answer = {"ids": [1, 2.5, None, True], "text": "ok"}
    tool = make(answer=answer, ignore=("how.note",))
    with a_step(ledger):
        first = call(tool, {"to": "ann", "amount": 5, "how": {"by": "card", "note": "please"}})
        again = call(tool, {"how": {"note": "now", "by": "card"}, "amount": 5, "to": "ann"})
    assert first.value == again.value == answer
    assert (first.replayed, again.replayed, len(ran)) == (False, True, 1)
    assert ran == [{"to": "ann", "amount": 5, "how": {"by": "card", "note": "please"}}]


def test_the_plain_call_takes_them_by_name(ledger):
    tool = contract_for("pay", PAY, lambda **arguments: arguments)
    with a_step(ledger):
        assert tool(to="ann", **{"e-mail": "a@b"}) == {"to": "ann", "e-mail": "a@b"}
        with pytest.raises(InvalidArguments, match="by name"):
            tool("ann")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"to": "a", "amount": 5}, {"to": "a", "amount": 5.0}),
        ({"to": "a"}, {"to": "a", "urgent": False}),
    ],
)
def test_equal_arguments_are_one_action(ledger, make, ran, one, other):
    tool = make()
    with a_step(ledger):
        assert call(tool, one).key == call(tool, other).key
    assert ran == [one]


@pytest.mark.parametrize(
    "other", [{"to": "b"}, {"to": "a", "urgent": True}, {"to": "a", "amount": 1}, {"to": "a", "how": {}}]
)
def test_other_arguments_are_another_action(ledger, make, ran, other):
    tool = make()
    with a_step(ledger):
        assert call(tool, {"to": "a"}).key != call(tool, other).key
    assert len(ran) == 2


# --- what does not fit ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "'to' is missing"),
        ({"to": 5}, "to: string is wanted, not integer"),
        ({"to": "ANN"}, "to: a text that matches"),
        ({"to": "a", "amount": "5"}, "amount: integer is wanted, not string"),
        ({"to": "a", "amount": True}, "amount: integer is wanted, not boolean"),
        ({"to": "a", "amount": 0}, "amount: minimum is 1"),
        ({"to": "a", "how": {"by": "post"}}, 'how.by: one of "card", "cash" is wanted'),
        ({"to": "a", "of": 1}, "'of' is not part of it"),
        ({"to": "a", "e-mail": object()}, "e-mail"),
        ({"to": "a", "how": {"by": ("card",)}}, "how"),
        ({"to": "a", "amount": float("nan")}, "amount"),
        ({"to": "a", 5: "b"}, "string"),
        ({"to": "a\0"}, "to"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_kept(ledger, make, ran, arguments, says):
    tool = make()
    with a_step(ledger):
        refused = call(tool, arguments)
    assert refused.error.code == "INVALID_ARGUMENTS"
    assert says in refused.error.message
    assert "did not run" in refused.error.message
    assert ran == []
    assert ledger.records.list() == []


def test_arguments_are_bounded(ledger, make):
    tool = make({"type": "object"})
    deep: Any = 1
    for _ in range(100):
        deep = [deep]
    with a_step(ledger):
        assert call(tool, {"a": "x" * ARGUMENT_BYTES_MAX}).error.code == "TOO_LARGE"
        assert call(tool, {"a": deep}).error.code == "INVALID_ARGUMENTS"


def test_a_pattern_that_would_never_end_takes_no_time(ledger, make):
    tool = make({"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a+)+$"}}})
    with a_step(ledger):
        assert call(tool, {"a": "a" * 50_000 + "!"}).error.code == "INVALID_ARGUMENTS"


def test_a_schema_that_doubles_at_every_turn_is_given_up(ledger, make):
    turns = {f"t{n}": {"allOf": [{"$ref": f"#/$defs/t{n + 1}"}] * 2} for n in range(60)}
    schema = {"type": "object", "$ref": "#/$defs/t0", "$defs": {**turns, "t60": {"type": "object"}}}
    with a_step(ledger):
        assert "too long" in call(make(schema), {"a": 1}).error.message


def test_choices_without_number_are_not_all_looked_through_for_every_value(ledger, make):
    one_of_many = {"enum": [f"city-{n}" for n in range(20_000)]}
    schema = {"properties": {"to": one_of_many, "all": {"type": "array", "items": one_of_many}}}
    tool = make(schema)
    with a_step(ledger):
        assert call(tool, {"to": "city-19999"}).ok
        assert "too long" in call(tool, {"all": ["city-19999"] * 10_000}).error.message


def test_a_refusal_names_some_of_many_choices(ledger, make):
    tool = make({"properties": {"to": {"enum": [f"city-{n}" for n in range(20_000)]}}})
    with a_step(ledger):
        text = call(tool, {"to": "Rome"}).error.message
    assert '"city-0", "city-1"' in text
    assert len(text) < 1000


def test_without_a_schema_of_members_everything_is_open(ledger, make, ran):
    tool = make({})
    with a_step(ledger):
        assert call(tool, {"any": [1, {"thing": None}]}).ok
    assert ran == [{"any": [1, {"thing": None}]}]


# --- the contract ---------------------------------------------------------------------------------


def test_a_re_entry_has_the_first_arguments(ledger, ran):
    def pay(*, key: semel.Key, **arguments: Any) -> str:
        ran.append((key, arguments))
        if len(ran) == 1:
            raise TimeoutError
        return "paid"

    tool = contract_for("pay", PAY, pay, ignore=("how",), downstream_window="1h")
    assert tool.contract.on_unknown == "retry"
    assert "key" not in tool.contract.schema["properties"]
    with a_step(ledger):
        assert tool.call(ToolCall({"to": "ann", "how": {"note": "first"}})).error.retriable
        assert tool.call(ToolCall({"to": "ann", "how": {"note": "second"}})).value == "paid"
        assert tool.call(ToolCall({"to": "ann", "key": "mine"})).error.code == "INVALID_ARGUMENTS"
    assert ran == [(ran[0][0], {"to": "ann", "how": {"note": "first"}})] * 2


def test_what_others_fill_is_taken_from_the_function(ledger):
    def pay(session: Annotated[Any, semel.Injected], **arguments: Any) -> str:
        return f"{session} pays {arguments['to']}"

    tool = contract_for("pay", PAY, pay)
    with a_step(ledger):
        assert tool(session="ann", to="shop") == "ann pays shop"
    assert list(inspect.signature(tool).parameters) == ["session", "arguments"]
    assert the_record(ledger).request.arguments == b'{"to":"shop"}'


def test_a_person_is_asked_about_the_arguments(ledger, make, ran):
    tool = make(approval="required")
    with a_step(ledger):
        question = tool.ask(ToolCall({"to": "ann", "amount": 5}))
        assert question.arguments == {"to": "ann", "amount": 5}
        ledger.approvals.approve(question.job_id, by="eve")
        assert call(tool, {"to": "ann", "amount": 5}).ok
    assert ran == [{"to": "ann", "amount": 5}]


def test_secrets_are_written_nowhere_and_told_by_the_schema_too(ledger, make, ran):
    schema = {
        "properties": {
            "to": {},
            "pin": {"type": "string", "writeOnly": True},
            "card": {"properties": {"cvc": {"type": "string"}, "name": {}}},
        }
    }
    tool = make(schema, secret=("card.cvc",), approval="required")
    given = {"to": "ann", "pin": "geheim-1", "card": {"cvc": "geheim-2", "name": "A"}}
    with a_step(ledger):
        with pytest.raises(ApprovalRequired) as asked:
            asyncio.run(awaited(tool, given)).unwrap()
        assert the_record(ledger).request.arguments == b'{"to":"ann","card":{"name":"A"}}'
        ledger.approvals.approve(asked.value.details["job_id"], by="eve")
        assert call(tool, given).ok
    assert ran == [given]


async def awaited(tool: Any, arguments: Any) -> Any:
    return await tool.acall(ToolCall(arguments))


def test_a_probe_gets_what_was_given(ledger, make):
    asked = []

    def probe(key: str, to: str, **others: Any) -> Any:
        asked.append((to, others))
        return semel.Happened({"id": 1})

    def late() -> None:
        raise TimeoutError

    tool = make(answer=late, probe=probe)
    with a_step(ledger):
        assert call(tool, {"to": "ann", "e-mail": "a@b"}).error.retriable
        assert call(tool, {"to": "ann", "e-mail": "a@b"}).value == {"id": 1}
    assert asked == [("ann", {"e-mail": "a@b"})]


def test_what_was_stored_and_fits_no_more_is_refused(ledger, make, ran):
    def late() -> None:
        raise TimeoutError

    stricter = {**PAY, "required": ["to", "amount"]}
    with a_step(ledger):
        call(make(answer=late, on_unknown="rerun"), {"to": "ann"})
    with a_step(another_process(ledger)):
        refused = call(make(stricter, on_unknown="rerun", ignore=("amount",)), {"to": "ann", "amount": 1})
    assert refused.error.code == "INVALID_ARGUMENTS"
    assert "what the first call stored" in refused.error.message
    assert len(ran) == 1
    assert state(ledger) == "in_doubt"


def test_a_result_that_is_no_plain_data_is_returned_once_and_not_kept(ledger, make):
    tool = make(answer=object)
    with a_step(ledger):
        assert type(call(tool, {"to": "ann"}).value) is object
        assert call(tool, {"to": "ann"}).error.code == "RESULT_UNAVAILABLE"


# --- what may be given as a function --------------------------------------------------------------


class Session:
    async def call_tool(self, **arguments: Any) -> Any:
        return arguments

    async def __call__(self, **arguments: Any) -> Any:
        return arguments


def sent(prefix: str, **arguments: Any) -> Any:
    return {prefix: arguments}


@pytest.mark.parametrize(
    ("function", "value"),
    [
        (Session().call_tool, {"to": "a"}),
        (Session(), {"to": "a"}),
        (functools.partial(sent, "x"), {"x": {"to": "a"}}),
        (dict, {"to": "a"}),
        (lambda to: to, "a"),
    ],
)
def test_whatever_can_be_called_will_do(ledger, function, value):
    tool = contract_for("pay", {"properties": {"to": {}}}, function)
    with a_step(ledger):
        assert call(tool, {"to": "a"}).value == value
        assert call(tool, {"to": "a"}).replayed


def nested(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"properties": {"a": schema}}
    return schema


@pytest.mark.parametrize(
    ("schema", "says"),
    [
        (None, "JSON Schema"),
        ("object", "JSON Schema"),
        ({"type": "array"}, "something else than an object"),
        ({"type": "objekt"}, "'type'"),
        ({"properties": ["to"]}, "'properties'"),
        ({"properties": {"to": {"type": "string", "minLength": -1}}}, r"\$\.properties\.to: 'minLength'"),
        ({"properties": {"to": {"$ref": "#/$defs/none"}}}, "refers to"),
        ({"properties": {"to": {"$ref": "https://example.com/schema"}}}, "refers to"),
        ({"required": "to"}, "'required'"),
        ({"properties": {"to": {"default": object()}}}, "no JSON: .*object"),
        (nested(300), "no JSON: .*[Rr]ecursion"),
    ],
)
def test_a_schema_that_cannot_be_used_is_refused_where_it_is_declared(schema, says):
    with pytest.raises(ContractError, match=says):
        contract_for("pay", schema, lambda **arguments: arguments)


@pytest.mark.parametrize(
    "contract",
    [
        {"ignore": ("nothing",)},
        {"ignore": ("how.nothing",)},
        {"key_of": lambda self: self},
        {"on_unknown": "retry"},
        {"class_": "write"},
    ],
)
def test_a_contract_that_cannot_be_kept_is_refused_as_elsewhere(contract):
    with pytest.raises(ContractError):
        contract_for("pay", PAY, lambda **arguments: None, **contract)


def test_a_parameter_that_others_fill_is_no_argument_of_the_schema():
    def pay(*, to: semel.Key, **arguments: Any) -> None: ...

    with pytest.raises(ContractError, match="'to'"):
        contract_for("pay", PAY, pay)


def test_an_option_that_no_contract_has_is_named():
    with pytest.raises(TypeError, match="windows"):
        contract_for("pay", PAY, print, windows="1h")


def test_what_cannot_be_called_is_refused():
    with pytest.raises(ContractError, match="function"):
        contract_for("pay", PAY, "pay")  # type: ignore[call-overload]
