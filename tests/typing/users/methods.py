"""Methods with a contract, as a user writes and calls them. What is refused is marked, and never run."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable
from typing import assert_type

import semel
from semel import ToolCall, ToolResult, tool_contract


class Account:
    def __init__(self, name: str) -> None:
        self.name = name

    @tool_contract(class_="write-non-idempotent", key_of=lambda account: account.name)
    def pay(self, to: str, amount: int = 1, key: semel.Key = semel.filled) -> str:
        return f"{self.name} pays {to} {amount}: {key[:4]}"

    @tool_contract(class_="write-non-idempotent", key_of=lambda account: account.name)
    async def transfer(self, to: str, key: semel.Key = semel.filled) -> list[str]:
        await asyncio.sleep(0)
        return [self.name, to, key[:4]]

    @tool_contract(class_="read")
    def balance(self) -> int:
        return len(self.name)

    with warnings.catch_warnings(action="ignore"):  # that nothing tells accounts apart

        @tool_contract
        def close(self, why: str) -> list[str]:
            return [self.name, why]

    @staticmethod
    @tool_contract()
    def audit(year: int) -> int:
        return year


class Savings(Account):
    def pay_twice(self, to: str) -> str:
        assert_type(super().pay(to), str)
        return self.pay(to, 2)


def paid_by(pay: semel.GuardedTool[..., str]) -> str:
    return pay("rent")


def called(pay: Callable[[str, int], str]) -> str:
    return pay("rent", 3)


def accepted() -> None:
    account, savings = Account("ann"), Savings("ben")
    assert_type(account.pay("rent"), str)
    assert_type(account.pay(to="rent", amount=5), str)
    assert_type(account.balance(), int)
    assert_type(account.close("moved"), list[str])
    assert_type(account.close.call(ToolCall({"why": "moved"})), ToolResult[list[str]])
    assert_type(savings.pay_twice("rent"), str)
    assert_type(Account.pay(account, "rent"), str)
    assert_type(Account.audit(2026), int)

    result = account.pay.call(ToolCall({"to": "rent"}))
    assert_type(result, ToolResult[str])
    assert result.value == account.pay("rent")
    assert savings.pay.call(ToolCall({"to": "rent"})).unwrap().startswith("ben pays")
    assert_type(Account.pay.call(ToolCall({"to": "rent"}), instance=account), ToolResult[str])
    assert_type(account.balance.call(ToolCall({})), ToolResult[int])

    assert_type(paid_by(account.pay), str)
    assert_type(called(account.pay), str)
    assert_type(account.pay.contract.name, str)


async def accepted_on_a_loop() -> None:
    account = Account("ann")
    assert_type(await account.transfer("ben"), list[str])
    assert_type(await account.transfer.call(ToolCall({"to": "ben"})), ToolResult[list[str]])
    assert (await account.transfer.call(ToolCall({"to": "ben"}))).value == await account.transfer("ben")
    assert_type(await account.transfer.acall(ToolCall({"to": "ben"})), ToolResult[list[str]])
    assert_type(await account.pay.acall(ToolCall({"to": "rent"})), ToolResult[str])
    assert_type(await Account.pay.acall(ToolCall({"to": "rent"}), instance=account), ToolResult[str])


async def refused() -> None:
    account = Account("ann")
    account.pay()  # refused
    account.pay(5)  # refused
    account.close()  # refused
    account.close("moved").nothing  # refused
    account.pay("rent", 1, "a key of my own")  # refused
    account.pay("rent").nothing  # refused
    Account.pay("rent")  # refused
    account.transfer("ben").count("ben")  # refused: it is not awaited
    account.pay.call({"to": "rent"})  # refused
    account.pay.call(ToolCall({})).unwrap().nothing  # refused
    account.transfer.call(ToolCall({})).ok  # refused: it is not awaited
    (await account.pay.acall(ToolCall({}))).nothing  # refused
    paid_by(account.balance)  # refused
    called(Account.pay)  # refused
