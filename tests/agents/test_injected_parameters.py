"""What `semel.Injected` marks is somebody else's to fill: no framework may ask the model for it."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Annotated, Any

import pytest

import semel
from semel.errors import ContractError
from tests.agents.script import Call, Job

FRAMEWORKS = ("agent_framework", "anthropic", "google_adk", "openai_agents")


said: list[str] = []


@semel.tool_contract
def say(text: str, user: Annotated[str, semel.Injected] = "nobody") -> str:
    """Say something as this user."""
    said.append(user)
    return f"{user}: {text}"


def tools_of(framework: str, tool: Any) -> Any:
    module = importlib.import_module(f"semel.integrations.{framework}")
    given = (semel.open("memory://"),) if framework == "google_adk" else ()
    return module.tools(*given, tool)


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_one_that_the_framework_would_show_to_the_model_is_refused(framework: str) -> None:
    with pytest.raises(ContractError, match=r"'say'.*'user'.*the model"):
        tools_of(framework, say)


def langgraph(ledger: semel.Ledger, folder: Path) -> Any:
    from langchain.agents import create_agent

    from semel.integrations.langgraph import SemelMiddleware
    from tests.agents.langgraph_agent import model

    agent = create_agent(model(Job(folder, TURNS)), [say], middleware=[SemelMiddleware(ledger)])
    thread: Any = {"configurable": {"thread_id": "thread-1"}}
    return agent.invoke({"messages": [{"role": "user", "content": "say it"}]}, thread)


def pydantic_ai(ledger: semel.Ledger, folder: Path) -> Any:
    from pydantic_ai import Agent

    from semel.integrations.pydantic_ai import SemelCapability
    from tests.agents.pydantic_ai_agent import model

    agent = Agent(model(Job(folder, TURNS)), tools=[say], capabilities=[SemelCapability(ledger)])
    return asyncio.run(agent.run("say it"))


def fastmcp(ledger: semel.Ledger, _: Path) -> Any:
    from fastmcp import FastMCP

    from semel.integrations.fastmcp import SemelMiddleware

    server = FastMCP("say", middleware=[SemelMiddleware(ledger, missing="each")])
    server.tool(say)
    return asyncio.run(_asked_by_a_client(server))


def mcp(ledger: semel.Ledger, _: Path) -> Any:
    from mcp.server.mcpserver import MCPServer

    from semel.integrations.mcp import guard_server

    server = MCPServer("say")
    server.add_tool(say)
    guard_server(server, ledger, missing="each")
    return asyncio.run(_asked_by_a_client(server))


async def _asked_by_a_client(server: Any) -> Any:
    from fastmcp import Client

    async with Client(server) as client:
        return await client.call_tool("say", FORGED)


FORGED = {"text": "hello", "user": "the owner"}
TURNS: Any = [[[Call("say", FORGED)], "done"]]


@pytest.mark.parametrize("asked", [langgraph, pydantic_ai, fastmcp, mcp])
def test_where_the_framework_makes_the_tool_the_call_is_refused(asked: Any, tmp_path: Path) -> None:
    said.clear()
    refusal = "the injected parameter|Internal server error"  # as FastMCP says it to a client
    with semel.open("memory://") as ledger, pytest.raises(Exception, match=refusal):
        asked(ledger, tmp_path)
    assert said == []
