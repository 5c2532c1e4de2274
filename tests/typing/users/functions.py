"""Functions with a contract, as a user writes and calls them. What is refused is marked, and never run."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, assert_type

import semel
from semel import ToolCall, ToolResult, tool_contract


@dataclass
class Refund:
    id: str
    amount_minor: int


@tool_contract(name="refund", class_="write-non-idempotent", value="high", downstream_window="24h")
def refund(payment: str, amount_minor: int = 100, *, key: semel.Key = semel.filled) -> Refund:
    return Refund(key[:8], amount_minor)


@tool_contract(class_="irreversible", on_unknown="park", in_flight="refuse", approval=None)
async def send(to: str, text: str, key: semel.Key = semel.filled) -> list[str]:
    await asyncio.sleep(0)
    return [to, text, key[:8]]


@tool_contract(class_="read")
def balance(account: str) -> int:
    return len(account)


@tool_contract()
def ship(order: str) -> ToolResult[Refund]:
    if not order:
        return ToolResult.failure("NO_SUCH_ORDER", "There is no such order.")
    return ToolResult.success(Refund(order, 1))


@tool_contract()
async def notify(to: str) -> ToolResult[int]:
    return ToolResult.success(len(to))


@tool_contract
def greet(name: str, times: int = 1, key: semel.Key = semel.filled) -> list[str]:
    return [name, key[:8]] * times


@tool_contract
async def agreet(name: str) -> Refund:
    return Refund(name, 1)


@tool_contract
def wave(name: str) -> ToolResult[int]:
    return ToolResult.success(len(name))


@tool_contract
async def awave(name: str) -> ToolResult[int]:
    return ToolResult.success(len(name))


@tool_contract()
def forget(account: str) -> None:
    assert account


async def post(**arguments: str) -> list[str]:
    return sorted(arguments)


def count(**arguments: str) -> int:
    return len(arguments)


mail = semel.contract_for("mail", {"type": "object"}, count, ignore=())
posted = semel.contract_for("post", {"type": "object"}, post)


class Session:
    user = "ann"


@tool_contract()
def say(text: str, session: Annotated[Session, semel.Injected]) -> str:
    return f"{session.user}: {text}"


@tool_contract(approval="required")
def close(account: str) -> int:
    return len(account)


@tool_contract()
def needs_its_key(payment: str, key: semel.Key) -> str:
    return payment + key


def twice(tool: semel.GuardedTool[..., Refund]) -> ToolResult[Refund]:
    tool("p-9")
    return tool.call(ToolCall({"payment": "p-9"}))


async def awaited(tool: semel.GuardedTool[..., Awaitable[list[str]]]) -> ToolResult[list[str]]:
    return await tool.call(ToolCall({"to": "ann", "text": "hello"}))


def apply(function: Callable[[str, int], Refund]) -> Refund:
    return function("p-8", 2)


def accepted() -> None:
    assert_type(refund("p-1"), Refund)
    assert_type(refund("p-1", 5), Refund)
    assert_type(refund(payment="p-1", amount_minor=5).id, str)
    assert_type(balance("ann"), int)
    forget("ann")
    assert_type(ship("o-1"), Refund)
    assert_type(greet("ann"), list[str])
    assert_type(greet("ann", times=2), list[str])
    assert_type(greet.call(ToolCall({"name": "ann"})), ToolResult[list[str]])
    assert_type(greet.contract.name, str)
    assert_type(wave("ann"), int)

    result = refund.call(ToolCall({"payment": "p-2"}))
    assert_type(result, ToolResult[Refund])
    assert_type(result.value, Refund | None)
    assert_type(result.unwrap(), Refund)
    assert_type(ship.call(ToolCall({"order": "o-1"})), ToolResult[Refund])
    assert_type(forget.call(ToolCall({"account": "ann"})), ToolResult[None])
    assert result.ok
    assert isinstance(result.value, Refund)

    assert_type(say("hello", Session()), str)
    assert_type(say.call(ToolCall({"text": "hello", "session": Session()})), ToolResult[str])

    assert_type(mail(to="ann"), int)
    assert_type(mail.call(ToolCall({"to": "ann"})), ToolResult[int])

    question = close.ask(ToolCall({"account": "ann"}))
    assert_type(question, semel.Question)
    assert_type(question.job_id, str)

    assert_type(twice(refund), ToolResult[Refund])
    assert_type(apply(refund), Refund)
    assert_type(refund.contract.name, str)
    assert_type(refund.__name__, str)


async def accepted_on_a_loop() -> None:
    assert_type(await send("ann", text="hello"), list[str])
    assert_type(await notify("ann"), int)
    assert_type(await agreet("ann"), Refund)
    assert_type(await awave("ann"), int)
    assert_type(await agreet.call(ToolCall({"name": "ann"})), ToolResult[Refund])
    sending: Coroutine[Any, Any, list[str]] = send("ann", "hello")
    assert await asyncio.create_task(sending) == await send("ann", "hello")

    result = await send.call(ToolCall({"to": "ann", "text": "hello"}))
    assert_type(result, ToolResult[list[str]])
    assert_type(await asyncio.create_task(notify.call(ToolCall({"to": "ann"}))), ToolResult[int])
    assert result.value == (await awaited(send)).unwrap()
    assert result.replayed

    assert_type(await posted(to="ann"), list[str])
    assert_type(await posted.call(ToolCall({"to": "ann"})), ToolResult[list[str]])
    assert_type(await close.aask(ToolCall({"account": "ann"})), semel.Question)
    assert_type(await refund.acall(ToolCall({"payment": "p-3"})), ToolResult[Refund])
    assert_type(await send.acall(ToolCall({"to": "ann", "text": "hello"})), ToolResult[list[str]])
    assert_type(await ship.acall(ToolCall({"order": "o-1"})), ToolResult[Refund])
    assert_type(await forget.acall(ToolCall({"account": "ann"})), ToolResult[None])
    assert_type(await asyncio.create_task(notify.acall(ToolCall({"to": "ann"}))), ToolResult[int])


async def refused() -> None:
    refund()  # refused
    refund(7)  # refused
    greet()  # refused
    greet(7)  # refused
    greet("ann", 1, "a key of mine", 3)  # refused
    greet("ann").nothing  # refused
    agreet("ann").id  # refused: it is not awaited
    refund("p-1", "much")  # refused
    refund("p-1", 5, "no third one")  # refused
    refund("p-1", amount=5)  # refused
    refund("p-1").name  # refused
    say("hello")  # refused: whoever calls it fills it
    needs_its_key("p-1")  # refused: without `= semel.filled` it is an argument like any other
    send("ann", "hello").count("ann")  # refused: it is not awaited
    (await send("ann", "hello")).nothing  # refused
    refund.call({"payment": "p-1"})  # refused
    refund.call(ToolCall({"payment": "p-1"})).value.id  # refused: it may have no value
    send.call(ToolCall({})).ok  # refused: it is not awaited
    (await send.call(ToolCall({}))).nothing  # refused
    refund.acall(ToolCall({})).ok  # refused: it is not awaited
    (await refund.acall(ToolCall({}))).nothing  # refused
    await refund.acall({"payment": "p-1"})  # refused
    close.aask(ToolCall({})).status  # refused: it is not awaited
    close.ask({"account": "ann"})  # refused
    semel.contract_for("mail", "object", print)  # refused
    posted(to="ann").count("to")  # refused: it is not awaited
    refund.nothing  # refused
    twice(balance)  # refused
    apply(forget)  # refused


def refused_contracts() -> None:
    tool_contract(class_="write")  # refused
    tool_contract(value="middling")  # refused
    tool_contract(on_unknown="shrug")  # refused
    tool_contract(in_flight="queue")  # refused
    tool_contract(approval="perhaps")  # refused
    tool_contract(windows="24h")  # refused
    tool_contract("refund")  # refused
