"""FastMCP: a client's step travels with its call, and the server's tools meet its keys.

    server = FastMCP("pay", middleware=[SemelMiddleware(ledger)])

    async with Client(…) as client:
        with ledger.step(conversation="conv-42", step="refund-1"):
            await client.call_tool("issue_refund", arguments, meta=meta())

What travels, who is trusted with it and how people are asked is written in `semel.integrations.mcp`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

from fastmcp.server.dependencies import get_access_token
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from fastmcp.tools import InputRequiredToolResult, ToolResult
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from semel.agents import Kept, Told, ToolUse
from semel.integrations.mcp import meta
from semel.integrations.mcp_guard import McpGuard, McpRules, Received, result_of
from semel.ledger.ledger import Ledger

__all__ = ["SemelMiddleware", "meta"]


class SemelMiddleware(Middleware):
    """Tools with a contract run in the step that the client sent; what the contract says is an error result.

    Last in the list, so that it is next to the tool: what retries or limits calls stands outside of it.
    `scopes` are granted to every call, beside those of an authenticated caller's token. `approver` decides
    where nobody else is known to.
    """

    def __init__(self, ledger: Ledger, **rules: Unpack[McpRules]) -> None:
        self._guard = McpGuard(ledger, **rules)

    async def on_call_tool(
        self,
        context: MiddlewareContext[CallToolRequestParams],
        call_next: CallNext[CallToolRequestParams, ToolResult],
    ) -> ToolResult:
        message, tool = context.message, await _tool(context)

        def use(locate: Callable[[], Any]) -> ToolUse:
            annotations = getattr(tool, "annotations", None)
            hints = None if annotations is None else annotations.model_dump(by_alias=True)
            schema = getattr(tool, "parameters", {})
            return ToolUse(
                getattr(tool, "fn", None),
                message.name,
                message.arguments or {},
                locate,
                lambda: schema,
                hints,
            )

        async def do() -> ToolResult:
            return await call_next(context)

        return _answer(await self._guard.call(_received(context), use, do, _data_of))


async def _tool(context: MiddlewareContext[Any]) -> Any:
    here = context.fastmcp_context
    return None if here is None else await here.fastmcp.get_tool(context.message.name)


def _received(context: MiddlewareContext[Any]) -> Received | None:
    here = context.fastmcp_context
    request = None if here is None else here.request_context
    if here is None or request is None:  # called by the server's own program
        return None
    return Received(
        session=request.session,
        request_id=request.request_id,
        meta=request.meta or {},
        answers=here.input_responses or {},
        state=here.request_state,
        token=get_access_token(),
    )


def _data_of(result: ToolResult) -> Any:
    kept = CallToolResult(content=result.content, structured_content=result.structured_content)
    return kept.model_dump(mode="json", by_alias=True)


def _answer(outcome: Any) -> ToolResult:
    if isinstance(outcome, InputRequiredResult):
        return InputRequiredToolResult(outcome)
    if isinstance(outcome, Told):
        return ToolResult.from_mcp_result(result_of(outcome))
    if isinstance(outcome, Kept):
        return ToolResult.from_mcp_result(CallToolResult.model_validate(outcome.data))
    return outcome
