"""`semel.filled`: a default for type checkers, which nothing at run time ever sees."""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest

import semel
from semel import tool_contract
from semel.errors import ContractError, InvalidArguments
from semel.ledger.ledger import Ledger
from tests.tools import a_step, the_record


def test_the_tool_gets_the_real_key(ledger: Ledger) -> None:
    @tool_contract()
    def pay(to: str, key: semel.Key = semel.filled) -> str:
        return key

    with a_step(ledger):
        assert pay("ann") == the_record(ledger).request.at.key


def test_it_is_in_no_schema_signature_or_record(ledger: Ledger) -> None:
    @tool_contract()
    def pay(to: str, key: semel.Key = semel.filled, amount: int = 1) -> str:
        return f"{to} {amount}"

    assert pay.contract.schema["properties"].keys() == {"to", "amount"}
    assert list(inspect.signature(pay).parameters) == ["to", "amount"]
    with a_step(ledger):
        assert pay(to="ann", amount=5) == "ann 5"
    assert b"filled" not in the_record(ledger).request.arguments


def test_the_key_is_the_same_with_and_without_it(ledger: Ledger) -> None:
    def without(to: str, key: semel.Key) -> str:
        return key

    def with_it(to: str, key: semel.Key = semel.filled) -> str:
        return key

    made = []
    for function in (without, with_it):
        pay: Any = tool_contract(name="pay")(function)
        with a_step(Ledger(ledger.store)):
            made.append(pay("ann"))
    assert made[0] == made[1]


def test_a_caller_still_cannot_pass_a_key(ledger: Ledger) -> None:
    @tool_contract()
    def pay(to: str, key: semel.Key = semel.filled) -> str:
        return key

    with a_step(ledger), pytest.raises(InvalidArguments, match="Semel makes the key"):
        pay("ann", key=semel.filled)


def test_a_transaction_may_have_it_too() -> None:
    @tool_contract()
    def pay(to: str, books: semel.Transaction = semel.filled) -> str:
        return str(books)

    assert pay.contract.schema["properties"].keys() == {"to"}
    assert list(inspect.signature(pay).parameters) == ["to"]


@pytest.mark.parametrize("kind", [str, Any, semel.Key | str])
def test_no_other_parameter_may_have_it(kind: Any) -> None:
    def pay(to: Any = semel.filled) -> None: ...

    pay.__annotations__["to"] = kind
    with pytest.raises(ContractError, match="'to', which is for parameters of type"):
        tool_contract()(pay)


def test_a_parameter_whose_type_is_defined_later_is_hidden_by_it() -> None:
    def probe(key: str, to: str) -> Any: ...

    @tool_contract(probe=probe)
    def pay(to: str, key: Later = semel.filled) -> str:
        return key

    assert list(inspect.signature(pay).parameters) == ["to"]
    assert pay.contract.argument_names == ("to",)


def test_it_says_what_it_is_and_there_is_one_of_it() -> None:
    assert repr(semel.filled) == "semel.filled"
    assert copy.deepcopy(semel.filled) is semel.filled
    assert pickle.loads(pickle.dumps(semel.filled)) is semel.filled


Later = semel.Key
