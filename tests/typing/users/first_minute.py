"""What a user of the first minute writes beside the contract. What is refused is marked, and never run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, assert_type

import semel
from semel import ToolCall, ToolResult, errors, testing, tool_contract


class CardDeclined(Exception):
    code = "no-funds"


@tool_contract(raises=(CardDeclined,), refused=(ValueError,), scopes={"pay"})
def pay(order: str) -> str:
    if order == "o-13":
        raise CardDeclined
    return order


@tool_contract
def pack(order: str) -> ToolResult[str]:
    return ToolResult.partial(done=[order], remaining=["bow"], corrective_action="Tie it.")


@tool_contract
def book(seat: str, transaction: semel.Transaction = semel.filled) -> str:
    assert transaction
    return seat


@tool_contract
async def post(order: str) -> int:
    return len(order)


def probed(key: semel.Key, order: str) -> Any:
    return semel.Happened(order) if key else semel.CannotTell


@tool_contract(class_="irreversible", probe=probed, approval=semel.Approval(expires_in="7d"))
def wire(order: str) -> str:
    return order


def accepted() -> None:
    with semel.open("memory://") as ledger, semel.use(ledger) as used:
        assert_type(used, semel.Ledger)
        assert_type(ledger.durability, str)
        with semel.step(conversation="c", step="1", scopes={"pay"}, principal="bot") as step:
            assert_type(pay("o-1"), str)
            carried = step.carry()
            with semel.outside_step():
                error = pay.call(ToolCall({"order": "o-1"})).error
            assert error is not None
            assert_type(error.for_model, str)
            try:
                pay("o-13")
            except CardDeclined as declined:
                assert_type(declined.code, str)
        with semel.resume(carried) as resumed:
            assert_type(resumed.run(pay, order="o-1"), str)
            assert_type(resumed.run(pay.call, ToolCall({"order": "o-1"})), ToolResult[str])
        conversation = semel.conversation("c", at=3)
        with conversation.step():
            try:
                pack("o-1")
            except errors.PartialSuccess as partial:
                assert_type(partial.corrective_action, str)
        assert_type(conversation.position, int)
        assert_type(pay.call(ToolCall({"order": "o-2"}, "web-77", scopes={"pay"})), ToolResult[str])
        semel.use(ledger)

    with testing.step(scopes={"pay"}) as step:
        assert_type(step.run(pay, "o-1"), str)
    assert_type(testing.hammer(pay, {"order": "o-1"}, callers=2).effects, int)
    report = testing.check_downstream(lambda key: key[:8], key="k", after=["1ms", timedelta(milliseconds=2)])
    assert_type(report.deduplicates, bool)
    assert_type(report.remembered_for, timedelta | None)


async def accepted_on_a_loop() -> None:
    async with semel.open("memory://") as ledger, semel.use(ledger):
        async with semel.step(conversation="c", step="1"):
            assert_type(await pack.acall(ToolCall({"order": "o-1"})), ToolResult[str])
        async with semel.conversation("c").step() as step:
            assert_type(step.carry(), dict[str, Any])
            assert_type(await step.run(post, "o-1"), int)


def refused() -> None:
    semel.step("c", "1")  # refused
    semel.step(conversation="c")  # refused
    semel.use("sqlite:///semel.db")  # refused
    semel.conversation("c", 3)  # refused
    semel.resume("carried")  # refused
    tool_contract(raises=("CardDeclined",))  # refused
    tool_contract(raises=(KeyboardInterrupt,))  # refused
    testing.check_downstream("k")  # refused
    testing.hammer(pay)  # refused
    with testing.step() as step:
        step.run(pay)  # refused
        step.run(pay, 7)  # refused
        step.run(pay, "o-1").nothing  # refused
    pay.call(ToolCall({"order": "o-1"})).error.for_model  # refused: there may be none
    semel.ToolCall()  # refused
    semel.Approval(expires_in=7)  # refused
    ToolResult[str].partial(done=[])  # refused
