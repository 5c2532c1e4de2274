"""Runs of an agent framework with one call of a tool that does nothing: a process that is asked by lines.

    .venv-agents/bin/python -m bench.agent_calls FRAMEWORK guarded|alone

`calls 50` runs the agent so often, each time for a new message in a new conversation; the answer is the
seconds that one run took. `effects` is answered with how often the tool ran. It ends when its input does.

The models are those of tests/agents: they say what a script says, without a network. The ledger is in memory,
so that what is seen is the integration and the contract, not a disk.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import warnings
from collections.abc import Awaitable, Callable
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import semel
from tests.agents.script import Job, refund

effects = 0

# Answers one message, of this number. Without a ledger: as the program would be without Semel.
Run = Callable[[int], Awaitable[Any]]


def issue_refund(payment_id: str, amount_minor: int, reason: str) -> str:  # noqa: ARG001
    """Pay money back."""
    global effects
    effects += 1
    return "refunded"


guarded_refund = semel.tool_contract(ignore=("reason",))(issue_refund)


def langgraph(model: Any, ledger: semel.Ledger | None) -> Run:
    from langchain.agents import create_agent
    from langchain_core.messages import HumanMessage
    from langgraph.checkpoint.memory import InMemorySaver

    from semel.integrations.langgraph import SemelMiddleware

    middleware = [SemelMiddleware(ledger)] if ledger else []
    tool = guarded_refund if ledger else issue_refund
    agent = create_agent(model, [tool], middleware=middleware, checkpointer=InMemorySaver())

    async def run(number: int) -> None:
        message = HumanMessage("refund p-1", id=f"m-{number}")
        thread: Any = {"configurable": {"thread_id": f"c-{number}"}}
        await agent.ainvoke({"messages": [message]}, thread)

    return run


def pydantic_ai(model: Any, ledger: semel.Ledger | None) -> Run:
    from pydantic_ai import Agent

    from semel.integrations.pydantic_ai import SemelCapability

    ours = [SemelCapability(ledger)] if ledger else []
    agent = Agent(model, tools=[guarded_refund if ledger else issue_refund], capabilities=ours)
    return lambda number: agent.run("refund p-1", conversation_id=f"c-{number}", run_id=f"m-{number}")


def openai_agents(_: Any, ledger: semel.Ledger | None) -> Run:
    from agents import Agent, Runner, function_tool

    from semel.integrations import openai_agents as integration

    tools = integration.tools(guarded_refund) if ledger else [function_tool(issue_refund)]

    async def run(number: int) -> None:
        # Its scripted model has so many answers and no more.
        agent = Agent("support", model=_model("openai_agents"), tools=tools)
        if ledger is None:
            await Runner.run(agent, "refund p-1")
            return
        async with integration.turn(ledger, f"c-{number}", f"m-{number}"):
            await Runner.run(agent, "refund p-1")

    return run


def google_adk(model: Any, ledger: semel.Ledger | None) -> Run:
    from google.adk.agents import LlmAgent
    from google.adk.apps import App, ResumabilityConfig
    from google.adk.runners import Runner
    from google.adk.sessions.in_memory_session_service import InMemorySessionService
    from google.genai import types

    from semel.integrations.google_adk import tools

    agent = LlmAgent(
        name="support", model=model, tools=tools(ledger, guarded_refund) if ledger else [issue_refund]
    )
    app = App(name="shop", root_agent=agent, resumability_config=ResumabilityConfig(is_resumable=True))
    sessions = InMemorySessionService()
    runner = Runner(app=app, session_service=sessions)
    message = types.Content(role="user", parts=[types.Part(text="refund p-1")])

    async def run(number: int) -> None:
        at = {"user_id": "ada", "session_id": f"c-{number}"}
        await sessions.create_session(app_name="shop", **at)
        async for _ in runner.run_async(**at, new_message=message):
            pass

    return run


def agent_framework(model: Any, ledger: semel.Ledger | None) -> Run:
    from agent_framework import Agent, AgentSession
    from agent_framework import tool as function_tool

    from semel.integrations import agent_framework as integration

    if ledger is None:
        alone = Agent(model, tools=[function_tool(issue_refund)])
        return lambda number: alone.run("refund p-1", session=AgentSession(session_id=f"c-{number}"))
    middleware = [integration.SemelMiddleware(ledger)]
    agent = Agent(model, tools=integration.tools(guarded_refund), middleware=middleware)

    async def run(number: int) -> None:
        session = AgentSession(session_id=f"c-{number}")
        async with integration.turn(ledger, session, f"m-{number}"):
            await agent.run("refund p-1", session=session)

    return run


def anthropic(model: Any, ledger: semel.Ledger | None) -> Run:
    from anthropic import beta_tool

    from semel.integrations import anthropic as integration

    tools = integration.tools(guarded_refund) if ledger else [beta_tool(issue_refund)]

    def answer() -> None:
        messages = [{"role": "user", "content": "refund p-1"}]
        model.beta.messages.tool_runner(
            model="scripted", max_tokens=100, tools=tools, messages=messages
        ).until_done()

    async def run(number: int) -> None:
        if ledger is None:
            answer()
            return
        with integration.turn(ledger, f"c-{number}", f"m-{number}"):
            answer()

    return run


def crewai(model: Any, ledger: semel.Ledger | None) -> Run:
    from crewai import Agent, Crew, Task
    from crewai.tools import tool as crewai_tool

    from semel.integrations import crewai as integration

    tools = integration.tools(guarded_refund) if ledger else [crewai_tool(issue_refund)]

    async def run(number: int) -> None:
        agent = Agent(role="support", goal="help", backstory="kind", llm=model, tools=tools)
        task = Task(description="refund p-1", expected_output="an answer", agent=agent)
        crew = Crew(agents=[agent], tasks=[task])
        if ledger is None:
            await crew.akickoff()
            return
        async with integration.turn(ledger, f"c-{number}", f"m-{number}"):
            await crew.akickoff()

    return run


FRAMEWORKS: dict[str, Callable[[Any, semel.Ledger | None], Run]] = {
    each.__name__: each
    for each in (langgraph, pydantic_ai, openai_agents, google_adk, agent_framework, anthropic, crewai)
}


def _model(framework: str) -> Any:
    """It calls the tool, and then says that it is done; by the history that it is shown."""
    return import_module(f"tests.agents.{framework}_agent").model(Job(Path(), [[[refund()], "done"]]))


async def _timed(run: Run, numbers: range) -> float:
    began = perf_counter()
    for number in numbers:
        await run(number)
    return (perf_counter() - began) / len(numbers)


def main(framework: str, side: str) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    run = FRAMEWORKS[framework](_model(framework), semel.open("memory://") if side == "guarded" else None)
    print("ready", flush=True)
    done = 0
    with asyncio.Runner() as runner:
        for line in sys.stdin:
            work, *count = line.split()
            if work == "effects":
                print(effects, flush=True)
                continue
            numbers = range(done, done := done + int(count[0]))
            print(runner.run(_timed(run, numbers)), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
