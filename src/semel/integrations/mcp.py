"""MCP, the official package: a client's step travels with its call, and the server's tools meet its keys.

Client, inside a step of its own (any client whose `call_tool` takes `meta=`):

    await client.call_tool("issue_refund", arguments, meta=meta())

Server, `MCPServer` or the low-level `Server`:

    guard_server(server, ledger)

    conversation   that of the client's step
    step           the client's, and who calls: one caller's step is nothing to another

What travels is `_meta["dev.semel/step"]`, signed with the key of the client's store, and never scopes: those
are the server's to grant. A step that claims to be of the server's own store has to have its signature. One
of another store, which nobody here can check, is kept apart with the caller who sent it. Ordinary clients
send none: then tools with a contract refuse (`missing="refuse"`), or each call is an action of its own
(`"each"`).

What the contract answers is an error result for the model. A contract with `approval` asks by elicitation,
where the client has that: a form with the field `decision`. "Decline" rejects; who cancels has not decided.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import Context, MCPServer
from mcp_types import CallToolRequestParams, CallToolResult, InputRequiredResult

from semel.agents import Kept, Told, ToolUse
from semel.call.step import current_step
from semel.errors import ContractError, NoStep
from semel.integrations.mcp_guard import STEP, McpGuard, McpRules, Received, result_of, sendable
from semel.ledger.ledger import Ledger


def meta() -> dict[str, Any]:
    """The present step, for the `meta=` of a client's `call_tool`. NoStep outside of one."""
    step = current_step()
    if step is None:
        raise NoStep("There is no step here that could travel with the call; nothing was sent.")
    return {STEP: sendable(step)}


def guard_server(server: MCPServer[Any] | Server[Any], ledger: Ledger, **rules: Unpack[McpRules]) -> None:
    """From here on the tools of this server that have a contract run in the step that the client sent.

    `scopes` are granted to every call, beside those of an authenticated caller's token. `approver` decides
    where nobody else is known to. A low-level server does not say which functions are its tools, so there
    `undecorated="guard"` is a ContractError.
    """
    guard = McpGuard(ledger, **rules)
    if isinstance(server, MCPServer):
        server.call_tool = partial(_call_tool, server, guard, server.call_tool)  # type: ignore[method-assign]
    elif rules.get("undecorated") == "guard":
        raise ContractError(
            "A low-level server does not say which functions are its tools; it was left as it was.",
            corrective_action="Give its tools contracts, or use MCPServer.",
        )
    else:
        server.middleware.append(partial(_call_method, guard))


async def _call_tool(
    server: MCPServer[Any],
    guard: McpGuard,
    plain: Callable[..., Any],
    name: str,
    arguments: dict[str, Any],
    context: Context[Any, Any] | None = None,
) -> CallToolResult | InputRequiredResult:
    received = None if context is None else _received(context.request_context)
    tool = server._tool_manager.get_tool(name)

    def use(locate: Callable[[], Any]) -> ToolUse:
        hints = (
            None if tool is None or tool.annotations is None else tool.annotations.model_dump(by_alias=True)
        )
        schema = {} if tool is None else tool.parameters
        return ToolUse(getattr(tool, "fn", None), name, arguments, locate, lambda: schema, hints)

    async def do() -> Any:
        return await plain(name, arguments, context)

    return _answer(await guard.call(received, use, do, _data_of))


async def _call_method(guard: McpGuard, ctx: ServerRequestContext[Any, Any], call_next: Any) -> Any:
    if ctx.method != "tools/call":
        return await call_next(ctx)

    def use(locate: Callable[[], Any]) -> ToolUse:
        return ToolUse(None, "", {}, locate, dict)

    async def do() -> Any:
        return await call_next(ctx)

    return _answer(await guard.call(_received(ctx), use, do, _data_of))


def _received(ctx: ServerRequestContext[Any, Any]) -> Received:
    params = CallToolRequestParams.model_validate({**(ctx.params or {})})
    sent = (ctx.params or {}).get("_meta")
    return Received(
        session=ctx.session,
        request_id=ctx.request_id,
        meta=sent if isinstance(sent, Mapping) else {},
        answers=params.input_responses or {},
        state=params.request_state,
        token=get_access_token(),
    )


def _data_of(result: CallToolResult) -> Any:
    return result.model_dump(mode="json", by_alias=True)


def _answer(outcome: Any) -> Any:
    if isinstance(outcome, Told):
        return result_of(outcome)
    return CallToolResult.model_validate(outcome.data) if isinstance(outcome, Kept) else outcome
