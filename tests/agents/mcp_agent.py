"""An agent whose tools are on an MCP server: a loop over a scripted model, the conversation in a file.

Of the job's options: `server` ("fastmcp", "official" or "low-level") and `era` ("auto" is the present
protocol, "legacy" the one with a handshake).
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable
from dataclasses import asdict
from typing import Any

import mcp_types
from fastmcp import Client as FastClient
from fastmcp import FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.server.auth.providers.jwt import StaticTokenVerifier
from fastmcp.server.middleware.error_handling import RetryMiddleware
from mcp.client.client import Client
from mcp.server.lowlevel import Server
from mcp.server.mcpserver import MCPServer
from mcp.shared.exceptions import MCPError

import semel
from semel import agents
from semel.integrations.fastmcp import SemelMiddleware
from semel.integrations.mcp import guard_server, meta
from semel.questions.approvals import Question
from tests.agents import shop
from tests.agents.script import Job, Seen

# What the options say to the stage, and not to the integration.
_OURS = ("server", "era", "retry", "reads")


def say(job: Job) -> Seen:
    return asyncio.run(_say(job))


# The conversation is what the program keeps of it: after a crash it says the same again.
resume = say


def shown(job: Job) -> dict[str, Any]:
    async def listed() -> dict[str, Any]:
        with semel.open(job.ledger_url) as ledger:
            async with _client(job, ledger, []) as client:
                listed = await client.list_tools()
                tools = listed if isinstance(listed, list) else listed.tools
                return {each.name: each.input_schema for each in tools}

    return asyncio.run(listed())


async def _say(job: Job) -> Seen:
    kept = job.folder / f"turns of {job.conversation}"
    turns = json.loads(kept.read_text()) if kept.exists() else []
    asked: list[str] = []
    with semel.open(job.ledger_url) as ledger, agents.turn(ledger, job.conversation, job.message_id):
        async with _client(job, ledger, asked) as client:
            answers, text = await _rounds(job, len(turns) + 1, client)
        questions = [asdict(Question.of(each)) for each in ledger.approvals.list("waiting")] if asked else []
    kept.write_text(json.dumps([*turns, job.message_id]))
    return Seen(answers=answers, questions=questions, text=text)


def _client(job: Job, ledger: semel.Ledger, asked: list[str]) -> Any:
    """FastMCP's own for its servers, the official one for the others."""
    server, era = _server(job, ledger), job.options.get("era", "auto")

    async def fastmcps_person(message: str, *_: Any) -> Any:
        asked.append(message)
        return _answer(job.verdict) or ElicitResult(action="cancel")

    async def person(_: Any, params: Any) -> Any:
        asked.append(params.message)
        said = _answer(job.verdict)
        return mcp_types.ElicitResult(action="accept" if said else "cancel", content=said)

    if isinstance(server, FastMCP):
        return FastClient(server, elicitation_handler=fastmcps_person, mode=era)
    return Client(server, elicitation_callback=person, mode=era)


async def _rounds(job: Job, turn: int, client: Any) -> tuple[list[str], str]:
    answers: list[str] = []
    for number in range(20):
        failed = number == 1 and not answers[-1].startswith("refund of")
        again = failed and bool(job.options.get("retry")) and job.options.get("server") != "fastmcp"
        said = job.says(turn, 0 if again else number)
        if isinstance(said, str):
            return answers, said
        plain = {"raise_on_error": False} if isinstance(client, FastClient) else {}
        calls = [_text(client.call_tool(call.tool, call.arguments, meta=meta(), **plain)) for call in said]
        answers += await asyncio.gather(*calls)
    raise AssertionError("the model does not end")


async def _text(call: Awaitable[Any]) -> str:
    try:
        return str((await call).content[0].text)
    except MCPError as error:  # what the handler of a low-level server raised
        return str(error)


def _answer(verdict: Any) -> dict[str, Any] | None:
    if verdict is None:
        return None
    approved = verdict.get("approved") if isinstance(verdict, dict) else verdict in (True, "approve")
    reason = verdict.get("reason", "") if isinstance(verdict, dict) else ""
    return {"decision": "approve" if approved else "reject", "reason": reason}


# --- the servers ------------------------------------------------------------------------------------


def _server(job: Job, ledger: semel.Ledger) -> Any:
    rules = {name: value for name, value in job.options.items() if name not in _OURS}
    if isinstance(job.verdict, dict):
        rules["approver"] = job.verdict["by"]
    tools = shop.tools(job.tools, job.guarded)
    match job.options.get("server", "fastmcp"):
        case "fastmcp":
            return _fastmcp(job, ledger, tools, rules)
        case "official":
            server = MCPServer("pay")
            for tool in tools:
                server.add_tool(tool, annotations=_annotations(job))
        case _:
            server = _low_level(tools)
    if job.guarded:
        guard_server(server, ledger, **rules)
    return server


def _fastmcp(job: Job, ledger: semel.Ledger, tools: list[Any], rules: dict[str, Any]) -> FastMCP:
    retrying = [RetryMiddleware(max_retries=2, base_delay=0)] if job.options.get("retry") else []
    guarding = [SemelMiddleware(ledger, **rules)] if job.guarded else []
    server = FastMCP("pay", middleware=[*retrying, *guarding])
    for tool in tools:
        server.tool(tool, annotations=_annotations(job))
    return server


def _annotations(job: Job) -> mcp_types.ToolAnnotations | None:
    return mcp_types.ToolAnnotations(read_only_hint=True) if job.options.get("reads") else None


def _low_level(tools: list[Any]) -> Server[Any]:
    """As an author writes it without decorators: what a tool raises leaves the handler."""
    by_name = {tool.__name__: tool for tool in tools}

    async def list_tools(ctx: Any, params: Any) -> mcp_types.ListToolsResult:
        listed = [mcp_types.Tool(name=name, input_schema=_schema(tool)) for name, tool in by_name.items()]
        return mcp_types.ListToolsResult(tools=listed)

    async def call_tool(ctx: Any, params: Any) -> mcp_types.CallToolResult:
        tool, arguments = by_name[params.name], params.arguments or {}
        if inspect.iscoroutinefunction(tool):
            text = await tool(**arguments)
        else:
            text = await asyncio.to_thread(tool, **arguments)
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(type="text", text=text)])

    return Server("pay", on_list_tools=list_tools, on_call_tool=call_tool)


def _schema(tool: Any) -> dict[str, Any]:
    contract = getattr(tool, "contract", None)
    return {"type": "object"} if contract is None else dict(contract.schema)


# --- a server of its own process ----------------------------------------------------------------------


TOKENS = {
    name: {"client_id": "agent", "sub": name, "scopes": ["payments"] if name == "ann" else []}
    for name in ("ann", "bob")
}


def serve(job: Job) -> Seen:
    """FastMCP over HTTP, until it is killed; callers are known by their tokens, if the job says so."""
    shop.provider = job.provider
    ledger = semel.open(job.ledger_url)
    server = FastMCP("pay", middleware=[SemelMiddleware(ledger)] if job.guarded else [])
    if job.options.get("tokens"):
        server.auth = StaticTokenVerifier(TOKENS)
    for tool in shop.tools(job.tools, job.guarded):
        server.tool(tool)
    server.run("http", host="127.0.0.1", port=job.options["port"], show_banner=False, log_level="ERROR")
    return Seen()
