"""A guarded method passes for a method, to callers and to frameworks; and its `.call` knows the instance."""

from __future__ import annotations

import asyncio
import copy
import inspect
import pickle
import weakref
from abc import ABC, abstractmethod
from functools import partial, wraps
from typing import Any

import pytest
from pydantic import BaseModel

import semel
from semel import ToolCall, tool_contract
from semel.ledger.ledger import Ledger
from tests.tools import a_step


class Account:
    """Where money is."""

    def __init__(self, name: str) -> None:
        self.name = name

    @tool_contract(key_of=lambda self: self.name)
    def pay(self, to: str, key: semel.Key = semel.filled) -> str:
        """Pay somebody."""
        return f"{self.name} pays {to}"

    @tool_contract(key_of=lambda self: self.name)
    async def transfer(self, to: str) -> str:
        """Transfer to somebody."""
        return f"{self.name} to {to}"

    @classmethod
    @tool_contract(key_of=lambda cls: cls.__name__)
    def open(cls, name: str) -> str:
        return f"{cls.__name__} {name}"


def test_a_call_as_data_on_a_bound_method_is_made_on_its_instance(ledger: Ledger) -> None:
    ann, ben = Account("ann"), Account("ben")
    with a_step(ledger):
        assert ann.pay.call(ToolCall({"to": "shop"})).value == "ann pays shop"
        assert ben.pay.call(ToolCall({"to": "shop"})).value == "ben pays shop"
        assert ann.pay.call(ToolCall({"to": "shop"})).replayed


def test_so_is_one_of_an_async_method(ledger: Ledger) -> None:
    with a_step(ledger):
        result = asyncio.run(Account("ann").transfer.call(ToolCall({"to": "shop"})))
    assert result.value == "ann to shop"


def test_another_instance_may_be_named(ledger: Ledger) -> None:
    with a_step(ledger):
        result = Account("ann").pay.call(ToolCall({"to": "shop"}), instance=Account("ben"))
    assert result.value == "ben pays shop"


def test_a_method_that_is_not_bound_takes_its_instance(ledger: Ledger) -> None:
    with a_step(ledger):
        assert Account.pay(Account("ann"), "shop") == "ann pays shop"
        missing = Account.pay.call(ToolCall({"to": "shop"}))
        assert missing.error is not None
        assert missing.error.code == "INVALID_ARGUMENTS"
        assert Account.pay.call(ToolCall({"to": "shop"}), instance=Account("ann")).replayed


def test_a_class_method_is_called_on_its_class(ledger: Ledger) -> None:
    opening: Any = Account.open
    with a_step(ledger):
        assert opening("ann") == "Account ann"


def test_a_subclass_may_call_the_method_that_it_replaces(ledger: Ledger) -> None:
    class Careful(Account):
        def pay(self, to: str) -> str:  # type: ignore[override]
            return super().pay(to) + ", carefully"

    with a_step(ledger):
        assert Careful("ann").pay("shop") == "ann pays shop, carefully"


def test_inspect_sees_a_function_in_the_class_and_a_method_on_the_instance() -> None:
    ann = Account("ann")
    assert inspect.isfunction(Account.pay)
    assert inspect.ismethod(ann.pay)
    assert inspect.isroutine(ann.pay)
    assert inspect.iscoroutinefunction(ann.transfer)
    assert inspect.iscoroutinefunction(Account.transfer)
    assert not inspect.iscoroutinefunction(ann.pay)
    assert list(inspect.signature(ann.pay).parameters) == ["to"]
    assert list(inspect.signature(Account.pay).parameters) == ["self", "to"]


def test_a_bound_method_is_described_by_its_function() -> None:
    pay = Account("ann").pay
    assert (pay.__name__, pay.__doc__, pay.__module__) == ("pay", "Pay somebody.", __name__)
    assert inspect.getdoc(pay) == "Pay somebody."
    assert pay.contract.name == "pay"
    assert "Account.pay" in repr(pay)
    assert not hasattr(pay, "nothing")


def test_bound_methods_of_one_instance_are_equal() -> None:
    ann: Any = Account("ann")
    assert ann.pay == ann.pay
    assert {ann.pay, ann.pay} == {ann.pay}
    assert ann.pay != Account("ann").pay
    assert ann.pay != ann.transfer
    assert ann.pay != "pay"


def test_a_bound_method_is_copied_pickled_and_referred_to_weakly_like_any_other(ledger: Ledger) -> None:
    ann = Account("ann")
    weakly: Any = weakref.WeakMethod(ann.pay)
    with a_step(ledger):
        first = ann.pay("shop")
        assert pickle.loads(pickle.dumps(ann.pay))("shop") == first
        assert copy.deepcopy(ann.pay)("shop") == first
        assert weakly()("shop") == first
        assert partial(ann.pay, to="shop")() == first


def test_a_pydantic_model_may_have_guarded_methods(ledger: Ledger) -> None:
    class Wallet(BaseModel):
        name: str

        @tool_contract(key_of=lambda self: self.name)
        def pay(self, to: str) -> str:
            return f"{self.name} pays {to}"

    assert list(Wallet.model_fields) == ["name"]
    with a_step(ledger):
        assert Wallet(name="ann").pay("shop") == "ann pays shop"


def test_a_guarded_method_may_be_abstract() -> None:
    class Payer(ABC):
        @abstractmethod
        @tool_contract(key_of=lambda self: None)
        def pay(self, to: str) -> str: ...

    with pytest.raises(TypeError, match="abstract"):
        Payer()  # type: ignore[abstract]


def test_other_decorators_may_stand_above(ledger: Ledger) -> None:
    def loud(method: Any) -> Any:
        @wraps(method)
        def louder(*args: Any) -> str:
            return str(method(*args)).upper()

        method.marked = True
        return louder

    class Shop:
        @loud
        @tool_contract(key_of=lambda self: None)
        def sell(self, what: str) -> str:
            """Sell something."""
            return f"sold {what}"

    assert Shop.sell.__doc__ == "Sell something."
    assert Shop.sell.__name__ == "sell"
    with a_step(ledger):
        assert Shop().sell("tea") == "SOLD TEA"


def test_what_is_set_on_it_in_the_class_is_seen_on_the_instance() -> None:
    class Shop:
        @tool_contract(key_of=lambda self: None)
        def sell(self, what: str) -> str:
            return what

        sell.label = "for sale"  # type: ignore[attr-defined]

    sell: Any = Shop().sell
    assert sell.label == "for sale"
