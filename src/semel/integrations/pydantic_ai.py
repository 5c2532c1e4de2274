"""Pydantic AI: a tool's effect lands once per turn, however often the run is begun again from its history.

    agent = Agent(model, tools=[issue_refund], capabilities=[SemelCapability(ledger)])

    conversation   the `conversation_id`
    step           the `run_id` of the request that holds the user's prompt

Both are kept in the message history. Where a history may be lost in a crash, give both to `agent.run`. Under
the durability of an engine (Temporal, DBOS, Prefect) a tool is a step of that engine, which has the key: this
only tells the model what the contract answered.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, Unpack

from pydantic_ai import (
    ApprovalRequired,
    CallToolsNode,
    ModelRetry,
    RunContext,
    ToolApproved,
    ToolDefinition,
    ToolDenied,
    ToolFailed,
)
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering
from pydantic_ai.durable_exec import BaseDurabilityCapability
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_core import to_jsonable_python

from semel.agents import (
    AgentGuard,
    History,
    Kept,
    Location,
    Rules,
    Told,
    ToolUse,
    adecide,
    contract_of,
    told_by_engine,
    unless_decided,
)
from semel.contract.result import ToolCall
from semel.ledger.ledger import Ledger


class SemelCapability(AbstractCapability[Any]):
    """Tools with a contract run in the turn that calls them; what the contract says is a failed tool result.

    A contract with `approval` defers the call with its question as metadata. The approval or denial in
    `DeferredToolResults` is the verdict, `by` and `reason` in the call's metadata there say who and why; else
    `approver` has decided.
    """

    def __init__(self, ledger: Ledger, **rules: Unpack[Rules]) -> None:
        self._guard = AgentGuard(ledger, **rules)

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: dict[str, Any],
        handler: Callable[[dict[str, Any]], Awaitable[Any]],
    ) -> Any:
        if _is_durable(ctx):
            return await _by_engine(handler, args)
        tools = (ctx.tool_manager and ctx.tool_manager.tools) or {}
        use = _use(ctx, call, _function(tools, call), tool_def)
        outcome = await self._guard.arun(use, partial(handler, args), partial(_ask, ctx), to_jsonable_python)
        if isinstance(outcome, Told):
            raise ToolFailed(outcome.text)
        return outcome.data if isinstance(outcome, Kept) else outcome

    async def before_node_run(self, ctx: RunContext[Any], *, node: Any) -> Any:
        """A denial never reaches the tool: it is decided here, before the model hears of it."""
        results = (isinstance(node, CallToolsNode) and node.tool_call_results) or {}
        denied = {id_: each for id_, each in results.items() if isinstance(each, ToolDenied)}
        if not denied or ctx.tool_manager is None or _is_durable(ctx):
            return node
        tools = await ctx.tool_manager.toolset.get_tools(ctx)
        for call in node.model_response.tool_calls:
            tool = _function(tools, call)
            contract = contract_of(tool)
            if call.tool_call_id in denied and contract is not None and contract.approval is not None:
                metadata = (node.tool_call_metadata or {}).get(call.tool_call_id) or {}
                verdict = {"reason": denied[call.tool_call_id].message, **metadata, "approved": False}
                if not await self._deny(ctx, call, tool, verdict):
                    results[call.tool_call_id] = ToolApproved()
        return node

    async def _deny(
        self, ctx: RunContext[Any], call: ToolCallPart, tool: Any, verdict: dict[str, Any]
    ) -> bool:
        """Whether it is denied; False if it was approved before, which stands."""
        tool_call = ToolCall(call.args_as_dict())
        async with self._guard.at(tool, partial(_location, ctx, call, tool)) or nullcontext():
            question = await tool.aask(tool_call)
            if question.status == "approved":
                return False
            with unless_decided():  # by somebody else at the same moment
                await adecide(self._guard.ledger, question, verdict, self._guard.approver)
            return bool((await tool.aask(tool_call)).status != "approved")


def _use(ctx: RunContext[Any], call: ToolCallPart, tool: Any, definition: ToolDefinition) -> ToolUse:
    arguments, locate = call.args_as_dict(), partial(_location, ctx, call, tool)
    schema = definition.parameters_json_schema
    return ToolUse(tool, call.tool_name, arguments, locate, lambda: schema, definition.metadata)


def _location(ctx: RunContext[Any], call: ToolCallPart, tool: Any) -> Location:
    calls = _history(ctx.messages, _failures(tool)).until(
        call.tool_call_id, call.tool_name, call.args_as_dict()
    )
    return ctx.conversation_id or "", (), calls


def _ask(ctx: RunContext[Any], question: dict[str, Any], new: bool) -> Any:
    if not ctx.tool_call_approved or new:
        raise ApprovalRequired(metadata=question)
    return {**(ctx.tool_call_metadata or {}), "approved": True}


def _is_durable(ctx: RunContext[Any]) -> bool:
    """Whether an engine runs the tools: this code is then part of its workflow, which asks no store."""
    return any(isinstance(each, BaseDurabilityCapability) for each in ctx.capabilities.values())


async def _by_engine(handler: Callable[[dict[str, Any]], Awaitable[Any]], args: dict[str, Any]) -> Any:
    """What the engine's step gives; what the contract answered in it is told to the model here too."""
    try:
        return await handler(args)
    except Exception as error:
        message = told_by_engine(error)
        if message is None:
            raise
        raise ToolFailed(message) from error


def _function(tools: Mapping[str, Any], call: ToolCallPart) -> Any:
    """What the agent was given as the tool, under what Pydantic AI made of it."""
    tool = tools.get(call.tool_name)
    while inner := getattr(tool, "source_tool", None):
        tool = inner  # it was combined with others
    schema = getattr(getattr(tool, "call_func", None), "__self__", None)
    return getattr(schema, "function", None)


def _failures(tool: Any) -> tuple[str, ...]:
    """The outcomes that may hide doubt: a `ModelRetry` unless the tool's contract knows what it means."""
    contract = contract_of(tool)
    is_answer = contract is None or issubclass(ModelRetry, (*contract.raises, *contract.refused))
    return ("failed",) if is_answer else ("failed", "retried")


def _history(messages: Iterable[ModelMessage], failures: tuple[str, ...]) -> History:
    history = History()
    for message in messages:
        if isinstance(message, ModelResponse):
            history.model(
                (call.tool_call_id, call.tool_name, call.args_as_dict()) for call in message.tool_calls
            )
            continue
        if _is_users(message):
            history.user(message.run_id)
        for part in _returns(message):
            history.answer(part.tool_call_id, str(part.content) if part.outcome in failures else "")
    return history


def _is_users(message: ModelRequest) -> bool:
    """What a tool returns beside its value also stands in a user's part, but next to the tool's return."""
    prompted = any(isinstance(part, UserPromptPart) for part in message.parts)
    return prompted and not any(_returns(message))


def _returns(message: ModelRequest) -> Iterator[ToolReturnPart[Any]]:
    return (part for part in message.parts if isinstance(part, ToolReturnPart))
