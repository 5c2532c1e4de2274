"""Tools that an integration calls itself, by their arguments, because its framework would not do it well.

What such a tool raises is told like the rest: nobody above it would try again.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, Literal

from semel.agents.asking import UNNAMED
from semel.agents.guarding import Ask, Told, aguard, guard
from semel.agents.history import contract_of
from semel.call.declare import tool_contract
from semel.call.step import Step
from semel.contract.result import ToolCall
from semel.errors import ContractError, StepError

Undecorated = Literal["pass", "guard"]


def with_contract(given: Any, undecorated: Undecorated = "pass") -> Any:
    """The tool with its contract, which plain functions get by `undecorated="guard"`; None without one.

    ContractError for a function that can have none.
    """
    if undecorated not in ("pass", "guard"):
        raise StepError(f"undecorated= is pass or guard, not {undecorated!r}.")
    if contract_of(given) is not None:
        return given
    return tool_contract()(given) if undecorated == "guard" and inspect.isroutine(given) else None


def refuse_shown(tool: Any, shown: Iterable[str]) -> None:
    """ContractError if a parameter that is injected is among those that the framework shows to the model.

    It fills those whose type it knows; of any other it would ask the model, who is nobody to fill it.
    """
    names = set(tool.contract.injected_parameters).intersection(shown)
    if names:
        raise ContractError(
            f"The tool {tool.contract.name!r} has the injected parameter {min(names)!r}, which this "
            "framework does not know: it would ask the model for it. Give it the type of the framework's own "
            "context, or leave it out and let the tool look it up."
        )


def perform(
    tool: Any,
    arguments: Mapping[str, Any],
    at: Step | None = None,
    ask: Ask | None = None,
    approver: str = UNNAMED,
) -> Any | Told:
    """`guard` for a tool with a contract, by its arguments."""
    return guard(partial(_called, tool, ToolCall(arguments)), at, ask, approver)


async def aperform(
    tool: Any,
    arguments: Mapping[str, Any],
    at: Step | None = None,
    ask: Ask | None = None,
    approver: str = UNNAMED,
) -> Any | Told:
    """The same from an event loop, which a tool that blocks does not hold up."""
    return await aguard(partial(_acalled, tool, ToolCall(arguments)), at, ask, approver)


def _called(tool: Any, call: ToolCall) -> Any:
    if tool.contract.is_async:
        return asyncio.run(_acalled(tool, call))
    return tool.call(call).unwrap()


async def _acalled(tool: Any, call: ToolCall) -> Any:
    return (await tool.acall(call)).unwrap()


def afunction(tool: Any) -> Callable[..., Awaitable[Any]]:
    """The tool as an async function for a framework to call; what it raises is what the contract answers.

    Also for a plain function that blocks.
    """

    async def call(**arguments: Any) -> Any:
        if contract_of(tool) is None:
            return await asyncio.to_thread(tool, **arguments)
        return await _acalled(tool, ToolCall(arguments))

    call.__name__, call.__doc__, call.__annotations__ = tool.__name__, tool.__doc__, tool.__annotations__
    call.__signature__ = inspect.signature(tool)  # type: ignore[attr-defined]
    call.contract = contract_of(tool)  # type: ignore[attr-defined]
    return call
