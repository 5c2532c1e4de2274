"""`@tool_contract`: from a function to the guarded one that callers and frameworks see."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

from semel.call.tool import Tool
from semel.contract import shapes
from semel.contract.contract import Contract, Declaration
from semel.contract.result import Approval, ToolCall
from semel.kernel.durations import Duration
from semel.ledger.ledger import Ledger

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class GuardedTool(Protocol[R_co]):
    """The function as its callers see it: without its Key parameters, which no type can express."""

    contract: Contract

    def __call__(self, *args: Any, **kwargs: Any) -> R_co: ...

    def call(self, request: ToolCall, ledger: Ledger | None = None, *, instance: Any = None) -> Any:
        """How the call ended, as a ToolResult; awaitable for an async tool."""


def tool_contract(
    *,
    class_: str,
    name: str | None = None,
    version: str = "1.0.0",
    owner: str = "",
    purpose: str | None = None,
    value: str | None = None,
    window: Duration | None = None,
    lease: Duration | None = None,
    run_limit: Duration | None = None,
    ignore: Iterable[str] = (),
    resource: str | None = None,
    scopes: Iterable[str] = (),
    downstream_window: Duration | None = None,
    transient: Iterable[type[BaseException]] = (),
    attempts: int = 1,
    backoff: str | Duration | Callable[[int], float] = "exponential",
    refused: Iterable[type[BaseException]] = (),
    in_flight: str | None = None,
    wait: Duration | None = None,
    on_unknown: str | None = None,
    probe: Callable[..., Any] | None = None,
    approval: str | Approval | None = None,
    key_of: Callable[[Any], Any] | None = None,
    secret: Iterable[str] = (),
) -> Callable[[Callable[..., R]], GuardedTool[R]]:
    """Declare what a tool promises. ContractError, naming the fix, if it cannot be kept."""
    declared = Declaration(**locals())
    # The names around the definition, for annotations that are written as text.
    local_names = sys._getframe(1).f_locals

    def declare(function: Callable[..., R]) -> GuardedTool[R]:
        guarded: GuardedTool[R] = _guarded(Tool(Contract(function, declared, local_names)), local_names)
        return guarded

    return declare


def _guarded(tool: Tool, local_names: Mapping[str, Any]) -> Any:
    """A real function, so that frameworks treat it like the one it stands for."""
    function = tool.contract.function
    if tool.is_async:

        @functools.wraps(function)
        async def wrapper(*args: Any, **kwargs: Any) -> Any:
            return await tool.arun(args, kwargs)

    else:

        @functools.wraps(function)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            return tool.run(args, kwargs)

    _hide_keys(wrapper, tool.contract, local_names)
    wrapper.contract = tool.contract  # type: ignore[attr-defined]
    wrapper.call = tool.call  # type: ignore[attr-defined]
    return wrapper


def _hide_keys(wrapper: Any, contract: Contract, local_names: Mapping[str, Any]) -> None:
    """Nobody passes a key, so nobody should see the parameter: not a model, not a framework."""
    hidden = (*contract.key_parameters, *contract.transaction_parameters)
    signature = inspect.signature(contract.function)

    def meant(written: Any) -> Any:
        return _meant(written, contract, local_names)

    shown = [
        parameter.replace(annotation=meant(parameter.annotation))
        for name, parameter in signature.parameters.items()
        if name not in hidden
    ]
    wrapper.__signature__ = signature.replace(
        parameters=shown, return_annotation=meant(signature.return_annotation)
    )
    wrapper.__annotations__ = {
        name: meant(annotation) for name, annotation in wrapper.__annotations__.items() if name not in hidden
    }
    del wrapper.__wrapped__


def _meant(written: Any, contract: Contract, local_names: Mapping[str, Any]) -> Any:
    """The type behind a text: whoever asks the wrapper would look its names up in this module."""
    if not isinstance(written, str):
        return written
    try:
        kind = shapes.annotation(written, contract.function, local_names)
    except shapes.NotYet:
        return written
    return None if kind is type(None) else kind
